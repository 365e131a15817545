"""The layers of a distilled encoder as int8 rows with one float32 scale each, in one safetensors file.

Matrices: ``NAME`` (out, in) int8 and ``NAME.scale`` (out) float32; vectors (biases, gains): ``NAME`` float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders.tensor_file import TensorToWrite, whole, write_tensors

LAYERS_FILE = "layers.safetensors"
_SCALE = ".scale"
_INT8_MAX = 127


def write_layers(file: Path, layers: Mapping[str, NDArray[Any]]) -> None:
    """Quantise and write the tensors of ``layers``. Raises: OSError."""
    tensors: list[TensorToWrite] = []
    for name, value in sorted(layers.items()):
        if value.ndim == 1:
            tensors.append(whole(name, value.astype("<f4")))
        else:
            quantized, scale = quantized_rows(value.astype(np.float32))
            tensors += [whole(name, quantized), whole(name + _SCALE, scale)]
    write_tensors(file, tensors)


def read_layers(file: Path) -> dict[str, NDArray[Any]]:
    """The tensors of the file by name: matrices float16, which no 8-bit value needs more than, vectors float32.

    Raises: ModelUnavailable when it is absent or broken.
    """
    try:
        with safe_open(file, framework="numpy") as stored:
            names = list(stored.keys())
            tensors = {name: stored.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise ModelUnavailable(f"the layers of the bundled student cannot be read: {error}") from error
    return {
        name: _restored(value, tensors.get(name + _SCALE))
        for name, value in tensors.items()
        if not name.endswith(_SCALE)
    }


def quantized_rows(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric int8 with one scale a row. Shapes: (out, in) -> (out, in), (out). Rows of zeros stay zeros."""
    scale = np.maximum(np.abs(matrix).max(axis=1), np.finfo(np.float32).tiny) / np.float32(_INT8_MAX)
    return np.rint(matrix / scale[:, None]).astype(np.int8), scale.astype(np.float32)


def _restored(value: NDArray[Any], scale: NDArray[np.float32] | None) -> NDArray[Any]:
    if scale is None:
        return value.astype("<f4")
    restored: NDArray[Any] = (value.astype(np.float32) * scale[:, None]).astype("<f2")
    return restored
