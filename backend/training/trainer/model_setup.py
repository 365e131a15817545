"""A model made ready for training on a device: dtype, layout, activation checkpointing, compilation; it says what."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from backend.device.faults import FaultKind, classify
from backend.errors import DoesNotFit
from backend.telemetry import log_event
from backend.training.memory.activation_checkpointing import checkpoint_activations
from backend.training.records import Batch, TrainingConfig
from backend.training.trainer.oom_retry import attempt

_log = logging.getLogger(__name__)
_COMPILERS = ("torch._dynamo", "torch._inductor", "torch.fx", "triton")  # whose errors mean "run it uncompiled"


class ReadyModel:
    """The model as the loop calls it, on its device.

    Args:
        model: changed in place: moved, and in float32 where it was stored in half precision, for a small update is
            lost in it and float16's gradients cannot be unscaled.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig, device: torch.device) -> None:
        self.model = model
        self.done: list[str] = []  # what was done, for the log
        if not getattr(model, "is_quantized", False):
            if any(one.dtype in (torch.float16, torch.bfloat16) for one in model.parameters()):
                model.float()
                self.done.append("weights brought to float32: half precision would lose small updates")
            fault = attempt(lambda: model.to(device))
            if fault is not None:
                raise DoesNotFit(f"the weights alone need more memory than {device} has free ({fault.message})")
        self.done += _efficient_attention(model)
        if config.gradient_checkpointing:
            self.done.append(checkpoint_activations(model))
        self._channels_last = _wants_channels_last(model, config, device)
        if self._channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
            self.done.append("channels last")
        self._compiled: Callable[..., Any] | None = None
        if config.compile:
            self._compiled = torch.compile(model, dynamic=True)  # lengths vary; one graph serves them
            self.done.append("compiled at its first batch")

    @property
    def callable(self) -> nn.Module:
        """What ``Task.loss`` is given."""
        return cast("nn.Module", self._compiled) if self._compiled is not None else self.model

    def laid_out(self, batch: Batch) -> Batch:
        """The batch with its images in the layout of the model."""
        if not self._channels_last:
            return batch
        return {name: _channels_last(value) for name, value in batch.items()}

    def fall_back(self, error: Exception) -> bool:
        """After a failed pass: whether the compiler was at fault and the model runs uncompiled from now on."""
        if self._compiled is None or classify(error).kind is not FaultKind.OTHER or not _is_compilers(error):
            return False
        self._compiled = None
        reason = str(error).strip().partition("\n")[0]
        log_event(_log, logging.WARNING, "compilation failed; the model runs uncompiled", reason=reason)
        return True


def _efficient_attention(model: nn.Module) -> list[str]:
    """Attention without its matrix: eager takes eleven times the activations at 2048 tokens (research §4, row 6)."""
    switch = getattr(model, "set_attn_implementation", None)
    if switch is None or getattr(getattr(model, "config", None), "_attn_implementation", None) != "eager":
        return []
    try:
        switch("sdpa")
    except (ValueError, ImportError):  # a model that transformers has only an eager attention for
        return []
    return ["scaled-dot-product attention"]


def _wants_channels_last(model: nn.Module, config: TrainingConfig, device: torch.device) -> bool:
    """As told; else for convolutions on a card, whose tensor cores want it."""
    convolves = any(isinstance(one, nn.Conv2d) for one in model.modules())
    return convolves and (device.type == "cuda" if config.channels_last is None else config.channels_last)


def _channels_last(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.ndim == 4 and value.is_floating_point():
        return value.contiguous(memory_format=torch.channels_last)
    return value


def _is_compilers(error: BaseException) -> bool:
    kinds = [kind.__module__ for kind in type(error).__mro__]
    return any(kind.startswith(_COMPILERS) for kind in kinds)
