"""PURE: batches of any form, cut along their items, and what each part weighs in a criterion's mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from backend.device.memory.trial_run import tensors_in


def pair_of(batch: Any) -> tuple[Any, Any]:
    """Data and targets. Raises: ValueError for anything but a pair."""
    if isinstance(batch, list | tuple) and len(batch) == 2:
        return batch[0], batch[1]
    raise ValueError(f"a batch of {type(batch).__name__}: pairs (data, targets) are needed")


def items_in(data: Any) -> int:
    """How many there are, along the first dimension of the first tensor. Raises: ValueError without one."""
    first = next(tensors_in(data), None)
    if first is None or first.ndim == 0:
        raise ValueError("a batch without a tensor of items: they are counted along the first dimension")
    return len(first)


def cut(data: Any, part: slice, count: int) -> Any:
    """The items of ``part`` of everything that has ``count`` of them; what has not stays whole."""
    if isinstance(data, Tensor):
        return data[part] if data.ndim and len(data) == count else data
    if isinstance(data, Mapping):
        return {name: cut(one, part, count) for name, one in data.items()}
    if isinstance(data, list | tuple) and not hasattr(data, "_fields"):
        return type(data)(cut(one, part, count) for one in data)
    return data


def weight_of(criterion: Any, targets: Any, count: int) -> float:
    """What the criterion's mean is over: items, or for cross entropy the weights of the classes that count.

    0 for a criterion that sums: its parts add up as they are.
    """
    if getattr(criterion, "reduction", "mean") == "sum":
        return 0.0
    classes = isinstance(criterion, nn.CrossEntropyLoss | nn.NLLLoss) and isinstance(targets, Tensor)
    if not classes or targets.is_floating_point():
        return float(count)
    kept = targets[targets != criterion.ignore_index]
    if criterion.weight is None:
        return float(kept.numel())
    return float(criterion.weight[kept.to(criterion.weight.device)].sum())
