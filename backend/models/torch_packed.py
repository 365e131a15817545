"""An encoder executed by torch over packed rows: the weights of the CPU graph, with attention that needs no padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.device.facts.host import compiler_fault
from backend.device.records import DeviceType
from backend.errors import ModelUnavailable
from backend.models.encoder import Ids, TokenBatch, Vectors
from backend.models.readout import QueuedResults, Readout
from backend.models.spec import ModelSpec, Pooling
from backend.models.torch_attention import Attention, PaddedAttention, TextwiseAttention, choose_varlen, relative_bias
from backend.models.torch_encoder import numpy_of, opened
from backend.models.torch_graphs import (
    SMALL_BUCKETS,
    CudaGraph,
    Graph,
    GraphCache,
    GraphKey,
    GraphMemory,
    Outputs,
    graph_rows_of,
    key_of,
    keys_of,
    lengths_for,
    rows_of,
)
from backend.models.torch_models import DTYPES
from backend.models.torch_packed_layers import Kernels, PackedLayers, RestOfLayer, choose_kernels, rest_of_layer
from backend.models.torch_readout import DeviceHeads, queued
from backend.models.torch_transfers import aligned, fill, send, split, transfers_of
from backend.models.weights import EncoderWeights, load_weights

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
        return TextwiseAttention(bias)
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
