"""The torch source, with the installed torch and with one that sees fake cards."""

import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

from backend.device.facts.torch_source import Torch, normal_uuid
from backend.device.records import AllocatorStats, TorchBuild, TorchDevice

BARE = "8a9c1b2d-0000-4000-8000-0123456789ab"


def properties(**changes: object) -> SimpleNamespace:
    """The result of get_device_properties for an RTX 4090."""
    basic = {"name": "NVIDIA GeForce RTX 4090", "major": 8, "minor": 9, "total_memory": 25_386_352_640, "uuid": BARE}
    bus = {"pci_domain_id": 0, "pci_bus_id": 0x41, "pci_device_id": 0, "is_integrated": 0}
    return SimpleNamespace(**{**basic, **bus, **changes})


@pytest.fixture
def cards(monkeypatch):
    """A torch that sees the cards of a list, and in which everything that would create a context fails the test."""
    devices: list[SimpleNamespace] = []

    def create_context(*arguments: object, **keywords: object) -> None:
        pytest.fail("this creates a context")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(devices))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(devices))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: devices[index])
    for name in (
        "mem_get_info",
        "set_device",
        "current_stream",
        "synchronize",
        "memory_stats_as_nested_dict",
        "empty_cache",
    ):
        monkeypatch.setattr(torch.cuda, name, create_context)
    return devices


def test_build():
    build = Torch().build()

    assert (torch.__version__, torch.version.cuda or "") == (build.version, build.cuda)
    assert set(torch.cuda.get_arch_list()) == set(build.archs)


def test_the_devices_of_this_run(device):
    """On a CPU none, without an exception."""
    devices = Torch().devices()

    assert bool(devices) == torch.cuda.is_available()
    assert all(found.uuid.startswith("GPU-") and found.total_bytes > 0 for found in devices)
    assert len(devices) > (int(device.partition(":")[2] or 0) if device.startswith("cuda") else -1)


def test_devices(cards):
    """From properties alone, numbered as in torch."""
    cards += [properties(), properties(name="NVIDIA GB10", major=12, minor=1, is_integrated=1, uuid="GPU-1")]

    first, second = Torch().devices()

    expected = TorchDevice(0, "NVIDIA GeForce RTX 4090", f"GPU-{BARE}", 25_386_352_640, (8, 9), "00000000:41:00.0")
    assert expected == first
    assert (1, "GPU-1", (12, 1), True) == (second.index, second.uuid, second.capability, second.integrated)


def test_an_older_torch(cards):
    """It has neither UUID nor bus address: both are empty."""
    cards.append(SimpleNamespace(name="Tesla T4", major=7, minor=5, total_memory=1))

    assert [TorchDevice(0, "Tesla T4", "", 1, (7, 5))] == list(Torch().devices())


@pytest.mark.parametrize(
    ("text", "uuid"),
    [
        pytest.param(BARE, f"GPU-{BARE}", id="as-torch-writes"),
        pytest.param(f"GPU-{BARE}", f"GPU-{BARE}", id="as-nvml-writes"),
        pytest.param(f"MIG-{BARE}", f"MIG-{BARE}", id="of-a-slice"),
        pytest.param("00000000-0000-0000-0000-000000000000", "", id="zeros-are-none"),
        pytest.param("", "", id="none"),
    ],
)
def test_normal_uuid(text, uuid):
    assert uuid == normal_uuid(text)


def test_the_reason_for_no_device(monkeypatch):
    """torch only warns of a driver that is too old; the warning becomes the fault and is not shown."""

    def too_old() -> bool:
        warnings.warn("CUDA initialization: The NVIDIA driver on your system is too old.\nUpdate it.", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", too_old)
    source = Torch()

    assert source.fault() == ""
    assert source.devices() == ()
    assert source.fault() == "CUDA initialization: The NVIDIA driver on your system is too old"


def test_cuda_that_cannot_start(cards, monkeypatch):
    """For example in a forked process: the error becomes the fault."""

    def forked(index: int) -> None:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA, use 'spawn'")

    cards.append(properties())
    monkeypatch.setattr(torch.cuda, "get_device_properties", forked)
    source = Torch()

    assert source.devices() == ()
    assert "forked subprocess" in source.fault()


def test_no_torch(monkeypatch):
    """Without torch everything is empty, with the reason."""
    monkeypatch.setitem(sys.modules, "torch", None)
    source = Torch()

    assert (TorchBuild(), (), None) == (source.build(), source.devices(), source.mps())
    assert "torch cannot be imported" in source.fault()
    assert "torch cannot be imported" in source.try_kernel("cpu")
    assert AllocatorStats() == source.allocator("cuda:0")


def test_a_kernel_on_this_device(device):
    assert Torch().try_kernel(device) == ""


@pytest.mark.parametrize("missing", ["cuda:99", "no-such-device"])
def test_a_kernel_on_a_missing_device(missing):
    """The error is one sentence."""
    fault = Torch().try_kernel(missing)

    assert fault
    assert "\n" not in fault


def test_a_kernel_that_fails(monkeypatch):
    """The error and torch's warnings, without CUDA's debugging advice."""

    def no_image(*shape: int, device: str) -> None:
        warnings.warn("Found GPU0 NVIDIA GeForce RTX 5090 which is of compute capability 12.0.\nmore", stacklevel=1)
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors")

    monkeypatch.setattr(torch, "ones", no_image)

    expected = (
        "CUDA error: no kernel image is available for execution on the device; "
        "Found GPU0 NVIDIA GeForce RTX 5090 which is of compute capability 12.0"
    )
    assert expected == Torch().try_kernel("cuda:0")


def test_a_kernel_with_a_wrong_result(monkeypatch):
    monkeypatch.setattr(torch, "ones", torch.zeros)

    assert Torch().try_kernel("cpu") == "a sum on cpu gave 0 instead of 8192"


def test_allocator_of_this_device(device):
    """Zeros on a CPU; on a card a tensor counts."""
    tensor = torch.ones(1 << 20, device=device)

    stats = Torch().allocator(device)

    if device.startswith("cuda"):
        assert stats.allocated_bytes >= tensor.element_size() * tensor.numel()
        assert 0.0 < stats.fraction <= 1.0
    else:
        assert AllocatorStats() == stats


def test_allocator_of_a_card(monkeypatch):
    """Counters that this torch does not have are zero."""
    counters = {
        "allocated_bytes": {"all": {"current": 1, "peak": 4}, "small_pool": {"current": 8, "peak": 8}},
        "reserved_bytes": {"all": {"current": 2, "peak": 5}},
        "active_bytes": {"all": {"current": 3}},
        "num_alloc_retries": 6,
        "num_ooms": 7,
    }
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda index: counters if index == 1 else {})
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda index: 0.9)

    assert AllocatorStats(1, 2, 3, 4, 5, 6, 7, 0, 0.9) == Torch().allocator("cuda:1")


def test_allocator_before_the_first_tensor(cards):
    """Zeros, and no context is created."""
    cards.append(properties())

    assert AllocatorStats() == Torch().allocator("cuda:0")
