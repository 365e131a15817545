"""An encoder executed by OpenVINO."""

from __future__ import annotations

import ctypes
import io
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import openvino

from backend.device.facts.amx import flags_beyond_limit
from backend.device.facts.host import cpu
from backend.device.memory.device_memory import trim_heap
from backend.models.encoder import GRAPH_PADDING_COST, Ids, TokenBatch, Vectors, pack, pool
from backend.models.onnx_graph import Arithmetic, build, extra_inputs, graph_inputs
from backend.models.spec import EncoderShape, ModelSpec, Pooling
from backend.models.weights import load_weights

try:
    from openvino._offline_transformations import compress_model_transformation as with_half_weights
except ImportError:  # a release that has moved it: models take more memory
    with_half_weights = None

_log = logging.getLogger(__name__)

# OpenVINO keeps a compiled kernel for each shape: rounded sizes keep their number, and the memory, small.
# Lengths are multiples of 16: then a text's vector does not depend on its neighbours' lengths at all; with multiples of
# 8 its bf16 kernels sum in another order and int8 makes that cosine 0.9997. Rows are at least 8: with int8 weights and
# bf16 activations (processors with AMX), up to 4 rows run in another kernel than more of them (docs/engine.md).
_ROW_MULTIPLE = 4
_MIN_ROWS = 8
# A tile of AMX has 16 rows: rounded to it a lone text costs the same, and batches need a quarter of the kernels.
_TILE_ROWS = 16
_LENGTH_MULTIPLE = 16
_KERNELS_KEPT = 512
# Input channels that share one scale when int8 quantises a token. Against the whole width of 384 it halves what int8
# changes, and is 1.1 times as fast on a Xeon without AMX; a Zen 4 loses 7 % (docs/engine.md).
_GROUP_CHANNELS = 128


class OpenVinoEncoder:
    """The model compiled twice: narrow, one stream a lane with few threads, and wide, one stream with all threads.

    A batch that runs while no other does takes every core: a lone text is answered 1.5 times sooner. Under load
    the narrow form runs, whose lanes never wait for one another. Both give the same vectors. The narrow one is compiled
    by the first batch that runs beside another: until then two lanes save 36 MB a model, each further one 16 MB.
    """

    runtime = "openvino"
    padding_cost = GRAPH_PADDING_COST

    def __init__(self, spec: ModelSpec, *, dtype: str, lanes: int, threads: int) -> None:
        """Build the graph and compile it; ``dtype`` is "fp32", "bf16" or "int8". Raises: ModelUnavailable.

        int8 runs attention and everything but the linear layers in bf16 where the CPU has it: 1.1 times the speed of
        float32 at the same fidelity (docs/engine.md).
        """
        self.dtype = dtype
        weights = load_weights(spec)
        graph = build(spec.shape, weights, Arithmetic.COMPRESSED_INT8 if dtype == "int8" else Arithmetic.FLOAT32)
        with kept_signal_stack():  # the library's CPU plugin is loaded, and sets a stack, with the first property read
            core = openvino.Core()
            model = core.read_model(io.BytesIO(graph))
            if dtype == "bf16" and with_half_weights is not None:
                with_half_weights(model)  # what it was given stays beside what it computes with: 40 MB less a model
            bf16 = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
            options = _arithmetic(dtype, spec.shape, bf16=bf16)
            in_tiles = options["INFERENCE_PRECISION_HINT"] == "bf16" and "amx_bf16" in cpu()[1]
            self._row_multiple = _TILE_ROWS if in_tiles else _ROW_MULTIPLE
            self._wide = _Requests(core.compile_model(model, "CPU", options | _threads(1, lanes * threads)))
        self._compile_narrow = partial(core.compile_model, model, "CPU", options | _threads(lanes, lanes * threads))
        self._narrow = self._wide if lanes == 1 else None
        self._words, self._extras = weights.words, extra_inputs(weights)
        self._lock, self._compiling = threading.Lock(), threading.Lock()
        self._running = 0  # forwards under way

    def prepare(self, ids: Sequence[Ids]) -> TokenBatch:
        """Pack, with rows and lengths rounded up."""
        return pack(ids, row_multiple=self._row_multiple, rows_at_least=_MIN_ROWS, length_multiple=_LENGTH_MULTIPLE)

    def forward(self, batch: TokenBatch) -> Vectors:
        """(rows, width); a view that the same thread's next call overwrites."""
        inputs = graph_inputs(batch, self._words, self._extras)
        with self._lock:
            is_alone = not self._running
            self._running += 1
        try:
            requests = self._wide if is_alone else self._beside_others()
            hidden: Vectors = requests.of_thread().infer(inputs, share_inputs=True, share_outputs=True)[0]
        finally:
            with self._lock:
                self._running -= 1
        return hidden

    def _beside_others(self) -> _Requests:
        """The narrow form; while the first lane that asks compiles it, half a second, the others share the wide one.

        Where it cannot be compiled, the wide one serves on.
        """
        if self._narrow is None and self._compiling.acquire(blocking=False):  # kept: it is compiled once
            try:
                self._narrow = _Requests(self._compile_narrow())
            except (RuntimeError, MemoryError) as error:
                _log.warning("batches side by side share one form of the model, slower: it did not compile: %s", error)
                self._narrow = self._wide
            trim_heap()
        return self._narrow or self._wide

    def hidden(self, output: Vectors, batch: TokenBatch) -> Vectors:
        """(tokens, width), copied out of the runtime's buffer."""
        return output[: batch.tokens].copy()

    def pooled(self, output: Vectors, batch: TokenBatch, pooling: Pooling) -> Vectors:
        return pool(output[: batch.tokens], batch, pooling)


class _Requests:
    """A compiled model with one infer request for each thread that uses it."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._local = threading.local()

    def of_thread(self) -> Any:
        """The calling thread's request."""
        if not hasattr(self._local, "request"):
            self._local.request = self._compiled.create_infer_request()
        return self._local.request


def _arithmetic(dtype: str, shape: EncoderShape, *, bf16: bool) -> dict[str, Any]:
    limited = flags_beyond_limit()  # OpenVINO asks the processor alone, and finds no kernel for what oneDNN may not use
    wants_bf16 = bf16 and dtype in ("bf16", "int8") and "avx512_bf16" not in limited
    quantizes = dtype == "int8" and "avx512_vnni" not in limited
    return {
        "INFERENCE_PRECISION_HINT": "bf16" if wants_bf16 else "f32",
        # One scale for each token and group of input channels: two texts never share one.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": _group_channels(shape) if quantizes else 0,
        "CPU_RUNTIME_CACHE_CAPACITY": _KERNELS_KEPT,
    }


def _group_channels(shape: EncoderShape) -> int:
    """The width where a smaller group would not divide the inputs of every layer: such a layer stays unquantised."""
    divides = not (shape.width % _GROUP_CHANNELS or shape.hidden_width % _GROUP_CHANNELS)
    return _GROUP_CHANNELS if divides else shape.width


def _threads(streams: int, threads: int) -> dict[str, Any]:
    # Not pinned: OCR and the event loop share these cores; pinned, the wide form was 1.6 times slower.
    return {"NUM_STREAMS": streams, "INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False}


class _Stack(ctypes.Structure):
    """``stack_t`` of Linux, signal.h."""

    _fields_ = (("base", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def kept_signal_stack() -> Iterator[None]:
    """Restore the calling thread's alternative signal stack after the block.

    OpenVINO 2026 sets one for every core whose CPU plugin is loaded and unmaps it with the last model of that core, but
    leaves threads pointing there: the next signal with a Python handler (torch's DataLoader has one for SIGCHLD) then
    ends the process with SIGSEGV, for Python's handlers run on that stack (SA_ONSTACK). Does nothing but on Linux.
    """
    if sys.platform != "linux":
        yield
        return
    library, before = ctypes.CDLL(None), _Stack()
    library.sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        library.sigaltstack(ctypes.byref(before), None)
