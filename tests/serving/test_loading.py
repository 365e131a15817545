"""Loading a model: what its engines share on a device, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from backend.device.records import MachineFacts
from backend.device.tuning_cache import TuningCache
from backend.errors import ModelUnavailable, Unavailable
from backend.models.autotune import Choice, EncoderRequest, Selector
from backend.models.encoder import Encoder
from backend.models.readout import PooledVectors
from backend.models.spec import ModelSpec
from backend.serving import loading
from backend.serving.catalog import LoadedModel
from backend.serving.engines.heads import CLASSIFIER, EMBEDDINGS, RERANKER
from backend.serving.loading import LoadContext, ModelRequest, load_model
from backend.telemetry import Telemetry
from tests.tiny_models import TinyModels, encoder_of, placement, rewrite, spec_of
from tests.tiny_scorers import TinyScorers


@pytest.fixture
def source(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that is chosen as if it were served in bf16."""
    folder, choice = tiny.folder("bert"), Choice("onnx", "bf16", 512, 1000.0, ("chosen by the test",))
    monkeypatch.setattr(Selector, "select", lambda *_: (encoder_of(folder, "onnx", "fp32"), choice))
    return folder


def load(folder: Path, source: Path, task: str = EMBEDDINGS) -> LoadedModel:
    facts = MachineFacts(cores=1, cpu_name="", cpu_flags=(), memory_bytes=2**33)
    context = LoadContext(facts, [placement()], TuningCache(folder / "tuning.json"), Telemetry(), folder / "models")
    return load_model(context, ModelRequest(str(source), EncoderRequest(), task=task))


def test_engines_of_a_model_share_the_learnt_capacity(tmp_path, source):
    """They run on the same encoder and device."""
    model = load(tmp_path, source)

    assert model.engine.batch_limits is model.token_engine.batch_limits


def test_bundled_encoders_are_kept_in_the_context_s_folder(tmp_path, source, monkeypatch):
    """That of STATE_DIR: the installation may be read-only."""
    asked = []

    def resolve(name: str, task: str, *, models_dir: Path | None) -> ModelSpec:
        asked.append((name, task, models_dir))
        return spec_of(source)

    monkeypatch.setattr(loading, "resolve", resolve)

    load(tmp_path, source)

    assert [(str(source), EMBEDDINGS, tmp_path / "models")] == asked


def test_float32_is_loaded_once_for_all_engines(tmp_path, source, monkeypatch):
    """Two copies beside the model could be more than the device holds."""
    loaded: list[str] = []

    def load_encoder(_spec, candidate, _placement):
        loaded.append(candidate.dtype)
        return encoder_of(source, "onnx", "fp32")

    monkeypatch.setattr(loading, "load_encoder", load_encoder)
    model = load(tmp_path, source)

    for engine in (model.engine, model.token_engine):
        assert [1.0] == engine.fallback.recompute(np.array([1, 2]), lambda *_: np.ones(1, np.float32)).tolist()
    assert ["fp32"] == loaded


def test_a_model_loaded_again_captures_its_graphs_before_it_serves(tmp_path, source, monkeypatch):
    """Else its first requests capture them, and the card's other lanes wait."""
    captured = []

    def load_encoder(*_: object) -> Encoder:
        encoder = encoder_of(source, "onnx", "fp32")
        monkeypatch.setattr(encoder, "capture_graphs", captured.append, raising=False)
        return encoder

    monkeypatch.setattr(loading, "load_encoder", load_encoder)
    model = load(tmp_path, source)
    [resident] = model.residents

    assert resident.unload()
    assert [] == captured
    resident.get()
    assert [PooledVectors(model.spec.pooling)] == captured


def test_files_that_changed_while_a_model_was_idle_are_not_loaded(tmp_path, tiny, copy_of, monkeypatch):
    """Its vectors would be cached as those of the old files. The same files again are the same model."""
    folder = copy_of(tiny.folder("bert"))
    choice = Choice("onnx", "fp32", 512, 1000.0, ("chosen by the test",))
    monkeypatch.setattr(Selector, "select", lambda *_: (encoder_of(tiny.folder("bert"), "onnx", "fp32"), choice))
    model = load(tmp_path, folder)
    [resident] = model.residents
    config = (folder / "config.json").read_bytes()

    assert resident.unload()
    rewrite(folder / "config.json", layer_norm_eps=0.5)
    with pytest.raises(Unavailable, match=r"could not be loaded again: the files of model .* have changed since"):
        resident.get()
    (folder / "config.json").write_bytes(config)

    assert resident.get() is not None


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        pytest.param(RERANKER, ("relevant",), id="reranker"),
        pytest.param(CLASSIFIER, ("entailment", "neutral", "contradiction"), id="nli"),
    ],
)
def test_a_model_that_cannot_read_pairs_is_refused_at_the_start(tmp_path, scorers: TinyScorers, copy_of, task, labels):
    """Refused when it is loaded, not at its first request: its tokenizer puts the second text first."""
    folder = copy_of(scorers.folder("bert", labels))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(
        "$A [SEP]", "$B [SEP] $A", [("[SEP]", tokenizer.token_to_id("[SEP]"))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))

    with pytest.raises(ModelUnavailable, match="no first text before a second"):
        load(tmp_path, folder, task)
