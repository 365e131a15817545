"""torch's answers: of the torch that is installed, and of one that sees cards which are not here."""

from __future__ import annotations

import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

from backend.device.facts.torch_source import Torch, normal_uuid, one_sentence
from backend.device.records import AllocatorStats, TorchBuild, TorchDevice

BARE = "8a9c1b2d-0000-4000-8000-0123456789ab"


def properties(**changes: object) -> SimpleNamespace:
    """What get_device_properties gives for an RTX 4090."""
    known = {"name": "NVIDIA GeForce RTX 4090", "major": 8, "minor": 9, "total_memory": 25_386_352_640, "uuid": BARE}
    places = {"pci_domain_id": 0, "pci_bus_id": 0x41, "pci_device_id": 0, "is_integrated": 0}
    return SimpleNamespace(**{**known, **places, **changes})


@pytest.fixture
def cards(monkeypatch):
    """A torch that sees the cards of a list, and in which everything that would open a context fails the test."""
    found: list[SimpleNamespace] = []

    def opened(*arguments: object, **keywords: object) -> None:
        pytest.fail("this opens a context on a card that may never be used")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(found))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found[index])
    for name in ("mem_get_info", "set_device", "current_stream", "synchronize", "memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, opened)
    return found


def test_build():
    """The installed torch by its own words."""
    build = Torch().build()

    assert (torch.__version__, torch.version.cuda or "") == (build.version, build.cuda)
    assert set(torch.cuda.get_arch_list()) == set(build.archs)


def test_the_devices_of_this_run(device):
    """With a card its properties, in NVML's form; on a CPU none, and no exception."""
    found = Torch().devices()

    assert bool(found) == torch.cuda.is_available()
    assert all(one.uuid.startswith("GPU-") and one.total_bytes > 0 for one in found)
    assert len(found) > (int(device.partition(":")[2] or 0) if device.startswith("cuda") else -1)


def test_devices(cards):
    """Names, memory and capability from properties alone, numbered as torch numbers them."""
    cards += [properties(), properties(name="NVIDIA GB10", major=12, minor=1, is_integrated=1, uuid="GPU-1")]

    first, second = Torch().devices()

    expected = TorchDevice(0, "NVIDIA GeForce RTX 4090", f"GPU-{BARE}", 25_386_352_640, (8, 9), "00000000:41:00.0")
    assert expected == first
    assert (1, "GPU-1", (12, 1), True) == (second.index, second.uuid, second.capability, second.integrated)


def test_an_older_torch_tells_less(cards):
    """No UUID and no place on the bus: empty, not wrong."""
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
    """NVML's form, whoever wrote it."""
    assert uuid == normal_uuid(text)


def test_why_there_is_none(monkeypatch):
    """torch only warns of a driver that is too old; the warning is kept, in one sentence, and goes no further."""

    def too_old() -> bool:
        warnings.warn("CUDA initialization: The NVIDIA driver on your system is too old.\nUpdate it.", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", too_old)
    source = Torch()

    assert source.fault() == ""
    assert source.devices() == ()
    assert source.fault() == "CUDA initialization: The NVIDIA driver on your system is too old"


def test_cuda_that_cannot_start(cards, monkeypatch):
    """A forked process: RuntimeError, kept as a reason."""

    def forked(index: int) -> None:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA, use 'spawn'")

    cards.append(properties())
    monkeypatch.setattr(torch.cuda, "get_device_properties", forked)
    source = Torch()

    assert source.devices() == ()
    assert "forked subprocess" in source.fault()


def test_no_torch(monkeypatch):
    """Where torch is not installed everything is empty and the reason is said."""
    monkeypatch.setitem(sys.modules, "torch", None)
    source = Torch()

    assert (TorchBuild(), (), None) == (source.build(), source.devices(), source.mps())
    assert "torch cannot be imported" in source.fault()
    assert "torch cannot be imported" in source.try_kernel("cpu")
    assert AllocatorStats() == source.allocator("cuda:0")


def test_a_kernel_on_this_device(device):
    """The device of this run computes."""
    assert Torch().try_kernel(device) == ""


@pytest.mark.parametrize("wished", ["cuda:99", "no-such-device"])
def test_a_kernel_on_a_device_that_is_not_there(wished):
    """One sentence, whatever torch raises for it."""
    fault = Torch().try_kernel(wished)

    assert fault
    assert "\n" not in fault


def test_a_kernel_that_fails(monkeypatch):
    """The error and what torch warned of before it, without CUDA's debugging advice."""

    def no_image(*shape: int, device: str) -> None:
        warnings.warn("Found GPU0 NVIDIA GeForce RTX 5090 which is of compute capability 12.0.\nmore", stacklevel=1)
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors")

    monkeypatch.setattr(torch, "ones", no_image)

    expected = (
        "CUDA error: no kernel image is available for execution on the device; "
        "Found GPU0 NVIDIA GeForce RTX 5090 which is of compute capability 12.0"
    )
    assert expected == Torch().try_kernel("cuda:0")


def test_a_kernel_that_computes_nonsense(monkeypatch):
    """A device that answers wrongly is no device."""
    monkeypatch.setattr(torch, "ones", torch.zeros)

    assert Torch().try_kernel("cpu") == "a sum on cpu gave 0 instead of 8192"


def test_books_of_a_cpu(device):
    """torch keeps none for a CPU; on a card a tensor shows in them."""
    held = torch.ones(1 << 20, device=device)

    books = Torch().allocator(device)

    if device.startswith("cuda"):
        assert books.allocated_bytes >= held.element_size() * held.numel()
        assert 0.0 < books.fraction <= 1.0
    else:
        assert AllocatorStats() == books


def test_books_of_a_card(monkeypatch):
    """torch's counters by our names; those that this torch does not have are zero."""
    told = {
        "allocated_bytes.all.current": 1,
        "reserved_bytes.all.current": 2,
        "active_bytes.all.current": 3,
        "allocated_bytes.all.peak": 4,
        "reserved_bytes.all.peak": 5,
        "num_alloc_retries": 6,
        "num_ooms": 7,
    }
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda index: told if index == 1 else {})
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda index: 0.9)

    assert AllocatorStats(1, 2, 3, 4, 5, 6, 7, 0, 0.9) == Torch().allocator("cuda:1")


def test_books_before_the_first_tensor(cards):
    """A card on which this process has not started anything has zeros, and gets no context by being asked."""
    cards.append(properties())

    assert AllocatorStats() == Torch().allocator("cuda:0")


def test_one_sentence():
    """First lines, joined; nothing of nothing."""
    assert one_sentence("a.\nb", "", "  c  ") == "a; c"


def test_nothing_is_imported_before_it_is_asked():
    """Two seconds and 300 MiB: making the source, or reading its allocator, imports no torch."""
    script = (
        "import sys; from backend.device.facts.torch_source import Torch; "
        "Torch().allocator('cuda:0'); print('torch' in sys.modules)"
    )

    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert found.stdout.strip() == "False"
