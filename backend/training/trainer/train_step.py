"""One optimizer step: micro-batches forward and backward, the gradient of the whole effective batch, one update.

The gradient is the sum of all losses' gradients over the sum of all weights, on all ranks. So it is the same however
the effective batch was cut and shared out; only the order in which floats are added differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from backend.device.faults import Fault
from backend.device.transfer import move_to_device
from backend.errors import TrainingFailed
from backend.training.records import Batch, LossPart, Task, TrainingConfig
from backend.training.trainer.distributed import Ranks
from backend.training.trainer.model_setup import ReadyModel
from backend.training.trainer.oom_retry import Miss, attempt, until_miss
from backend.training.trainer.optimizers import parameters_of
from backend.training.trainer.precision import Numerics
from backend.training.trainer.precision_fallback import Trouble, suspects

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
        """Let it run."""

    def loss(self, step: int, indices: Sequence[int], part: LossPart) -> LossPart:  # noqa: ARG002  # the protocol's
        """Its own."""
        return part

    def retries(self, step: int) -> int:  # noqa: ARG002  # the protocol's
        """None."""
        return 0


@dataclass(frozen=True, slots=True)
class Passed:
    """A micro-batch that went through."""

    indices: tuple[int, ...]
    total: Tensor  # scalar on the device, without its graph
    weight: float


@dataclass(frozen=True, slots=True)
class Gathered:
    """This rank's micro-batches of an effective batch; their gradients are on the model."""

    passed: tuple[Passed, ...] = ()
    miss: Miss | None = None  # what ended them early
    uncompiled: bool = False  # the compiler failed and is out of the way now: run them again

    @property
    def weight(self) -> float:
        """Of this rank."""
        return sum(one.weight for one in self.passed)


@dataclass(frozen=True, slots=True)
class Update:
    """What an optimizer step came to; the same on all ranks."""

    total: float = 0.0  # sum of the losses
    weight: float = 0.0  # what it stands for; 0: there was nothing to learn from, and nothing was done
    grad_norm: float = math.nan  # before clipping
    applied: bool = False  # whether the weights changed
    trouble: Trouble | None = None
    fault: Fault | None = None  # memory ran out in the optimizer: the weights may be half changed


class Stepper:
    """Computes gradients and applies them."""

    def __init__(
        self,
        task: Task,
        ready: ReadyModel,
        optimizer: Optimizer,
        numerics: Numerics,
        ranks: Ranks,
        *,
        config: TrainingConfig,
        faults: FaultSource,
    ) -> None:
        self._task, self._ready, self._optimizer = task, ready, optimizer
        self._numerics, self._ranks, self._faults = numerics, ranks, faults
        self._max_grad_norm = config.max_grad_norm
        self._parameters = parameters_of(optimizer)
        self._divisor = _power_of_two(config.batch_size)  # the first step shows what batches weigh
        self._proven = False  # a gradient has reached the weights
        self._idle = 0  # steps until then

    def gather(self, cuts: Sequence[Sequence[int]], batches: Iterator[Batch], step: int) -> Gathered:
        """Forward and backward through this rank's micro-batches; ``batches`` gives one for each of ``cuts``."""
        passed: list[Passed] = []
        if not self._ready.model.training:
            self._ready.model.train()
        try:
            miss = until_miss(cuts, lambda cut: passed.append(self._run(cut, batches, step)))
        except Exception as error:
            if not self._ready.fall_back(error):
                raise
            return Gathered(uncompiled=True)
        return Gathered(tuple(passed), miss)

    def forget(self) -> None:
        """Drop what a half-done step left: it is run again from its beginning."""
        self._optimizer.zero_grad(set_to_none=True)
        if self._numerics.scaler is not None:
            self._numerics.scaler.forget_step()

    def update(self, gathered: Gathered, weight: float, batch: Sequence[int], step: int) -> Update:
        """Make the gradients those of the whole effective batch and take the step, unless something is not finite.

        Args:
            weight: of all ranks.
            batch: the whole effective batch, all ranks'.
        """
        if weight == 0:  # every label ignored: 0/0 is no loss of 0
            self.forget()
            return Update()
        self._ranks.add_up(self._parameters)
        norm = self._normalized(weight)
        update = self._judged(gathered, weight, norm, batch, step)
        self._divisor = _power_of_two(weight)
        if update.trouble is not None:
            self.forget()
            return update
        self._require_gradients(update)
        return self._applied(update)

    def state(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"divisor": self._divisor}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        self._divisor = float(state["divisor"])

    def _run(self, indices: Sequence[int], batches: Iterator[Batch], step: int) -> Passed:
        self._faults.before(step, indices)
        part = self._loss(next(batches), indices, step)
        if not 0 <= part.weight < math.inf:
            raise TrainingFailed(f"the task gave a loss the weight {part.weight}; it must be finite and not negative")
        if part.weight > 0:
            # Dividing by a power of two changes no digit, whatever the step turns out to weigh. It keeps float16's
            # gradients where those of a mean would be: a sum over thousands of tokens overflows under the same scale.
            loss = part.total.float() / self._divisor
            scaler = self._numerics.scaler
            torch.autograd.backward(loss if scaler is None else scaler.scale(loss))
        return Passed(tuple(indices), part.total.detach().float(), part.weight)

    def _loss(self, batch: Batch, indices: Sequence[int], step: int) -> LossPart:
        with self._numerics.context():
            part = self._task.loss(self._ready.callable, self._ready.laid_out(batch))
        return self._faults.loss(step, indices, part)

    def _normalized(self, weight: float) -> Tensor:
        """Bring the sums to means and clip them; their norm before clipping, still on the device."""
        if self._numerics.scaler is not None and any(one.grad is not None for one in self._parameters):
            self._numerics.scaler.unscale_(self._optimizer)
        grads = [one.grad for one in self._parameters if one.grad is not None]
        if grads:
            torch._foreach_mul_(grads, self._divisor / weight)  # torch's optimizers' own; one kernel
        norm = get_total_norm(grads).to(self._ranks.device)
        if self._max_grad_norm is not None:
            clip_grads_with_norm_(self._parameters, self._max_grad_norm, norm)
        return norm

    def _judged(self, gathered: Gathered, weight: float, norm: Tensor, batch: Sequence[int], step: int) -> Update:
        """The numbers, read from the device at once, and whether they are sound on every rank."""
        counted = [one for one in gathered.passed if one.weight > 0]
        grad_norm, *totals = torch.stack([norm, *(one.total for one in counted)]).tolist()
        broken = [one for one, total in zip(counted, totals, strict=True) if not math.isfinite(total)]
        rows = self._ranks.rows(sum(totals), float(bool(broken)))
        update = Update(sum(row[0] for row in rows), weight, grad_norm)
        if any(row[1] for row in rows):
            self._optimizer.zero_grad(set_to_none=True)  # its memory is needed to find the examples
            named = sorted({index for found in self._ranks.objects(self._suspects(broken, step)) for index in found})
            return replace(update, trouble=Trouble(f"step {step}: the loss was not finite", tuple(named)))
        if not math.isfinite(grad_norm) and self._numerics.scaler is None:
            what = f"step {step}: the loss was finite but its gradients were not"
            return replace(update, trouble=Trouble(what, tuple(sorted(batch))))
        return update

    def _applied(self, update: Update) -> Update:
        scaler, sound = self._numerics.scaler, math.isfinite(update.grad_norm)

        def step() -> None:
            if scaler is None:
                self._optimizer.step()
                return
            if sound:
                scaler.step(self._optimizer)
            scaler.update()

        fault = attempt(step)
        self.forget()
        if any(row[0] for row in self._ranks.rows(float(fault is not None))):
            found = [one for one in self._ranks.objects(fault) if one is not None]
            return replace(update, fault=found[0])
        return replace(update, applied=sound)

    def _require_gradients(self, update: Update) -> None:
        """Activation checkpointing and adapters have ways to cut gradients off in silence (transformers#26221)."""
        if self._proven or not math.isfinite(update.grad_norm):
            return
        if update.grad_norm == 0:
            self._idle += 1
            if update.total == 0 and self._idle < _IDLE_STEPS:  # a ranking loss of items that are all equal
                return
            raise TrainingFailed(
                "no gradient reached the weights: the loss does not depend on any weight that may "
                "change. Look for a detached output, frozen layers, or reentrant activation checkpointing"
            )
        self._proven = True

    def _suspects(self, broken: Sequence[Passed], step: int) -> list[int]:
        """The examples of this rank whose loss alone is not finite; all of a micro-batch where none is."""
        found: list[int] = []
        for one in broken:
            alone = suspects(one.indices, lambda part: self._breaks(part, step)) if self._task.splittable else []
            found += alone or one.indices
        return found

    @torch.no_grad()
    def _breaks(self, indices: Sequence[int], step: int) -> bool:
        """Whether these examples together give a loss that is not finite; in evaluation mode, which takes one item."""
        self._ready.model.eval()
        batch = move_to_device(self._task.collate(indices), self._ranks.device)
        return not bool(torch.isfinite(self._loss(batch, indices, step).total))


def _power_of_two(weight: float) -> float:
    return float(2.0 ** round(math.log2(weight))) if math.isfinite(weight) and weight > 0 else 1.0
