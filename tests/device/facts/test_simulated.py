"""Simulated machines: plausible facts through the real ``probe``, and plausible sensors."""

import pytest

from backend.device.facts.simulated import MACHINES, facts, simulated
from backend.device.records import CardSample, DeviceType, GPULost


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
