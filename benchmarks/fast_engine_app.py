"""The service with an encoder that computes nothing: HTTP, JSON, tokenizer, queue and the way between them are left.

    python -m benchmarks.fast_engine_app    # settings as of backend.main; RUNTIME=onnx

BENCHMARK_BATCH_S and BENCHMARK_TOKEN_S make each batch wait as long as a device would compute, without a core: so many
seconds, and so many for each of its tokens. Several such replicas on one machine stand for as many machines.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np

from backend.main import main
from backend.models.encoder import TokenBatch, Vectors
from backend.models.onnx_encoder import OnnxEncoder

_WIDTH = 384
_ROWS = np.random.default_rng(0).standard_normal((65_536, _WIDTH), np.float32)
_BATCH_S = float(os.environ.get("BENCHMARK_BATCH_S", "0"))
_TOKEN_S = float(os.environ.get("BENCHMARK_TOKEN_S", "0"))


def _forward(_encoder: Any, batch: TokenBatch) -> Vectors:
    if duration_s := _BATCH_S + _TOKEN_S * batch.tokens:
        time.sleep(duration_s)
    return _ROWS[: len(batch.ids)]


if __name__ == "__main__":
    OnnxEncoder.forward = _forward  # type: ignore[method-assign,assignment]  # that is the point
    sys.exit(main())
