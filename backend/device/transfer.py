"""Tensors, models and whatever holds them, brought to a device; a model made ready to serve."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from backend.device import process_state
from backend.device.plan import precision
from backend.device.records import GPUInfo
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_Thing = TypeVar("_Thing")
_Model = TypeVar("_Model", bound=nn.Module)
_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}  # the names that training guides use


def move_to_device(obj: _Thing, device: str | torch.device = "auto", *, non_blocking: bool | None = None) -> _Thing:
    """Everything in ``obj`` that lives on a device, on ``device``.

    Tensors, modules, anything with a ``to`` of its own (PackedSequence), and dicts, lists, tuples, named tuples,
    dataclasses, BatchEncoding and model outputs of them, however nested. Containers are copied, never changed; what
    holds nothing to move comes back as it is, and so does what is there already. A tensor found twice stays one
    tensor. Modules are moved in place, as torch does.

    Args:
        non_blocking: copy while the host goes on. By default for pinned tensors on their way to CUDA, the only case
            where it does anything; never towards the CPU, where the values could be read before they have arrived.

    Raises: DeviceUnavailable for a device this machine does not have.
    """
    target = process_state.torch_device(device)
    moved: dict[int, torch.Tensor] = {}

    def tensor(one: torch.Tensor) -> torch.Tensor:
        if id(one) not in moved:
            wanted = (target.type == "cuda" and one.is_pinned()) if non_blocking is None else non_blocking
            moved[id(one)] = one.to(target, non_blocking=wanted and target.type != "cpu")
        return moved[id(one)]

    result: _Thing = _move(obj, target, tensor)
    return result


def _move(obj: Any, target: torch.device, tensor: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(obj, nn.Module):
        return obj.to(target)
    if isinstance(obj, torch.Tensor):
        return tensor(obj)
    if isinstance(obj, type):
        return obj

    def inside(one: Any) -> Any:
        return _move(one, target, tensor)

    if isinstance(obj, Mapping):
        return _mapping(obj, inside)
    if callable(getattr(obj, "to", None)):
        return obj.to(target)
    if isinstance(obj, list | tuple):
        return _sequence(obj, inside)
    return _dataclass(obj, inside) if dataclasses.is_dataclass(obj) else obj


def _mapping(obj: Any, inside: Callable[[Any], Any]) -> Any:
    items = {key: inside(value) for key, value in obj.items()}
    if all(items[key] is value for key, value in obj.items()):
        return obj
    if dataclasses.is_dataclass(obj):  # a model output of transformers is a dict and a dataclass at once
        kind: Any = type(obj)
        return kind(**items)
    if not isinstance(obj, dict | UserDict):
        return items
    result = copy.copy(obj)  # a defaultdict keeps its factory, BatchEncoding its offsets; their ``to`` changes theirs
    result.update(items)
    return result


def _sequence(obj: Any, inside: Callable[[Any], Any]) -> Any:
    items = [inside(one) for one in obj]
    if all(new is old for new, old in zip(items, obj, strict=True)):
        return obj
    if hasattr(obj, "_fields"):
        return type(obj)(*items)
    return type(obj)(items)


def _dataclass(obj: Any, inside: Callable[[Any], Any]) -> Any:
    old = {one.name: getattr(obj, one.name) for one in dataclasses.fields(obj) if hasattr(obj, one.name)}
    new = {name: inside(value) for name, value in old.items()}
    if all(new[name] is value for name, value in old.items()):
        return obj
    result = copy.copy(obj)
    for name, value in new.items():
        object.__setattr__(result, name, value)  # frozen ones too: the copy is ours until it is handed out
    return result


def optimize_model_for_inference(
    model: _Model, device: str | torch.device = "auto", dtype: str | torch.dtype | None = None
) -> _Model:
    """The same model, ready to answer: on the device, in a dtype the device computes in, without gradients.

    Changes ``model`` itself and returns it: evaluation mode, ``requires_grad`` off, and channels last where it has
    two-dimensional convolutions. A quantised model, or one spread over several devices, is neither cast nor moved.
    What was done is logged. It does not compile: variable lengths would compile again for each.

    Args:
        dtype: "fp32", "bf16", "fp16" or torch's; by default the best that hardware and model allow on an
            accelerator, and what the model has on a CPU, where a narrower dtype pays only on some processors and
            PRECISION decides by measuring.

    Raises: DeviceUnavailable for a device this machine does not have, ValueError for another dtype.
    """
    target, done = process_state.torch_device(device), ["evaluation mode", "no gradients"]
    wanted = None if dtype is None else torch_dtype(dtype)
    model.eval().requires_grad_(requires_grad=False)
    if is_movable(model):
        chosen, why = (wanted, f"{wanted} as asked") if wanted else _inference_dtype(model, target)
        if chosen is not None:
            model.to(dtype=chosen)  # floating-point weights only, as torch does; before they travel
        done.append(why)
    done += place_model(model, target)
    log_event(_log, logging.INFO, "model optimized for inference", model=type(model).__name__, done=done)
    return model


def place_model(model: nn.Module, target: torch.device) -> list[str]:
    """Bring ``model`` to ``target`` in the layout that its convolutions want; says what was done."""
    if not is_movable(model):
        return ["left where and as it is: quantised, or on several devices"]
    model.to(target)
    if target.type == "mps" or not any(isinstance(one, nn.Conv2d) for one in model.modules()):
        return [f"on {target}"]
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
    return [f"on {target}", "channels last"]


def is_movable(model: nn.Module) -> bool:
    """Whether it may be moved and cast: not one that is quantised or spread over devices."""
    return not getattr(model, "is_quantized", False) and len({one.device for one in model.parameters()}) < 2


def torch_dtype(name: str | torch.dtype) -> torch.dtype:
    """torch's dtype for "fp32", "bf16", "fp16" or torch's own names of them. Raises: ValueError for another."""
    return name if isinstance(name, torch.dtype) else precision.torch_dtype(_SHORT.get(name, name))


def _inference_dtype(model: nn.Module, target: torch.device) -> tuple[torch.dtype | None, str]:
    gpu = _gpu(target)
    if gpu is None:
        return None, "dtype kept"
    config = getattr(model, "config", None)
    stored = getattr(config, "dtype", None) or next((one.dtype for one in model.parameters()), None)
    choice = precision.for_model(precision.dtypes_for(gpu), getattr(config, "model_type", ""), str(stored))
    return precision.torch_dtype(choice.dtypes[0]), choice.why


def _gpu(target: torch.device) -> GPUInfo | None:
    if target.type not in ("cuda", "mps"):
        return None
    current = torch.cuda.current_device() if str(target) == "cuda" else 0  # "cuda" and "mps" carry no number
    index = current if str(target) == target.type else target.index
    return next((gpu for gpu in process_state.machine().usable if gpu.index == index), None)
