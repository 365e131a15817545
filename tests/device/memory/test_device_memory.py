"""Memory limit, headroom, guard and advice."""

import os
import subprocess
import sys
import weakref
from types import SimpleNamespace

import pytest
import torch

from backend.device.memory import device_memory
from backend.device.memory.device_memory import (
    RESERVE_BYTES,
    MemoryUsage,
    advice,
    allocator_options,
    apply_ceiling,
    cleanup_gpu_memory,
    gpu_memory_guard,
    headroom_bytes,
    lower_ceiling,
)
from backend.device.memory.memory_table import Affine, MemoryTable
from backend.device.records import AllocatorStats, Platform
from backend.errors import DoesNotFit

MIB, GIB = 2**20, 2**30
LINUX = Platform("Linux", "x86_64")
EXPANDABLE = "expandable_segments:True"


@pytest.mark.parametrize(
    ("existing", "fraction", "platform", "expected"),
    [
        pytest.param("", None, LINUX, EXPANDABLE, id="nothing-given"),
        pytest.param("", 0.9, LINUX, f"{EXPANDABLE},per_process_memory_fraction:0.9", id="with-a-fraction"),
        pytest.param("expandable_segments:False", None, LINUX, "expandable_segments:False", id="the-user-wins"),
        pytest.param(
            "per_process_memory_fraction:0.5", 0.9, LINUX, f"{EXPANDABLE},per_process_memory_fraction:0.5",
            id="the-user-wins-key-by-key",
        ),
        pytest.param(
            "roundup_power2_divisions:[256:1,512:2,>:4],max_split_size_mb:512",
            None,
            LINUX,
            f"{EXPANDABLE},roundup_power2_divisions:[256:1,512:2,>:4],max_split_size_mb:512",
            id="commas-inside-a-value",
        ),
        pytest.param("backend:cudaMallocAsync", 0.9, LINUX, "backend:cudaMallocAsync", id="another-backend"),
        pytest.param("", None, Platform("Linux", wsl=True), "", id="wsl2-has-no-expandable-segments"),
        pytest.param("", 0.8, Platform("Linux", wsl=True), "per_process_memory_fraction:0.8", id="wsl2-has-a-ceiling"),
        pytest.param("", 0.8, Platform("Windows"), "", id="windows"),
    ],
)  # fmt: skip
def test_allocator_options(existing, fraction, platform, expected):
    """Ours where this platform has them, the user's over ours, and nothing the backend would not know."""
    assert expected == allocator_options(existing, fraction=fraction, platform=platform)


@pytest.mark.slow
def test_allocator_options_are_torchs(device):
    """torch takes what we write from the environment as it is; a card (--device cuda:0) refuses an unknown key."""
    options = allocator_options("roundup_power2_divisions:[256:1,512:2,>:4]", fraction=0.5, platform=LINUX)
    script = f"import torch; torch.ones(1, device={device!r}); print(torch._C._accelerator_getAllocatorSettings())"
    environment = {**os.environ, "PYTORCH_ALLOC_CONF": options}

    found = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )

    assert options == found.stdout.strip()


STATS = AllocatorStats(allocated_bytes=3 * GIB, reserved_bytes=6 * GIB, active_bytes=4 * GIB)


@pytest.mark.parametrize(
    ("stats", "free", "ceiling", "expected"),
    [
        pytest.param(AllocatorStats(), 8 * GIB, 0, 8 * GIB, id="a-fresh-process"),
        pytest.param(STATS, 8 * GIB, 0, 10 * GIB, id="what-torch-keeps-counts"),
        pytest.param(STATS, 8 * GIB, 9 * GIB, 6 * GIB, id="the-ceiling-counts"),
        pytest.param(STATS, 1 * GIB, 9 * GIB, 3 * GIB, id="a-neighbour-took-the-rest"),
        pytest.param(STATS, None, 9 * GIB, 6 * GIB, id="free-is-unknown"),
        pytest.param(STATS, 8 * GIB, 2 * GIB, 0, id="over-the-ceiling-already"),
        pytest.param(STATS, None, 0, 0, id="nothing-is-known"),
    ],
)
def test_headroom(stats, free, ceiling, expected):
    """The smaller of what the driver could give and what the ceiling leaves; less the reserve."""
    assert expected == headroom_bytes(stats, free, ceiling, reserve_bytes=0)
    assert max(0, expected - RESERVE_BYTES) == headroom_bytes(stats, free, ceiling)


def fake_cuda(monkeypatch, *, total: int = 80 * GIB, hip: str | None = None) -> list[tuple[float, str]]:
    """A card of ``total`` bytes; the fractions that were set on it."""
    asked: list[tuple[float, str]] = []

    class Current:
        def __init__(self, device: str) -> None:
            self.device = device

        def __enter__(self) -> None:
            asked.append((0.0, f"current {self.device}"))

        def __exit__(self, *_: object) -> None:
            asked.append((0.0, "as before"))

    monkeypatch.setattr(torch.cuda, "device", Current)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=total))
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda fraction, device: asked.append((fraction, device))
    )
    monkeypatch.setattr(torch.version, "hip", hip)
    return asked


@pytest.mark.parametrize(
    ("memory_bytes", "fraction", "words"),
    [
        pytest.param(72 * GIB, 0.9, "at most 72.0 GiB of cuda:1 (0.90 of it)", id="nine-tenths"),
        pytest.param(100 * GIB, 1.0, "(1.00 of it)", id="never-more-than-all"),
    ],
)
def test_a_ceiling_on_a_card(monkeypatch, memory_bytes, fraction, words):
    """The fraction of that card's own memory; which card is current stays as it was."""
    asked = fake_cuda(monkeypatch)

    said = apply_ceiling("cuda:1", memory_bytes)

    assert [(0.0, "current cuda:1"), (fraction, "cuda:1"), (0.0, "as before")] == asked
    assert words in said


@pytest.mark.parametrize(
    ("hip", "expected"),
    [
        pytest.param(None, [], id="nvidia-keeps-its-cache-flush"),
        pytest.param("6.4", ["throw_on_cudamalloc_oom:True,max_split_size_mb:512"], id="rocm-never-asks-its-driver"),
    ],
)
def test_throw_before_a_driver_oom(monkeypatch, hip, expected):
    """Only on ROCm, whose driver would abort the process; existing options are kept."""
    fake_cuda(monkeypatch, hip=hip)
    written: list[str] = []
    monkeypatch.setattr(torch._C, "_accelerator_getAllocatorSettings", lambda: "max_split_size_mb:512")
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", written.append)

    apply_ceiling("cuda:0", 8 * GIB)

    assert expected == written


def test_a_torch_that_refuses_the_private_setting(monkeypatch):
    asked = fake_cuda(monkeypatch, hip="6.4")

    def refuse(text: str) -> None:
        raise ValueError(f"Unrecognized key in {text}")

    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", refuse)

    assert "at most 8.0 GiB of cuda:0" in apply_ceiling("cuda:0", 8 * GIB)
    assert (0.1, "cuda:0") in asked


def test_libraries_that_allocate_beside_torch_lower_its_ceiling(monkeypatch):
    """One after the other; a device without a ceiling gets none."""
    asked = fake_cuda(monkeypatch, total=80 * GIB)
    usage = [MemoryUsage(AllocatorStats(), 0, bytes_) for bytes_ in (72 * GIB, 70 * GIB, 0)]
    monkeypatch.setattr(device_memory, "read_memory_usage", lambda device: usage.pop(0))

    assert "at most 70.0 GiB of cuda:1" in lower_ceiling("cuda:1", 2 * GIB)
    assert "at most 69.0 GiB of cuda:1" in lower_ceiling("cuda:1", GIB)
    assert "no ceiling on cuda:1" == lower_ceiling("cuda:1", GIB)
    assert [70 / 80, 69 / 80] == [fraction for fraction, device in asked if device == "cuda:1"]


def test_a_ceiling_on_an_apple(monkeypatch):
    asked: list[float] = []
    fake = SimpleNamespace(recommended_max_memory=lambda: 16 * GIB, set_per_process_memory_fraction=asked.append)
    monkeypatch.setattr(torch, "mps", fake)

    assert "at most 12.0 GiB of mps (0.75 of it)" in apply_ceiling("mps", 12 * GIB)
    assert [0.75] == asked


@pytest.mark.parametrize(("device", "memory_bytes"), [("cpu", 8 * GIB), ("cuda:0", 0)], ids=["cpu", "none-asked-for"])
def test_no_ceiling(device, memory_bytes):
    """The sentence says so, and torch is not called."""
    assert f"no ceiling on {device}" == apply_ceiling(device, memory_bytes)


class Device:
    """A device with fixed memory use that records releases."""

    def __init__(self, monkeypatch, usage: MemoryUsage) -> None:
        self.released: list[str] = []
        self.now = usage
        monkeypatch.setattr(device_memory, "release", self.released.append)
        monkeypatch.setattr(
            device_memory, "placement", lambda name: SimpleNamespace(device=name.replace("auto", "cuda:0"))
        )

    def read_usage(self, device: str) -> MemoryUsage:
        return self.now


@pytest.mark.parametrize("free", [8 * GIB, None], ids=["fits", "unknown"])
def test_the_guard_admits(monkeypatch, free):
    """Work that fits, or of which that is unknown, runs; nothing is given back without need."""
    device = Device(monkeypatch, MemoryUsage(AllocatorStats(), free))
    ran = []

    with gpu_memory_guard(6 * GIB, read_usage=device.read_usage):
        ran.append(True)

    assert ([True], []) == (ran, device.released)


def test_the_guard_refuses(monkeypatch):
    """Before the block runs, with the numbers and what to change."""
    device = Device(monkeypatch, MemoryUsage(AllocatorStats(allocated_bytes=GIB), 8 * GIB, ceiling_bytes=4 * GIB))
    ran = []

    with (
        pytest.raises(
            DoesNotFit, match=r"6\.0 GiB are needed on cuda:0, 3\.0 GiB are free under .* ceiling of 4\.0 GiB"
        ),
        gpu_memory_guard(6 * GIB, read_usage=device.read_usage),
    ):
        ran.append(True)

    assert [] == ran


@pytest.mark.parametrize(
    ("reserved", "free", "released"),
    [
        pytest.param(2 * GIB, 8 * GIB, [], id="a-small-cache-stays"),
        pytest.param(4 * GIB, 8 * GIB, ["cuda:0"], id="a-large-one-is-given-back"),
        pytest.param(4 * GIB, None, [], id="unknown"),
    ],
)
def test_the_guard_at_the_end(monkeypatch, reserved, free, released):
    """The cache is given back when it is more than a quarter of what is free; not after every block."""
    device = Device(monkeypatch, MemoryUsage(AllocatorStats(reserved_bytes=reserved), free))

    with gpu_memory_guard(read_usage=device.read_usage):
        pass

    assert released == device.released


@pytest.mark.parametrize(
    ("error", "released"),
    [
        pytest.param(torch.OutOfMemoryError("CUDA out of memory."), ["cuda:0"], id="out-of-memory"),
        pytest.param(ValueError("bad input"), [], id="another-error"),
    ],
)
def test_the_guard_and_errors(monkeypatch, error, released):
    """They go on as they are; after exhausted memory the cache is given back first."""
    device = Device(monkeypatch, MemoryUsage(AllocatorStats(), GIB))

    with pytest.raises(type(error)) as caught, gpu_memory_guard(read_usage=device.read_usage):
        raise error

    assert error is caught.value
    assert released == device.released


class Activations:
    """Stand-in for tensors, with weak references."""


def test_the_guard_frees_the_failed_frames(monkeypatch):
    """Tensors of the failed frames are freed before the cache is released."""
    device = Device(monkeypatch, MemoryUsage(AllocatorStats(), GIB))
    held: list[weakref.ref[Activations]] = []
    alive: list[bool] = []
    monkeypatch.setattr(device_memory, "release", lambda where: alive.append(held[0]() is not None))

    def forward() -> None:
        activations = Activations()
        held.append(weakref.ref(activations))
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(torch.OutOfMemoryError), gpu_memory_guard(read_usage=device.read_usage):
        forward()

    assert [False] == alive


def test_the_guard_on_this_machine(device):
    """As the documents call it, on a real device; more than there is gets refused, not tried."""
    with gpu_memory_guard(device=device):
        result = torch.ones(8, device=device).sum()
    assert 8 == result.item()

    with pytest.raises(DoesNotFit, match="are needed on"), gpu_memory_guard(2**50, device=device):
        pytest.fail("the block ran")


@pytest.mark.slow
def test_cleaning_up_on_this_machine(device):
    """What torch kept goes back; a CPU keeps nothing."""
    tensor = torch.ones(64 * MIB, dtype=torch.uint8, device=device)
    del tensor
    given_back = cleanup_gpu_memory(device)

    assert given_back >= (64 * MIB if device.startswith("cuda") else 0)
    assert 0 == cleanup_gpu_memory(device)


TABLE = MemoryTable({256: Affine(32 * MIB, 15 * MIB), 512: Affine(64 * MIB, 30 * MIB)})


@pytest.mark.parametrize(
    ("length", "count", "free", "expected"),
    [
        pytest.param(
            512,
            64,
            1200 * MIB,
            "a batch of 64 x 512 tokens needs 1.9 GiB, 1.2 GiB is free: 37 fit; or shorten to 256 tokens",
            id="fewer-or-shorter",
        ),
        pytest.param(512, 1, MIB, "one item of 512 tokens needs 94.0 MiB, 1.0 MiB is free", id="nothing-helps"),
        pytest.param(512, 1, GIB, "one item of 512 tokens needs 94.0 MiB, 1.0 GiB is free", id="fits"),
        pytest.param(
            700,
            1,
            100 * MIB,
            "one item of 700 tokens is longer than anything measured (512 tokens); 100.0 MiB is free: "
            "shorten to 512 tokens",
            id="longer-than-measured",
        ),
    ],
)
def test_advice(length, count, free, expected):
    """Numbers and ways out, best first; no way that would not help."""
    assert expected == advice(TABLE, length, count, free)
