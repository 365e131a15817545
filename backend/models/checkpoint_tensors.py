"""Reads a checkpoint's tensors by name, with the LoRA adapter of its spec merged."""

from __future__ import annotations

import json
import math
import os
import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # importing it registers bfloat16 in numpy; onnx depends on it
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from backend.errors import ModelUnavailable
from backend.models.spec import ModelSpec, read_json

WEIGHTS = "model.safetensors"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
_PEFT = "base_model.model."
_SAVED = ".modules_to_save"  # in the names of replaced modules, as older versions of peft wrote them
_LENGTH_BYTES = 8  # of the header, before it
_MAPPED: Mapping[str, np.dtype[Any]] = {  # safetensors' names of dtypes
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I8": np.dtype("i1"),
}
Tensors = dict[str, NDArray[Any]]
# Each mapping counts its pages again as resident, so models on the same file share one.
_mapped_tables: weakref.WeakValueDictionary[tuple[int, ...], NDArray[Any]] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter as peft publishes it. Shapes of a pair: down (rank, in), up (out, rank)."""

    scale: float
    pairs: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]  # by the name of the weight to which the product is added
    replaced: Mapping[str, NDArray[Any]]  # tensors that replace the base's or that it lacks: heads


def read_tensors(
    spec: ModelSpec, names: Collection[str] | None = None, *, without: Collection[str] = frozenset()
) -> Tensors:
    """The model's tensors, in the checkpoint's names and dtypes; those of ``names`` that there are, or all.

    Args:
        without: names of tensors to leave out of all.

    Raises: ModelUnavailable for a file that cannot be read, or an adapter that does not fit the base.
    """
    tensors = _load(spec.folder / WEIGHTS, names, without)
    if spec.adapter is None:
        return tensors
    adapter = read_adapter(spec.adapter)
    if names is not None:
        replaced = {name: value for name, value in adapter.replaced.items() if name in names}
        pairs = {name: pair for name, pair in adapter.pairs.items() if _base_name(tensors, name)}
        adapter = Adapter(adapter.scale, pairs, replaced)
    elif without:
        replaced = {name: value for name, value in adapter.replaced.items() if not _is_one_of(name, without)}
        pairs = {name: pair for name, pair in adapter.pairs.items() if not _is_one_of(name, without)}
        adapter = Adapter(adapter.scale, pairs, replaced)
    return _merged(tensors, adapter, spec.adapter)


def read_table(spec: ModelSpec, names: Collection[str]) -> NDArray[Any] | None:
    """The one tensor among ``names`` that the checkpoint has, in its dtype; None where it has none of them.

    Mapped from the file where that never changes in place: then only the rows that are read take memory, and all
    models on this file share them. In memory, with its change, where the spec's adapter changes it.

    Raises: ModelUnavailable as ``read_tensors``.
    """
    if spec.is_immutable and not _is_adapted(spec, names):
        mapped = _map(spec.folder / WEIGHTS, names)
        if mapped is not None:
            return mapped
    return next(iter(read_tensors(spec, names).values()), None)


def _is_adapted(spec: ModelSpec, names: Collection[str]) -> bool:
    adapter = None if spec.adapter is None else read_adapter(spec.adapter)
    return adapter is not None and any(_is_one_of(name, names) for name in (*adapter.pairs, *adapter.replaced))


class Rows:
    """Rows of one tensor in a checkpoint, read one by one: a mapping would hold the 16 pages around each row.

    Raises: ModelUnavailable for a file that cannot be read, or that has none of ``names``.
    """

    def __init__(self, file: Path, names: Collection[str]) -> None:
        try:
            place = _place_of(file, names)
            self._descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError, KeyError) as error:
            raise ModelUnavailable(f"{file} cannot be read: {error!r}") from error
        weakref.finalize(self, os.close, self._descriptor)
        if place is None:
            raise ModelUnavailable(f"{file} has none of {sorted(names)} in a dtype that numpy knows")
        self._dtype, self._offset, (_, self.width) = place
        self._row_bytes = self.width * self._dtype.itemsize

    def row(self, number: int) -> NDArray[Any]:
        """Shape: (width,)."""
        start = self._offset + number * self._row_bytes
        return np.frombuffer(os.pread(self._descriptor, self._row_bytes, start), self._dtype)


def _map(file: Path, names: Collection[str]) -> NDArray[Any] | None:
    """A view of the tensor in the file; None for a dtype that numpy cannot map."""
    try:
        place = _place_of(file, names)
        if place is None:
            return None
        dtype, offset, shape = place
        identity = file.stat()
        key = (identity.st_dev, identity.st_ino, identity.st_mtime_ns, offset)
        table = _mapped_tables.get(key)
        if table is None:  # the plain view: memmap's own indexing is slower
            table = np.asarray(np.memmap(file, dtype, mode="r", offset=offset, shape=shape))
            _mapped_tables[key] = table
    except (OSError, ValueError, KeyError) as error:
        raise ModelUnavailable(f"{file} cannot be mapped: {error!r}") from error
    return table


def _place_of(file: Path, names: Collection[str]) -> tuple[np.dtype[Any], int, tuple[int, ...]] | None:
    """The dtype, first byte and shape of the tensor in the file; None for a dtype that numpy has not."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        header = json.loads(stream.read(length))
    entry: dict[str, Any] = next((header[name] for name in names if name in header), {})
    dtype = _MAPPED.get(entry.get("dtype", ""))
    if dtype is None:
        return None
    return dtype, _LENGTH_BYTES + length + int(entry["data_offsets"][0]), tuple(entry["shape"])


def adapter_config(folder: Path) -> dict[str, Any]:
    """A folder's ``adapter_config.json``. Raises: ModelUnavailable when it is absent or no JSON object."""
    config = read_json(folder / ADAPTER_CONFIG, None)
    if not isinstance(config, dict):
        raise ModelUnavailable(f"{folder}/{ADAPTER_CONFIG} cannot be read: it is absent, or no JSON object")
    return config


def read_adapter(folder: Path) -> Adapter:
    """Read an adapter folder as peft writes it. Raises: ModelUnavailable for another method than plain LoRA."""
    config = adapter_config(folder)
    try:
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelUnavailable(f"{folder}/{ADAPTER_CONFIG} cannot be read: {error!r}") from error
    _check_method(folder, config)
    pairs: dict[str, dict[str, NDArray[Any]]] = {}
    replaced: Tensors = {}
    for name, value in _load(folder / ADAPTER_WEIGHTS).items():
        module, _, part = name.removeprefix(_PEFT).rpartition(".lora_")
        if not module:
            replaced[name.removeprefix(_PEFT).replace(_SAVED, "")] = value
        elif part in ("A.weight", "B.weight"):
            pairs.setdefault(f"{module}.weight", {})[part[0]] = value
        else:
            raise ModelUnavailable(f"{folder}: the tensor {name} is of no plain LoRA adapter, the only kind served")
    complete = {name: (pair["A"], pair["B"]) for name, pair in pairs.items() if len(pair) == len("AB")}
    if len(complete) < len(pairs):
        raise ModelUnavailable(f"{folder}: half of a pair is absent for {sorted(set(pairs) - set(complete))[:3]}")
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return Adapter(scale, complete, replaced)


def _check_method(folder: Path, config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type", "LORA")
    unusual = [
        name
        for name in ("use_dora", "fan_in_fan_out", "alpha_pattern", "rank_pattern", "use_qalora", "lora_bias")
        if config.get(name)
    ]
    if kind != "LORA" or unusual or config.get("bias", "none") != "none":
        method = ", ".join(unusual) or f"peft_type={kind}, bias={config.get('bias')}"
        raise ModelUnavailable(f"{folder}: only plain LoRA is served, not {method}; publish the merged model instead")


def _merged(tensors: Tensors, adapter: Adapter, folder: Path) -> Tensors:
    merged = dict(tensors)
    for name, (down, up) in adapter.pairs.items():
        target = _base_name(merged, name)
        if target is None or merged[target].shape != (up.shape[0], down.shape[1]):
            raise ModelUnavailable(f"{folder} is an adapter of another base: {name} does not fit its tensors")
        change = up.astype(np.float32) @ down.astype(np.float32)
        merged[target] = merged[target].astype(np.float32) + np.float32(adapter.scale) * change
    for name, value in adapter.replaced.items():
        merged[_base_name(merged, name) or name] = value
    return merged


def _is_one_of(name: str, names: Collection[str]) -> bool:
    """Whether an adapter's name of a tensor, with or without the family's prefix, is among the base's ``names``."""
    return name in names or name.partition(".")[2] in names


def _base_name(tensors: Tensors, name: str) -> str | None:
    """The tensor's name in the base, whose checkpoint may lack the family's prefix ("bert.", "roberta.")."""
    bare = name.partition(".")[2]
    return next((known for known in (name, bare) if known in tensors), None)


def _load(file: Path, names: Collection[str] | None = None, without: Collection[str] = frozenset()) -> Tensors:
    try:
        with safe_open(file, framework="numpy") as stored:
            wanted = [name for name in stored.keys() if (names is None or name in names) and name not in without]  # noqa: SIM118  # it is no dict
            return {name: stored.get_tensor(name) for name in wanted}
    except (SafetensorError, OSError, KeyError, TypeError) as error:  # KeyError, TypeError: a dtype numpy lacks
        raise ModelUnavailable(f"{file} cannot be read as numpy arrays: {error!r}") from error
