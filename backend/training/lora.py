"""Low-rank adapters (LoRA) on any model with linear layers, through peft: add, count, merge for publishing.

Source: Hu et al. 2021, arXiv 2106.09685; all linear layers as in QLoRA, arXiv 2305.14314.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import nn

from backend.errors import BadSettings, ModelUnavailable, TrainingError
from backend.models.checkpoint_tensors import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from backend.models.model_files import resolve
from backend.models.spec import ModelSpec

ALL_LINEAR = "all-linear"


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


DTYPE = torch.float16  # adapter weights are small, far from its range limits; half the bytes of float32


def save_adapter(model: PeftModel, base: ModelSpec, output: Path) -> None:
    """Write ``adapter_config.json``, ``adapter_model.safetensors`` (float16) and the task model's ``config.json``.

    The base is named by its source: "bundled", a hub id, or the path of a folder.
    ``base_sha256`` identifies the weights the adapter was trained on; peft ignores that field with a warning.

    Raises: TrainingError where a weight does not fit float16.
    """
    output.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to("cpu", DTYPE).contiguous() for name, tensor in get_peft_model_state_dict(model).items()
    }
    non_finite = [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]
    if non_finite:
        raise TrainingError(f"the adapter cannot be stored in float16: {non_finite[0]} and {len(non_finite) - 1} more")
    save_file(tensors, output / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    config = json.dumps(_config(model, base), indent=2, sort_keys=True, default=sorted)
    (output / ADAPTER_CONFIG).write_text(f"{config}\n", encoding="utf-8")
    task_model: Any = model.get_base_model()
    task_model.config.name_or_path = base.name
    task_model.config.architectures = [type(task_model).__name__]
    task_model.config.save_pretrained(output)


def base_of(adapter: ModelSpec) -> ModelSpec:
    """The model that an adapter was trained on. Raises: ModelUnavailable."""
    return resolve(str(_read_config(adapter)["base_model_name_or_path"]))


def load_adapter_weights(model: PeftModel, adapter: ModelSpec) -> None:
    """Initialize the model's adapter with the weights of a saved one, to continue its training.

    Raises: BadSettings where rank, alpha or tensors differ; ModelUnavailable.
    """
    stored, config = _read_config(adapter), model.peft_config["default"]
    assert isinstance(config, LoraConfig)  # add_lora makes no other
    faults = [
        f"{name}={getattr(config, name):g}, but the adapter {adapter.name} has {stored[name]}: say the same"
        for name in ("r", "lora_alpha")
        if getattr(config, name) != stored[name]
    ]
    expected_shapes = {name: tensor.shape for name, tensor in get_peft_model_state_dict(model).items()}
    tensors = load_file(_folder(adapter) / ADAPTER_WEIGHTS)
    if not faults and {name: tensor.shape for name, tensor in tensors.items()} != expected_shapes:
        faults = [f"the adapter {adapter.name} has other tensors than this task: labels or adapted layers differ"]
    if faults:
        raise BadSettings(faults)
    set_peft_model_state_dict(model, {name: tensor.float() for name, tensor in tensors.items()})


def published_copy(model: PeftModel, halfway_from: ModelSpec | None = None) -> PeftModel:
    """A copy on the CPU with weights rounded as ``save_adapter`` stores them, so that scores are of what is published.

    Args:
        halfway_from: the adapter that the run started from; the copy is the mean of the two, which keeps most of the
            accuracy of both (Wortsman et al. 2022, arXiv 2109.01903).
    """
    copied = cpu_copy(model)
    if halfway_from is not None:
        trained = get_peft_model_state_dict(copied)
        previous = load_file(_folder(halfway_from) / ADAPTER_WEIGHTS)
        mean = {name: (tensor.float() + previous[name].float()) / 2 for name, tensor in trained.items()}
        set_peft_model_state_dict(copied, mean)
    with torch.no_grad():
        for parameter in copied.parameters():
            if parameter.requires_grad:
                parameter.copy_(parameter.to(DTYPE))
    return copied


def _read_config(adapter: ModelSpec) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((_folder(adapter) / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    return config  # validated when its spec was read


def _folder(adapter: ModelSpec) -> Path:
    if adapter.adapter is None:
        raise ModelUnavailable(f"{adapter.name} is no adapter")
    return adapter.adapter


def _config(model: PeftModel, base: ModelSpec) -> dict[str, Any]:
    config = model.peft_config["default"]
    assert isinstance(config, LoraConfig)  # add_lora makes no other
    return {
        **config.to_dict(),  # type: ignore[no-untyped-call]  # peft has no annotation there
        "base_model_name_or_path": base.source,
        "revision": base.revision if base.source == base.name else None,  # of the hub
        "base_sha256": base.sha256,
        "inference_mode": True,
    }
