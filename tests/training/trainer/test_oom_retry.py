"""Out of memory: the same effective batch in smaller micro-batches; other errors are raised."""

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from backend.errors import DoesNotFit
from backend.training.trainer.loop import train
from backend.training.trainer.train_step import MicroBatchSize, OutOfMemoryGuard, ThrashDetector, does_not_fit
from tests.toy_training import Faults, RecordingObserver, ToyTask, difference, plain_config, weights_of

OOM = "CUDA out of memory. Tried to allocate 20.00 MiB"


@pytest.mark.slow
def test_the_failed_frames_are_released() -> None:
    """What the failed pass referenced is freed before the next attempt."""

    class Held:
        pass

    references: list[weakref.ref[Held]] = []

    def run() -> None:
        held = Held()
        references.append(weakref.ref(held))
        raise torch.OutOfMemoryError(OOM)

    with OutOfMemoryGuard() as guard:
        run()
    gc.collect()

    assert guard.fault is not None
    assert references[0]() is None


@pytest.mark.parametrize(
    ("limit", "failed", "expected"),
    [
        pytest.param(32, [32], 16, id="half"),
        pytest.param(32, [7], 3, id="half-of-what-failed"),
        pytest.param(32, [0, 20, 12, 0], 6, id="half-of-the-smallest-that-failed-on-any-rank"),
        pytest.param(2, [2], 1, id="down-to-one"),
    ],
)
def test_a_failure_halves_the_limit(limit: int, failed: list[int], expected: int) -> None:
    """All ranks compute the same new limit from the failures of all."""
    micro = MicroBatchSize(limit)

    assert micro.shrink(failed)
    assert (expected, 1) == (micro.limit, micro.retries)


def test_an_indivisible_batch_keeps_its_size() -> None:
    """An effective batch in one piece is tried twice, like a single item."""
    micro = MicroBatchSize(32)

    assert micro.shrink([32], divisible=False)
    assert not micro.shrink([32], divisible=False)
    assert 32 == micro.limit


def test_a_checkpoint_does_not_raise_the_limit() -> None:
    """A size that did not fit before the stop is not tried again after it."""
    before, after, smaller = MicroBatchSize(32), MicroBatchSize(32), MicroBatchSize(4)
    before.shrink([32])
    after.load_state_dict(before.state_dict())
    smaller.load_state_dict(before.state_dict())

    assert [16, 4] == [after.limit, smaller.limit]
    after.load_state_dict({"limit": 8, "misses": 1})  # as an earlier release wrote it
    assert (8, 1) == (after.limit, after.retries)


@pytest.mark.parametrize(
    ("retries", "expected"),
    [
        pytest.param([0, 0, 0], [False] * 3, id="calm"),
        pytest.param([5, 6, 6, 7, 7], [False] * 5, id="now-and-then"),
        pytest.param([0, 1, 2, 3, 4], [False, False, True, False, True], id="two-steps-in-a-row-then-anew"),
    ],
)
def test_thrash_detection(retries: list[int], expected: list[bool]) -> None:
    """Allocator retries in two steps in a row count as thrashing; retries before the run do not count."""
    detector = ThrashDetector()

    assert expected == [detector.after_step(count) for count in retries]


@pytest.mark.slow
def test_a_run_out_of_memory_ends_as_one_that_had_enough() -> None:
    """The same effective batches in smaller micro-batches: the same loss and weights, and the run reports it."""
    free, short = ToyTask(), ToyTask()
    enough = train(free, plain_config(), output=None)
    notes = RecordingObserver()
    little = train(short, plain_config(), output=None, faults=Faults(fits=3), observers=[notes])

    assert abs(enough.loss - little.loss) < 1e-6
    assert difference(weights_of(free.model), weights_of(short.model)) < 1e-6
    assert (enough.steps, 8, 2) == (little.steps, enough.micro_batch, little.micro_batch)
    assert ["out_of_memory"] * 2 == [event.kind for event in little.events]
    assert [0, 0] == [event.step for event in notes.of("out_of_memory")]


@pytest.mark.slow
def test_memory_that_runs_out_late() -> None:
    """Another process that takes memory midway costs no effective batch."""
    free, short = ToyTask(), ToyTask()
    train(free, plain_config(), output=None)
    late = train(short, plain_config(), output=None, faults=Faults(fits=2, fits_until=5))

    assert difference(weights_of(free.model), weights_of(short.model)) < 1e-6
    assert [5, 5] == [event.step for event in late.events]


@pytest.mark.slow
def test_dropout_is_the_same_in_a_retry() -> None:
    """A failed attempt does not change the random numbers: as if the run had begun with small micro-batches."""
    known, learnt = ToyTask(dropout=0.3), ToyTask(dropout=0.3)
    train(known, plain_config(micro_batch=2), output=None)
    train(learnt, plain_config(), output=None, faults=Faults(fits=2))

    assert difference(weights_of(known.model), weights_of(learnt.model)) == 0.0


@pytest.mark.slow
def test_one_example_that_does_not_fit() -> None:
    """The run ends with advice, not in an endless loop."""
    with pytest.raises(
        DoesNotFit, match=r"one example alone needs more memory than cpu has.*--use-gradient-checkpointing"
    ):
        train(ToyTask(), plain_config(), output=None, faults=Faults(fits=0))


@pytest.mark.slow
def test_a_chunked_loss_gets_the_limit() -> None:
    """A task that cannot be split computes its loss in smaller chunks; without chunks it does not fit."""

    class Chunked(ToyTask):
        chunks: list[int]

        def limit_chunk(self, items: int) -> None:
            self.chunks.append(items)

    class FailsAboveTwo(Faults):
        def before(self, step: int, indices: Sequence[int]) -> None:
            if not task.chunks or task.chunks[-1] > 2:
                raise torch.OutOfMemoryError(OOM)

    task = Chunked(splittable=False)
    task.chunks = []
    result = train(task, plain_config(), output=None, faults=FailsAboveTwo())

    assert [4, 2] == task.chunks
    assert 12 == result.steps
    with pytest.raises(DoesNotFit):
        train(ToyTask(splittable=False), plain_config(), output=None, faults=Faults(fits=3))


def test_thrash_shrinks_before_anything_fails() -> None:
    """Two steps with allocator retries: the run continues in smaller micro-batches, with the same result."""
    calm, thrashed = ToyTask(), ToyTask()
    train(calm, plain_config(), output=None)
    result = train(thrashed, plain_config(), output=None, faults=Faults(thrashing=[3, 4]))

    assert ["thrash"] == [event.kind for event in result.events]
    assert (7, 0) == (result.micro_batch, sum(event.kind == "out_of_memory" for event in result.events))
    assert difference(weights_of(calm.model), weights_of(thrashed.model)) < 1e-6


def test_other_errors_end_the_run() -> None:
    """Its observers are closed."""
    notes = RecordingObserver()
    with pytest.raises(KeyError):
        train(ToyTask(), plain_config(), output=None, faults=Faults(error=KeyError("a bug")), observers=[notes])

    assert 1 == notes.closed


@pytest.mark.slow
def test_memory_that_runs_out_in_the_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have changed half of the weights: the run goes back to its snapshot, and ends with the same weights."""
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


@pytest.mark.slow
def test_evaluation_is_tried_twice() -> None:
    """Once more with an empty cache; then the error names the evaluation."""

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


def test_the_advice_omits_what_is_on() -> None:
    """Nothing is advised that the config has already."""
    config = replace(plain_config(), gradient_checkpointing=True, lora_rank=8)
    message = str(does_not_fit("CUDA out of memory", 512, config, "cuda:0"))

    assert "checkpoint" not in message
    assert "lora" not in message
    assert "the longest here has 512" in message
