"""Running out of memory: smaller micro-batches for the same effective batch, and nothing else treated so."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from backend.device.faults import FaultKind
from backend.errors import DoesNotFit
from backend.training.trainer.loop import train
from backend.training.trainer.oom_retry import MicroBatches, ThrashWatch, attempt, does_not_fit, until_miss
from tests.toy_training import Faults, Notes, ToyTask, difference, one_thread, plain_config, weights_of  # noqa: F401  # a fixture

OOM = "CUDA out of memory. Tried to allocate 20.00 MiB"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(OOM),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDNN_STATUS_ALLOC_FAILED"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exhausted_memory_is_a_miss(error: Exception) -> None:
    """Whoever reports it, the micro-batch that failed is named and those after it are not run."""
    ran: list[Sequence[int]] = []

    def run(part: Sequence[int]) -> None:
        ran.append(part)
        if len(part) == 3:
            raise error

    miss = until_miss([[1, 2], [3, 4, 5], [6]], run)

    assert miss is not None
    assert (3, FaultKind.OUT_OF_MEMORY) == (miss.items, miss.fault.kind)
    assert [[1, 2], [3, 4, 5]] == ran


@pytest.mark.parametrize(
    "error",
    [ValueError("CUDA out of memory"), RuntimeError("an illegal memory access was encountered"), KeyError("x")],
    ids=["a-text-is-no-proof", "a-lost-device", "a-bug"],
)
def test_other_errors_are_raised(error: Exception) -> None:
    """Shrinking cures exhausted memory alone; a lost device would only be asked in vain again and again."""
    with pytest.raises(type(error)):
        attempt(lambda: (_ for _ in ()).throw(error))


def test_the_failed_frames_let_go() -> None:
    """What the failed pass held is gone before anything is tried again."""

    class Held:
        pass

    kept: list[weakref.ref[Held]] = []

    def run() -> None:
        held = Held()
        kept.append(weakref.ref(held))
        raise torch.OutOfMemoryError(OOM)

    fault = attempt(run)
    gc.collect()

    assert fault is not None
    assert kept[0]() is None


@pytest.mark.parametrize(
    ("limit", "missed", "expected"),
    [
        pytest.param(32, [32], 16, id="half"),
        pytest.param(32, [7], 3, id="half-of-what-failed"),
        pytest.param(32, [0, 20, 12, 0], 6, id="half-of-the-smallest-that-failed-on-any-rank"),
        pytest.param(2, [2], 1, id="down-to-one"),
    ],
)
def test_a_miss_halves(limit: int, missed: list[int], expected: int) -> None:
    """All ranks compute the same new limit from what all of them missed."""
    micro = MicroBatches(limit)

    assert micro.missed(missed)
    assert (expected, 1) == (micro.limit, micro.misses)


def test_one_item_alone_is_tried_twice() -> None:
    """The second time with the cache given back; in between other batches may pass."""
    micro = MicroBatches(1)

    assert micro.missed([1])
    micro.passed()
    assert micro.missed([1])
    assert not micro.missed([1])


def test_what_cannot_be_cut_keeps_its_size() -> None:
    """An effective batch in one piece is tried twice, like a single item."""
    micro = MicroBatches(32)

    assert micro.missed([32], divisible=False)
    assert not micro.missed([32], divisible=False)
    assert 32 == micro.limit


def test_a_checkpoint_does_not_raise_the_limit() -> None:
    """What did not fit before the stop is not tried again after it."""
    before, after, smaller = MicroBatches(32), MicroBatches(32), MicroBatches(4)
    before.missed([32])
    after.load(before.state())
    smaller.load(before.state())

    assert [16, 4] == [after.limit, smaller.limit]


@pytest.mark.parametrize(
    ("retries", "expected"),
    [
        pytest.param([0, 0, 0], [False] * 3, id="calm"),
        pytest.param([5, 6, 6, 7, 7], [False] * 5, id="now-and-then"),
        pytest.param([0, 1, 2, 3, 4], [False, False, True, False, True], id="two-steps-in-a-row-then-anew"),
    ],
)
def test_thrash(retries: list[int], expected: list[bool]) -> None:
    """Two steps in a row with retries are the sign; what happened before the run does not count."""
    watch = ThrashWatch()

    assert expected == [watch.saw(one) for one in retries]


def test_thrash_takes_an_eighth() -> None:
    """A small step, for nothing failed yet; a single item has nothing to give."""
    micro = MicroBatches(32)

    assert [True, True] == [micro.thrashed(), micro.thrashed()]
    assert 25 == micro.limit
    assert not MicroBatches(1).thrashed()


def test_a_run_out_of_memory_ends_as_one_that_had_enough() -> None:
    """The same effective batches in smaller micro-batches: the same loss and weights, and the run says what it did."""
    free, short = ToyTask(), ToyTask()
    enough = train(free, plain_config(), output=None)
    notes = Notes()
    little = train(short, plain_config(), output=None, faults=Faults(fits=3), observers=[notes])

    assert abs(enough.loss - little.loss) < 1e-6
    assert difference(weights_of(free.model), weights_of(short.model)) < 1e-6
    assert (enough.steps, 8, 2) == (little.steps, enough.micro_batch, little.micro_batch)
    assert ["out_of_memory"] * 2 == [event.kind for event in little.events]
    assert [0, 0] == [event.step for event in notes.of("out_of_memory")]


def test_memory_that_runs_out_late() -> None:
    """A neighbour that takes memory midway costs no effective batch."""
    free, short = ToyTask(), ToyTask()
    train(free, plain_config(), output=None)
    late = train(short, plain_config(), output=None, faults=Faults(fits=2, fits_until=5))

    assert difference(weights_of(free.model), weights_of(short.model)) < 1e-6
    assert [5, 5] == [event.step for event in late.events]


def test_dropout_is_drawn_anew_for_a_rerun() -> None:
    """The aborted attempt leaves no trace in the random numbers: as if the run had begun with small micro-batches."""
    known, learnt = ToyTask(dropout=0.3), ToyTask(dropout=0.3)
    train(known, plain_config(micro_batch=2), output=None)
    train(learnt, plain_config(), output=None, faults=Faults(fits=2))

    assert difference(weights_of(known.model), weights_of(learnt.model)) == 0.0


def test_one_example_that_does_not_fit() -> None:
    """It ends with what is left to try, not with an endless loop."""
    with pytest.raises(
        DoesNotFit, match=r"one example alone needs more memory than cpu has.*--use-gradient-checkpointing"
    ):
        train(ToyTask(), plain_config(), output=None, faults=Faults(fits=0))


def test_a_task_that_bounds_itself_is_told() -> None:
    """What cannot be cut is run in smaller chunks of its own; without such a way it does not fit."""

    class Chunked(ToyTask):
        chunks: list[int]

        def limit_chunk(self, items: int) -> None:
            self.chunks.append(items)

    class Impatient(Faults):
        def before(self, step: int, indices: Sequence[int]) -> None:
            if not task.chunks or task.chunks[-1] > 2:
                raise torch.OutOfMemoryError(OOM)

    task = Chunked(splittable=False)
    task.chunks = []
    result = train(task, plain_config(), output=None, faults=Impatient())

    assert [4, 2] == task.chunks
    assert 12 == result.steps
    with pytest.raises(DoesNotFit):
        train(ToyTask(splittable=False), plain_config(), output=None, faults=Faults(fits=3))


def test_thrash_shrinks_before_anything_fails() -> None:
    """Two steps with allocator retries: the rest of the run goes on in smaller micro-batches, with the same result."""
    calm, thrashed = ToyTask(), ToyTask()
    train(calm, plain_config(), output=None)
    result = train(thrashed, plain_config(), output=None, faults=Faults(thrashing=[3, 4]))

    assert ["thrash"] == [event.kind for event in result.events]
    assert (7, 0) == (result.micro_batch, sum(event.kind == "out_of_memory" for event in result.events))
    assert difference(weights_of(calm.model), weights_of(thrashed.model)) < 1e-6


def test_other_errors_end_the_run() -> None:
    """And its observers are closed."""
    notes = Notes()
    with pytest.raises(KeyError):
        train(ToyTask(), plain_config(), output=None, faults=Faults(error=KeyError("a bug")), observers=[notes])

    assert 1 == notes.closed


def test_memory_that_runs_out_in_the_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have changed half of the weights: the run goes back to its snapshot, and ends as if nothing was."""
    calm, hit = ToyTask(), ToyTask()
    train(calm, plain_config(), output=None)
    real, calls = torch.optim.AdamW.step, []

    def step(self: torch.optim.AdamW, *args: object) -> object:
        calls.append(1)
        done = real(self, *args)
        if len(calls) == 5:
            raise torch.OutOfMemoryError(OOM)  # after the weights changed
        return done

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    result = train(hit, plain_config(), output=None)

    assert ["out_of_memory"] == [event.kind for event in result.events]
    assert difference(weights_of(calm.model), weights_of(hit.model)) == 0.0


def test_evaluation_is_tried_twice() -> None:
    """Once more with the cache given back; then it is said what did not fit."""

    class Large(ToyTask):
        misses = 1

        def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
            self.evaluations += 1
            if self.evaluations <= self.misses:
                raise torch.OutOfMemoryError(OOM)
            return {"accuracy": 0.5}

    task = Large()
    result = train(task, plain_config(epochs=1), output=None)

    assert {"accuracy": 0.5} == result.metrics
    task = Large()
    task.misses = 2
    with pytest.raises(DoesNotFit, match="evaluation"):
        train(task, plain_config(epochs=1), output=None)


def test_the_advice_leaves_out_what_is_on() -> None:
    """Nobody is told to switch on what is on already."""
    config = replace(plain_config(), gradient_checkpointing=True, lora_rank=8)
    message = str(does_not_fit("CUDA out of memory", 512, config, "cuda:0"))

    assert "checkpoint" not in message
    assert "lora" not in message
    assert "the longest here has 512" in message
