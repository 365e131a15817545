"""Vectors as rows of numpy arrays."""

import numpy as np

from backend.models.encoder import normalized


def test_rows_become_length_one_and_zero_stays_zero():
    """No row divides by zero, and a short row is as good as a long one."""
    found = normalized(np.array([[3, 4], [0, 0], [1e-15, 0]], np.float32))

    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0], [1, 0]], rtol=1e-6)
    assert [np.float32, np.float64] == [found.dtype, normalized(found.astype(np.float64)).dtype]
