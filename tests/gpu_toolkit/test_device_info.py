"""Plain dictionaries about machines, with the guides' keys."""

import json

import pytest

from backend.device.choice.selection import DeviceRequest
from backend.device.facts.simulated import MACHINES, facts
from backend.device.plan.placement import place
from backend.device.records import Platform
from backend.gpu_toolkit.gpu_config import card_dict, device_dict, platform_dict

GIB = 1024**3


@pytest.mark.parametrize(
    ("platform", "expected", "advice"),
    [
        pytest.param(Platform("Linux"), {"is_linux"}, "", id="linux"),
        pytest.param(Platform("Linux", wsl=True), {"is_linux", "is_wsl"}, "80 %", id="wsl2"),
        pytest.param(Platform("Windows"), {"is_windows"}, "WSL2", id="windows"),
        pytest.param(Platform("Darwin", "arm64"), {"is_macos"}, "", id="macos"),
        pytest.param(Platform("Linux", container="docker"), {"is_linux", "is_container"}, "", id="container"),
    ],
)
def test_platform(platform: Platform, expected: set[str], advice: str):
    """What it is, in claims; advice only where there is some."""
    found = platform_dict(platform)

    assert expected == {name for name, value in found.items() if name.startswith("is_") and value}
    assert advice in found["advice"]
    assert bool(advice) == bool(found["advice"])


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_machine_can_be_described(name: str):
    """One shape, ready for JSON, on all of them."""
    machine = facts(name)
    found = device_dict(machine, place(machine, DeviceRequest()))
    cards = [card_dict(machine, gpu) for gpu in machine.gpus]

    assert json.dumps([found, cards])
    assert device_dict(facts("h200"), place(facts("h200"), DeviceRequest())).keys() == found.keys()
    assert found["device_name"]
    assert 0 < found["total_memory"] == found["memory_gb"] * GIB


def test_workers_of_cards():
    """From free memory; a card that cannot be used has none, and says why."""
    mixed, unusable = facts("ada-and-blackwell"), facts("new-card-old-build")
    workers = [card_dict(mixed, gpu)["suggested_workers"] for gpu in mixed.gpus]
    (old,) = [card_dict(unusable, gpu) for gpu in unusable.gpus]

    assert workers[0] > workers[1] >= 1
    assert 0 == old["suggested_workers"]
    assert old["fault"]
