"""Out-of-memory retry: the same effective batch again in smaller micro-batches, so that no example is skipped.

Only exhausted memory is treated so, whoever reported it (device/faults.py); every other error is raised. The limit
never grows back within a run: what did not fit once would not fit again, and each try costs a step.

Source: composer's automatic micro-batching (trainer.py, _train_batch), with its thrash signal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from backend.device.batch_split import release_frames
from backend.device.faults import Fault, FaultKind, classify
from backend.device.memory.release import release
from backend.errors import DoesNotFit
from backend.training.records import TrainingConfig

_THRASH_STEPS = 2  # consecutive ones in which the allocator had to empty its cache (composer)
_THRASH_SHARE = 8  # of the micro-batch that goes then: nothing failed yet, so a small reduction is enough

Result = TypeVar("Result")


@runtime_checkable
class ChunkedLoss(Protocol):
    """A task that cannot be split (in-batch negatives) but computes its loss in chunks of its own (GradCache)."""

    def limit_chunk(self, items: int) -> None:
        """From now on run at most so many items at once. The loss and its gradients stay the same."""


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A micro-batch that ran out of memory."""

    items: int
    fault: Fault


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An effective batch that did not get through and runs again."""

    out_of_memory: Sequence[int]  # by rank: items of the micro-batch that ran out of memory, or 0
    message: str = ""  # of this rank's fault; empty where another rank failed


def run_micro_batches(
    micro_batches: Iterable[Sequence[int]], run: Callable[[Sequence[int]], None]
) -> OutOfMemory | None:
    """Run one after the other; the first that runs out of memory ends it, and what it held is released."""
    for micro_batch in micro_batches:
        fault = catch_out_of_memory(lambda items=micro_batch: run(items))  # type: ignore[misc]  # a lambda's default
        if fault is not None:
            return OutOfMemory(len(micro_batch), fault)
    return None


def catch_out_of_memory(run: Callable[[], object]) -> Fault | None:
    """Call ``run``; the fault if memory ran out, after the failed frames were released. Other errors are raised."""
    try:
        run()
    except Exception as error:
        fault = classify(error)
        if fault.kind is not FaultKind.OUT_OF_MEMORY:
            raise
        release_frames(error)
        return fault
    return None


class MicroBatchSize:
    """How many items run at once; lowered when memory runs out. All ranks hold the same numbers.

    Args:
        limit: items of a micro-batch, on each rank.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.retries = 0  # effective batches that had to be run again
        self._single_item_failed = False  # it is tried once more, with the cache emptied

    def shrink(self, failed: Sequence[int], *, divisible: bool = True) -> bool:
        """Micro-batches of these sizes ran out of memory, one or none (0) a rank: lower the limit.

        Args:
            divisible: False where less cannot be run at once; a failure then counts as one of a single item.

        Returns: whether to run the effective batch again; False when one item alone failed twice.
        """
        smallest = min(self.limit, *(items for items in failed if items)) if divisible else 1
        self.retries += 1
        again = smallest > 1 or not self._single_item_failed
        self._single_item_failed = smallest == 1
        if divisible:
            self.limit = max(1, smallest // 2)
        return again

    def succeeded(self) -> None:
        """An effective batch got through."""
        self._single_item_failed = False

    def shrink_slightly(self) -> bool:
        """Free memory for the allocator before it fails: an eighth less. False where the limit is 1 already."""
        before, self.limit = self.limit, max(1, self.limit - max(1, self.limit // _THRASH_SHARE))
        return self.limit < before

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"limit": self.limit, "misses": self.retries}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from it; a smaller limit that this run was started with stays."""
        self.limit, self.retries = min(self.limit, int(state["limit"])), int(state["misses"])


class OomRetry:
    """Runs an effective batch until it fits. The training loop and ``IntegratedGPUTrainingSystem`` share it.

    Args:
        size: lowered when memory runs out.
        device: whose cache is emptied then.
        discard: drops the gradients of a failed attempt.
        on_shrink: called before the next attempt with the items that failed, the limit before and the fault's message.
        does_not_fit: the error for a single item that fails twice, from the fault's message.
        divisible: False where less cannot be run at once.
    """

    def __init__(
        self,
        size: MicroBatchSize,
        device: str,
        *,
        discard: Callable[[], None],
        on_shrink: Callable[[int, int, str], None],
        does_not_fit: Callable[[str], DoesNotFit],
        divisible: bool = True,
    ) -> None:
        self._size, self._device, self._divisible = size, device, divisible
        self._discard, self._on_shrink, self._does_not_fit = discard, on_shrink, does_not_fit

    def run(self, attempt: Callable[[int], Result | FailedAttempt]) -> Result:
        """What ``attempt`` gives for the first limit that fits. Raises: DoesNotFit when there is nothing smaller."""
        while isinstance(outcome := attempt(self._size.limit), FailedAttempt):
            self._discard()
            if any(outcome.out_of_memory):
                self._shrink(outcome)
        self._size.succeeded()
        return outcome

    def _shrink(self, failed: FailedAttempt) -> None:
        before, message = self._size.limit, failed.message or "on another rank"
        again = self._size.shrink(failed.out_of_memory, divisible=self._divisible)
        release(self._device)
        if not again:
            raise self._does_not_fit(message)
        self._on_shrink(max(failed.out_of_memory), before, message)


class ThrashDetector:
    """Sees the allocator empty its cache to go on, step after step: slow, and the last sign before it fails."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._growing_steps = 0

    def after_step(self, retries: int) -> bool:
        """Whether the allocator's retries grew in two steps in a row. Counted anew after each True."""
        self._growing_steps = self._growing_steps + 1 if self._last is not None and retries > self._last else 0
        self._last = retries
        if self._growing_steps < _THRASH_STEPS:
            return False
        self._growing_steps = 0
        return True


def does_not_fit(message: str, longest: int, config: TrainingConfig, device: str) -> DoesNotFit:
    """The error for an example that does not fit alone, with what is left to try, the cheapest first."""
    ways = [
        ("checkpoint activations (--use-gradient-checkpointing)", not config.gradient_checkpointing),
        ("use the 8-bit optimizer", not config.eight_bit_optimizer),
        ("train adapters instead of all weights (--lora-rank 8)", config.lora_rank is None),
        (f"shorten the examples (the longest here has {longest})", True),
        ("take a smaller base model", True),
    ]
    advice = "; or ".join(way for way, possible in ways if possible)
    return DoesNotFit(f"one example alone needs more memory than {device} has ({message}): {advice}")
