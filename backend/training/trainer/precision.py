"""The precisions that a run may compute in, best first, and how one of them is put in force."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from backend.device.plan.placement import Placement
from backend.device.plan.precision import (
    DtypeChoice,
    amp_dtype,
    for_model,
    fp32_precision,
    set_fp32_precision,
    torch_dtype,
)
from backend.device.records import DeviceType
from backend.errors import BadSettings
from backend.training.records import MixedPrecisionConfig, TrainingConfig
from backend.training.trainer.grad_scaler import ClampedScaler

_TF32_SINCE = (8, 0)  # compute capability: Ampere


def rungs_for(
    config: TrainingConfig, kind: DeviceType, native: Sequence[str], *, tf32: bool = False
) -> tuple[tuple[str, ...], str]:
    """PURE: the ladder of this run, the precision to start with first, and why.

    Half precision that is asked for by name is granted even where it is emulated; the ladder itself goes down to bf16
    only where the hardware has it, and to tf32 only on cards that do.

    Args:
        native: half dtypes that hardware and model bear, best first, and "fp32" (``Placement.dtypes``).

    Raises: BadSettings for float16 on a CPU.
    """
    wish = config.mixed_precision.short_dtype
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


def bearable(placement: Placement, model: nn.Module) -> tuple[str, ...]:
    """The dtypes of the placement less those that this kind of model overflows (device/precision.py)."""
    config = getattr(model, "config", None)
    stored = next((str(one.dtype) for one in model.parameters() if one.is_floating_point()), None)
    choice = DtypeChoice(placement.dtypes, "")
    return for_model(choice, str(getattr(config, "model_type", "")), stored).dtypes


def has_tf32(device: torch.device) -> bool:
    """Whether this card multiplies float32 on tensor cores."""
    return device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) >= _TF32_SINCE


class Numerics:
    """The precision in force: autocast, how float32 is multiplied, and the scaler that float16 alone needs.

    Args:
        device: where the run computes.
    """

    def __init__(self, device: torch.device, config: MixedPrecisionConfig, rung: str) -> None:
        self._device, self._config = device, config
        self.rung = rung
        self.scaler: ClampedScaler | None = None
        self.use(rung)

    def use(self, rung: str) -> None:
        """From the next step on compute in "fp16", "bf16", "tf32" or "fp32"; a scaler starts anew."""
        self.rung = rung
        scaled = rung == "fp16" and self._config.scales
        self.scaler = ClampedScaler(self._device.type, self._config) if scaled else None
        if self.scaler is not None:
            self.scaler.scale(torch.zeros((), device=self._device))  # made now: a rank may never have a loss
        if self._device.type == "cuda":  # beside half precision some products stay in float32: TF32 is finer than bf16
            set_fp32_precision("ieee" if rung == "fp32" else "tf32")

    def state(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"rung": self.rung, "scaler": None if self.scaler is None else self.scaler.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from it; a precision that this machine does not have is the ladder's to replace (``use``)."""
        self.use(state["rung"])
        if self.scaler is not None and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])

    def context(self) -> AbstractContextManager[object]:
        """Around forward passes."""
        if self.rung not in ("bf16", "fp16"):
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=torch_dtype(self.rung))


@contextlib.contextmanager
def torch_settings(config: TrainingConfig, device: torch.device) -> Iterator[None]:
    """What a run changes in torch for the whole process, put back at its end."""
    deterministic, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    fp32 = fp32_precision()
    if config.deterministic:
        torch.use_deterministic_algorithms(mode=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=deterministic, warn_only=warn_only)
        if device.type == "cuda":
            set_fp32_precision(fp32)
