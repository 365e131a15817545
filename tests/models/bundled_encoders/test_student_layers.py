"""A student's layers in 8 bits, and back."""

from pathlib import Path

import numpy as np
import pytest

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders.recipes import read_layers
from tests.models.bundled_encoders.packed_files import write_layers

NAME = "encoder.layer.0.output.dense"


def test_layers_come_back(tmp_path: Path):
    """Vectors exactly; each value of a matrix within half a step of its row, and the rounding of float16."""
    random = np.random.default_rng(11)
    matrix, bias = random.normal(size=(8, 64)).astype(np.float32), random.normal(size=8).astype(np.float32)
    matrix[3] = 0
    write_layers(tmp_path / "layers", {f"{NAME}.weight": matrix, f"{NAME}.bias": bias})

    layers = read_layers(tmp_path / "layers")

    assert {f"{NAME}.weight", f"{NAME}.bias"} == set(layers)
    assert bias.tolist() == layers[f"{NAME}.bias"].tolist()
    half_step = np.abs(matrix).max(axis=1, keepdims=True) / 127 / 2
    assert np.float16 == layers[f"{NAME}.weight"].dtype
    assert (np.abs(matrix - layers[f"{NAME}.weight"].astype(np.float32)) <= half_step * 1.2).all()
    assert not layers[f"{NAME}.weight"][3].any()


@pytest.mark.parametrize("content", [None, b"", b"no tensors at all"], ids=["absent", "empty", "another-format"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None):
    if content is not None:
        (tmp_path / "layers").write_bytes(content)

    with pytest.raises(ModelUnavailable, match="the layers of the bundled student cannot be read"):
        read_layers(tmp_path / "layers")
