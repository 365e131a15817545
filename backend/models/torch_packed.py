"""An encoder executed by torch over packed rows: the weights of the CPU graph, with attention that needs no padding.

A batch takes 130 launches for 12 layers, kernel by kernel; a captured CUDA graph is queued in one call. It holds the
layers alone, which all readouts share: one graph a size, of the smaller ones captured when the model is loaded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.device.facts.host import compiler_fault
from backend.device.faults import FaultKind, classify
from backend.device.records import DeviceType
from backend.errors import ModelUnavailable
from backend.models.encoder import Ids, TokenBatch, Vectors
from backend.models.readout import QueuedResults, Readout
from backend.models.spec import ModelSpec, Pooling
from backend.models.torch_attention import (
    Attention,
    PaddedAttention,
    VarlenAttention,
    choose_varlen,
    relative_bias,
    text_by_text,
)
from backend.models.torch_encoder import numpy_of, opened
from backend.models.torch_models import DTYPES
from backend.models.torch_packed_layers import Kernels, PackedLayers, RestOfLayer, choose_kernels, rest_of_layer
from backend.models.torch_readout import DeviceHeads, queued
from backend.models.torch_transfers import aligned, fill, send, split, transfers_of
from backend.models.weights import EncoderWeights, load_weights
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
# At least 64 rows: below the height of one tile a matrix product takes no less time, and other kernels sum otherwise.
SMALL_BUCKETS = (64, 128, 256, 512, 1024, 2048)
# Above, where rows cost what they compute, a quarter apart: a tenth of the rows of a batch are empty on average.
ROW_BUCKETS = (
    *SMALL_BUCKETS,
    *(base * quarters // 4 for base in (2048, 4096, 8192, 16384) for quarters in range(5, 9)),
)
ROW_MULTIPLE = 128  # of batches that run kernel by kernel
# A graph takes a text for every so many rows, the fewest that do: attention launches blocks for each place of a text,
# at 2,048 rows with a place for every fourth 24,576 a layer. More and shorter texts run without a graph.
_ROWS_A_TEXT = (64, 16, 4)
_SHORT = 128  # tokens: the height of one tile of attention, of which a longer text launches several
# A capture waits for all work of the card and empties torch's cache, so one that lacked memory is not tried at once.
_ATTEMPTS = 3  # for lack of memory; then the size has no graph
_PAUSE = 256  # batches of the size until the next attempt

Outputs = tuple[Tensor, Tensor]  # token vectors (rows, width), and the first row of each text and one past the last


@dataclass(frozen=True, slots=True)
class GraphKey:
    """What one graph computes."""

    rows: int
    texts: int  # the most it takes; those that a batch lacks are empty
    longest: int  # tokens of a text, at most


class Graph(Protocol):
    """A captured graph. One caller at a time."""

    def replay(self, inputs: Tensor) -> Outputs:
        """Queue it for these inputs; the outputs are overwritten by the next replay."""


def rows_of(tokens: int) -> int:
    """Rows of a batch of so many tokens that runs without a graph: a small bucket, or the next multiple above them."""
    small = next((rows for rows in SMALL_BUCKETS if tokens <= rows), 0)
    return small or -(-tokens // ROW_MULTIPLE) * ROW_MULTIPLE


def graph_rows_of(tokens: int) -> int:
    """The same where there are graphs: a bucket, or the next multiple above the largest."""
    return next((rows for rows in ROW_BUCKETS if tokens <= rows), 0) or rows_of(tokens)


def key_of(rows: int, texts: int, longest: int, max_tokens: int) -> GraphKey | None:
    """The graph for a batch; None where it is too large for one, or has too many texts for its rows."""
    for key in keys_of(rows, max_tokens) if rows in ROW_BUCKETS else ():
        if texts <= key.texts and longest <= key.longest:
            return key
    return None


def keys_of(rows: int, max_tokens: int) -> list[GraphKey]:
    """The graphs of a bucket, the cheapest first."""
    lengths = sorted({min(longest, rows, max_tokens) for longest in (_SHORT, max_tokens)})
    return [GraphKey(rows, rows // share, longest) for longest in lengths for share in _ROWS_A_TEXT]


def lengths_for(key: GraphKey) -> list[int]:
    """Lengths of texts whose batch takes this graph."""
    rest = key.texts - 1
    first = min(key.longest, key.rows - rest)
    each, more = divmod(key.rows - first, rest) if rest else (0, 0)
    return [min(length, key.longest) for length in (first, *([each + 1] * more), *([each] * (rest - more)))]


@dataclass(slots=True)
class _Size:
    """What became of one key so far."""

    graph: Graph | None = None
    lacked: str = ""  # why the last capture lacked memory
    pause: int = 1  # batches without a graph until the next capture; the first loads the kernels, which it must not
    attempts: int = 0


class GraphCache:
    """The graphs of one encoder, captured when a key is asked for the second time. Any thread.

    The first batch of a key runs kernel by kernel: it loads the kernels, which must not happen while a graph is
    captured. A key whose capture lacked memory is tried a few times more, long after. After a capture that failed
    otherwise there are no graphs any more, and ``fault`` says why.
    """

    def __init__(self, capture: Callable[[GraphKey], Graph], *, pause: int = _PAUSE) -> None:
        self._capture, self._pause = capture, pause
        self._sizes: dict[GraphKey, _Size] = {}
        self._lock = threading.Lock()
        self.fault = ""

    def __len__(self) -> int:
        return sum(size.graph is not None for size in tuple(self._sizes.values()))

    def report(self) -> dict[str, object]:
        """How many graphs there are, and why batches run without one, as ``GET /v1/system`` tells it."""
        without = [
            {"rows": key.rows, "texts": key.texts, "reason": size.lacked, "attempts_left": _ATTEMPTS - size.attempts}
            for key, size in tuple(self._sizes.items())
            if size.graph is None and size.lacked
        ]
        return {"captured": len(self), "without_memory": without, "fault": self.fault}

    def replay(self, key: GraphKey, inputs: Tensor, take: Callable[[Outputs], None]) -> bool:
        """Replay the key's graph and let ``take`` queue what reads its outputs, before anybody replays it again.

        Returns: False where the batch must run without a graph.
        """
        with self._lock:
            graph = self._get(key)
            if graph is None:
                return False
            take(graph.replay(inputs))
            return True

    def _get(self, key: GraphKey) -> Graph | None:
        if self.fault:
            return None
        size = self._sizes.setdefault(key, _Size())
        if size.graph is not None or size.attempts >= _ATTEMPTS:
            return size.graph
        if size.pause > 0:
            size.pause -= 1
            return None
        try:
            size.graph = self._capture(key)
        except RuntimeError as error:
            self._failed(key, size, error)
        return size.graph

    def _failed(self, key: GraphKey, size: _Size, error: RuntimeError) -> None:
        """Raises: the error of a device that is lost."""
        kind, reason = classify(error).kind, str(error).splitlines()[0] if str(error) else type(error).__name__
        if kind is FaultKind.CONTEXT_LOST:
            raise error
        if kind is FaultKind.OUT_OF_MEMORY:
            size.attempts, size.pause, size.lacked = size.attempts + 1, self._pause, reason
            event = "too little memory to capture a CUDA graph; batches of that size run without"
            log_event(
                _log, logging.WARNING, event, reason=reason, rows=key.rows, attempts_left=_ATTEMPTS - size.attempts
            )
            return
        self.fault = reason
        self._sizes.clear()
        log_event(_log, logging.WARNING, "no CUDA graph can be captured; small batches run without", reason=reason)


class GraphMemory:
    """What the graphs of one encoder share, as they are replayed one after the other on one stream."""

    def __init__(self, device: torch.device, width: int, dtype: torch.dtype) -> None:
        """``width``, ``dtype``: of the token vectors."""
        self.device = device
        with torch.cuda.device(device):
            self.pool = torch.cuda.graph_pool_handle()
            self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.outputs = torch.empty(ROW_BUCKETS[-1], width, dtype=dtype, device=device)


class CudaGraph:
    """A graph of torch's on one card."""

    def __init__(self, run: Callable[[Tensor], Outputs], size: int, memory: GraphMemory) -> None:
        """Capture ``run`` on an int32 buffer of ``size`` numbers. Raises: RuntimeError when CUDA cannot."""
        self._memory = memory
        with torch.cuda.device(memory.device):
            self._inputs = torch.zeros(size, dtype=torch.int32, device=memory.device)
            current, aside = torch.cuda.current_stream(), memory.stream
            aside.wait_stream(current)
            try:
                with torch.cuda.stream(aside):
                    run(self._inputs)  # loads the kernels
                # cuBLAS would go on with the workspace of that run, which torch frees when any graph of the stream
                # dies (pytorch#193402): one that is made within the capture lives as long as the graphs' memory.
                _forget_workspaces()
                self._graph = torch.cuda.CUDAGraph()
                # Other lanes may allocate meanwhile: only this thread's calls are watched.
                with torch.cuda.graph(self._graph, memory.pool, stream=aside, capture_error_mode="thread_local"):
                    hidden, self._bounds = run(self._inputs)
                    self._hidden = memory.outputs[: len(hidden)].copy_(hidden)
                    del hidden
            finally:
                _forget_workspaces()  # nobody else may compute in the graph's memory
                torch.cuda.set_stream(current)  # a capture that fails at its end leaves the other one behind
            current.wait_stream(aside)

    def replay(self, inputs: Tensor) -> Outputs:
        with torch.cuda.device(self._memory.device):
            self._inputs.copy_(inputs, non_blocking=True)
            self._graph.replay()
        return self._hidden, self._bounds


def _forget_workspaces() -> None:
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - as torch's own graph trees do


_BATCHES_TO_CAPTURE = 2  # the first loads what a capture must not


class PackedEncoder:
    """One model on one device. On CUDA attention runs over texts of any length, and small batches replay a graph.

    MPNet's attention pads, for the bias on its scores; on a CPU attention runs text by text.
    """

    runtime = "torch-packed"

    def __init__(
        self, spec: ModelSpec, *, dtype: str, device: str, threads: int, rest: RestOfLayer | None = None
    ) -> None:
        """Load the weights onto ``device``.

        Args:
            rest: what follows attention in a layer; unset: the device's fastest kernels.

        Raises: ModelUnavailable for a family, an activation or a checkpoint that has no packed form, or a device
            without a kernel for it; ``TorchEncoder`` serves those.
        """
        self.dtype = dtype
        self._device = opened(device, threads)
        weights = load_weights(spec)
        attention = _attention_of(spec, weights, self._device, DTYPES[dtype])
        kernels = choose_kernels(self._device, DTYPES[dtype])
        layers = PackedLayers(spec.shape, weights, device=self._device, dtype=DTYPES[dtype], rest=rest or kernels.rest)
        self._model = PackedModel(layers, attention, kernels, DeviceHeads(self._device), spec.max_tokens)
        self._transfers = transfers_of(self._device)
        self.padding_cost, self.attention = attention.padding_cost, attention.name
        self.graphs: GraphCache | None = None
        if self._device.type == "cuda" and attention.has_fixed_shapes:
            memory = GraphMemory(self._device, spec.shape.width, DTYPES[dtype])
            self.graphs = GraphCache(partial(_captured, self._model, memory))

    def prepare(self, ids: Sequence[Ids]) -> TokenBatch:
        """Pack; rows are rounded up, so that few sizes of matrix products are met."""
        return self._model.attention.pack(ids, rows_of if self.graphs is None else graph_rows_of)

    @torch.inference_mode()
    def forward(self, batch: TokenBatch) -> Tensor:
        """(rows, width); on CUDA the work is only queued when this returns."""
        return self._run(batch)[0]

    @torch.inference_mode()
    def hidden(self, output: Tensor, batch: TokenBatch) -> Vectors:
        return numpy_of(output[: batch.tokens])

    @torch.inference_mode()
    def pooled(self, output: Tensor, batch: TokenBatch, pooling: Pooling) -> Vectors:
        """(batch, width), summed in float32 on the device."""
        bounds = torch.from_numpy(_bounds(batch)).to(self._device)
        return numpy_of(self._model.kernels.pool(output, bounds, pooling))

    @torch.inference_mode()
    def queue(self, batch: TokenBatch, readout: Readout) -> QueuedResults:
        """The readout of a batch; the host waits for the device only in the results' ``wait``."""
        replayed = self._replayed(batch, readout)
        if replayed is not None:
            return replayed
        values, sizes = self._model.read(*self._run(batch), readout)
        return queued(batch, readout, values, sizes, self._transfers)

    def capture_graphs(self, readout: Readout) -> None:
        """Capture the graphs of the small sizes, so that no early request waits for one. Nothing without graphs.

        Args:
            readout: what runs behind them first; all share the graphs.
        """
        if self.graphs is None:
            return
        for key in (key for rows in SMALL_BUCKETS for key in keys_of(rows, self._model.max_tokens)):
            batch = self.prepare([np.ones(length, np.int64) for length in lengths_for(key)])
            for _ in range(_BATCHES_TO_CAPTURE):
                self.queue(batch, readout).wait()

    def _run(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """The rows and the texts' bounds."""
        model = self._model
        parts = [batch.ids, batch.positions, _bounds(batch), *([batch.types] if model.layers.is_typed else [])]
        sent = send(self._transfers, self._device, [*parts, *model.attention.inputs(batch)])
        longest = batch.scatter.shape[1] or int(batch.lengths.max())
        return model.run(sent, longest), sent[2]

    def _replayed(self, batch: TokenBatch, readout: Readout) -> QueuedResults | None:
        """The results by a captured graph, or None where the batch must run without one."""
        longest = int(batch.lengths.max())
        key = key_of(len(batch.ids), len(batch.lengths), longest, self._model.max_tokens)
        if self.graphs is None or key is None:
            return None
        bounds = np.full(key.texts + 1, batch.tokens, np.int64)  # texts that a batch lacks are empty
        bounds[: len(batch.starts)] = batch.starts
        parts = [batch.ids, batch.positions, bounds, *([batch.types] if self._model.layers.is_typed else [])]
        inputs = self._transfers.buffer(self._model.input_size(key))
        fill(inputs, parts)
        results: list[QueuedResults] = []

        def take(outputs: Outputs) -> None:
            results.append(queued(batch, readout, *self._model.read(*outputs, readout), self._transfers))

        return results[0] if self.graphs.replay(key, inputs, take) else None


@dataclass(frozen=True, slots=True)
class PackedModel:
    """The layers with their attention, which a graph may hold, and the heads behind them."""

    layers: PackedLayers
    attention: Attention
    kernels: Kernels
    heads: DeviceHeads
    max_tokens: int

    def run(self, inputs: Sequence[Tensor], longest: int) -> Tensor:
        """(rows, width). ``inputs``: ids, positions, bounds, types where the model has any, then the attention's."""
        ids, positions, bounds, *more = inputs
        types = more.pop(0) if self.layers.is_typed else None
        return self.layers(ids, positions, types, self.attention.over(bounds, longest, more))

    def read(self, hidden: Tensor, bounds: Tensor, readout: Readout) -> tuple[Tensor, Tensor]:
        """Values and their sizes, as ``DeviceHeads.compute``."""
        return self.heads.compute(
            readout, rows=lambda: hidden, pooled=lambda pooling: self.kernels.pool(hidden, bounds, pooling)
        )

    @torch.inference_mode()
    def run_fixed(self, key: GraphKey, inputs: Tensor) -> Outputs:
        """The token vectors and the texts' bounds, with every size given by the key.

        Args:
            inputs: one flat int32 buffer, as ``fill`` writes it.
        """
        parts = split(inputs, self._sizes(key))
        return self.run(parts, key.longest), parts[2]

    def input_size(self, key: GraphKey) -> int:
        """int32 numbers of that buffer."""
        return sum(aligned(size) for size in self._sizes(key))

    def _sizes(self, key: GraphKey) -> list[int]:
        return [key.rows, key.rows, key.texts + 1, *([key.rows] if self.layers.is_typed else [])]


def _captured(model: PackedModel, memory: GraphMemory, key: GraphKey) -> Graph:
    return CudaGraph(partial(model.run_fixed, key), model.input_size(key), memory)


def _attention_of(spec: ModelSpec, weights: EncoderWeights, device: torch.device, dtype: torch.dtype) -> Attention:
    shape, bias = spec.shape, None
    if weights.relative is not None:
        bias = relative_bias(weights.relative, spec.max_tokens, device, dtype)
    if device.type != "cuda":
        return VarlenAttention("text by text", partial(text_by_text, bias=bias))
    if bias is not None:
        return PaddedAttention(bias)
    return choose_varlen(device, dtype, heads=shape.heads, head_width=shape.width // shape.heads)


def _bounds(batch: TokenBatch) -> NDArray[np.int64]:
    """First row of each text, and one past the last."""
    return np.append(batch.starts, batch.tokens)


class CompiledEncoder(PackedEncoder):
    """What follows attention is compiled, which fuses biases, activations and norms.

    Attention stays as it is, so that one compiled function serves all layers. It is compiled again for the second
    number of rows that it meets, and then for any.
    """

    runtime = "torch-compiled"

    def __init__(self, spec: ModelSpec, *, dtype: str, device: str, threads: int) -> None:
        """As PackedEncoder; the first batches compile. Raises: ModelUnavailable also without a C compiler."""
        if fault := compiler_fault(DeviceType(device.partition(":")[0])):
            raise ModelUnavailable(f"{fault}; RUNTIME=torch-packed runs the same uncompiled")
        super().__init__(spec, dtype=dtype, device=device, threads=threads, rest=torch.compile(rest_of_layer))
