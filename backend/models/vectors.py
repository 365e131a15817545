"""Vectors as rows of numpy arrays."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Floats = TypeVar("_Floats", NDArray[np.float32], NDArray[np.float64])
_TINY = np.finfo(np.float32).tiny


def normalized(vectors: _Floats) -> _Floats:
    """Rows of length one, of the same dtype; a row of zeros stays zero. Shapes: (batch, width) -> (batch, width)."""
    squares = np.einsum("ij,ij->i", vectors, vectors)  # half the overhead of np.linalg.norm on one short row
    scaled: _Floats = vectors / np.sqrt(np.maximum(squares, _TINY))[:, None]
    return scaled
