"""Saves and loads LoRA adapters as folders that peft and this service read: a few MiB instead of a whole model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file

from backend.errors import BadSettings, ModelUnavailable, TrainingError
from backend.models.checkpoint_tensors import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from backend.models.model_files import resolve
from backend.models.spec import ModelSpec
from backend.training.lora import cpu_copy

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
