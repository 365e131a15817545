"""A LoRA adapter as a folder that peft and this service load on its base: a few MiB instead of a whole model."""

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
from backend.training.lora import twin

DTYPE = torch.float16  # an adapter's numbers are small and far from its limits; half of float32's bytes


def save_adapter(model: PeftModel, base: ModelSpec, output: Path) -> None:
    """Write ``adapter_config.json``, ``adapter_model.safetensors`` (float16) and the task model's ``config.json``.

    The base is named by its source, "bundled" or a hub id; a folder by its path, for nothing else would find it.
    ``base_sha256`` says which weights the adapter was trained on; peft passes over that field with a warning.

    Raises: TrainingError where a number does not fit float16.
    """
    output.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: one.detach().to("cpu", DTYPE).contiguous() for name, one in get_peft_model_state_dict(model).items()
    }
    broken = [name for name, one in tensors.items() if not bool(torch.isfinite(one).all())]
    if broken:
        raise TrainingError(f"the adapter cannot be stored in float16: {broken[0]} and {len(broken) - 1} more")
    save_file(tensors, output / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    config = json.dumps(_config(model, base), indent=2, sort_keys=True, default=sorted)
    (output / ADAPTER_CONFIG).write_text(f"{config}\n", encoding="utf-8")
    whole: Any = model.get_base_model()
    whole.config.name_or_path = base.name
    whole.config.architectures = [type(whole).__name__]
    whole.config.save_pretrained(output)


def base_of(adapter: ModelSpec) -> ModelSpec:
    """The model that an adapter was trained on. Raises: ModelUnavailable."""
    return resolve(str(_read_config(adapter)["base_model_name_or_path"]))


def go_on_from(model: PeftModel, adapter: ModelSpec) -> None:
    """Begin with what an adapter learnt: its numbers take the place of the fresh ones.

    Raises: BadSettings where its rank, its scale or its tensors are others; ModelUnavailable.
    """
    theirs, ours = _read_config(adapter), model.peft_config["default"]
    assert isinstance(ours, LoraConfig)  # add_lora makes no other
    faults = [
        f"{name}={getattr(ours, name):g}, but the adapter {adapter.name} has {theirs[name]}: say the same"
        for name in ("r", "lora_alpha")
        if getattr(ours, name) != theirs[name]
    ]
    fresh = {name: one.shape for name, one in get_peft_model_state_dict(model).items()}
    tensors = load_file(_folder(adapter) / ADAPTER_WEIGHTS)
    if not faults and {name: one.shape for name, one in tensors.items()} != fresh:
        faults = [f"the adapter {adapter.name} has other tensors than this task: labels or adapted layers differ"]
    if faults:
        raise BadSettings(faults)
    set_peft_model_state_dict(model, {name: one.float() for name, one in tensors.items()})


def stored_twin(model: PeftModel, halfway_from: ModelSpec | None = None) -> PeftModel:
    """A copy on the CPU with the numbers that ``save_adapter`` stores, so that scores are of what is published.

    Args:
        halfway_from: the adapter that the run went on from; the copy is the mean of the two, which keeps most of what
            both do well (Wortsman et al. 2022, arXiv 2109.01903).
    """
    copied = twin(model)
    if halfway_from is not None:
        learnt = get_peft_model_state_dict(copied)
        before = load_file(_folder(halfway_from) / ADAPTER_WEIGHTS)
        mean = {name: (one.float() + before[name].float()) / 2 for name, one in learnt.items()}
        set_peft_model_state_dict(copied, mean)
    with torch.no_grad():
        for one in copied.parameters():
            if one.requires_grad:
                one.copy_(one.to(DTYPE))
    return copied


def _read_config(adapter: ModelSpec) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((_folder(adapter) / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    return read  # it was understood when its spec was read


def _folder(adapter: ModelSpec) -> Path:
    if adapter.adapter is None:
        raise ModelUnavailable(f"{adapter.name} is no adapter")
    return adapter.adapter


def _config(model: PeftModel, base: ModelSpec) -> dict[str, Any]:
    made = model.peft_config["default"]
    assert isinstance(made, LoraConfig)  # add_lora makes no other
    return {
        **made.to_dict(),  # type: ignore[no-untyped-call]  # peft has no annotation there
        "base_model_name_or_path": base.source,
        "revision": base.revision if base.source == base.name else None,  # of the hub
        "base_sha256": base.sha256,
        "inference_mode": True,
    }
