"""AdamW as this field trains with it: fused where it can be, no decay on biases and norms; 8-bit on demand."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from backend.errors import BadSettings
from backend.training.lora import heads_of
from backend.training.records import TrainingConfig

_FUSED = ("cuda", "cpu", "mps")  # kinds of device that torch 2.13 has a fused AdamW for


def make_optimizer(model: nn.Module, config: TrainingConfig, device: torch.device) -> Optimizer:
    """The optimizer of the model's trainable weights, which are on ``device`` already.

    Raises: BadSettings without anything to train, or for an 8-bit optimizer that this machine does not have.
    """
    groups = parameter_groups(model, config.weight_decay, config.head_learning_rate)
    if not groups:
        raise BadSettings(["the model has no weight that may be trained (requires_grad is off for all)"])
    if config.eight_bit_optimizer:
        return _eight_bit(groups, config, device)
    fused = device.type in _FUSED and all(one.is_floating_point() for group in groups for one in group["params"])
    return AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=fused)


def parameter_groups(
    model: nn.Module, weight_decay: float, head_learning_rate: float | None = None
) -> list[dict[str, Any]]:
    """The trainable weights with and without decay, and those of the head apart where it has a rate of its own.

    Biases and the weights of norms have one dimension; pulling them to zero helps nobody (transformers leaves them out
    by name, timm by dimension, as here). The head is what stands beside the encoder.
    """
    trainable = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    heads = frozenset(() if head_learning_rate is None else heads_of(model))
    new = [not heads.isdisjoint(name.split(".")) for name, _ in trainable]
    groups: list[dict[str, Any]] = []
    for wanted, rate in ((False, {}), (True, {"lr": head_learning_rate})):
        part = [one for one, is_new in zip(trainable, new, strict=True) if is_new is wanted]
        plain = [one for name, one in part if _is_plain(name, one)]
        others = [one for name, one in part if not _is_plain(name, one)]
        groups += [{"params": others, "weight_decay": weight_decay, **rate}]
        groups += [{"params": plain, "weight_decay": 0.0, **rate}]
    return [group for group in groups if group["params"]]


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """Every weight that it changes, in its own order."""
    return [one for group in optimizer.param_groups for one in group["params"]]


def _is_plain(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim < 2 or name.endswith("bias")


def _eight_bit(groups: Iterable[dict[str, Any]], config: TrainingConfig, device: torch.device) -> Optimizer:
    """bitsandbytes' AdamW, a quarter of the state: one byte a moment instead of four."""
    if device.type != "cuda":
        raise BadSettings([f"eight_bit_optimizer on {device.type}: its kernels are for CUDA cards"])
    try:
        bitsandbytes = importlib.import_module("bitsandbytes")  # an optional package with CUDA kernels
    except ImportError as error:
        raise BadSettings(["eight_bit_optimizer: pip install bitsandbytes, or leave it out"]) from error
    made: Optimizer = bitsandbytes.optim.AdamW8bit(groups, lr=config.learning_rate, betas=config.betas)
    return made
