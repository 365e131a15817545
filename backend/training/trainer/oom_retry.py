"""When memory runs out: the same effective batch again in smaller micro-batches, so that nothing of it is lost.

Only exhausted memory is treated so, whoever reported it (device/faults.py); every other error is raised. The limit
never grows back within a run: what did not fit once would not fit again, and each try costs a step.

Source: composer's automatic micro-batching (trainer.py, _train_batch), with its thrash signal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from backend.device.batch_split import release_frames
from backend.device.faults import Fault, FaultKind, classify
from backend.errors import DoesNotFit
from backend.training.records import TrainingConfig

_THRASH_STEPS = 2  # consecutive ones in which the allocator had to empty its cache (composer)
_THRASH_SHARE = 8  # of the micro-batch that goes then: there was no failure, so a small step is enough


@runtime_checkable
class BoundsItself(Protocol):
    """A task that cannot be cut (in-batch negatives) but computes its loss in chunks of its own (GradCache)."""

    def limit_chunk(self, items: int) -> None:
        """From now on run at most so many items at once. The loss and its gradients stay the same."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A micro-batch that ran out of memory."""

    items: int
    fault: Fault


def until_miss(parts: Iterable[Sequence[int]], run: Callable[[Sequence[int]], None]) -> Miss | None:
    """Run micro-batches one after the other; the first that runs out of memory ends it, with its memory let go of."""
    for part in parts:
        fault = attempt(lambda part=part: run(part))  # type: ignore[misc]  # mypy cannot infer a lambda's default
        if fault is not None:
            return Miss(len(part), fault)
    return None


def attempt(run: Callable[[], object]) -> Fault | None:
    """Run it; the fault if memory ran out, after what the failed frames held was let go of. Other errors are raised."""
    try:
        run()
    except Exception as error:
        fault = classify(error)
        if fault.kind is not FaultKind.OUT_OF_MEMORY:
            raise
        release_frames(error)
        return fault
    return None


class MicroBatches:
    """How many items run at once, and what was learnt about it. All ranks hold the same numbers.

    Args:
        limit: items of a micro-batch, on each rank.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.misses = 0  # effective batches that had to be run again
        self._alone = False  # a single item missed; it is tried once more, with the cache given back

    def missed(self, items: Sequence[int], *, divisible: bool = True) -> bool:
        """Micro-batches of these sizes ran out of memory, one or none (0) a rank: lower the limit.

        Args:
            divisible: False where less cannot be run at once; a miss is then as one of a single item.

        Returns: whether to run the effective batch again; False when one item alone missed twice.
        """
        smallest = min(self.limit, *(one for one in items if one)) if divisible else 1
        self.misses += 1
        again = smallest > 1 or not self._alone
        self._alone = smallest == 1
        if divisible:
            self.limit = max(1, smallest // 2)
        return again

    def passed(self) -> None:
        """An effective batch got through."""
        self._alone = False

    def thrashed(self) -> bool:
        """Give the allocator room before it fails: an eighth less. False where nothing is left to give."""
        before, self.limit = self.limit, max(1, self.limit - max(1, self.limit // _THRASH_SHARE))
        return self.limit < before

    def state(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"limit": self.limit, "misses": self.misses}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from it; a smaller limit that this run was started with stays."""
        self.limit, self.misses = min(self.limit, int(state["limit"])), int(state["misses"])


class ThrashWatch:
    """Sees the allocator empty its cache to go on, step after step: slow, and the last sign before it fails."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._grown = 0

    def saw(self, retries: int) -> bool:
        """After a step: whether they grew in two steps in a row. Counted anew after each yes."""
        self._grown = self._grown + 1 if self._last is not None and retries > self._last else 0
        self._last = retries
        if self._grown < _THRASH_STEPS:
            return False
        self._grown = 0
        return True


def does_not_fit(said: str, longest: int, config: TrainingConfig, device: str) -> DoesNotFit:
    """The error for an example that does not fit alone, with what is left to try, the cheapest first."""
    ways = [
        ("checkpoint activations (--use-gradient-checkpointing)", not config.gradient_checkpointing),
        ("use the 8-bit optimizer", not config.eight_bit_optimizer),
        ("train adapters instead of all weights (--lora-rank 8)", config.lora_rank is None),
        (f"shorten the examples (the longest here has {longest})", True),
        ("take a smaller base model", True),
    ]
    left = "; or ".join(way for way, possible in ways if possible)
    return DoesNotFit(f"one example alone needs more memory than {device} has ({said}): {left}")
