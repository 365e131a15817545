"""Vectors on a device: the scan of vector search."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from backend.models import device_matrix
from backend.models.device_matrix import DeviceMatrix
from backend.search.sqlite import vector_matrix
from backend.search.sqlite.vector_matrix import Matrix, VectorMatrix
from tests.search.samples import unit_vectors


@pytest.mark.parametrize("kind", ["device", "memory"])
def test_cosines_of_all_rows(kind: str, device: str, monkeypatch: pytest.MonkeyPatch):
    """Those of the float32 product, over blocks that are filled by parts; rows of zeros are no candidates."""
    monkeypatch.setattr(device_matrix, "BLOCK_ROWS", 64)
    monkeypatch.setattr(vector_matrix, "BLOCK_ROWS", 64)
    vectors, query = unit_vectors(300, width=384), unit_vectors(1, seed=9, width=384)[0]
    vectors[7] = 0.0
    matrix: Matrix = DeviceMatrix(384, device) if kind == "device" else VectorMatrix(384)
    with ThreadPoolExecutor(2) as threads:
        for start, end in ((0, 10), (10, 100), (100, 300)):
            matrix.add(vectors[start:end])
            scores = matrix.scan(query, end, threads)

            assert (end,) == scores.shape
            expected = vectors[:end] @ query
            expected[7] = -2.0
            assert np.abs(expected - scores).max() < 2e-3
        assert np.array_equal(scores[:50], matrix.scan(query, 50, threads))
    assert matrix.has_gaps
    assert 300 == matrix.rows
