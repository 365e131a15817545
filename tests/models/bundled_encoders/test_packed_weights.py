"""The packed file's directory, its pieces, and 4-bit values made float again."""

from pathlib import Path

import numpy as np
import pytest

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders.packed_weights import read_packed
from tests.models.bundled_encoders import packed_files


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_rows(tmp_path: Path, count: int):
    """4-bit tensors come as float16, the others as float32, in parts of any size."""
    made = packed_files.packed_file(tmp_path)
    packed = read_packed(made.file)

    for name, expected in made.tensors.items():
        parts = list(packed.rows(name, expected.shape, count))
        dtype = (
            np.float16 if name == "emb.word" or (expected.shape[0] != expected.size and name[0] == "l") else np.float32
        )

        assert dtype == parts[0].dtype, name
        assert np.array_equal(expected.astype(dtype), np.concatenate(parts)), name


@pytest.mark.parametrize(
    ("name", "shape"),
    [pytest.param("emb.words", (4, 32), id="absent"), pytest.param("emb.pos", (40, 64), id="of-another-size")],
)
def test_a_tensor_that_is_not_there(tmp_path: Path, name: str, shape: tuple[int, ...]):
    packed = read_packed(packed_files.packed_file(tmp_path).file)

    with pytest.raises(ModelUnavailable, match=f"the packed weights have .*{name}"):
        list(packed.rows(name, shape, 8))


@pytest.mark.parametrize(
    ("start", "replacement"),
    [
        pytest.param(0, b"GGUF", id="another-format"),
        pytest.param(4, b"\x02", id="another-version"),
        pytest.param(40, b"\x10", id="blocks-of-another-size"),
        pytest.param(48, b"\x07", id="other-special-pieces"),
    ],
)
def test_another_format_is_refused(tmp_path: Path, start: int, replacement: bytes):
    """What is read is checked before anything is computed from it."""
    file = packed_files.packed_file(tmp_path).file
    content = bytearray(file.read_bytes())
    content[start : start + len(replacement)] = replacement
    file.write_bytes(content)

    with pytest.raises(ModelUnavailable, match=r"e5-small-q4\.bin cannot be read as packed weights"):
        read_packed(file)


@pytest.mark.parametrize("length", [0, 3, 30, 100, 300, 900])
def test_a_file_that_ends_too_early(tmp_path: Path, length: int):
    """In the sizes, the pieces or the directory."""
    file = packed_files.packed_file(tmp_path).file
    file.write_bytes(file.read_bytes()[:length])

    with pytest.raises(ModelUnavailable, match="cannot be read as packed weights"):
        read_packed(file)
