"""A linear layer that turns a query's token vectors towards those of texts that answer it. Learnt, for one encoder."""

from __future__ import annotations

from functools import cache

import numpy as np
from safetensors import safe_open

from backend.models.model_files import BUNDLED_ADAPTERS
from backend.models.spec import ModelSpec
from backend.models.weights import Linear

FILE = BUNDLED_ADAPTERS / "token-ranker" / "query.safetensors"


def query_layer(spec: ModelSpec) -> Linear | None:
    """The layer for this encoder; None for any but the one it was learnt on. Shapes: weight (width, width)."""
    encoder_sha256, layer = _learnt()
    return layer if spec.sha256 == encoder_sha256 and spec.adapter is None else None


@cache
def _learnt() -> tuple[str, Linear]:
    with safe_open(FILE, framework="numpy") as tensors:
        weight, bias = (tensors.get_tensor(name).astype(np.float32) for name in ("weight", "bias"))
        return tensors.metadata()["encoder_sha256"], Linear(weight, bias)
