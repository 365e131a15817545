"""Low-rank adapters (LoRA) on any model with linear layers, through peft: add, count, merge for publishing.

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
    """How many parameters of a model are trained."""

    trainable: int  # parameters
    total: int

    @property
    def line(self) -> str:
        """The counts as a sentence."""
        return (
            f"{self.trainable:,} of {self.total:,} parameters are trained ({self.trainable / max(1, self.total):.2%})"
        )


def trainable_report(model: nn.Module) -> TrainableReport:
    """Count the parameters with gradients; shared ones count once."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return TrainableReport(sum(size for size, requires_grad in sizes if requires_grad), sum(size for size, _ in sizes))


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
    """Freeze ``model`` and add adapters to its linear layers; changes it in place and returns it wrapped.

    New adapters add zero: the outputs do not change.

    Args:
        alpha: the adapters' scale is alpha / rank; None takes twice the rank.
        targets: "all-linear", or (ends of) the names of layers.
        heads: names of direct children that are new, so trained in full and without adapters; None finds
            them: for a transformers model with a task, everything beside its encoder.
        also: (ends of) the names of further modules that are trained in full.

    Raises: TrainingError where no layer is left to adapt.
    """
    head_names = heads_of(model) if heads is None else list(heads)
    named = [targets] if isinstance(targets, str) else targets
    target_layers = _linear_layers(model, head_names) if targets == ALL_LINEAR else named
    if not target_layers:
        raise TrainingError(f"{type(model).__name__} has no linear layer for LoRA to adapt; train it in full")
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank if alpha is None else alpha,  # type: ignore[arg-type]  # peft only divides by it
        lora_dropout=dropout,
        target_modules=list(target_layers),
        modules_to_save=[*head_names, *also] or None,
    )
    try:
        with warnings.catch_warnings():
            # peft 0.21 uses the old name of this transformers 5 property; until peft uses the new one
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            return get_peft_model(model, config)
    except ValueError as error:
        raise TrainingError(f"LoRA cannot adapt {type(model).__name__}: {error}") from error


def merged(model: PeftModel) -> nn.Module:
    """A copy of the model with the adapters merged into its weights, of the original class and tensor names.

    The copy is on the CPU; ``model`` stays trainable. Raises: TrainingError where an adapter is not finite.
    """
    model_copy = cpu_copy(model)
    try:
        plain: nn.Module = model_copy.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise TrainingError(f"the adapters cannot be merged: {error}") from error
    return plain.requires_grad_(requires_grad=True)


def cpu_copy(model: PeftModel) -> PeftModel:
    """Copy the model to the CPU without a second copy on the device, whose memory may be full."""
    tensors = (*model.parameters(), *model.buffers())
    with torch.no_grad():
        copies = {id(tensor): tensor.detach().to("cpu", copy=True) for tensor in tensors}
    requires_grad = {id(tensor): tensor.requires_grad for tensor in model.parameters()}
    memo: dict[int, object] = {
        key: nn.Parameter(tensor, requires_grad=requires_grad[key]) if key in requires_grad else tensor
        for key, tensor in copies.items()
    }
    return copy.deepcopy(model, memo)


def heads_of(model: nn.Module) -> list[str]:
    """Names of the children beside a transformers model's encoder (its task head); empty for any other model."""
    task_model = model.get_base_model() if isinstance(model, PeftModel) else model
    if not _has_task(task_model):
        return []
    encoder_name = str(task_model.base_model_prefix)
    children = task_model.named_children()
    return [name for name, child in children if name != encoder_name and any(True for _ in child.parameters())]


def _has_task(model: nn.Module) -> bool:
    """Whether it is a transformers model whose encoder is one of its children."""
    prefix = getattr(model, "base_model_prefix", "")
    return bool(prefix) and isinstance(getattr(model, str(prefix), None), nn.Module)


def _linear_layers(model: nn.Module, heads: Sequence[str]) -> list[str]:
    # The output of a bare encoder's pooler is not used: it would get no gradient, which DDP refuses.
    skipped = {*heads} if _has_task(model) or not hasattr(model, "config") else {*heads, "pooler"}
    return [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and name.partition(".")[0] not in skipped
    ]
