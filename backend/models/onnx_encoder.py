"""An encoder executed by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

import onnxruntime

from backend.errors import ModelUnavailable
from backend.models.encoder import GRAPH_PADDING_COST, Ids, TokenBatch, Vectors, pack, pool
from backend.models.onnx_graph import Arithmetic, build, extra_inputs, graph_inputs
from backend.models.spec import ModelSpec, Pooling
from backend.models.weights import load_weights

ARITHMETICS = {"fp32": Arithmetic.FLOAT32, "int8": Arithmetic.ROW_INT8, "int7": Arithmetic.ROW_INT7}


class OnnxEncoder:
    """One session shared by all lanes: a run executes on its caller's thread."""

    runtime = "onnx"
    padding_cost = GRAPH_PADDING_COST

    def __init__(self, spec: ModelSpec, *, dtype: str, threads: int) -> None:
        """Build the graph and open the session; ``dtype`` is of ARITHMETICS. Raises: ModelUnavailable."""
        self.dtype = dtype
        weights = load_weights(spec)
        graph = build(spec.shape, weights, ARITHMETICS[dtype])
        try:
            self._session = onnxruntime.InferenceSession(
                graph, session_options(threads), providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its errors share no other base
            raise ModelUnavailable(f"ONNX Runtime refuses the graph: {error}") from error
        self._words, self._extras = weights.words, extra_inputs(weights)

    def prepare(self, ids: Sequence[Ids]) -> TokenBatch:
        """Pack without rounding: the kernels do not depend on shapes."""
        return pack(ids)

    def forward(self, batch: TokenBatch) -> Vectors:
        """(tokens, width)."""
        outputs: list[Vectors] = self._session.run(["hidden"], graph_inputs(batch, self._words, self._extras))
        return outputs[0]

    def hidden(self, output: Vectors, batch: TokenBatch) -> Vectors:
        return output[: batch.tokens]

    def pooled(self, output: Vectors, batch: TokenBatch, pooling: Pooling) -> Vectors:
        return pool(self.hidden(output, batch), batch, pooling)


def session_options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # The graph is already as it should run. The extended level would fuse LayerNormalization into a slower kernel.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # a spinning thread starves the other lane
    return options
