"""Throughput, latency and memory of a model."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from backend.gpu_toolkit import throughput
from backend.gpu_toolkit.throughput import profile_model
from tests.device.memory.test_trial_run import same, state


def steps(*seconds: float) -> Callable[[], float]:
    """A clock on which the n-th timed batch takes ``seconds[n]``; the last one repeats."""

    def ticks() -> Iterator[float]:
        now, durations = 0.0, iter(seconds)
        while True:
            yield now
            now += next(durations, seconds[-1])
            yield now

    found = ticks()
    return lambda: next(found)


class Counting(nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.calls: list[tuple[tuple[int, ...], bool, bool]] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls.append((tuple(inputs.shape), self.training, torch.is_inference_mode_enabled()))
        return self.layer(inputs)


def test_rates_from_the_clock():
    """Samples a second are samples over seconds; the spread is of whole batches."""
    found = profile_model(nn.Linear(4, 2), (4,), 8, device="cpu", batches=4, clock=steps(0.1, 0.2, 0.3, 0.4))

    assert 8 * 4 / 1.0 == pytest.approx(found["throughput_samples_per_sec"])
    assert {"mean": 0.25, "p50": 0.25, "p95": 0.4, "min": 0.1, "max": 0.4} == pytest.approx(found["latency_s"])
    assert found["throughput_tokens_per_sec"] is None


def test_warm_up_is_not_timed():
    """The first passes are run and not counted; all are as in serving."""
    model = Counting()
    found = profile_model(model, (4,), 3, device="cpu", batches=5, warmup=2, clock=steps(0.001))

    assert 5 == found["batches"]
    assert 1 + 2 + 5 == len(model.calls)  # the floating-point operations are counted in one more pass
    assert {((3, 4), False, True)} == set(model.calls)


def test_flops():
    """A linear layer multiplies and adds once for each weight and sample."""
    found = profile_model(nn.Linear(64, 10), (64,), 4, device="cpu", batches=3, clock=steps(0.5))

    assert 2 * 64 * 10 == found["flops_per_sample"]
    assert 2 * 64 * 10 * 4 / 0.5 == found["flops_per_sec"]


def test_the_model_is_left_as_it_was(device: str):
    """Training goes on after profiling as if nothing had happened."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model(torch.randn(8, 4)).sum().backward()
    before = state(model)

    profile_model(model, (4,), 4, device=device, batches=3)

    assert same(before, state(model))


def test_on_the_asked_device(device: str):
    """On a real GPU the batches are timed on it and its memory is known (--device cuda:0)."""
    model = nn.Linear(64, 64)
    found = profile_model(model, (64,), 16, device=device, batches=5)

    assert device == found["device"]
    assert 0 < found["latency_s"]["min"] <= found["latency_s"]["p95"] <= found["latency_s"]["max"]
    assert 0 < found["throughput_samples_per_sec"]
    assert found["peak_memory_bytes"] is None or found["peak_memory_bytes"] > found["weights_bytes"]
    assert (found["peak_memory_bytes"] is not None) == device.startswith("cuda")


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"batches": 0}, {"warmup": -1}])
def test_sizes_below_one(wrong: dict[str, Any]):
    """They are refused with the values in the message."""
    with pytest.raises(ValueError, match="at least 1, 1 and 0"):
        profile_model(nn.Linear(1, 1), (1,), device="cpu", **wrong)


def test_a_clock_that_stands_still():
    """A clock too coarse for a tiny model gives a large rate, not an error."""
    found = profile_model(nn.Linear(1, 1), (1,), device="cpu", clock=lambda: 0.0)

    assert 30 == found["batches"]
    assert throughput.GIB < found["throughput_samples_per_sec"]
