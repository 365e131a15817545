"""The service with an encoder that computes nothing: HTTP, JSON, tokenizer, queue and the way between them are left.

python -m benchmarks.fast_engine_app    # settings as of backend.main; RUNTIME=onnx
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from backend.main import main
from backend.models.encoder import TokenBatch, Vectors
from backend.models.onnx_encoder import OnnxEncoder

_WIDTH = 384
_ROWS = np.random.default_rng(0).standard_normal((65_536, _WIDTH), np.float32)


def _forward(_encoder: Any, batch: TokenBatch) -> Vectors:
    return _ROWS[: len(batch.ids)]


if __name__ == "__main__":
    OnnxEncoder.forward = _forward  # type: ignore[method-assign,assignment]  # that is the point
    sys.exit(main())
