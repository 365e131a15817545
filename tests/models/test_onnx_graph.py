"""The graph's arithmetic by itself: quantisation, the scale that must not be read as a scalar, sums that saturate.

ONNX Runtime computes what this processor computes exactly; what one without VNNI makes of a graph is simulated.
"""

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from backend.device.facts.host import cpu
from backend.errors import ModelUnavailable
from backend.models import onnx_encoder
from backend.models.onnx_graph import Arithmetic, _Graph, build, quantize_weight
from backend.models.runtimes import adds_int8_exactly
from backend.models.weights import Linear, load_weights
from tests.tiny_models import TinyModels, spec_of

IN, OUT = 48, 24
COMPUTED_HERE = [each for each in Arithmetic if each is not Arithmetic.ROW_INT8 or adds_int8_exactly(cpu()[1])]


class MatMulIntegerToFloat(OpRun):
    """ONNX Runtime's product as an x86 processor without VNNI computes it: pairs are added in 16 bits that saturate."""

    op_domain = "com.microsoft"

    def _run(self, rows, weight, row_scale, scale, zero, _weight_zero):
        products = rows.astype(np.int32)[:, :, None] * weight.astype(np.int32)
        pairs = products[:, ::2] + products[:, 1::2]
        sums = np.clip(pairs, -(2**15), 2**15 - 1).sum(axis=1) - int(zero) * weight.astype(np.int32).sum(axis=0)
        return ((sums * row_scale * scale).astype(np.float32),)


def linear(arithmetic: Arithmetic, layer: Linear, rows: np.ndarray, *, saturates: bool = False) -> np.ndarray:
    """One linear layer as the graph writes it, run by ONNX Runtime as the encoder runs it, or simulated."""
    graph = _Graph(arithmetic)
    graph.operator("Identity", [graph.linear("hidden_in", layer)], output="hidden_out")
    model = helper.make_model(
        helper.make_graph(
            graph._nodes,
            "linear",
            [helper.make_tensor_value_info("hidden_in", TensorProto.FLOAT, ["tokens", IN])],
            [helper.make_tensor_value_info("hidden_out", TensorProto.FLOAT, ["tokens", OUT])],
            graph._constants,
        ),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )
    if saturates:
        simulated: np.ndarray = ReferenceEvaluator(model, new_ops=[MatMulIntegerToFloat]).run(
            None, {"hidden_in": rows}
        )[0]
        return simulated
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), onnx_encoder.session_options(1), providers=["CPUExecutionProvider"]
    )
    found: np.ndarray = session.run(None, {"hidden_in": rows})[0]
    return found


@pytest.fixture
def layer() -> Linear:
    random = np.random.default_rng(5)
    return Linear(random.standard_normal((OUT, IN)).astype(np.float32), random.standard_normal(OUT).astype(np.float32))


@pytest.mark.parametrize(
    "magnitudes",
    [
        pytest.param([1.0, 1.0, 1.0], id="alike"),
        pytest.param([1e-3, 1.0, 1e3], id="rising"),
        pytest.param([1e3, 1.0, 1e-3], id="falling"),
        pytest.param([1e-6, 1e6], id="far-apart"),
        pytest.param([250.0], id="one-row"),
    ],
)
@pytest.mark.parametrize("arithmetic", COMPUTED_HERE)
def test_each_row_has_a_scale_of_its_own(layer, arithmetic, magnitudes):
    """Rows of very different magnitudes in one batch: each keeps its relative accuracy.

    A kernel that reads the vector of row scales as one scalar makes all rows but the first wrong by the ratio of
    their magnitudes. 2 % of a row's norm: 7 bits twice, over 48 terms with errors of both signs.
    """
    random = np.random.default_rng(6)
    rows = (random.standard_normal((len(magnitudes), IN)) * np.array(magnitudes)[:, None]).astype(np.float32)
    exact = rows.astype(np.float64) @ layer.weight.T.astype(np.float64)

    products = linear(arithmetic, Linear(layer.weight, np.zeros(OUT, np.float32)), rows)

    assert relative_errors(products, exact).max() < 0.02


@pytest.mark.parametrize("arithmetic", COMPUTED_HERE)
def test_a_row_does_not_depend_on_its_neighbours(layer, arithmetic):
    """The same row beside a thousand times larger ones is the same row."""
    random = np.random.default_rng(7)
    row = random.standard_normal((1, IN)).astype(np.float32)
    company = (random.standard_normal((16, IN)) * 1000).astype(np.float32)

    alone = linear(arithmetic, layer, row)
    among = linear(arithmetic, layer, np.concatenate([company, row, company]))[16:17]

    np.testing.assert_allclose(among, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arithmetic", COMPUTED_HERE)
def test_a_row_of_zeros_gives_the_bias(layer, arithmetic):
    """No division by zero: the product is exactly nothing."""
    rows = np.zeros((2, IN), np.float32)
    rows[1] = 5.0

    np.testing.assert_array_equal(layer.bias, linear(arithmetic, layer, rows)[0])


def relative_errors(products: np.ndarray, exact: np.ndarray) -> np.ndarray:
    errors: np.ndarray = np.linalg.norm(products - exact, axis=1) / np.linalg.norm(exact, axis=1)
    return errors


@pytest.mark.parametrize(("arithmetic", "exact"), [(Arithmetic.ROW_INT8, False), (Arithmetic.ROW_INT7, True)])
def test_where_pairs_of_products_saturate(layer, arithmetic, exact):
    """Weights of 7 bits cannot reach the 16 bits; those of 8 do, and rows come out many per cent off."""
    rows = np.random.default_rng(6).standard_normal((16, IN)).astype(np.float32)
    bare = Linear(layer.weight, np.zeros(OUT, np.float32))

    errors = relative_errors(linear(arithmetic, bare, rows, saturates=True), rows @ layer.weight.T)

    assert exact == (errors.max() < 0.02)
    assert exact or errors.max() > 0.1


def test_the_worst_row_does_not_saturate_with_7_bits():
    """Every activation and every weight at its largest, of one sign."""
    ones = Linear(np.ones((OUT, IN), np.float32), np.zeros(OUT, np.float32))
    rows = np.ones((1, IN), np.float32)

    np.testing.assert_allclose(linear(Arithmetic.ROW_INT7, ones, rows, saturates=True), IN, rtol=1e-6)


@given(arrays(np.float32, (5, 7), elements=st.floats(-1e6, 1e6, width=32)), st.sampled_from([127, 64]))
def test_a_quantised_weight_is_at_most_half_a_step_off(weight, largest):
    """Symmetric, one scale an output channel, the largest weight at the largest number."""
    quantized, scale = quantize_weight(weight, largest)

    assert quantized.dtype == np.int8
    assert np.abs(quantized.astype(int)).max() <= largest
    off = np.abs(quantized * scale[:, None].astype(np.float64) - weight)
    assert (off <= 0.5001 * scale[:, None]).all()


def test_a_channel_of_zeros_stays_zero():
    """A pruned channel makes no NaN."""
    quantized, scale = quantize_weight(np.zeros((2, 3), np.float32))

    assert not quantized.any()
    assert np.isfinite(scale).all()


def test_an_activation_without_operator_is_refused_with_advice(tiny: TinyModels):
    """The message names the activation and the runtime that serves it."""
    folder = tiny.plain("bert", hidden_act="silu")
    spec = spec_of(folder)

    with pytest.raises(ModelUnavailable, match=r"activation 'silu'; RUNTIME=torch serves"):
        build(spec.shape, load_weights(spec), Arithmetic.FLOAT32)


def test_a_graph_over_protobufs_limit_is_refused_with_advice(tiny: TinyModels, monkeypatch):
    """The message names the limit and the runtime that serves it."""
    spec = spec_of(tiny.plain("bert"))

    class TooBig:
        def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
            raise ValueError("Message onnx.ModelProto exceeds maximum protobuf size of 2GB: 4000000000")

    monkeypatch.setattr(_Graph, "model", lambda self, shape, weights: TooBig())

    with pytest.raises(ModelUnavailable, match=r"2 GiB .*; RUNTIME=torch serves it"):
        build(spec.shape, load_weights(spec), Arithmetic.FLOAT32)


@pytest.mark.parametrize("arithmetic", [Arithmetic.ROW_INT8, Arithmetic.ROW_INT7, Arithmetic.COMPRESSED_INT8])
def test_int8_graphs_are_smaller(tiny: TinyModels, arithmetic):
    """Weights are really kept in a byte each; only embeddings stay float32."""
    spec = spec_of(tiny.plain("bert"))
    weights = load_weights(spec)

    saved = len(build(spec.shape, weights, Arithmetic.FLOAT32)) - len(build(spec.shape, weights, arithmetic))
    linears = sum(
        each.weight.size for layer in weights.layers for each in (layer.qkv, layer.attended, layer.up, layer.down)
    )
    assert saved > 1.5 * linears
