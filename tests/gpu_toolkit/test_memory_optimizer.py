"""The largest batch that fits, memory profiles, and the restored state of the model."""

import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import BertConfig, BertModel

from backend.device import default_device
from backend.device.facts.machine import probe
from backend.device.facts.simulated import facts
from backend.device.memory import trial_run
from backend.device.memory.device_memory import RESERVE_BYTES, MemoryUsage
from backend.device.memory.trial_run import StoragePeak
from backend.device.records import AllocatorStats
from backend.errors import DoesNotFit
from backend.gpu_toolkit import memory_optimizer
from backend.gpu_toolkit.memory_optimizer import GPUMemoryOptimizer, get_optimal_batch_size, largest_count
from tests.device.memory.test_trial_run import Tokens, same, state

GIB = 1024**3
MIB = 1024**2


@pytest.fixture(autouse=True)
def _machine(device: str) -> Iterator[None]:
    """This machine; looks for cards only with --device."""
    default_device.configure(probe(look_for_gpu=device != "cpu"))
    yield
    default_device.reset()


def free(count_bytes: int) -> Callable[[str], MemoryUsage]:
    """A device with this much free, the reserve on top."""
    return lambda device: MemoryUsage(AllocatorStats(), count_bytes + RESERVE_BYTES)


def batch_size(module: nn.Module, available: int = 2**50, **options: Any) -> int:
    """The answer for a processor with this much free."""
    return get_optimal_batch_size(module, (256,), "cpu", **{"read_usage": free(available), **options})


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 16))


def real_peak(module: nn.Module, count: int, mode: trial_run.Mode) -> int:
    """The peak of a computed batch above the weights."""
    tracker = StoragePeak()
    storages = [weight.untyped_storage() for weight in module.parameters()]
    tracker.ignore(storages)
    with trial_run.restored_state(module):
        module.train(mode == "training")
        with tracker:
            inputs = torch.randn(count, 256)
            if mode == "training":
                trial_run.forward_backward(module, inputs)
            else:
                with torch.no_grad():
                    module(inputs)
            return tracker.peak_bytes


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_result_fits_and_uses_most_of_the_memory(mode: trial_run.Mode):
    """A real batch of that size stays under the limit, and uses most of it."""
    module, available = make_model(), 16 * MIB
    count = batch_size(module, available, mode=mode, max_batch_size=10**6, optimizer_states=0.0)

    assert real_peak(module, count, mode) <= available < 1.5 * real_peak(module, count, mode)


def test_the_optimizers_state_is_kept_free():
    """AdamW's two moments are twice the weights; plain SGD has none."""
    adam, sgd = (
        batch_size(make_model(), 16 * MIB, mode="training", optimizer_states=states, max_batch_size=10**6)
        for states in (2.0, 0.0)
    )

    assert adam < sgd


def test_a_target_counts_weights_and_batch():
    """More memory, larger batches, never more than the target allows in all."""
    module, targets = make_model(), (0.02, 0.04, 0.08)
    counts = [
        get_optimal_batch_size(module, (256,), "cpu", target_memory_gb=target, max_batch_size=10**6)
        for target in targets
    ]

    assert counts == sorted(set(counts))
    for count, target in zip(counts, targets, strict=True):
        assert trial_run.weights_bytes(module) + real_peak(module, count, "inference") <= target * GIB


def test_a_target_cannot_be_more_than_is_free():
    """A wish for 80 GiB on a small device gives what fits there."""
    small, wished = (
        batch_size(make_model(), 4 * MIB, max_batch_size=10**6, target_memory_gb=size) for size in (None, 80)
    )

    assert small == wished


def test_never_over_the_bound():
    assert 24 == batch_size(make_model(), max_batch_size=24)
    assert memory_optimizer.MAX_BATCH_SIZE == batch_size(make_model())


@pytest.mark.slow
def test_not_even_one():
    """An error with numbers and with what would help, not 0 and not 1."""
    with pytest.raises(DoesNotFit, match=r"one sample of \(256,\) needs .* are left on cpu: shorten") as caught:
        get_optimal_batch_size(make_model(), (256,), "cpu", read_usage=free(100))

    assert "MiB of weights" in str(caught.value)


@pytest.mark.parametrize("wrong", [{"max_batch_size": 0}, {"target_memory_gb": 0}, {"target_memory_gb": -1.0}])
def test_limits_that_are_none(wrong: dict[str, float]):
    with pytest.raises(ValueError, match="must be above 0"):
        get_optimal_batch_size(make_model(), (256,), "cpu", **wrong)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        pytest.param(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), (3, 32, 32), id="pixels"),
        pytest.param(Tokens, (64,), id="tokens"),
    ],
)
def test_other_inputs(make: Callable[[], nn.Module], shape: tuple[int, ...], device: str):
    """Pixels and tokens, and the statistics of batch norm afterwards as before."""
    module = make()
    before = state(module)
    count = get_optimal_batch_size(module, shape, device, mode="training", max_batch_size=64)

    assert 64 == count
    assert same(before, state(module))


def test_own_inputs():
    """A model that is fed otherwise says how."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Bilinear(4, 6, 2)

        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return self.layer(left, right)

    def make(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(count, 4), torch.randn(count, 6)

    assert 32 == get_optimal_batch_size(Two(), (1,), "cpu", make_inputs=make, max_batch_size=32)


class Peeking(nn.Module):
    """Its path depends on values, which fake tensors have not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 1024)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs) if float(inputs.sum()) < 1e9 else inputs


def test_a_model_that_looks_at_values():
    """It is computed in earnest, for one sample and for two."""
    module = Peeking()
    count = batch_size(module, 16 * MIB, max_batch_size=10**6)

    assert real_peak(module, count, "inference") <= 16 * MIB


lines = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**4)), min_size=1, max_size=4)


@given(moments=lines, room=st.integers(0, 10**8), most=st.integers(1, 3000), limit=st.integers(1, 4000))
def test_largest_count(moments: list[tuple[int, int]], room: int, most: int, limit: int):
    """Always within the room, never tried beyond twice of it, and close to the best that fits."""
    tried: list[int] = []

    def peak(count: int) -> int:
        return max(intercept + slope * count for intercept, slope in moments)

    def run(count: int) -> int | None:
        tried.append(count)
        return peak(count) if count <= limit else None  # a card may refuse earlier than its numbers say

    found = largest_count(run, room, most)
    best = max((count for count in range(1, min(most, limit) + 1) if peak(count) <= room), default=0)

    assert best - max(0, best // 16) <= found <= best
    assert all(count == 1 or peak(count) <= 2 * room for count in tried)
    assert len(tried) < 24  # 12 doublings and the last steps


def test_batches_are_not_run_where_failing_could_harm():
    """Under WSL2 running out of memory can take the host down: their memory is predicted, as on a CPU."""
    runs = {}
    for name in ("wsl2", "h200", "no-gpu"):
        default_device.configure(facts(name))
        runs[name] = memory_optimizer._BatchProbe(make_model(), (256,), torch.device("cuda:0"), "inference", None).runs

    assert {"wsl2": False, "h200": True, "no-gpu": True} == runs


def test_one_batchs_gradients_are_not_the_nexts():
    """A measured batch leaves none behind: they would count as in use already, and hide those of the next."""
    module = make_model()
    probe = memory_optimizer._BatchProbe(module, (256,), torch.device("cpu"), "training", None)
    with trial_run.restored_state(module):
        probe._run(2, 1)

        assert all(one.grad is None for one in module.parameters())


def test_memory_profile(device: str):
    """One row a batch size, larger with the batch; weights and the optimizer's state are in it."""
    module = make_model()
    before = state(module)
    found = GPUMemoryOptimizer(device).profile_memory_usage(module, (32, 256))

    assert [1, 2, 4, 8, 16, 32] == list(found)
    assert [row["memory_used_bytes"] for row in found.values()] == sorted(
        row["memory_used_bytes"] for row in found.values()
    )
    assert 3 * trial_run.weights_bytes(module) < found[1]["memory_used_bytes"]
    assert all(row["fits"] and row["memory_used_gb"] * GIB == row["memory_used_bytes"] for row in found.values())
    assert {"measured" if device.startswith("cuda") else "predicted"} == {row["source"] for row in found.values()}
    assert same(before, state(module))


def test_memory_profile_beyond_the_device():
    """What does not fit is said and predicted, not tried."""
    found = GPUMemoryOptimizer("cpu", optimizer_states=0.0, read_usage=free(8 * MIB)).profile_memory_usage(
        make_model(), (1, 256), [1, 10**6]
    )

    assert [True, False] == [row["fits"] for row in found.values()]


@pytest.mark.parametrize("shape", [(32,), (), (0, 784)])
def test_shapes_without_a_batch(shape: tuple[int, ...]):
    """The message shows how it is written."""
    with pytest.raises(ValueError, match="batch first"):
        GPUMemoryOptimizer("cpu").optimize_batch_size(make_model(), shape)


def bert() -> nn.Module:
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32)
    config._attn_implementation = "eager"
    return BertModel(config)


@pytest.mark.slow
def test_model_memory(caplog: pytest.LogCaptureFixture):
    """Attention without its matrix, activations recomputed; the log says what it saves for this batch."""
    module = bert()
    with caplog.at_level(logging.INFO):
        found = GPUMemoryOptimizer("cpu").optimize_model_memory(module, (16, 32))

    (record,) = [one for one in caplog.records if one.message == "model memory optimized"]
    assert found is module
    assert "sdpa" == module.config._attn_implementation
    assert ["scaled-dot-product attention", "activation checkpointing, the model's own"] == record.fields["done"]
    assert record.fields["after_bytes"] < 0.7 * record.fields["before_bytes"]


def test_model_memory_keeps_the_gradients():
    """Another attention kernel rounds otherwise; nothing else changes."""
    plain = bert().eval()  # no dropout, whose random numbers the kernels draw in other orders
    lean = GPUMemoryOptimizer("cpu").optimize_model_memory(copy.deepcopy(plain))
    ids = torch.randint(50, (4, 16))
    for module in (plain, lean):
        module(ids, torch.ones_like(ids)).last_hidden_state.square().mean().backward()
    pairs = [(one.grad, other.grad) for one, other in zip(plain.parameters(), lean.parameters(), strict=True)]

    assert lean.config._attn_implementation != plain.config._attn_implementation
    assert any(one is not None for one, _ in pairs)
    # float32 keeps 24 bits; sums of some hundred terms lose a few
    assert all(one is other or torch.allclose(one, other, atol=1e-6, rtol=1e-4) for one, other in pairs)


def test_model_memory_where_nothing_can_be_done():
    """A plain model comes back as it was."""
    module = make_model()

    assert module is GPUMemoryOptimizer("cpu").optimize_model_memory(module, (4, 256))
    assert not any("forward" in vars(one) for one in module.modules())
