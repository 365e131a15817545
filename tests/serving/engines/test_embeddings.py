"""The embedding task: pooling on the lane, then cutting and normalising."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from backend.serving.engines.heads import finished

VECTORS = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(1, 24)),
    elements=st.floats(-100, 100, width=32).filter(lambda value: value == 0 or abs(value) > 1e-3),
)


@given(VECTORS, st.data())
def test_cutting_comes_before_normalising(vectors, data):
    """A shortened vector has length one itself (Matryoshka order), so cosines of shortened vectors are right."""
    dimensions = data.draw(st.integers(1, vectors.shape[1]))

    found = finished(list(vectors), dimensions=dimensions, normalize=True)

    lengths = np.linalg.norm(vectors[:, :dimensions], axis=1)
    assert (len(vectors), dimensions) == found.shape
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), (lengths > 0).astype(np.float32), atol=1e-5)
    np.testing.assert_allclose(found * lengths[:, None], vectors[:, :dimensions], rtol=1e-4, atol=1e-4)


@given(VECTORS, st.booleans())
def test_a_batch_equals_its_rows(vectors, normalize):
    together = finished(list(vectors), dimensions=None, normalize=normalize)
    alone = [finished([row], dimensions=None, normalize=normalize)[0] for row in vectors]

    np.testing.assert_array_equal(np.stack(alone), together)


@pytest.mark.parametrize("dimensions", [None, 2, 3])
@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_are_ready_to_be_written(dimensions, normalize):
    """C-contiguous float32 of their own memory, whatever was asked for."""
    rows = [np.array([3, 4, 12], np.float32), np.array([1, 0, 0], np.float32)]

    found = finished(rows, dimensions=dimensions, normalize=normalize)
    rows[0][:] = 0

    assert found.flags["C_CONTIGUOUS"]
    assert found.dtype == np.float32
    assert found[0].any()
