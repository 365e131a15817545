"""What "auto" means in this process."""

from collections.abc import Iterator

import pytest
import torch

from backend.device import default_device
from backend.device.choice.selection import DeviceRequest
from backend.device.default_device import LocalRank
from backend.device.facts.simulated import facts
from backend.device.records import MachineFacts
from backend.errors import DeviceUnavailable


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    default_device.reset()  # what a test of another file left
    yield
    default_device.reset()


def test_the_request_of_the_service():
    """It decides what "auto" is; another device can still be named, with the same memory fraction."""
    default_device.configure(facts("ada-and-blackwell"), DeviceRequest(device="cuda:0", memory_fraction=0.5))

    assert ("cuda:0", "cuda:1") == (default_device.placement().device, default_device.placement("cuda:1").device)
    assert default_device.placement("cuda:1").memory_bytes <= default_device.machine_facts().gpus[1].total_bytes * 0.5


def test_the_gpu_option_is_only_about_auto():
    """``--gpu 0`` does not overrule a caller that names another card."""
    default_device.configure(facts("ada-and-blackwell"), DeviceRequest(gpu=0))

    assert ("cuda:0", "cuda:1") == (default_device.placement().device, default_device.placement("cuda:1").device)


def test_use_gpu_false_forbids_every_gpu():
    default_device.configure(facts("h200"), DeviceRequest(use_gpu=False))

    assert "cpu" == default_device.placement().device
    with pytest.raises(DeviceUnavailable, match="USE_GPU=false"):
        default_device.torch_device("cuda")


@pytest.mark.parametrize(
    ("device", "request_", "expected"),
    [
        pytest.param("auto", DeviceRequest(), ["cuda:0", "cuda:1"], id="auto"),
        pytest.param("cuda", DeviceRequest(), ["cuda:0", "cuda:1"], id="cuda"),
        pytest.param("cuda:all", DeviceRequest(), ["cuda:0", "cuda:1"], id="all"),
        pytest.param("cuda:1,cuda:0", DeviceRequest(), ["cuda:1", "cuda:0"], id="in-the-order-named"),
        pytest.param("auto", DeviceRequest(device="cuda:1,cuda:0"), ["cuda:1", "cuda:0"], id="as-the-process-is-set"),
        pytest.param("cpu", DeviceRequest(), ["cpu", "cpu"], id="all-share-the-processor"),
    ],
)
def test_each_rank_has_its_own_card(device: str, request_: DeviceRequest, expected: list[str]):
    """Of two processes that train together; each with that card's memory and UUID."""
    default_device.configure(facts("ada-and-blackwell"), request_)
    places = [default_device.rank_placement(device, LocalRank(index, 2)) for index in range(2)]

    assert expected == [place.device for place in places]
    assert len(set(expected)) == len({place.uuid for place in places})
    assert len(set(expected)) == len({place.memory_bytes for place in places})


@pytest.mark.parametrize(("device", "count"), [("cuda:1", 2), ("auto", 3)])
def test_more_processes_than_cards(device: str, count: int):
    """Two on one card would wait for each other for ever; the error says what to start instead."""
    default_device.configure(facts("ada-and-blackwell"))
    with pytest.raises(DeviceUnavailable, match=f"torchrun started {count} processes.*--nproc-per-node={count - 1}"):
        default_device.rank_placement(device, LocalRank(0, count))


def test_torch_devices_are_not_checked(monkeypatch: pytest.MonkeyPatch):
    """Neither a torch.device nor "cpu" probes the machine."""

    def never() -> MachineFacts:
        raise AssertionError("the machine was probed")

    monkeypatch.setattr(default_device, "probe", never)

    assert torch.device("meta") == default_device.torch_device(torch.device("meta"))
    assert torch.device("cpu") == default_device.torch_device("cpu")


def test_torchs_current_card(monkeypatch: pytest.MonkeyPatch):
    """``torch.device("cuda")`` gets the current card's number."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)

    assert torch.device("cuda:1") == default_device.torch_device(torch.device("cuda"))
    assert torch.device("cuda:0") == default_device.torch_device(torch.device("cuda:0"))


def test_the_machine_is_probed_once(monkeypatch: pytest.MonkeyPatch):
    """And again after ``reset``."""
    probes: list[MachineFacts] = []

    def probe() -> MachineFacts:
        probes.append(facts("no-gpu"))
        return probes[-1]

    monkeypatch.setattr(default_device, "probe", probe)
    for _ in range(3):
        default_device.machine_facts()
    first = len(probes)
    default_device.reset()
    default_device.machine_facts()

    assert (1, 2) == (first, len(probes))
