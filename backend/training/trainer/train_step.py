"""One optimizer step: micro-batches forward and backward, the gradient of the whole effective batch, one update.

The gradient is the sum of all losses' gradients over the sum of all weights, on all ranks. So it is the same however
the effective batch was split and shared out; only the order in which floats are added differs.

Out of memory: the same effective batch runs again in smaller micro-batches, so that no example is skipped. Only
exhausted memory is treated so, whoever reported it (device/faults.py); every other error is raised. The limit never
grows back within a run: what did not fit once would not fit again, and each try costs a step.

Source: composer's automatic micro-batching (trainer.py, _train_batch), with its thrash signal.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from backend.device.batch_split import release_frames
from backend.device.faults import Fault, FaultKind, classify
from backend.device.transfer import move_to_device
from backend.errors import DoesNotFit, TrainingFailed
from backend.training.data.batches import EffectiveBatchSampler, MicroBatchLoader, micro_batches, share
from backend.training.records import Batch, LossPart, Task, TrainingConfig
from backend.training.trainer.distributed import ProcessGroup
from backend.training.trainer.model_setup import ModelSetup, parameters_of
from backend.training.trainer.precision import MixedPrecision, NumericFailure, find_bad_examples

_THRASH_STEPS = 2  # consecutive ones in which the allocator had to empty its cache (composer)
_THRASH_SHARE = 8  # of the micro-batch that goes then: nothing failed yet, so a small reduction is enough


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
    message: str = "on another rank"  # of this rank's fault


class OutOfMemoryGuard:
    """Ends its block when memory runs out, and keeps the fault; failed frames are released. Other errors are raised.

    Call a function in the block: what the block's own frame holds stays.
    """

    def __init__(self) -> None:
        self.fault: Fault | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        fault = classify(error)
        if fault.kind is not FaultKind.OUT_OF_MEMORY:
            return False
        release_frames(error)
        self.fault = fault
        return True


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
        return {"limit": self.limit, "retries": self.retries}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from it; a smaller limit that this run was started with stays."""
        retries = state["retries"] if "retries" in state else state["misses"]  # its name before 2026-11-27
        self.limit, self.retries = min(self.limit, int(state["limit"])), int(retries)


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


_IDLE_STEPS = 10  # without a loss or a gradient before a run is given up


class FaultSource:
    """Faults on purpose, for tests and benchmarks; this one breaks nothing.

    Called on the training thread; ``step`` is optimizer steps done.
    """

    def before(self, step: int, indices: Sequence[int]) -> None:
        """Before a micro-batch of these examples runs; may raise what a device would raise."""

    def loss(self, step: int, indices: Sequence[int], part: LossPart) -> LossPart:  # noqa: ARG002  # for others
        """The loss to use instead of the micro-batch's own ``part``."""
        return part

    def retries(self, step: int) -> int:  # noqa: ARG002  # likewise
        """Allocator retries to add to the device's own, as a growing count."""
        return 0


class BatchIterator:
    """Walks through the effective batches of the epochs, and loads this rank's micro-batches of each ahead of time.

    ``restart`` it whenever the micro-batch size or the position in the data changed.

    Args:
        splittable: False gives each rank its share of an effective batch in one piece.
    """

    def __init__(
        self, batches: EffectiveBatchSampler, loader: MicroBatchLoader, group: ProcessGroup, *, splittable: bool
    ) -> None:
        self._batches, self._loader, self._group = batches, loader, group
        self._splittable = splittable
        self._waiting: deque[list[int]] = deque()
        self.loaded: Iterator[Batch] = iter(())  # micro-batches, those of the current effective batch first

    def restart(self, micro_batch: int) -> None:
        """Begin anew at the current batch; what was collated ahead is dropped."""
        self.stop()
        self._waiting = deque(self._batches.remaining())
        splits = (part for batch in tuple(self._waiting) for part in self.split(batch, micro_batch))
        self.loaded = self._loader.load(splits, epoch=self._batches.epoch)

    @property
    def current(self) -> list[int]:
        """The effective batch to train on next, all ranks' examples; empty where all of them are excluded."""
        return self._waiting[0]

    @property
    def is_empty(self) -> bool:
        """Whether the epoch is through, or the iterator was stopped."""
        return not self._waiting

    def split(self, batch: Sequence[int], micro_batch: int) -> list[list[int]]:
        """This rank's micro-batches of an effective batch; none where it has fewer examples than there are ranks."""
        indices = share(batch, self._group.rank, self._group.size)
        if not indices:
            return []
        return micro_batches(indices, micro_batch) if self._splittable else [indices]

    def advance(self) -> None:
        """The current batch is done."""
        self._waiting.popleft()
        self._batches.advance()

    def stop(self) -> None:
        """Collate nothing more."""
        self._waiting.clear()
        close = getattr(self.loaded, "close", None)
        if close is not None:
            close()


@dataclass(frozen=True, slots=True)
class MicroBatchLoss:
    """The loss of a micro-batch that got through."""

    indices: tuple[int, ...]
    total: Tensor  # scalar on the device, without its graph
    weight: float


@dataclass(frozen=True, slots=True)
class Accumulated:
    """This rank's micro-batches of an effective batch; their gradients are on the model."""

    losses: tuple[MicroBatchLoss, ...] = ()
    out_of_memory: OutOfMemory | None = None  # what ended them early
    compile_failed: bool = False  # the model runs uncompiled now: run them again

    @property
    def weight(self) -> float:
        """Of this rank."""
        return sum(loss.weight for loss in self.losses)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The outcome of an optimizer step; the same on all ranks."""

    total: float = 0.0  # sum of the losses
    weight: float = 0.0  # what it stands for; 0: there was nothing to train on, and nothing was done
    grad_norm: float = math.nan  # before clipping
    applied: bool = False  # whether the weights changed
    failure: NumericFailure | None = None
    out_of_memory: Fault | None = None  # in the optimizer: the weights may be half changed


class TrainStep:
    """Computes gradients and applies them."""

    def __init__(
        self,
        task: Task,
        setup: ModelSetup,
        optimizer: Optimizer,
        precision: MixedPrecision,
        group: ProcessGroup,
        *,
        config: TrainingConfig,
        faults: FaultSource,
    ) -> None:
        self._task, self._setup, self._optimizer = task, setup, optimizer
        self._precision, self._group, self._faults = precision, group, faults
        self._max_grad_norm = config.max_grad_norm
        self._divisor = _power_of_two(config.effective_batch)  # the first step shows what batches weigh
        self._has_gradients = False  # a gradient has reached the weights
        self._idle_steps = 0  # until then

    def accumulate(self, splits: Sequence[Sequence[int]], batches: Iterator[Batch], step: int) -> Accumulated:
        """Forward and backward through this rank's micro-batches; ``batches`` gives one for each of ``splits``."""
        losses: list[MicroBatchLoss] = []
        if not self._setup.model.training:
            self._setup.model.train()
        try:
            for indices in splits:
                with OutOfMemoryGuard() as guard:
                    losses.append(self._run(indices, batches, step))
                if guard.fault is not None:
                    return Accumulated(tuple(losses), OutOfMemory(len(indices), guard.fault))
        except Exception as error:
            if not self._setup.disable_compile(error):
                raise
            return Accumulated(compile_failed=True)
        return Accumulated(tuple(losses))

    def discard(self) -> None:
        """Drop what a half-done step left: it is run again from its beginning."""
        self._precision.discard(self._optimizer)

    def update(self, accumulated: Accumulated, weight: float, batch: Sequence[int], step: int) -> StepResult:
        """Make the gradients those of the whole effective batch and take the step, unless something is not finite.

        Args:
            weight: of all ranks.
            batch: the whole effective batch, all ranks'.
        """
        if weight == 0:  # every label ignored: 0/0 is no loss of 0
            self.discard()
            return StepResult()
        self._group.sum_gradients(parameters_of(self._optimizer))
        norm = self._precision.clip_gradients(self._optimizer, self._max_grad_norm, factor=self._divisor / weight)
        result = self._check_finite(accumulated, weight, norm, batch, step)
        self._divisor = _power_of_two(weight)
        if result.failure is not None:
            self.discard()
            return result
        self._require_gradients(result)
        return self._apply(result)

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"divisor": self._divisor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        self._divisor = float(state["divisor"])

    def _run(self, indices: Sequence[int], batches: Iterator[Batch], step: int) -> MicroBatchLoss:
        self._faults.before(step, indices)
        part = self._loss(next(batches), indices, step)
        if not 0 <= part.weight < math.inf:
            raise TrainingFailed(f"the task gave a loss the weight {part.weight}; it must be finite and not negative")
        if part.weight > 0:
            # Dividing by a power of two changes no digit, whatever the step turns out to weigh. It keeps float16's
            # gradients where those of a mean would be: a sum over thousands of tokens overflows under the same scale.
            self._precision.backward(part.total.float() / self._divisor)
        return MicroBatchLoss(tuple(indices), part.total.detach().float(), part.weight)

    def _loss(self, batch: Batch, indices: Sequence[int], step: int) -> LossPart:
        with self._precision.autocast():
            part = self._task.loss(self._setup.forward_model, self._setup.to_memory_format(batch))
        return self._faults.loss(step, indices, part)

    def _check_finite(
        self, accumulated: Accumulated, weight: float, norm: Tensor, batch: Sequence[int], step: int
    ) -> StepResult:
        """The numbers, read from the device at once, and whether they are finite on every rank."""
        losses = [loss for loss in accumulated.losses if loss.weight > 0]
        grad_norm, *totals = torch.stack([norm, *(loss.total for loss in losses)]).tolist()
        broken = [loss for loss, total in zip(losses, totals, strict=True) if not math.isfinite(total)]
        rows = self._group.gather(sum(totals), float(bool(broken)))
        result = StepResult(sum(row[0] for row in rows), weight, grad_norm)
        if any(row[1] for row in rows):
            self._optimizer.zero_grad(set_to_none=True)  # its memory is needed to find the examples
            suspects = self._group.gather_objects(self._find_suspects(broken, step))
            examples = sorted({index for indices in suspects for index in indices})
            return replace(result, failure=NumericFailure(f"step {step}: the loss was not finite", tuple(examples)))
        if not math.isfinite(grad_norm) and self._precision.scaler is None:
            reason = f"step {step}: the loss was finite but its gradients were not"
            return replace(result, failure=NumericFailure(reason, tuple(sorted(batch))))
        return result

    def _apply(self, result: StepResult) -> StepResult:
        finite = math.isfinite(result.grad_norm)
        with OutOfMemoryGuard() as guard:
            self._precision.step(self._optimizer, finite=finite)
        self.discard()
        if any(row[0] for row in self._group.gather(float(guard.fault is not None))):
            faults = [fault for fault in self._group.gather_objects(guard.fault) if fault is not None]
            return replace(result, out_of_memory=faults[0])
        return replace(result, applied=finite)

    def _require_gradients(self, result: StepResult) -> None:
        """Activation checkpointing and adapters have ways to cut gradients off in silence (transformers#26221)."""
        if self._has_gradients or not math.isfinite(result.grad_norm):
            return
        if result.grad_norm == 0:
            self._idle_steps += 1
            if result.total == 0 and self._idle_steps < _IDLE_STEPS:  # a ranking loss of items that are all equal
                return
            raise TrainingFailed(
                "no gradient reached the weights: the loss does not depend on any weight that may "
                "change. Look for a detached output, frozen layers, or reentrant activation checkpointing"
            )
        self._has_gradients = True

    def _find_suspects(self, broken: Sequence[MicroBatchLoss], step: int) -> list[int]:
        """The examples of this rank whose loss alone is not finite; all of a micro-batch where none is."""
        suspects: list[int] = []
        for loss in broken:
            alone = (
                find_bad_examples(loss.indices, lambda part: self._breaks(part, step)) if self._task.splittable else []
            )
            suspects += alone or loss.indices
        return suspects

    @torch.no_grad()
    def _breaks(self, indices: Sequence[int], step: int) -> bool:
        """Whether these examples together give a loss that is not finite; in evaluation mode, which takes one item."""
        self._setup.model.eval()
        batch = move_to_device(self._task.collate(indices), self._group.device)
        return not bool(torch.isfinite(self._loss(batch, indices, step).total))


def seed_step(seed: int, position: int, rank: int, device: torch.device) -> None:
    """Set the random numbers of one step on one rank: dropout's, and those of Python and NumPy for a task's own use.

    So a step draws the same numbers after a resume, after a return to a snapshot, and when it runs again after an
    out-of-memory error; no generator's state is saved.
    """
    text = f"{seed}:{position}:{rank}".encode()
    mixed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1  # torch takes 63 bits
    random.seed(mixed)
    np.random.seed(mixed % 2**32)  # the global generator is what foreign code draws from
    torch.default_generator.manual_seed(mixed)  # torch.manual_seed also queues work for cards that are not there
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(mixed)
    elif device.type == "mps":
        torch.mps.manual_seed(mixed)


def _power_of_two(weight: float) -> float:
    return float(2.0 ** round(math.log2(weight))) if math.isfinite(weight) and weight > 0 else 1.0
