"""DeviceRequest about the GPU: what is refused, and what guides do with them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.device import default_device
from backend.device.choice.saved_choice import ChoiceFile, choice_of
from backend.device.facts.simulated import facts
from backend.errors import BadSettings
from backend.gpu_toolkit.gpu_config import GPUConfig


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    default_device.reset()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param({"memory_fraction": -0.1}, "memory_fraction=-0.1: must be above 0", id="negative-fraction"),
        pytest.param({"memory_fraction": 0}, "memory_fraction=0: must be above 0", id="no-fraction"),
        pytest.param({"memory_fraction": 1.5}, "at most 1", id="more-than-all"),
        pytest.param({"device": "gpu"}, "device='gpu' is not a device; use auto, cpu", id="unknown-device"),
        pytest.param({"device": "cuda:one"}, "is not a device", id="no-number"),
        pytest.param({"device_ids": [0, -1]}, "card numbers from 0 up", id="negative-number"),
        pytest.param({"device_ids": [1, 1]}, "different card numbers", id="the-same-card-twice"),
        pytest.param({"device_ids": []}, "card numbers", id="no-cards"),
        pytest.param({"device_ids": [True]}, "card numbers", id="no-number-but-a-boolean"),
        pytest.param({"device_ids": [0], "device": "cpu"}, "contradicts device='cpu'", id="cards-of-a-cpu"),
        pytest.param({"num_workers": -1}, "num_workers=-1", id="negative-workers"),
        pytest.param({"prefetch_factor": 0}, "prefetch_factor=0", id="no-prefetch"),
        pytest.param({"empty_cache_interval": -5}, "empty_cache_interval=-5", id="negative-interval"),
        pytest.param({"num_workers": 0, "prefetch_factor": 2}, "leaves nobody", id="prefetch-without-workers"),
        pytest.param(
            {"enable_data_parallel": True, "enable_distributed": True}, "contradicts enable_distributed", id="both"
        ),
    ],
)
def test_faults(wrong: dict[str, Any], message: str):
    """Refused when it is made, with what was got and what would do."""
    with pytest.raises(BadSettings, match="settings: ") as caught:
        GPUConfig(**wrong)

    assert message in str(caught.value)


def test_all_faults_at_once():
    with pytest.raises(BadSettings) as caught:
        GPUConfig(device="gpu", memory_fraction=2, num_workers=-1)

    assert 3 == len(caught.value.faults)


def test_assignments_of_the_guides():
    """Fields may be changed later; a wrong value is refused and the old one stays."""
    config = GPUConfig(memory_fraction=0.9)
    config.enable_gradient_checkpointing = True
    config.num_workers = 8
    with pytest.raises(BadSettings, match="memory_fraction=9"):
        config.memory_fraction = 9

    assert (True, 8, 0.9) == (config.enable_gradient_checkpointing, config.num_workers, config.memory_fraction)


def test_no_card():
    default_device.configure(facts("no-gpu"))

    assert [] == GPUConfig.get_gpu_info()


def test_the_saved_choice(tmp_path: Path):
    """Its number now, by the card's UUID; None without one and after the card has gone."""
    config = GPUConfig(choice_file=tmp_path / "gpu.json")
    machine = facts("ada-and-blackwell")
    default_device.configure(machine)
    before = config.config
    ChoiceFile(tmp_path / "gpu.json").save(choice_of(machine.gpus[1], "580", "2026-01-01T00:00:00+00:00"))
    chosen = config.config
    default_device.configure(facts("no-gpu"))

    assert {"selected_gpu_id": None} == before == GPUConfig().config
    assert (1, machine.gpus[1].name) == (chosen["selected_gpu_id"], chosen["name"])
    assert config.config["selected_gpu_id"] is None
