"""``MixedPrecisionTrainer``: mixed precision for a training loop of one's own, on the precision code of our loop."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
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
from backend.training.trainer.model_setup import move_in_float32, supported_dtypes
from backend.training.trainer.precision import (
    MixedPrecision,
    NumericFailure,
    PrecisionFallback,
    has_tf32,
    precisions_for,
)

_log = logging.getLogger(__name__)
Criterion = Callable[[Any, Any], Tensor]


class MixedPrecisionTrainer:
    """The four calls of a training step, in the precision that the device supports.

        predictions = trainer.forward_pass(model, data)
        loss = trainer.compute_loss(criterion, predictions, targets)
        trainer.backward_pass(loss, optimizer)
        trainer.optimizer_step(optimizer)

    A step whose loss or gradients are not finite changes no weight. When that lasts, the trainer falls back to the next
    precision (float16, bfloat16, TF32, float32); in float32 it is an error. After ``recovery_interval`` clean steps it
    tries the precision above again. Gradients add up over backward passes until the optimizer's step, which drops them.
    Use it from one thread.

    Args:
        config: half precision and scaler; by default what the device supports. Fields assigned later count from the
            beginning of the next step, which then starts anew in what they ask for.
        device: "auto", "cuda:1", "mps", "cpu" or torch's. Models and data are moved there.
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
        self.skipped = 0  # that did not, for a loss or gradient was not finite
        self.events: list[str] = []  # changes of the precision, a sentence each
        self.steps_by_precision = Counter[str]()  # of ``steps``
        self._placement = default_device.placement(str(self.device))
        self._dtypes = self._placement.dtypes  # of device and first model
        self._adopted = WeakSet[nn.Module]()
        self._loss_is_finite: Tensor | None = None  # of all parts since the last step; read from the device once a step
        self._choose_precision()

    @property
    def precision(self) -> str:
        """In use now: "fp16", "bf16", "tf32" or "fp32"."""
        return self._fallback.precision

    @property
    def scale(self) -> float | None:
        """Of the loss; None without a scaler."""
        scaler = self._precision.scaler
        return float(scaler.get_scale()) if scaler else None

    def forward_pass(self, model: nn.Module, data: Any) -> Any:
        """The model's output for ``data``: a tensor, a tuple of arguments, or a mapping of named ones."""
        self.adopt(model)
        if self.config != self._chosen_for and self._loss_is_finite is None:
            self._choose_precision()
        with self._precision.autocast():
            return trial_run.call_model(model, move_to_device(data, self.device))

    def compute_loss(self, criterion: Criterion, predictions: Any, targets: Any) -> Tensor:
        """The criterion in float32: half precision is for matrix products, not for sums over a batch."""
        predictions = _to_float32(predictions)
        with torch.autocast(self.device.type, enabled=False):
            return criterion(predictions, move_to_device(targets, self.device))

    def backward_pass(self, loss: Tensor, optimizer: Optimizer | None = None, *, parts: float = 1.0) -> None:  # noqa: ARG002  # guides pass it
        """Add the gradients of ``loss``, scaled where float16 needs it.

        Args:
            parts: how many such passes make one step (gradient accumulation); the loss is divided by it.
        """
        finite = torch.isfinite(loss.detach()).all()
        self._loss_is_finite = finite if self._loss_is_finite is None else self._loss_is_finite & finite
        self._precision.backward(loss / parts if parts != 1 else loss)

    def optimizer_step(self, optimizer: Optimizer) -> bool:
        """Change the weights and drop the gradients. False when they or the loss were not finite: no weight changed.

        Raises: TrainingFailed when that happens in full precision too.
        """
        norm = self._precision.clip_gradients(optimizer, self.max_grad_norm)
        finite_loss = self._loss_is_finite is None or self._on_all_ranks(self._loss_is_finite)
        finite = finite_loss and bool(torch.isfinite(norm))
        if finite_loss:  # else the scale is not at fault
            self._precision.step(optimizer, finite=finite)
        self.drop(optimizer)
        self.steps, self.skipped = self.steps + finite, self.skipped + (not finite)
        if finite:
            self._count_clean_step()
        if failure := self._failure(finite=finite, finite_loss=finite_loss):
            self._fall_back(failure)
        return finite

    def drop(self, optimizer: Optimizer) -> None:
        """Drop the gradients since the last step, as if its backward passes had not been."""
        self._precision.discard(optimizer)
        self._loss_is_finite = None

    def adopt(self, model: nn.Module) -> None:
        """Move a model to the device with float32 weights, once: half ones lose small updates. Every pass does it."""
        if model in self._adopted:
            return
        move_in_float32(model, self.device)
        if not self._adopted and not self.steps:
            self._dtypes = supported_dtypes(self._placement, model)
            self._choose_precision()
        self._adopted.add(model)

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON, between two steps: precision, scaler and counts, for a checkpoint of one's own."""
        return {
            "steps": self.steps,
            "skipped": self.skipped,
            "events": list(self.events),
            "steps_by_precision": dict(self.steps_by_precision),
            "fallback": self._fallback.state_dict(),
            "precision": self._precision.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from it, with the same config; a precision that this device does not have becomes its best one."""
        self.steps, self.skipped, self.events = state["steps"], state["skipped"], list(state["events"])
        self.steps_by_precision = Counter(state["steps_by_precision"])
        self._fallback.load_state_dict(state["fallback"])
        self._precision.load_state_dict(state["precision"])
        if self._precision.name != self._fallback.precision:
            self._precision.switch_to(self._fallback.precision)

    def _choose_precision(self) -> None:
        """Start in the best precision that the config allows."""
        self._chosen_for = replace(self.config)
        config = TrainingConfig(use_amp=self.config.enabled, mixed_precision=self.config)
        names, self.why = precisions_for(config, self._placement.type, self._dtypes, tf32=has_tf32(self.device))
        self._fallback = PrecisionFallback(names, self.config.recovery_interval)
        self._precision = MixedPrecision(self.device, self.config, names[0])

    def _count_clean_step(self) -> None:
        self.steps_by_precision[self.precision] += 1
        self._fallback.after_clean_step()
        if self._fallback.recovery_is_due:
            message = self._fallback.recover()
            self._precision.switch_to(self.precision)
            self.events.append(f"step {self.steps}: {message}")
            log_event(_log, logging.INFO, "precision", note=self.events[-1])

    def _failure(self, *, finite: bool, finite_loss: bool) -> NumericFailure | None:
        scaler = self._precision.scaler
        if not finite_loss:
            return NumericFailure("the loss was not finite")
        if scaler:  # a skipped step now and then is how it finds its scale
            return self._fallback.after_scaled_step(skipped=not finite, at_min_scale=scaler.at_min_scale)
        return None if finite else NumericFailure("a gradient was not finite")

    def _fall_back(self, failure: NumericFailure) -> None:
        before = self.precision
        self._fallback.fall_back(failure)
        self._precision.switch_to(self.precision)
        self._fallback.reset_skipped()
        step = f"from {before} to {self.precision}" if before != self.precision else f"once more in {before}"
        self.events.append(f"step {self.steps}: {failure.reason}; {step}, no weight was changed")
        log_event(_log, logging.WARNING, "precision", note=self.events[-1])

    def _on_all_ranks(self, flag: Tensor) -> bool:
        """Whether it holds in every process that trains together."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            shared = flag.to(self.device, torch.int32)
            torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MIN)
            return bool(shared)
        return bool(flag)


def _to_float32(predictions: Any) -> Any:
    """Half-precision tensors as float32, however nested; their gradients flow."""
    if isinstance(predictions, Tensor):
        return predictions.float() if predictions.dtype in (torch.float16, torch.bfloat16) else predictions
    if isinstance(predictions, dict):  # a model output of transformers keeps its attributes
        for name, value in predictions.items():
            predictions[name] = _to_float32(value)
        return predictions
    if isinstance(predictions, list | tuple) and not hasattr(predictions, "_fields"):
        return type(predictions)(_to_float32(value) for value in predictions)
    return predictions
