"""A model on its devices: what its engines share there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backend.device.profile import TunedSettings
from backend.device.records import MachineFacts
from backend.models.selection import Choice, Selector, Wish
from backend.services import loading
from backend.services.catalog import LoadedModel
from backend.services.loading import Ground, ModelWish, load_model
from backend.telemetry import Telemetry
from tests.tiny_models import encoder_of, placement


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled model as if it were served in bf16."""
    choice = Choice("onnx", "bf16", 512, 1000.0, ("told by the test",))
    monkeypatch.setattr(Selector, "select", lambda *_: (encoder_of("bundled", "onnx", "fp32"), choice))


def load(folder: Path) -> LoadedModel:
    facts = MachineFacts(cores=1, cpu_name="", cpu_flags=(), memory_bytes=2**33)
    ground = Ground(facts, [placement()], TunedSettings(folder / "tuning.json"), Telemetry())
    return load_model(ground, ModelWish("bundled", Wish()))


@pytest.mark.usefixtures("chosen")
def test_what_one_engine_learns_of_the_memory_the_other_knows(tmp_path):
    """They run on the same encoder and card."""
    model = load(tmp_path)

    assert model.engine.room is model.token_engine.room


@pytest.mark.usefixtures("chosen")
def test_float32_is_loaded_once_for_all_engines(tmp_path, monkeypatch):
    """Two copies beside the model could be more than the device holds."""
    loaded: list[str] = []

    def load_encoder(_spec, candidate, _placement):
        loaded.append(candidate.dtype)
        return encoder_of("bundled", "onnx", "fp32")

    monkeypatch.setattr(loading, "load_encoder", load_encoder)
    model = load(tmp_path)

    for engine in (model.engine, model.token_engine):
        assert [1.0] == engine.rescue.again(np.array([101, 102]), lambda *_: np.ones(1, np.float32)).tolist()
    assert ["fp32"] == loaded
