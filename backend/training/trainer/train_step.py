"""One optimizer step: micro-batches forward and backward, the gradient of the whole effective batch, one update.

The gradient is the sum of all losses' gradients over the sum of all weights, on all ranks. So it is the same however
the effective batch was split and shared out; only the order in which floats are added differs.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from backend.device.faults import Fault
from backend.device.transfer import move_to_device
from backend.errors import TrainingFailed
from backend.training.data.micro_batch_loader import MicroBatchLoader
from backend.training.data.sampling import EffectiveBatchSampler, micro_batches, share
from backend.training.records import Batch, LossPart, Task, TrainingConfig
from backend.training.trainer.distributed import ProcessGroup
from backend.training.trainer.model_setup import ModelSetup
from backend.training.trainer.oom_retry import OutOfMemory, catch_out_of_memory, run_micro_batches
from backend.training.trainer.optimization import parameters_of
from backend.training.trainer.precision import MixedPrecision
from backend.training.trainer.precision_fallback import NumericFailure, find_bad_examples

_IDLE_STEPS = 10  # without a loss or a gradient before a run is given up


class FaultSource(Protocol):
    """Faults on purpose, for tests and benchmarks. Called on the training thread; ``step`` is optimizer steps done."""

    def before(self, step: int, indices: Sequence[int]) -> None:
        """Before a micro-batch of these examples runs; may raise what a device would raise."""

    def loss(self, step: int, indices: Sequence[int], part: LossPart) -> LossPart:
        """The loss to use instead of the micro-batch's own ``part``."""

    def retries(self, step: int) -> int:
        """Allocator retries to add to the device's own, as a growing count."""


class NoFaults:
    """Breaks nothing."""

    def before(self, step: int, indices: Sequence[int]) -> None:
        """Does nothing."""

    def loss(self, step: int, indices: Sequence[int], part: LossPart) -> LossPart:  # noqa: ARG002  # the protocol's
        """The micro-batch's own loss."""
        return part

    def retries(self, step: int) -> int:  # noqa: ARG002  # the protocol's
        """Adds no retries."""
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
        self._loaded: Iterator[Batch] = iter(())

    def restart(self, micro_batch: int) -> None:
        """Begin anew at the current batch; what was collated ahead is dropped."""
        self.stop()
        self._waiting = deque(self._batches.remaining())
        splits = (part for batch in tuple(self._waiting) for part in self.split(batch, micro_batch))
        self._loaded = self._loader.load(splits, epoch=self._batches.epoch)

    @property
    def current(self) -> list[int]:
        """The effective batch to train on next, all ranks' examples; empty where all of them are excluded."""
        return self._waiting[0]

    @property
    def is_empty(self) -> bool:
        """Whether the epoch is through, or the iterator was stopped."""
        return not self._waiting

    @property
    def loaded(self) -> Iterator[Batch]:
        """This rank's micro-batches on the device, in the order of ``split``."""
        return self._loaded

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
        close = getattr(self._loaded, "close", None)
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
            out_of_memory = run_micro_batches(splits, lambda indices: losses.append(self._run(indices, batches, step)))
        except Exception as error:
            if not self._setup.disable_compile(error):
                raise
            return Accumulated(compile_failed=True)
        return Accumulated(tuple(losses), out_of_memory)

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
        fault = catch_out_of_memory(lambda: self._precision.step(self._optimizer, finite=finite))
        self.discard()
        if any(row[0] for row in self._group.gather(float(fault is not None))):
            faults = [fault for fault in self._group.gather_objects(fault) if fault is not None]
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
