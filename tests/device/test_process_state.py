"""What "auto" means in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from backend.device import process_state
from backend.device.choice.saved_choice import SavedChoice
from backend.device.facts.machine import MachineFacts
from backend.device.facts.simulated import facts
from backend.device.plan.placement import Wishes
from backend.errors import DeviceUnavailable


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    process_state.forget()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("rtx-4070-laptop", "cuda:0", id="cuda-before-all"),
        pytest.param("apple-m3", "mps", id="mps-before-the-cpu"),
        pytest.param("no-gpu", "cpu", id="cpu"),
        pytest.param("cpu-build", "cpu", id="a-card-that-torch-cannot-use"),
    ],
)
def test_auto(name: str, expected: str):
    """CUDA, then MPS, then the CPU."""
    process_state.adopt(facts(name))

    assert (expected, torch.device(expected)) == (process_state.placement().device, process_state.torch_device())


def test_auto_is_the_freest_card():
    """Among two, the one with more free memory, and an explicit number is the other one."""
    process_state.adopt(facts("ada-and-blackwell"))
    cards = {f"cuda:{gpu.index}": gpu.free_bytes or 0 for gpu in process_state.machine().usable}

    assert max(cards, key=lambda device: cards[device]) == process_state.placement().device
    assert {"cuda:0", "cuda:1"} == {process_state.placement(device).device for device in cards}


def test_the_wishes_of_the_service_count_for_the_doors():
    """What the settings said is "auto" here; a door asked for another device gets that one."""
    process_state.adopt(facts("ada-and-blackwell"), Wishes(device="cuda:0", memory_fraction=0.5))

    assert ("cuda:0", "cuda:1") == (process_state.placement().device, process_state.placement("cuda:1").device)
    assert process_state.placement("cuda:1").memory_bytes <= process_state.machine().gpus[1].total_bytes * 0.5


def test_an_option_is_only_about_auto():
    """``--gpu 0`` chooses the process's card; it does not overrule a door that names another."""
    process_state.adopt(facts("ada-and-blackwell"), Wishes(gpu=0))

    assert ("cuda:0", "cuda:1") == (process_state.placement().device, process_state.placement("cuda:1").device)


def test_the_saved_choice_is_heeded():
    """Somebody chose this card on a terminal."""
    found = facts("ada-and-blackwell")
    for gpu in found.gpus:
        process_state.adopt(
            found, saved=SavedChoice(gpu.uuid, gpu.name, gpu.total_bytes, "", "2026-01-01T00:00:00+00:00")
        )

        assert f"cuda:{gpu.index}" == process_state.placement().device


def test_the_cpu_can_always_be_asked_for():
    """Even where the service must use the GPU."""
    process_state.adopt(facts("h200"), Wishes(use_gpu=True))

    assert ("cuda:0", "cpu") == (process_state.placement().device, process_state.placement("cpu").device)


def test_a_gpu_that_is_forbidden_stays_so():
    """USE_GPU=false counts for the doors as well."""
    process_state.adopt(facts("h200"), Wishes(use_gpu=False))

    assert "cpu" == process_state.placement().device
    with pytest.raises(DeviceUnavailable, match="USE_GPU=false"):
        process_state.torch_device("cuda")


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "mps", "quantum"])
def test_a_device_that_is_not_there(device: str):
    """Refused with its name."""
    process_state.adopt(facts("no-gpu"))

    with pytest.raises(DeviceUnavailable, match=device):
        process_state.torch_device(device)


def test_torchs_own_devices_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch):
    """Who has a torch.device knows; and the CPU is everywhere: neither reads the machine."""

    def never() -> MachineFacts:
        raise AssertionError("the machine was read")

    monkeypatch.setattr(process_state, "probe", never)

    assert torch.device("meta") == process_state.torch_device(torch.device("meta"))
    assert torch.device("cpu") == process_state.torch_device("cpu")


def test_torchs_current_card(monkeypatch: pytest.MonkeyPatch):
    """``torch.device("cuda")`` is the current one; it gets its number, so that everybody means the same card."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)

    assert torch.device("cuda:1") == process_state.torch_device(torch.device("cuda"))
    assert torch.device("cuda:0") == process_state.torch_device(torch.device("cuda:0"))


def test_the_machine_is_read_once(monkeypatch: pytest.MonkeyPatch):
    """And again after forgetting."""
    reads: list[MachineFacts] = []

    def read() -> MachineFacts:
        reads.append(facts("no-gpu"))
        return reads[-1]

    monkeypatch.setattr(process_state, "probe", read)
    for _ in range(3):
        process_state.machine()
    first = len(reads)
    process_state.forget()
    process_state.machine()

    assert (1, 2) == (first, len(reads))
