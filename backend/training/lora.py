"""Low-rank adapters (LoRA) on any model with linear layers, through peft: put in, count, merge for publishing.

Source: Hu et al. 2021, arXiv 2106.09685; all linear layers as in QLoRA, arXiv 2305.14314.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from backend.errors import TrainingError

ALL_LINEAR = "all-linear"


@dataclass(frozen=True, slots=True)
class TrainableReport:
    """How much of a model learns."""

    trainable: int  # parameters
    total: int

    @property
    def line(self) -> str:
        """One sentence for people."""
        return (
            f"{self.trainable:,} of {self.total:,} parameters are trained ({self.trainable / max(1, self.total):.2%})"
        )


def trainable_report(model: nn.Module) -> TrainableReport:
    """Count the parameters that have gradients; shared ones count once."""
    sizes = [(one.numel(), one.requires_grad) for one in model.parameters()]
    return TrainableReport(sum(size for size, learns in sizes if learns), sum(size for size, _ in sizes))


def add_lora(
    model: nn.Module,
    rank: int,
    alpha: float | None = None,
    dropout: float = 0.05,
    targets: str | Sequence[str] = ALL_LINEAR,
    *,
    heads: Sequence[str] | None = None,
    also: Sequence[str] = (),
) -> PeftModel:
    """Freeze ``model`` and put adapters beside its linear layers; changes it in place and returns it wrapped.

    At first the adapters add nothing: the outputs are those of before.

    Args:
        alpha: the adapters' scale is alpha / rank; None takes twice the rank.
        targets: "all-linear", or (ends of) the names of layers.
        heads: names of direct children that are new and so are trained whole and kept out of the adapters; None finds
            them: for a transformers model with a task, everything beside its encoder.
        also: (ends of) the names of further modules that are trained whole.

    Raises: TrainingError where no layer is left to adapt.
    """
    whole = heads_of(model) if heads is None else list(heads)
    layers = (
        _linear_layers(model, whole) if targets == ALL_LINEAR else [targets] if isinstance(targets, str) else targets
    )
    if not layers:
        raise TrainingError(f"{type(model).__name__} has no linear layer for LoRA to adapt; train it in full")
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank if alpha is None else alpha,  # type: ignore[arg-type]  # a float works: it is divided
        lora_dropout=dropout,
        target_modules=list(layers),
        modules_to_save=[*whole, *also] or None,
    )
    try:
        with warnings.catch_warnings():
            # peft 0.21 asks transformers 5 by the old name; until peft asks by the new one
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            return get_peft_model(model, config)
    except ValueError as error:
        raise TrainingError(f"LoRA cannot adapt {type(model).__name__}: {error}") from error


def merged(model: PeftModel) -> nn.Module:
    """A copy of the model with the adapters multiplied into its weights, of the class and the names it had before.

    The copy is on the CPU; ``model`` can be trained on. Raises: TrainingError where an adapter is not finite.
    """
    copied = twin(model)
    try:
        plain: nn.Module = copied.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise TrainingError(f"the adapters cannot be merged: {error}") from error
    return plain.requires_grad_(requires_grad=True)


def twin(model: PeftModel) -> PeftModel:
    """A copy on the CPU, made without a second one on the device: the device may be full of training."""
    tensors = (*model.parameters(), *model.buffers())
    with torch.no_grad():
        copies = {id(one): one.detach().to("cpu", copy=True) for one in tensors}
    learns = {id(one): one.requires_grad for one in model.parameters()}
    memo: dict[int, object] = {
        key: nn.Parameter(one, requires_grad=learns[key]) if key in learns else one for key, one in copies.items()
    }
    return copy.deepcopy(model, memo)


def heads_of(model: nn.Module) -> list[str]:
    """The direct children that a task put beside a transformers model's encoder; empty for any other model."""
    whole = model.get_base_model() if isinstance(model, PeftModel) else model
    if not _has_task(whole):
        return []
    body = str(whole.base_model_prefix)
    return [name for name, child in whole.named_children() if name != body and any(True for _ in child.parameters())]


def _has_task(model: nn.Module) -> bool:
    """Whether it is a transformers model whose encoder is one of its children."""
    prefix = getattr(model, "base_model_prefix", "")
    return bool(prefix) and isinstance(getattr(model, str(prefix), None), nn.Module)


def _linear_layers(model: nn.Module, heads: Sequence[str]) -> list[str]:
    # A bare encoder's pooler is read by nobody: it would get no gradient, which DDP refuses.
    left = {*heads} if _has_task(model) or not hasattr(model, "config") else {*heads, "pooler"}
    return [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and name.partition(".")[0] not in left
    ]
