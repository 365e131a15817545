"""An encoder executed by OpenVINO."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from typing import Any

import openvino

from backend.models.encoder import Ids, TokenBatch, Vectors, pack, pool
from backend.models.onnx_encoder import extra_inputs, graph_inputs
from backend.models.onnx_graph import Arithmetic, build
from backend.models.signal_stack import kept_signal_stack
from backend.models.spec import ModelSpec, Pooling
from backend.models.weights import load_weights

# OpenVINO keeps a compiled kernel for each shape: rounded sizes keep their number, and the memory, small.
# Lengths must be multiples of 16: then a text's vector does not depend on its neighbours' lengths at all; with
# multiples of 8 its bf16 kernels sum in another order and int8 makes that cosine 0.9997 (docs/engine.md).
_ROW_MULTIPLE = 4
_LENGTH_MULTIPLE = 16
_KERNELS_KEPT = 512


class OpenVinoEncoder:
    """The model compiled twice: narrow, a stream a lane with few threads, and wide, one stream with all of them.

    A batch that runs while no other does takes every core: a lone text is answered 1.5 times sooner. Under load
    the narrow form runs, whose lanes never wait for one another. Which of the two ran changes no vector.
    """

    runtime = "openvino"
    padding_cost = 0.1  # padding exists in attention only

    def __init__(self, spec: ModelSpec, *, dtype: str, lanes: int, threads: int) -> None:
        """Build the graph and compile it; ``dtype`` is "fp32", "bf16" or "int8". Raises: ModelUnavailable.

        int8 keeps attention and the rest in bf16 where the CPU has it: 1.1 times the speed of float32
        there at the same fidelity (docs/engine.md).
        """
        self.dtype = dtype
        weights = load_weights(spec)
        graph = build(spec.shape, weights, Arithmetic.COMPRESSED_INT8 if dtype == "int8" else Arithmetic.FLOAT32)
        with kept_signal_stack():  # the library's CPU plugin sets its own when it is loaded, with the first question
            core = openvino.Core()
            model = core.read_model(io.BytesIO(graph))
            bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
            numbers = _arithmetic(dtype, spec.shape.width, bf16=bf16)
            self._narrow = _Requests(core.compile_model(model, "CPU", numbers | _threads(lanes, lanes * threads)))
            self._wide = _Requests(core.compile_model(model, "CPU", numbers | _threads(1, lanes * threads)))
        self._extras = extra_inputs(weights)
        self._lock = threading.Lock()
        self._running = 0  # forwards under way

    def prepare(self, ids: Sequence[Ids]) -> TokenBatch:
        """Pack to round sizes."""
        return pack(ids, row_multiple=_ROW_MULTIPLE, length_multiple=_LENGTH_MULTIPLE)

    def forward(self, batch: TokenBatch) -> Vectors:
        """(rows, width); a view that the same thread's next call overwrites."""
        inputs = graph_inputs(batch, self._extras)
        with self._lock:
            requests = self._narrow if self._running else self._wide
            self._running += 1
        try:
            hidden: Vectors = requests.own().infer(inputs, share_inputs=True, share_outputs=True)[0]
        finally:
            with self._lock:
                self._running -= 1
        return hidden

    def hidden(self, output: Vectors, batch: TokenBatch) -> Vectors:
        """(tokens, width), copied out of the runtime's buffer."""
        return output[: batch.tokens].copy()

    def pooled(self, output: Vectors, batch: TokenBatch, pooling: Pooling) -> Vectors:
        """(batch, width)."""
        return pool(output[: batch.tokens], batch, pooling)


class _Requests:
    """A compiled model and an infer request for each thread that uses it."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._of_thread = threading.local()

    def own(self) -> Any:
        """The calling thread's request."""
        if not hasattr(self._of_thread, "request"):
            self._of_thread.request = self._compiled.create_infer_request()
        return self._of_thread.request


def _arithmetic(dtype: str, width: int, *, bf16: bool) -> dict[str, Any]:
    wants_bf16 = bf16 and dtype in ("bf16", "int8")
    return {
        "INFERENCE_PRECISION_HINT": "bf16" if wants_bf16 else "f32",
        # One scale for each token and ``width`` input channels: neighbours never share one.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": width if dtype == "int8" else 0,
        "CPU_RUNTIME_CACHE_CAPACITY": _KERNELS_KEPT,
    }


def _threads(streams: int, threads: int) -> dict[str, Any]:
    # Not pinned: OCR and the event loop share these cores; pinned, the wide form was 1.6 times slower.
    return {"NUM_STREAMS": streams, "INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False}
