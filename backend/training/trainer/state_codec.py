"""Nested Python state as JSON and tensors, and back: no pickle, so a checkpoint can run no code when it is read.

Strings, numbers, None, lists, tuples, mappings with any plain keys, tensors and numpy arrays come back equal and of the
same type. Tensors that are one and the same (tied weights) are kept once and come back as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backend.errors import BadCheckpoint

_TENSOR, _ARRAY, _TUPLE, _ITEMS = "$tensor", "$array", "$tuple", "$items"


class Packer:
    """Takes trees apart; ``tensors`` collects what they held, on the CPU, under dotted names."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def pack(self, tree: object, name: str = "") -> Any:
        """What JSON can hold of ``tree``, with references to ``tensors``. Raises: TypeError for anything else."""
        if isinstance(tree, np.generic):
            tree = tree.item()
        if tree is None or isinstance(tree, bool | int | float | str):
            return tree
        if isinstance(tree, Tensor):
            return {_TENSOR: self._keep(tree, name)}
        if isinstance(tree, np.ndarray):
            raw = torch.frombuffer(bytearray(tree.tobytes()), dtype=torch.uint8) if tree.size else torch.empty(0)
            return {_ARRAY: self._keep(raw, name), "dtype": tree.dtype.str, "shape": list(tree.shape)}
        if isinstance(tree, list | tuple):
            items = [self.pack(one, _join(name, index)) for index, one in enumerate(tree)]
            return items if isinstance(tree, list) else {_TUPLE: items}
        if isinstance(tree, Mapping):
            return self._mapping(tree, name)
        raise TypeError(f"{name or 'the state'}: a checkpoint has no place for {type(tree).__name__}")

    def _mapping(self, tree: Mapping[Any, Any], name: str) -> dict[str, Any]:
        if all(isinstance(key, str) and not key.startswith("$") for key in tree):
            return {key: self.pack(one, _join(name, key)) for key, one in tree.items()}
        return {_ITEMS: [[self.pack(key, name), self.pack(one, _join(name, key))] for key, one in tree.items()]}

    def _keep(self, tensor: Tensor, name: str) -> str:
        if type(tensor) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise TypeError(f"{name}: a checkpoint has no place for {type(tensor).__name__}, a kind of tensor")
        same = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and same in self._names:
            return self._names[same]
        unique = name or "tensor"
        while unique in self.tensors:
            unique += "'"
        whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        plain = tensor.detach().to("cpu").contiguous()
        self.tensors[unique] = plain if whole else plain.clone()  # safetensors refuses parts of one storage
        self._names[same] = unique
        return unique


def unpack(layout: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The tree that was packed. Raises: BadCheckpoint for a tensor that is not there."""
    if isinstance(layout, list):
        return [unpack(one, tensors) for one in layout]
    if not isinstance(layout, dict):
        return layout
    if _TENSOR in layout:
        return _take(tensors, layout[_TENSOR])
    if _ARRAY in layout:
        raw = _take(tensors, layout[_ARRAY]).numpy().tobytes()
        return np.frombuffer(raw, dtype=np.dtype(layout["dtype"])).reshape(layout["shape"]).copy()
    if _TUPLE in layout:
        return tuple(unpack(one, tensors) for one in layout[_TUPLE])
    if _ITEMS in layout:
        return {unpack(key, tensors): unpack(one, tensors) for key, one in layout[_ITEMS]}
    return {key: unpack(one, tensors) for key, one in layout.items()}


def _take(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        raise BadCheckpoint(f"the tensor {name} is missing")
    return tensors[name]


def _join(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)
