"""An effective batch, run as often as memory asks for, in ever smaller micro-batches, on all ranks alike."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from backend.device.facts.torch_source import Torch
from backend.device.memory.release import release
from backend.training.records import Task, TrainingConfig
from backend.training.trainer.callbacks import Telling
from backend.training.trainer.distributed import Ranks
from backend.training.trainer.oom_retry import BoundsItself, does_not_fit
from backend.training.trainer.setup import Parts
from backend.training.trainer.snapshot import seed_step
from backend.training.trainer.train_step import FaultSource, Gathered


@dataclass(frozen=True, slots=True)
class Context:
    """What a run is about, its parts, and who watches, breaks and stops it."""

    task: Task
    config: TrainingConfig
    ranks: Ranks
    parts: Parts
    telling: Telling
    faults: FaultSource
    stop: threading.Event


class Attempts:
    """Gathers gradients. Before anything travels between ranks, all say whether they got through."""

    def __init__(self, context: Context) -> None:
        self._task, self._config = context.task, context.config
        self._ranks, self._parts = context.ranks, context.parts
        self._tell, self._faults, self._stop = context.telling.tell, context.faults, context.stop
        self._device = str(context.ranks.device)
        self._thrashing = False
        self.interrupted = False  # some rank was told to stop

    def gather(self, batch: Sequence[int]) -> tuple[Gathered, float]:
        """The gradients of an effective batch and its weight on all ranks, with as many attempts as memory asks for."""
        parts, ranks = self._parts, self._ranks
        place = parts.batches.epoch * parts.batches.steps_per_epoch + parts.batches.position
        while True:
            seed_step(self._config.seed, place, ranks.rank, ranks.device)
            cuts = parts.feed.cuts(batch, parts.micro.limit)
            gathered = parts.stepper.gather(cuts, parts.feed.batches, parts.standing.steps)
            through = gathered.miss is None
            rows = ranks.rows(
                0 if gathered.miss is None else gathered.miss.items,
                float(gathered.uncompiled),
                gathered.weight,
                float(through and parts.thrash.saw(self._retries())),
                float(self._stop.is_set()),
            )
            missed, uncompiled, weights, thrashing, stops = zip(*rows, strict=True)
            self.interrupted = self.interrupted or any(stops)
            if not any(missed) and not any(uncompiled):
                parts.micro.passed()
                self._thrashing = any(thrashing)
                return gathered, sum(weights)
            parts.stepper.forget()
            if any(missed):
                self._shrink([int(one) for one in missed], gathered)
            parts.feed.restart(parts.micro.limit)

    def _shrink(self, missed: Sequence[int], gathered: Gathered) -> None:
        """Smaller micro-batches after a miss. Raises: DoesNotFit when there is nothing smaller."""
        parts, before = self._parts, self._parts.micro.limit
        fault = gathered.miss.fault if gathered.miss is not None else None
        said = fault.message if fault is not None else "on another rank"
        again = parts.micro.missed(missed, divisible=self._divisible)
        release(self._device)
        if not again:
            raise does_not_fit(said, max(self._task.lengths), self._config, self._device)
        self._tell_the_task()
        self._tell(
            "out_of_memory",
            {"micro_batch": parts.micro.limit, "before": before, "misses": parts.micro.misses},
            f"memory ran out in a micro-batch of {max(missed)} ({said}): {parts.micro.limit} at once from now on, "
            "the same effective batch runs again",
        )

    def after_step(self) -> None:
        """Smaller micro-batches before memory runs out, where the allocator says that it is near."""
        parts, before = self._parts, self._parts.micro.limit
        thrashing, self._thrashing = self._thrashing, False
        if not thrashing or not self._divisible or not parts.micro.thrashed():
            return
        self._tell_the_task()
        parts.feed.restart(parts.micro.limit)
        self._tell(
            "thrash",
            {"micro_batch": parts.micro.limit, "before": before},
            f"the allocator had to empty its cache in step after step: {parts.micro.limit} items at once from now on",
        )

    @property
    def _divisible(self) -> bool:
        """Whether less can run at once."""
        return self._task.splittable or isinstance(self._task, BoundsItself)

    def _tell_the_task(self) -> None:
        if not self._task.splittable and isinstance(self._task, BoundsItself):
            self._task.limit_chunk(self._parts.micro.limit)

    def _retries(self) -> int:
        return Torch().allocator(self._device).retries + self._faults.retries(self._parts.standing.steps)
