"""Prepares what is trained: the model on its device, its optimizer (AdamW), and its learning rate with warm-up."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from backend.device.facts.host import compiler_fault
from backend.device.faults import FaultKind, classify
from backend.device.plan.placement import Placement
from backend.device.plan.precision import DtypeChoice, for_model
from backend.device.records import DeviceType
from backend.errors import BadSettings, DoesNotFit
from backend.telemetry import log_event
from backend.training.lora import heads_of
from backend.training.memory import checkpoint_activations
from backend.training.records import Batch, Schedule, TrainingConfig

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
        try:
            move_in_float32(model, device)
        except Exception as error:
            if (fault := classify(error)).kind is not FaultKind.OUT_OF_MEMORY:
                raise
            raise DoesNotFit(f"the weights alone need more memory than {device} has free ({fault.message})") from error
        if converts:
            self.changes.append("weights brought to float32: half precision would lose small updates")
        self.changes += use_efficient_attention(model)
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


def use_efficient_attention(model: nn.Module) -> list[str]:
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


_FUSED = ("cuda", "cpu", "mps")  # kinds of device that torch 2.13 has a fused AdamW for
# torch's OneCycleLR and fast.ai's recipe: start at a 25th of the peak, end ten thousand times below the start.
_ONE_CYCLE_START = 1 / 25
_ONE_CYCLE_END = _ONE_CYCLE_START / 1e4


def make_optimizer(model: nn.Module, config: TrainingConfig, device: torch.device) -> Optimizer:
    """The optimizer of the model's trainable weights, which are on ``device`` already.

    Raises: BadSettings without anything to train, or for an 8-bit optimizer that this machine does not have.
    """
    groups = parameter_groups(model, config.weight_decay, config.head_learning_rate)
    if not groups:
        raise BadSettings(["the model has no weight that may be trained (requires_grad is off for all)"])
    if config.eight_bit_optimizer:
        return _eight_bit(groups, config, device)
    fused = device.type in _FUSED and all(weight.is_floating_point() for group in groups for weight in group["params"])
    return AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=fused)


def parameter_groups(
    model: nn.Module, weight_decay: float, head_learning_rate: float | None = None
) -> list[dict[str, Any]]:
    """The trainable weights with and without decay, and those of the head apart where it has a rate of its own.

    Biases and the weights of norms have one dimension; pulling them to zero helps nobody (transformers leaves them out
    by name, timm by dimension, as here). The head is what stands beside the encoder.
    """
    trainable = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    heads = frozenset(() if head_learning_rate is None else heads_of(model))
    groups: list[dict[str, Any]] = []
    for of_head, rate in ((False, {}), (True, {"lr": head_learning_rate})):
        part = [(name, weight) for name, weight in trainable if heads.isdisjoint(name.split(".")) != of_head]
        decayed = [weight for name, weight in part if not _is_bias_or_norm(name, weight)]
        others = [weight for name, weight in part if _is_bias_or_norm(name, weight)]
        groups += [{"params": decayed, "weight_decay": weight_decay, **rate}]
        groups += [{"params": others, "weight_decay": 0.0, **rate}]
    return [group for group in groups if group["params"]]


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """Every weight that it changes, in its own order."""
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _is_bias_or_norm(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim < 2 or name.endswith("bias")


def _eight_bit(groups: Iterable[dict[str, Any]], config: TrainingConfig, device: torch.device) -> Optimizer:
    """bitsandbytes' AdamW, a quarter of the state: one byte a moment instead of four."""
    if device.type != "cuda":
        raise BadSettings([f"eight_bit_optimizer on {device.type}: its kernels are for CUDA cards"])
    try:
        bitsandbytes = importlib.import_module("bitsandbytes")  # an optional package with CUDA kernels
    except ImportError as error:
        raise BadSettings(["eight_bit_optimizer: pip install bitsandbytes, or leave it out"]) from error
    optimizer: Optimizer = bitsandbytes.optim.AdamW8bit(groups, lr=config.learning_rate, betas=config.betas)
    return optimizer


def factor(name: Schedule, step: int, steps: int, *, warmup_steps: float) -> float:
    """The share of the peak learning rate that optimizer step ``step`` (the first is 0) takes.

    Beyond the last step it stays at the end of the curve: a run may turn out longer than planned.
    Except for one_cycle, whose start is torch's, warm-up rises in a line and never takes a step of nothing: a run of
    one step learns too. After the warm-up the curves are those of transformers, whose polynomial has the power 1 unless
    told: it is the linear one.
    """
    if name == "one_cycle":
        return _one_cycle(step, steps, warmup_steps)
    warm = math.ceil(warmup_steps)
    if step < warm:
        return (step + 1) / (warm + 1)
    if name == "constant":
        return 1.0
    left = max(0.0, 1 - (step - warm) / max(1, steps - warm))
    if name == "cosine":
        return (1 - math.cos(math.pi * left)) / 2
    return left


def _one_cycle(step: int, steps: int, warmup_steps: float) -> float:
    top, last = warmup_steps - 1, steps - 1  # indices, as torch counts its phases
    if step < top:
        return _between(_ONE_CYCLE_START, 1.0, step / top)
    return _between(1.0, _ONE_CYCLE_END, min(1.0, max(0.0, step - max(0.0, top)) / max(1e-9, last - max(0.0, top))))


def _between(start: float, end: float, share: float) -> float:
    """From start to end along half a cosine."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


class LearningRate:
    """Sets the learning rate of an optimizer's groups; ``step`` it once after each step that really was taken.

    Every group keeps its own peak: the rate it had when this was made. Momentum and betas are left alone.
    """

    def __init__(self, name: Schedule, optimizer: Optimizer, *, steps: int, warmup_steps: float) -> None:
        self._name, self._optimizer, self._steps, self._warmup_steps = name, optimizer, steps, warmup_steps
        self._peaks = [float(group["lr"]) for group in optimizer.param_groups]
        self._steps_done = 0
        self._apply()

    @property
    def learning_rate(self) -> float:
        """Of the optimizer's first group, for the step to come."""
        return float(self._optimizer.param_groups[0]["lr"])

    def step(self) -> None:
        """An optimizer step was taken: set the rate of the next. Never raises, however long the run gets."""
        self._steps_done += 1
        self._apply()

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"steps_done": self._steps_done, "peaks": list(self._peaks)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the saved number of steps, on this run's own curve: its length and name may have changed."""
        self._steps_done = int(state["steps_done"])
        if len(state["peaks"]) == len(self._peaks):
            self._peaks = [float(peak) for peak in state["peaks"]]
        self._apply()

    def _apply(self) -> None:
        share = factor(self._name, self._steps_done, self._steps, warmup_steps=self._warmup_steps)
        for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * share


def make_schedule(name: Schedule, optimizer: Optimizer, *, steps: int, warmup_ratio: float = 0.1) -> LearningRate:
    """The schedule ``name`` for an optimizer, its rate for the first step set already.

    Args:
        steps: optimizer steps of the whole run.
        warmup_ratio: of all steps.
    """
    steps = max(1, steps)
    return LearningRate(name, optimizer, steps=steps, warmup_steps=min(1.0, warmup_ratio) * steps)
