"""Prepares a model for training on a device: dtype, memory layout, attention, activation checkpointing, compilation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from backend.device.facts.compiler import compiler_fault
from backend.device.faults import FaultKind, classify
from backend.device.plan.placement import Placement
from backend.device.plan.precision import DtypeChoice, for_model
from backend.device.records import DeviceType
from backend.errors import BadSettings, DoesNotFit
from backend.telemetry import log_event
from backend.training.memory.activation_checkpointing import checkpoint_activations
from backend.training.records import Batch, TrainingConfig
from backend.training.trainer.oom_retry import catch_out_of_memory

_log = logging.getLogger(__name__)
_COMPILERS = ("torch._dynamo", "torch._inductor", "torch.fx", "triton")  # whose errors mean "run it uncompiled"


class ModelSetup:
    """The model as the loop calls it, on its device.

    Args:
        model: changed in place, see ``move_in_float32``.

    Raises: DoesNotFit when the weights alone do not fit; BadSettings for ``compile`` without a compiler.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig, device: torch.device) -> None:
        self.model = model
        self.changes: list[str] = []  # what was done, for the log
        converts = has_half_weights(model)
        fault = catch_out_of_memory(lambda: move_in_float32(model, device))
        if fault is not None:
            raise DoesNotFit(f"the weights alone need more memory than {device} has free ({fault.message})")
        if converts:
            self.changes.append("weights brought to float32: half precision would lose small updates")
        self.changes += _use_efficient_attention(model)
        if config.gradient_checkpointing:
            self.changes.append(checkpoint_activations(model))
        self._channels_last = _wants_channels_last(model, config, device)
        if self._channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
            self.changes.append("channels last")
        self._compiled: Callable[..., Any] | None = None
        if config.compile:
            if missing := compiler_fault(DeviceType(device.type)):
                raise BadSettings([f"compile: {missing}, or train without it"])
            self._compiled = torch.compile(model, dynamic=True)  # lengths vary; one graph serves them
            self.changes.append("compiled at its first batch")

    @property
    def forward_model(self) -> nn.Module:
        """What ``Task.loss`` calls: the compiled model, or the model."""
        return cast("nn.Module", self._compiled) if self._compiled is not None else self.model

    def to_memory_format(self, batch: Batch) -> Batch:
        """The batch with its images in the layout of the model."""
        if not self._channels_last:
            return batch
        return {name: _channels_last(value) for name, value in batch.items()}

    def disable_compile(self, error: Exception) -> bool:
        """After a failed pass: whether the compiler was at fault and the model runs uncompiled from now on."""
        if self._compiled is None or classify(error).kind is not FaultKind.OTHER or not _is_from_compiler(error):
            return False
        self._compiled = None
        reason = str(error).strip().partition("\n")[0]
        log_event(_log, logging.WARNING, "compilation failed; the model runs uncompiled", reason=reason)
        return True


def supported_dtypes(placement: Placement, model: nn.Module) -> tuple[str, ...]:
    """The dtypes of the placement less those that this kind of model overflows (device/plan/precision.py)."""
    config = getattr(model, "config", None)
    stored = next((str(weight.dtype) for weight in model.parameters() if weight.is_floating_point()), None)
    choice = DtypeChoice(placement.dtypes, "")
    return for_model(choice, str(getattr(config, "model_type", "")), stored).dtypes


def has_half_weights(model: nn.Module) -> bool:
    """Whether ``move_in_float32`` would convert its weights; quantized models stay as they are."""
    halves = (torch.float16, torch.bfloat16)
    return not getattr(model, "is_quantized", False) and any(weight.dtype in halves for weight in model.parameters())


def move_in_float32(model: nn.Module, device: torch.device) -> None:
    """Move a model to the device, and weights stored in half precision to float32.

    Small updates are lost in half-precision weights, and float16's gradients cannot be unscaled. A quantized model is
    left where it is.
    """
    if getattr(model, "is_quantized", False):
        return
    if has_half_weights(model):
        model.float()
    model.to(device)


def _use_efficient_attention(model: nn.Module) -> list[str]:
    """Attention without its matrix: eager takes eleven times the activations at 2048 tokens (measured)."""
    switch = getattr(model, "set_attn_implementation", None)
    if switch is None or getattr(getattr(model, "config", None), "_attn_implementation", None) != "eager":
        return []
    try:
        switch("sdpa")
    except (ValueError, ImportError):  # a model that transformers has only an eager attention for
        return []
    return ["scaled-dot-product attention"]


def _wants_channels_last(model: nn.Module, config: TrainingConfig, device: torch.device) -> bool:
    """As set; else for convolutions on a card, whose tensor cores want it."""
    convolves = any(isinstance(module, nn.Conv2d) for module in model.modules())
    return convolves and (device.type == "cuda" if config.channels_last is None else config.channels_last)


def _channels_last(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.ndim == 4 and value.is_floating_point():
        return value.contiguous(memory_format=torch.channels_last)
    return value


def _is_from_compiler(error: BaseException) -> bool:
    modules = [kind.__module__ for kind in type(error).__mro__]
    return any(module.startswith(_COMPILERS) for module in modules)
