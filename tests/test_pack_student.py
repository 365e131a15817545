"""A student's layers go into the repository and come out as a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders.conversion import convert
from backend.models.bundled_encoders.converted_folder import folder_of
from backend.models.bundled_encoders.packed_weights import read_packed
from backend.models.bundled_encoders.recipes import student_recipe
from backend.models.fingerprint import file_digest
from backend.models.model_files import resolve
from tests.models.bundled_encoders import packed_files
from tools import pack_student


@pytest.fixture
def packed(tmp_path: Path, monkeypatch) -> Path:
    return packed_files.install(tmp_path, monkeypatch)


@pytest.fixture
def state(packed: Path, tmp_path: Path) -> dict[str, np.ndarray]:
    """One layer, by the names of a BertEncoder."""
    (tmp_path / "whole").mkdir()
    convert(read_packed(packed), tmp_path / "whole")
    tensors = load_file(tmp_path / "whole" / "model.safetensors")
    prefix = "encoder.layer.1."
    return {name.replace(prefix, "layer.0."): value for name, value in tensors.items() if name.startswith(prefix)}


def test_the_service_takes_what_was_packed(state, packed: Path, tmp_path: Path):
    """Under its name, with as many layers as the state has, and matrices within 8 bits of it."""
    pack_student.pack(state, tmp_path / "student", packed=packed, name="org/student")

    recipe = replace(student_recipe(tmp_path / "student"), packed_sha256=file_digest(packed))
    folder = folder_of(recipe, tmp_path / "state")

    converted = load_file(folder / "model.safetensors")
    assert ("org/student", 1) == (recipe.name, resolve(str(folder)).shape.layers)
    for name, value in state.items():
        stored = converted[f"encoder.{name}"].astype(np.float32)
        assert np.abs(stored - value.astype(np.float32)).max() <= np.abs(value).max() / 127, name


def test_damaged_layers_are_refused(state, packed: Path, tmp_path: Path):
    pack_student.pack(state, tmp_path / "student", packed=packed)
    layers = tmp_path / "student" / "layers.safetensors"
    layers.write_bytes(layers.read_bytes()[:-4] + b"\0\0\0\1")

    with pytest.raises(ModelUnavailable, match=r"layers\.safetensors of .*-fast has SHA-256"):
        folder_of(replace(student_recipe(layers.parent), packed_sha256=file_digest(packed)), tmp_path / "state")


def test_a_state_without_layers(packed: Path, tmp_path: Path):
    with pytest.raises(ModelUnavailable, match="no tensor is named layer"):
        pack_student.pack({"weight": np.ones((2, 2))}, tmp_path / "student", packed=packed)
