"""Simulated machines: plausible facts through the real ``probe``, and plausible sensors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from backend.device.facts.compute_capability import architecture
from backend.device.facts.simulated import MACHINES, facts, simulated
from backend.device.records import CardSample, DeviceType, GPULost

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "kind", "first", "capability", "gib", "why"),
    [
        pytest.param("rtx-4070-laptop", "cuda", "RTX 4070 Laptop", (8, 9), 8, ""),
        pytest.param("ada-and-blackwell", "cuda", "RTX PRO 6000 Blackwell", (12, 0), 96, ""),
        pytest.param("h200", "cuda", "H200", (9, 0), 140, ""),
        pytest.param("h100-mig", "cuda", "H100 80GB HBM3 MIG 3g.40gb", (9, 0), 40, ""),
        pytest.param("t4", "cuda", "Tesla T4", (7, 5), 15, ""),
        pytest.param("v100", "cuda", "Tesla V100", (7, 0), 16, ""),
        pytest.param("gb10", "cuda", "GB10", (12, 1), 120, ""),
        pytest.param("apple-m3", "mps", "Apple M3", (0, 0), 18, ""),
        pytest.param("wsl2", "cuda", "RTX 4080", (8, 9), 16, ""),
        pytest.param("windows-wddm", "cuda", "RTX 2080 SUPER", (7, 5), 8, ""),
        pytest.param("no-gpu", "cpu", "", (0, 0), 0, "no NVIDIA driver answers"),
        pytest.param("vanishing", "cuda", "NVIDIA L4", (8, 9), 22, ""),
        pytest.param("cpu-build", "cpu", "RTX 3090", (8, 6), 24, "build without CUDA"),
        pytest.param("old-driver", "cpu", "A100-SXM4-40GB", (8, 0), 40, "runs CUDA 11.4 at most"),
        pytest.param("new-card-old-build", "cpu", "RTX 5090", (12, 0), 32, "no kernels for sm_120"),
    ],
)
def test_facts(name, kind, first, capability, gib, why):  # noqa: PLR0917  # the columns of one table
    machine = facts(name)

    assert DeviceType(kind) is machine.gpu_type
    assert why in machine.why_no_gpu
    assert bool(why) == bool(machine.why_no_gpu)
    if first:
        gpu = machine.gpus[0]
        assert first in gpu.name
        assert capability == gpu.capability
        assert gib * GIB == pytest.approx(gpu.total_bytes, rel=0.05)
        assert 0 < gpu.free_bytes <= gpu.total_bytes
        assert gpu.bf16 is (architecture(capability).bf16 or kind == "mps")


@pytest.mark.parametrize("name", MACHINES)
def test_a_kernel_runs_exactly_on_cards_without_fault(name):
    """The fault, found without a kernel, is there exactly when a kernel would fail."""
    machine, probed = simulated(name), facts(name)

    for gpu in probed.gpus:
        device = "mps" if probed.gpu_type is DeviceType.MPS else f"cuda:{gpu.index}"
        if gpu.index >= 0:
            assert bool(gpu.fault) == bool(machine.torch_source.try_kernel(device))
    assert machine.torch_source.try_kernel("cpu") == ""


@pytest.mark.parametrize("name", [name for name, profile in MACHINES.items() if profile.cards])
def test_samples(name):
    """Every card of every machine has consistent values in base units."""
    machine = simulated(name)

    for card in machine.driver_source.cards():
        sample = machine.driver_source.sample(card.uuid)
        assert card.total_bytes == sample.total_bytes == sample.used_bytes + sample.free_bytes
        assert sample.utilization_ratio is None or 0.0 <= sample.utilization_ratio <= 1.0
        assert 20 < sample.temperature_celsius < 90
        assert 5 < sample.power_watts <= (sample.power_limit_watts or 1000)
        assert all(1_000_000 <= hertz < 12_000_000_000 for _, hertz in sample.clocks_hz)
        assert (sample.processes or ()) == machine.driver_source.processes(card.uuid)


def test_limits_of_platforms():
    """WSL2 does not list processes; Windows lists them without memory; a slice has no utilization."""
    wsl, windows, mig = (simulated(name) for name in ("wsl2", "windows-wddm", "h100-mig"))

    assert wsl.driver_source.sample(wsl.profile.cards[0].uuid).processes is None
    assert [None, None] == [used for *_, used in windows.driver_source.processes(windows.profile.cards[0].uuid)]
    assert mig.driver_source.sample(mig.profile.cards[0].uuid).utilization_ratio is None
    assert ("WSL2", "Windows") == (facts("wsl2").platform.label, facts("windows-wddm").platform.label)
    assert facts("windows-wddm").gpus[0].driver_model == "WDDM"


def test_vanishing():
    """The card answers three times and is then lost, until the test brings it back."""
    source, (card,) = simulated("vanishing").driver_source, MACHINES["vanishing"].cards
    for _ in range(3):
        assert isinstance(source.sample(card.uuid), CardSample)

    for read in (source.sample, source.processes, source.sample):
        with pytest.raises(GPULost, match="GPU is lost"):
            read(card.uuid)
    source.lost = False
    assert source.sample(card.uuid).free_bytes == card.free_bytes


def test_an_unknown_machine():
    """The error lists all machines."""
    with pytest.raises(KeyError, match="rtx-4070-laptop"):
        simulated("cray-1")


def test_no_torch_is_imported():
    """So that `check_gpu --as NAME` is fast."""
    script = (
        "import sys; from backend.device.facts.simulated import MACHINES, facts; "
        "[facts(name) for name in MACHINES]; print('torch' in sys.modules)"
    )

    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert result.stdout.strip() == "False"
