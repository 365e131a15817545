"""Moves tensors, models and nested containers to a device, and prepares a model for inference."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from backend.device import default_device
from backend.device.plan import precision
from backend.device.records import GPUInfo
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_Model = TypeVar("_Model", bound=nn.Module)
_SHORT_NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}  # training guides use the long ones


def move_to_device(obj: _T, device: str | torch.device = "auto", *, non_blocking: bool | None = None) -> _T:
    """Move every tensor and module in ``obj`` to ``device``.

    Takes tensors, modules, objects with a ``to`` method (PackedSequence), and dicts, lists, tuples, named tuples,
    dataclasses, BatchEncoding and model outputs of them, nested to any depth. Containers are copied, not changed; one
    with nothing to move is returned itself. A tensor that occurs twice stays one tensor. Modules are moved in place,
    as in torch.

    Args:
        non_blocking: copy asynchronously. By default for pinned tensors going to CUDA, the only case where it has an
            effect; never for copies to the CPU, whose values could be read before they have arrived.

    Raises: DeviceUnavailable for a device this machine does not have.
    """
    target = default_device.torch_device(device)
    moved: dict[int, torch.Tensor] = {}

    def move_tensor(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in moved:
            is_async = (target.type == "cuda" and tensor.is_pinned()) if non_blocking is None else non_blocking
            moved[id(tensor)] = tensor.to(target, non_blocking=is_async and target.type != "cpu")
        return moved[id(tensor)]

    result: _T = _move(obj, target, move_tensor)
    return result


def _move(obj: Any, target: torch.device, move_tensor: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(obj, nn.Module):
        return obj.to(target)
    if isinstance(obj, torch.Tensor):
        return move_tensor(obj)
    if isinstance(obj, type):
        return obj

    def move(item: Any) -> Any:
        return _move(item, target, move_tensor)

    if isinstance(obj, Mapping):
        return _move_mapping(obj, move)
    if callable(getattr(obj, "to", None)):
        return obj.to(target)
    if isinstance(obj, list | tuple):
        return _move_sequence(obj, move)
    return _move_dataclass(obj, move) if dataclasses.is_dataclass(obj) else obj


def _move_mapping(obj: Any, move: Callable[[Any], Any]) -> Any:
    items = {key: move(value) for key, value in obj.items()}
    if all(items[key] is value for key, value in obj.items()):
        return obj
    if dataclasses.is_dataclass(obj):  # a model output of transformers is a dict and a dataclass at once
        kind: Any = type(obj)
        return kind(**items)
    if not isinstance(obj, dict | UserDict):
        return items
    result = copy.copy(obj)  # keeps a defaultdict's factory and BatchEncoding's offsets; its own ``to`` works in place
    result.update(items)
    return result


def _move_sequence(obj: Any, move: Callable[[Any], Any]) -> Any:
    items = [move(item) for item in obj]
    if all(new is old for new, old in zip(items, obj, strict=True)):
        return obj
    if hasattr(obj, "_fields"):
        return type(obj)(*items)
    return type(obj)(items)


def _move_dataclass(obj: Any, move: Callable[[Any], Any]) -> Any:
    old = {field.name: getattr(obj, field.name) for field in dataclasses.fields(obj) if hasattr(obj, field.name)}
    new = {name: move(value) for name, value in old.items()}
    if all(new[name] is value for name, value in old.items()):
        return obj
    result = copy.copy(obj)
    for name, value in new.items():
        object.__setattr__(result, name, value)  # works on frozen dataclasses too; nobody else has the copy yet
    return result


def optimize_model_for_inference(
    model: _Model, device: str | torch.device = "auto", dtype: str | torch.dtype | None = None
) -> _Model:
    """Prepare ``model`` for inference in place and return it: device, dtype, evaluation mode, no gradients.

    Models with 2D convolutions also get the channels-last layout. A quantized model, or one spread over several
    devices, is neither cast nor moved. Logs what it did. Does not compile: each new length would compile again.

    Args:
        dtype: "fp32", "bf16", "fp16" or a torch dtype. By default the best that hardware and model allow on an
            accelerator; on a CPU the model's own, since a narrower dtype is faster only on some processors.

    Raises: DeviceUnavailable for a device this machine does not have, ValueError for another dtype.
    """
    target, steps = default_device.torch_device(device), ["evaluation mode", "no gradients"]
    requested = None if dtype is None else torch_dtype(dtype)
    model.eval().requires_grad_(requires_grad=False)
    if is_movable(model):
        selected, why = (requested, f"{requested} as asked") if requested else inference_dtype(model, target)
        if selected is not None:
            model.to(dtype=selected)  # floating-point weights only, as in torch; before the copy, so it is smaller
        steps.append(why)
    steps += place_model(model, target)
    log_event(_log, logging.INFO, "model optimized for inference", model=type(model).__name__, done=steps)
    return model


def place_model(model: nn.Module, target: torch.device) -> list[str]:
    """Move ``model`` to ``target``, with channels last if it has 2D convolutions; returns the steps taken."""
    if not is_movable(model):
        return ["left where and as it is: quantised, or on several devices"]
    model.to(target)
    if target.type == "mps" or not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return [f"on {target}"]
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
    return [f"on {target}", "channels last"]


def is_movable(model: nn.Module) -> bool:
    """Whether the model may be moved and cast: it is neither quantized nor spread over several devices."""
    return not getattr(model, "is_quantized", False) and len({weight.device for weight in model.parameters()}) < 2


def torch_dtype(name: str | torch.dtype) -> torch.dtype:
    """The torch dtype of "fp32", "bf16", "fp16" or torch's own name of one. Raises: ValueError for another name."""
    return name if isinstance(name, torch.dtype) else precision.torch_dtype(_SHORT_NAMES.get(name, name))


def inference_dtype(model: nn.Module, target: torch.device) -> tuple[torch.dtype | None, str]:
    gpu = _gpu_of(target)
    if gpu is None:
        return None, "dtype kept"
    config = getattr(model, "config", None)
    stored = getattr(config, "dtype", None) or next((weight.dtype for weight in model.parameters()), None)
    choice = precision.for_model(precision.dtypes_for(gpu), getattr(config, "model_type", ""), str(stored))
    return precision.torch_dtype(choice.dtypes[0]), choice.why


def _gpu_of(target: torch.device) -> GPUInfo | None:
    if target.type not in ("cuda", "mps"):
        return None
    current = torch.cuda.current_device() if str(target) == "cuda" else 0  # "cuda" and "mps" carry no number
    index = current if str(target) == target.type else target.index
    return next((gpu for gpu in default_device.machine_facts().usable if gpu.index == index), None)
