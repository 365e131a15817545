"""Activation checkpointing: recomputes blocks of a model in the backward pass instead of keeping their activations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

_BatchNorm = nn.modules.batchnorm._BatchNorm  # noqa: SLF001  # torch's only name for all its batch norms


def checkpoint_activations(model: nn.Module) -> str:
    """Keep only the inputs of the model's repeated blocks for the backward pass; returns what was done, as a sentence.

    Uses the model's own method where it has one (transformers), else the members of the outermost list or sequence that
    holds at least two blocks of one kind. Gradients, random numbers (dropout) and the statistics of batch norm are as
    without it. Works in training only: evaluation and inference run as before. Calling it twice changes nothing.
    """
    if getattr(model, "supports_gradient_checkpointing", False) and _enable_own(model):
        return "activation checkpointing, the model's own"
    blocks = [block for block in _blocks(model) if "forward" not in vars(block)]  # those have a hook, or ours already
    for block in blocks:
        block.forward = partial(_recomputing_forward, block)
    return f"activation checkpointing of {len(blocks)} blocks" if blocks else "no blocks to checkpoint"


def _enable_own(model: nn.Module) -> bool:
    """Call transformers' method, which has another name since version 5."""
    for name in ("activation", "gradient"):
        if enable := getattr(model, f"{name}_checkpointing_enable", None):
            enable(**{f"{name}_checkpointing_kwargs": {"use_reentrant": False}})
            return True
    return False


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, nn.ModuleList | nn.Sequential):
        composite = [child for child in module if any(child.children()) and any(True for _ in child.parameters())]
        kinds = Counter(type(child) for child in composite)
        if kinds and max(kinds.values()) >= 2:
            yield from composite
            return
    for child in module.children():
        yield from _blocks(child)


def _recomputing_forward(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
    run = partial(type(block).forward, block)
    if not (block.training and torch.is_grad_enabled()):
        return run(*args, **kwargs)
    # non-reentrant: inputs without gradients and keyword arguments are allowed; torch recommends it
    return checkpoint(run, *args, use_reentrant=False, context_fn=partial(_contexts, block), **kwargs)


def _contexts(block: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Around the forward pass, and around its recomputation."""
    return nullcontext(), _frozen_statistics(block)


@contextmanager
def _frozen_statistics(block: nn.Module) -> Iterator[None]:
    """Give the recomputation copies of the running statistics, so that a batch is counted in them once."""
    norms = [module for module in block.modules() if isinstance(module, _BatchNorm)]
    originals = [(norm, name, buffer) for norm in norms for name, buffer in norm.named_buffers(recurse=False)]
    for norm, name, buffer in originals:
        setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, name, buffer in originals:
            setattr(norm, name, buffer)
