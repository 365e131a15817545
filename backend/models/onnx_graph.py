"""Builds an encoder as an ONNX graph over packed tokens, with a choice of arithmetic for its linear layers.

Padding exists only inside attention: every other operator sees the real tokens of all texts in one
(tokens, width) matrix, so neither a neighbour nor its length can change a text's arithmetic there.

Inputs: words (tokens, width), each token's row of the word table, which stays outside: in the graph a table of
250,000 words would take 400 MB in each compiled form. And, made by encoder.pack: positions (tokens), scatter (batch,
longest) row of each slot, gather (tokens) slot of each row, mask (batch, 1, 1, longest) 0 or -1e9, for MPNet relative
(longest, longest) bucket of each distance, and for models with token types types (tokens).
Output: hidden (tokens, width) float32.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from backend.errors import ModelUnavailable
from backend.models.encoder import TokenBatch, relative_buckets
from backend.models.spec import EncoderShape
from backend.models.weights import EncoderWeights, Layer, Linear, Norm

_MICROSOFT = "com.microsoft"
_OPSET = 21  # QuantizeLinear with one scale a row, Gelu as one operator
_ZERO_POINT = 128
_QUANTIZED_MAX = 127
# Without VNNI an x86 processor adds two products in 16 bits, which saturate: 2 x 255 x 64 just fits (VPMADDUBSW).
_PAIR_SAFE_MAX = 64


class Arithmetic(StrEnum):
    """How a linear layer is computed.

    FLOAT32: a matrix product; the runtime may run it in bfloat16.
    ROW_INT8: each token is quantised with a scale of its own, int8 weights with one scale an output channel.
        Written for ONNX Runtime, whose fused kernel reads ONE scalar activation scale: it gets 1.0, and the
        row's scale is multiplied afterwards. (Left to ONNX Runtime's own fusion, a vector of row scales is
        silently read as a scalar.)
    ROW_INT7: the same with weights of 7 bits, for x86 processors without VNNI, where pairs of 8-bit products saturate
        and rows come out up to 29 % off.
    COMPRESSED_INT8: int8 weights behind a cast and a scale, the pattern that OpenVINO recognises; it then
        quantises activations itself, per token and per group of input channels.
    """

    FLOAT32 = "float32"
    ROW_INT8 = "row_int8"
    ROW_INT7 = "row_int7"
    COMPRESSED_INT8 = "compressed_int8"


def build(shape: EncoderShape, weights: EncoderWeights, arithmetic: Arithmetic) -> bytes:
    """The serialised model. Raises: ModelUnavailable for an activation without an operator, or above 2 GiB."""
    graph = _Graph(arithmetic)
    hidden = graph.embed(weights, shape)
    bias = graph.attention_bias(weights)
    for layer in weights.layers:
        hidden = graph.layer(hidden, layer, shape, bias)
    graph.operator("Identity", [hidden], output="hidden")
    try:
        serialized: bytes = graph.model(shape, weights).SerializeToString()
    except ValueError as error:
        raise ModelUnavailable(f"the graph is over protobuf's 2 GiB ({error}); RUNTIME=torch serves it") from error
    return serialized


def quantize_weight(
    weight: NDArray[np.float32], largest: int = _QUANTIZED_MAX
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric int8 up to ``largest``, one scale a channel. Shapes: (out, in) -> (out, in) int8, (out) float32."""
    scale = np.maximum(np.abs(weight).max(axis=1), np.finfo(np.float32).tiny) / largest
    return np.rint(weight / scale[:, None]).astype(np.int8), scale.astype(np.float32)


def extra_inputs(weights: EncoderWeights) -> frozenset[str]:
    """The inputs that only some graphs have: MPNet's distances, token types."""
    tables = {"relative": weights.relative, "types": weights.types}
    return frozenset(name for name, table in tables.items() if table is not None)


def graph_inputs(batch: TokenBatch, words: NDArray[Any], extras: Collection[str] = ()) -> dict[str, NDArray[Any]]:
    """The graph's inputs by name; ``words`` is the word table, ``extras`` as ``extra_inputs`` gives them."""
    inputs: dict[str, NDArray[Any]] = {
        "words": words[batch.ids].astype(np.float32, copy=False),
        "positions": batch.positions,
        "scatter": batch.scatter,
        "gather": batch.gather,
        "mask": batch.mask,
    }
    if "relative" in extras:
        inputs["relative"] = relative_buckets(batch.scatter.shape[1])
    if "types" in extras:
        inputs["types"] = batch.types
    return inputs


class _Graph:
    """Collects nodes and constants; each method adds operators and returns the name of an output."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self._arithmetic = arithmetic
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, value: Any, dtype: type[np.generic] = np.float32) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype=dtype, order="C"), name))
        return name

    def operator(self, kind: str, inputs: list[str], *, domain: str = "", output: str = "", **attributes: Any) -> str:
        name = output or f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def embed(self, weights: EncoderWeights, shape: EncoderShape) -> str:
        positions = self.operator("Gather", [self.constant(weights.positions), "positions"])
        embedded = self.operator("Add", ["words", positions])
        if weights.types is not None:
            types = self.operator("Gather", [self.constant(weights.types), "types"])
            embedded = self.operator("Add", [embedded, types])
        return self.norm(embedded, weights.norm, shape.epsilon)

    def attention_bias(self, weights: EncoderWeights) -> str:
        """The mask, with MPNet's distances added: (batch, heads or 1, longest or 1, longest)."""
        if weights.relative is None:
            return "mask"
        table = self.operator("Gather", [self.constant(weights.relative), "relative"])
        heads_first = self.operator("Transpose", [table], perm=[2, 0, 1])
        return self.operator("Add", [heads_first, "mask"])

    def layer(self, hidden: str, layer: Layer, shape: EncoderShape, bias: str) -> str:
        attended = self.attention(self.linear(hidden, layer.qkv), shape, bias)
        first = self.operator("Add", [self.linear(attended, layer.attended), hidden])
        first = self.norm(first, layer.attended_norm, shape.epsilon)
        second = self.activation(self.linear(first, layer.up), shape.activation)
        second = self.operator("Add", [self.linear(second, layer.down), first])
        return self.norm(second, layer.down_norm, shape.epsilon)

    def attention(self, qkv: str, shape: EncoderShape, bias: str) -> str:
        """(tokens, 3 x width) -> padded, attended, packed again (tokens, width)."""
        head = shape.width // shape.heads
        padded = self.operator("Gather", [qkv, "scatter"])
        split = self.operator("Reshape", [padded, self.constant([0, 0, 3, shape.heads, head], np.int64)])
        split = self.operator("Transpose", [split], perm=[2, 0, 3, 1, 4])
        query, key, value = (
            self.operator("Gather", [split, self.constant(part, np.int64)], axis=0) for part in range(3)
        )
        scores = self.operator("MatMul", [query, self.operator("Transpose", [key], perm=[0, 1, 3, 2])])
        weights = self.operator("Softmax", [self.operator("Add", [scores, bias])], axis=-1)
        mixed = self.operator("Transpose", [self.operator("MatMul", [weights, value])], perm=[0, 2, 1, 3])
        rows = self.operator("Reshape", [mixed, self.constant([-1, shape.width], np.int64)])
        return self.operator("Gather", [rows, "gather"])

    def norm(self, hidden: str, norm: Norm, epsilon: float) -> str:
        # The standard operator: ONNX Runtime's fused SkipLayerNormalization was 8 times slower (docs/engine.md).
        gain, bias = self.constant(norm.gain), self.constant(norm.bias)
        return self.operator("LayerNormalization", [hidden, gain, bias], axis=-1, epsilon=epsilon)

    def activation(self, hidden: str, name: str) -> str:
        if name == "relu":
            return self.operator("Relu", [hidden])
        approximate = {"gelu": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}.get(name)
        if approximate is None:
            raise ModelUnavailable(f"no graph operator for the activation {name!r}; RUNTIME=torch serves this model")
        return self.operator("Gelu", [hidden], approximate=approximate)

    def linear(self, hidden: str, linear: Linear) -> str:
        product = {
            Arithmetic.FLOAT32: self._float_product,
            Arithmetic.ROW_INT8: self._row_int8_product,
            Arithmetic.ROW_INT7: self._row_int8_product,
            Arithmetic.COMPRESSED_INT8: self._compressed_product,
        }[self._arithmetic](hidden, linear.weight)
        return self.operator("Add", [product, self.constant(linear.bias)])

    def _float_product(self, hidden: str, weight: NDArray[np.float32]) -> str:
        return self.operator("MatMul", [hidden, self._transposed(self.constant(weight))])

    def _transposed(self, weight: str) -> str:
        # By an operator: of a matrix that is stored transposed OpenVINO keeps a second copy (83 MB of twelve layers).
        return self.operator("Transpose", [weight], perm=[1, 0])

    def _compressed_product(self, hidden: str, weight: NDArray[np.float32]) -> str:
        quantized, scale = quantize_weight(weight)
        unpacked = self.operator("Cast", [self.constant(quantized, np.int8)], to=TensorProto.FLOAT)
        unpacked = self.operator("Mul", [unpacked, self.constant(scale[:, None])])
        return self.operator("MatMul", [hidden, self._transposed(unpacked)])

    def _row_int8_product(self, hidden: str, weight: NDArray[np.float32]) -> str:
        largest = _PAIR_SAFE_MAX if self._arithmetic is Arithmetic.ROW_INT7 else _QUANTIZED_MAX
        quantized, scale = quantize_weight(weight, largest)
        rows, row_scale = self._quantize_rows(hidden)
        product = self.operator(
            "MatMulIntegerToFloat",
            [
                rows,
                self.constant(quantized.T, np.int8),
                self.constant(1.0),
                self.constant(scale),
                self.constant(_ZERO_POINT, np.uint8),
                self.constant(np.zeros(len(scale)), np.int8),
            ],
            domain=_MICROSOFT,
        )
        return self.operator("Mul", [product, row_scale])

    def _quantize_rows(self, hidden: str) -> tuple[str, str]:
        """uint8 around 128, one scale a row: (tokens, in) uint8 and (tokens, 1) float32."""
        last = self.constant([-1], np.int64)
        highest = self.operator("ReduceMax", [hidden, last], keepdims=1)
        lowest = self.operator("Neg", [self.operator("ReduceMin", [hidden, last], keepdims=1)])
        largest = self.operator("Max", [highest, lowest, self.constant(np.finfo(np.float32).tiny * _QUANTIZED_MAX)])
        scale = self.operator("Mul", [largest, self.constant(1 / _QUANTIZED_MAX)])
        flat = self.operator("Squeeze", [scale, last])
        zero = self.operator("Expand", [self.constant([_ZERO_POINT], np.uint8), self.operator("Shape", [flat])])
        return self.operator("QuantizeLinear", [hidden, flat, zero], axis=0), scale

    def model(self, shape: EncoderShape, weights: EncoderWeights) -> Any:
        integer, real = TensorProto.INT64, TensorProto.FLOAT
        inputs = [
            helper.make_tensor_value_info("words", real, ["tokens", shape.width]),
            helper.make_tensor_value_info("positions", integer, ["tokens"]),
            helper.make_tensor_value_info("scatter", integer, ["batch", "longest"]),
            helper.make_tensor_value_info("gather", integer, ["tokens"]),
            helper.make_tensor_value_info("mask", real, ["batch", 1, 1, "longest"]),
        ]
        if weights.types is not None:
            inputs.append(helper.make_tensor_value_info("types", integer, ["tokens"]))
        if weights.relative is not None:
            inputs.append(helper.make_tensor_value_info("relative", integer, ["longest", "longest"]))
        output = helper.make_tensor_value_info("hidden", real, ["tokens", shape.width])
        graph = helper.make_graph(self._nodes, "encoder", inputs, [output], self._constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)
