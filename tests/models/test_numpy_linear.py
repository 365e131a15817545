"""Products in blocks are products, and wake no other thread."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.models import numpy_linear
from backend.models.weights import Linear


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
        patch.setattr(numpy_linear, "_ONE_THREAD", one_thread)

        found = numpy_linear(vectors, layer)

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

    monkeypatch.setattr(numpy_linear.np, "matmul", counted)
    numpy_linear(np.zeros((rows, width), np.float32), layer_of(outputs, width))

    assert rows * outputs * width == sum(sizes)
    assert max(sizes) <= numpy_linear._ONE_THREAD


def test_a_row_does_not_depend_on_its_neighbours():
    """But for the order of float32 sums."""
    layer, vectors = layer_of(768, 768), np.random.default_rng(2).standard_normal((33, 768), np.float32)

    together = numpy_linear(vectors, layer)
    alone = np.concatenate([numpy_linear(row[None], layer) for row in vectors])

    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-4)
