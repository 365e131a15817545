"""The precision of a run: which ones it may use, autocast, the gradient scaler, and the optimizer step under it."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import _refresh_per_optimizer_state  # until torch offers a way to discard a step
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from backend.device.plan.attention import flash_preferred
from backend.device.plan.precision import amp_dtype, fp32_precision, set_fp32_precision, torch_dtype
from backend.device.records import DeviceType
from backend.errors import BadSettings
from backend.training.records import MixedPrecisionConfig, TrainingConfig
from backend.training.trainer.optimization import parameters_of

_TF32_SINCE = (8, 0)  # compute capability: Ampere


def precisions_for(
    config: TrainingConfig, kind: DeviceType, native: Sequence[str], *, tf32: bool = False
) -> tuple[tuple[str, ...], str]:
    """PURE: the precisions that this run may use, in the order in which it falls back, and why it starts so.

    Half precision that is asked for by name is granted even where it is emulated; the fallback goes down to bf16 only
    where the hardware has it, and to tf32 only on cards that do.

    Args:
        native: half dtypes that hardware and model support, best first, and "fp32" (``Placement.dtypes``).

    Raises: BadSettings for float16 on a CPU.
    """
    wish = config.short_dtype
    below = (*(("tf32",) if tf32 else ()), "fp32")
    if not config.use_amp or not config.mixed_precision.enabled:
        return ("fp32",), "fp32: mixed precision is off"
    if wish == "fp16" and kind is DeviceType.CPU:
        raise BadSettings(["dtype=float16 on a CPU: it computes it slowly and overflows; use bfloat16 or auto"])
    start = wish if wish != "auto" else amp_dtype(native)
    if start is None:
        return below, f"{below[0]}: half precision gains nothing here"
    why = f"{start}: {'as asked' if wish != 'auto' else 'the best that device and model bear'}"
    if start == "fp16" and "bf16" in native:
        return ("fp16", "bf16", *below), why
    return (start, *below), why


def has_tf32(device: torch.device) -> bool:
    """Whether this card multiplies float32 on tensor cores."""
    return device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) >= _TF32_SINCE


class MixedPrecision:
    """The precision in use: autocast, how float32 is multiplied, and the scaler that float16 alone needs.

    The training loop and ``MixedPrecisionTrainer`` both take their optimizer steps through it.

    Args:
        name: "fp16", "bf16", "tf32" or "fp32".
    """

    def __init__(self, device: torch.device, config: MixedPrecisionConfig, name: str) -> None:
        self._device, self._config = device, config
        self.name = name
        self.scaler: ClampedGradScaler | None = None
        self.switch_to(name)

    def switch_to(self, name: str) -> None:
        """From the next step on compute in this precision; a scaler starts anew."""
        self.name = name
        scaled = name == "fp16" and self._config.scales
        self.scaler = ClampedGradScaler(self._device.type, self._config) if scaled else None
        if self.scaler is not None:
            self.scaler.scale(torch.zeros((), device=self._device))  # made now: a rank may never have a loss
        if self._device.type == "cuda":  # beside half precision some products stay in float32: TF32 is finer than bf16
            set_fp32_precision("ieee" if name == "fp32" else "tf32")

    def autocast(self) -> AbstractContextManager[object]:
        """Around forward passes."""
        if self.name not in ("bf16", "fp16"):
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=torch_dtype(self.name))

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of ``loss``, scaled where float16 needs it."""
        torch.autograd.backward(loss if self.scaler is None else self.scaler.scale(loss))

    def clip_gradients(self, optimizer: Optimizer, max_norm: float | None, *, factor: float = 1.0) -> Tensor:
        """Unscale, multiply by ``factor`` and clip the gradients; their norm before clipping, still on the device."""
        parameters = parameters_of(optimizer)
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.scaler is not None and grads:
            self.scaler.unscale_(optimizer)
        if grads and factor != 1:
            torch._foreach_mul_(grads, factor)  # torch's optimizers' own; one kernel
        norm = get_total_norm(grads).to(self._device)
        if max_norm is not None:
            clip_grads_with_norm_(parameters, max_norm, norm)
        return norm

    def step(self, optimizer: Optimizer, *, finite: bool) -> None:
        """Change the weights if the gradients are finite; adapt the scale either way."""
        if self.scaler is None:
            if finite:
                optimizer.step()
            return
        if finite:
            self.scaler.step(optimizer)
        self.scaler.update()

    def discard(self, optimizer: Optimizer) -> None:
        """Drop the gradients and what the scaler knows of them, as if their backward passes had not been."""
        optimizer.zero_grad(set_to_none=True)
        if self.scaler is not None:
            self.scaler.discard_step()

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"rung": self.name, "scaler": None if self.scaler is None else self.scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from it; the caller replaces a precision that this machine does not have (``switch_to``)."""
        self.switch_to(state["rung"])
        if self.scaler is not None and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])


class ClampedGradScaler(torch.amp.GradScaler):
    """Scales the loss so that float16's small gradients do not vanish, between a smallest and a largest scale.

    torch's has no limits: thirty bad steps take it from 65536 to 6e-05, where every gradient is lost. This one stays
    within ``min_scale`` and ``max_scale``, and lowers the scale only at the ``hysteresis``-th bad step in a row, as
    Megatron-LM does; each further one in the same row lowers it again.

    Args:
        device: kind of the device, "cuda", "cpu" or "mps".
    """

    def __init__(self, device: str, config: MixedPrecisionConfig) -> None:
        super().__init__(
            device,
            init_scale=config.initial_scale,
            growth_factor=config.growth_factor,
            backoff_factor=config.backoff_factor,
            growth_interval=config.growth_interval,
        )
        self._min, self._max, self._hysteresis = config.min_scale, config.max_scale, config.hysteresis
        self._bad_in_row = 0

    @property
    def at_min_scale(self) -> bool:
        """Whether the scale cannot fall any further."""
        return bool(self.get_scale() <= self._min)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """After each step, taken or not: raise, keep or lower the scale. Waits for the device."""
        if self._enabled and new_scale is None and self._tolerates_bad_step():
            self.discard_step()
            return
        super().update(new_scale)
        if self._enabled and self._scale is not None:
            self._scale.clamp_(self._min, self._max)

    def discard_step(self) -> None:
        """The current step will not be taken: it ran out of memory midway, and runs again from its beginning.

        Without this the next ``unscale_`` raises, for it was called already.
        """
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**super().state_dict(), "bad_in_row": self._bad_in_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        super().load_state_dict(state_dict)
        self._bad_in_row = int(state_dict["bad_in_row"])

    def _tolerates_bad_step(self) -> bool:
        """Whether the step was bad, and not yet one too many."""
        states = self._per_optimizer_states.values()
        bad = any(found_inf.item() for state in states for found_inf in state["found_inf_per_device"].values())
        self._bad_in_row = self._bad_in_row + 1 if bad else 0
        if not 0 < self._bad_in_row < self._hysteresis:
            return False
        if self._growth_tracker is not None:
            self._growth_tracker.zero_()
        return True


@contextlib.contextmanager
def torch_settings(config: TrainingConfig, device: torch.device) -> Iterator[None]:
    """Set what a run changes in torch for the whole process; restore it at the end."""
    deterministic, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    fp32 = fp32_precision()
    if config.deterministic:
        torch.use_deterministic_algorithms(mode=True)
    try:
        with flash_preferred():
            yield
    finally:
        torch.use_deterministic_algorithms(mode=deterministic, warn_only=warn_only)
        if device.type == "cuda":
            set_fp32_precision(fp32)
