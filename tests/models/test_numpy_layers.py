"""Linear layers in numpy start no threads; activation functions equal torch's at both ends of float32."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from transformers.activations import ACT2FN

from backend.models import numpy_layers
from backend.models.numpy_layers import FUNCTIONS, Activation, activate, linear, sigmoid, softmax
from backend.models.weights import Linear

WIDE = np.concatenate([np.linspace(-12, 12, 4001), [0.0, 1e-20, -1e-20, 40, -40, 1e4, -1e4]]).astype(np.float32)
LOGITS = arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(-80, 80, width=32))


def layer_of(outputs: int, width: int, seed: int = 0) -> Linear:
    random = np.random.default_rng(seed)
    return Linear(
        random.standard_normal((outputs, width), np.float32), random.standard_normal(outputs, dtype=np.float32)
    )


@given(rows=st.integers(0, 40), outputs=st.integers(1, 40), width=st.integers(1, 40), one_thread=st.integers(1, 400))
def test_blocks_make_the_whole(rows, outputs, width, one_thread):
    """Wherever the cuts fall, and when there is nothing to multiply."""
    layer = layer_of(outputs, width)
    vectors = np.random.default_rng(1).standard_normal((rows, width), np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numpy_layers, "_ONE_THREAD", one_thread)

        found = linear(vectors, layer)

    assert (rows, outputs) == found.shape
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, vectors @ layer.weight.T + layer.bias, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 768, 768), (16, 768, 768), (512, 7, 384), (3, 3, 1024), (40, 1024, 1024)])
def test_no_block_is_large_enough_for_another_thread(monkeypatch, shape):
    """At every call numpy makes, the number of multiplications stays within OpenBLAS's limit."""
    rows, outputs, width = shape
    sizes, matmul = [], np.matmul

    def counted(left, right, out):
        sizes.append(left.shape[0] * left.shape[1] * right.shape[1])
        return matmul(left, right, out=out)

    monkeypatch.setattr(numpy_layers.np, "matmul", counted)
    linear(np.zeros((rows, width), np.float32), layer_of(outputs, width))

    assert rows * outputs * width == sum(sizes)
    assert max(sizes) <= numpy_layers._ONE_THREAD


def test_a_row_does_not_depend_on_its_neighbours():
    """But for the order of float32 sums."""
    layer, vectors = layer_of(768, 768), np.random.default_rng(2).standard_normal((33, 768), np.float32)

    together = linear(vectors, layer)
    alone = np.concatenate([linear(row[None], layer) for row in vectors])

    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_transformers_own(name):
    """By their names there, over all that float32 can tell apart."""
    found = FUNCTIONS[name](WIDE)

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, ACT2FN[name](torch.from_numpy(WIDE)).numpy(), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_stays_in_its_own_place(name):
    found = FUNCTIONS[name](np.array([1.0, np.nan, -1.0], np.float32))

    assert [True, False, True] == np.isfinite(found).tolist()


@given(LOGITS)
def test_scores_are_torchs(logits):
    """Each function over the labels of each row."""
    given_logits = torch.from_numpy(logits)

    np.testing.assert_allclose(activate(logits, Activation.SOFTMAX), given_logits.softmax(-1), atol=1e-6)
    np.testing.assert_allclose(activate(logits, Activation.SIGMOID), given_logits.sigmoid(), rtol=1e-5, atol=0)
    assert activate(logits, Activation.IDENTITY) is logits


def test_low_scores_keep_their_order():
    """Where a sum with one would have rounded them all to nothing."""
    found = sigmoid(np.linspace(-60, -20, 50, dtype=np.float32))

    assert (np.diff(found) > 0).all()
    assert found[0] > 0


def test_nothing_overflows():
    """At the ends of float32 a score is 0 or 1, and a row's scores sum to one."""
    ends = np.array([-3e38, 0.0, 3e38], np.float32)

    assert [0.0, 0.5, 1.0] == sigmoid(ends).tolist()
    assert [0.0, 0.0, 1.0] == softmax(ends).tolist()
