"""Mixed precision for a loop of one's own, by the names that guides use, over the scaler and the ladder of our loop."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from backend.device import default_device
from backend.device.memory import trial_run
from backend.device.transfer import move_to_device
from backend.telemetry import log_event
from backend.training.records import MixedPrecisionConfig, TrainingConfig
from backend.training.trainer.optimizers import parameters_of
from backend.training.trainer.precision import Numerics, bearable, has_tf32, rungs_for
from backend.training.trainer.precision_fallback import Health, Ladder, Trouble

_log = logging.getLogger(__name__)
Criterion = Callable[[Any, Any], Tensor]


class MixedPrecisionTrainer:
    """The four acts of a training step, in the precision that the device bears.

        predictions = trainer.forward_pass(model, data)
        loss = trainer.compute_loss(criterion, predictions, targets)
        trainer.backward_pass(loss, optimizer)
        trainer.optimizer_step(optimizer)

    A step whose numbers break changes no weight. When that lasts, the precision falls by one rung (float16, bfloat16,
    TF32, float32); in float32 it is an error. Gradients add up over backward passes until the optimizer's step, which
    drops them. Use it from one thread.

    Args:
        config: half precision and scaler; by default what the device bears.
        device: "auto", "cuda:1", "mps", "cpu" or torch's. Models and data are brought there.
        max_grad_norm: gradients are clipped to this length; None leaves them.

    Raises: BadSettings for float16 on a CPU, DeviceUnavailable.
    """

    def __init__(
        self,
        config: MixedPrecisionConfig | None = None,
        device: str | torch.device = "auto",
        *,
        max_grad_norm: float | None = None,
    ) -> None:
        self.config = config or MixedPrecisionConfig()
        self.device = default_device.torch_device(device)
        self.max_grad_norm = max_grad_norm
        self.steps = 0  # that changed the weights
        self.skipped = 0  # that did not, for their numbers were broken
        self.events: list[str] = []  # falls of the precision, a sentence each
        self._placement = default_device.placement(str(self.device))
        self._seen = WeakSet[nn.Module]()
        self._health = Health()
        self._loss_is_finite: Tensor | None = None  # of all parts since the last step; asked once a step
        self._climb(self._placement.dtypes)

    @property
    def precision(self) -> str:
        """In force now: "fp16", "bf16", "tf32" or "fp32"."""
        return self._ladder.rung

    @property
    def scale(self) -> float | None:
        """Of the loss; None without a scaler."""
        scaler = self._numerics.scaler
        return float(scaler.get_scale()) if scaler else None

    def forward_pass(self, model: nn.Module, data: Any) -> Any:
        """The model's output for ``data``: a tensor, a tuple of arguments, or a mapping of named ones."""
        self.adopt(model)
        with self._numerics.context():
            return trial_run.call(model, move_to_device(data, self.device))

    def compute_loss(self, criterion: Criterion, predictions: Any, targets: Any) -> Tensor:
        """The criterion in float32: half precision is for matrix products, not for sums over a batch."""
        wide = _float32(predictions)
        with torch.autocast(self.device.type, enabled=False):
            return criterion(wide, move_to_device(targets, self.device))

    def backward_pass(self, loss: Tensor, optimizer: Optimizer | None = None, *, parts: float = 1.0) -> None:  # noqa: ARG002  # guides hand it over
        """Add the gradients of ``loss``, scaled where float16 needs it.

        Args:
            parts: how many such passes make one step (gradient accumulation); the loss is divided by it.
        """
        finite = torch.isfinite(loss.detach()).all()
        self._loss_is_finite = finite if self._loss_is_finite is None else self._loss_is_finite & finite
        share = loss / parts if parts != 1 else loss
        scaler = self._numerics.scaler
        (scaler.scale(share) if scaler else share).backward()  # type: ignore[no-untyped-call]  # torch's own

    def optimizer_step(self, optimizer: Optimizer) -> bool:
        """Change the weights and drop the gradients. False when the numbers were broken: then no weight was changed.

        Raises: TrainingFailed when they break in full precision too.
        """
        scaler = self._numerics.scaler
        if scaler:
            scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(parameters_of(optimizer), self.max_grad_norm or math.inf)  # inf: only measured
        sound_loss = self._loss_is_finite is None or self._everywhere(self._loss_is_finite)
        sound = sound_loss and bool(torch.isfinite(norm))
        if scaler and sound_loss:
            scaler.step(optimizer)  # skips by itself, and remembers for ``update``
            scaler.update()
        elif scaler:
            scaler.forget_step()
        elif sound:
            optimizer.step()
        self.drop(optimizer)
        self.steps, self.skipped = self.steps + sound, self.skipped + (not sound)
        if trouble := self._trouble(sound=sound, sound_loss=sound_loss):
            self._fall(trouble)
        return sound

    def drop(self, optimizer: Optimizer) -> None:
        """Forget the gradients since the last step, as if its backward passes had not been."""
        optimizer.zero_grad(set_to_none=True)
        self._loss_is_finite = None
        if self._numerics.scaler:
            self._numerics.scaler.forget_step()

    def adopt(self, model: nn.Module) -> None:
        """Bring a model to the device with float32 weights, once: half ones lose small updates. Every pass does it."""
        if model in self._seen:
            return
        if not getattr(model, "is_quantized", False):
            if any(one.dtype in (torch.float16, torch.bfloat16) for one in model.parameters()):
                model.float()
            model.to(self.device)
        if not self._seen and not self.steps:
            self._climb(bearable(self._placement, model))
        self._seen.add(model)

    def _climb(self, native: Iterable[str]) -> None:
        """To the best rung there is."""
        wishes = TrainingConfig(use_amp=self.config.enabled, mixed_precision=self.config)
        rungs, self.why = rungs_for(wishes, self._placement.type, tuple(native), tf32=has_tf32(self.device))
        self._ladder = Ladder(rungs)
        self._numerics = Numerics(self.device, self.config, rungs[0])

    def _trouble(self, *, sound: bool, sound_loss: bool) -> Trouble | None:
        scaler = self._numerics.scaler
        if not sound_loss:
            return Trouble("the loss was not finite")
        if scaler:  # a skipped step now and then is how it finds its scale
            return self._health.step(skipped=not sound, at_floor=scaler.at_floor)
        return None if sound else Trouble("a gradient was not finite")

    def _fall(self, trouble: Trouble) -> None:
        before = self.precision
        rung = self._ladder.fall(trouble).rung
        self._numerics.use(rung)
        self._health.reset()
        self.events.append(f"step {self.steps}: {trouble.what}; from {before} to {rung}, no weight was changed")
        log_event(_log, logging.WARNING, "precision", note=self.events[-1])

    def _everywhere(self, flag: Tensor) -> bool:
        """Whether it holds in every process that trains together."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            shared = flag.to(self.device, torch.int32)
            torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MIN)
            return bool(shared)
        return bool(flag)


def _float32(predictions: Any) -> Any:
    """Half-precision tensors as float32, however nested; their gradients flow."""
    if isinstance(predictions, Tensor):
        return predictions.float() if predictions.dtype in (torch.float16, torch.bfloat16) else predictions
    if isinstance(predictions, dict):  # a model output of transformers keeps its attributes
        for name, value in predictions.items():
            predictions[name] = _float32(value)
        return predictions
    if isinstance(predictions, list | tuple) and not hasattr(predictions, "_fields"):
        return type(predictions)(_float32(one) for one in predictions)
    return predictions
