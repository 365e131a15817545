"""safetensors files written part by part."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from backend.models.bundled_encoders.conversion import TensorToWrite, whole, write_tensors

TENSORS = {
    "halves": np.arange(6, dtype="<f2").reshape(2, 3),
    "bytes": np.array([-127, 0, 127], np.int8),
    "singles": np.linspace(0, 1, 5, dtype="<f4"),
}


def test_the_library_reads_what_was_written(tmp_path: Path):
    """Every name, shape, dtype and value, and the format that transformers asks for."""
    write_tensors(tmp_path / "a.safetensors", [whole(name, value) for name, value in TENSORS.items()])

    read = load_file(tmp_path / "a.safetensors")

    assert {name: (value.dtype, value.tolist()) for name, value in TENSORS.items()} == {
        name: (value.dtype, value.tolist()) for name, value in read.items()
    }
    with safe_open(tmp_path / "a.safetensors", framework="numpy") as stored:
        assert {"format": "pt"} == stored.metadata()


def test_parts_make_the_same_file(tmp_path: Path):
    """However many rows are written at a time."""
    table = np.random.default_rng(3).normal(size=(7, 4)).astype("<f4")
    by_row = TensorToWrite("table", table.dtype, table.shape, lambda: (table[row : row + 1] for row in range(7)))

    write_tensors(tmp_path / "rows", [by_row])
    write_tensors(tmp_path / "whole", [whole("table", table)])

    assert (tmp_path / "whole").read_bytes() == (tmp_path / "rows").read_bytes()


def test_a_dtype_the_format_has_no_name_for_here(tmp_path: Path):
    with pytest.raises(KeyError):
        write_tensors(tmp_path / "a", [whole("a", np.zeros(2, np.complex64))])
