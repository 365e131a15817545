"""Distil the static bundled model: one vector a word piece, so that a text's vector is a weighted mean of table rows.

    python -m tools.distil_static --data ../shared/data --work build/static [--width 256]

1. Of the bundled encoder's pieces those stay that the training texts use twice, and all single characters: a smaller
   tokenizer of the same kind.
2. Each piece goes through the encoder behind its prompt. The vectors are kept in the work folder.
3. The vectors, less their mean, are whitened: each principal axis is scaled to the same spread, and the last are cut.
4. A piece counts less, the more often it comes in the texts and by its score in the vocabulary.
5. Rows become int8, their scale goes into the weights: a folder as the Python package model2vec writes and reads it.

Sources: model2vec (github.com/MinishLab/model2vec) for pieces, axes and the format; Arora et al. 2017 (SIF) for the
weights.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from backend.models.bundled_encoders.conversion import TOKENIZER, tokenizer_json
from backend.models.bundled_encoders.packed_weights import SPECIAL_PIECES
from backend.models.bundled_encoders.recipes import quantized_rows
from backend.models.bundled_encoders.tensor_file import whole, write_tensors
from backend.models.checkpoint_tensors import WEIGHTS
from backend.models.encoder import Encoder
from backend.models.model_files import BUNDLED_FULL, resolve
from backend.models.model_files import STATIC as FOLDER
from backend.models.openvino_encoder import OpenVinoEncoder
from backend.models.spec import STATIC, STATIC_TABLE, ModelSpec, Pooling
from backend.models.static_encoder import WEIGHTS as ROW_WEIGHTS
from backend.models.vectors import normalized
from tools.train_student import read_texts

Vectors = NDArray[np.float32]
_PROMPT = "query: "
_SEEN_TWICE = 2
_WRITTEN = re.compile(r"[▁!-~\u00a1-\u00ff\u2010-\u2027€ŒœŠšŽžŸ]+")  # ASCII, Latin-1, the signs of print
_SIF = 1e-4  # a piece that is this share of all pieces counts half
_BATCH_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The pieces that are kept, in the order of their ids. ``ids``: theirs in the bundled encoder's tokenizer."""

    pieces: tuple[str, ...]
    scores: NDArray[np.float32]
    ids: NDArray[np.int64]

    @property
    def tokenizer(self) -> str:
        """The content of ``tokenizer.json``, with scores in four digits: float32 would be written in twenty."""
        return tokenizer_json(self.pieces, np.array([float(f"{score:.4f}") for score in self.scores]))


def vocabulary_of(folder: Path, texts: Sequence[str]) -> Vocabulary:
    """Pieces of the tokenizer in ``folder``, special ones first and last as there."""
    every = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))["model"]["vocab"]
    seen = counts_of(Tokenizer.from_file(str(folder / TOKENIZER)), texts, len(every))
    kept = [
        number
        for number, (piece, _) in enumerate(every)
        if _is_usable(piece) and (seen[number] >= _SEEN_TWICE or len(piece.lstrip("▁")) <= 1)
    ]
    special = {piece: number for number, (piece, _) in enumerate(every) if piece in SPECIAL_PIECES}
    ids = np.array([*(special[name] for name in SPECIAL_PIECES[:-1]), *kept, special[SPECIAL_PIECES[-1]]], np.int64)
    return Vocabulary(
        tuple(every[number][0] for number in ids), np.array([every[number][1] for number in ids], np.float32), ids
    )


def _is_usable(piece: str) -> bool:
    return piece not in SPECIAL_PIECES and _WRITTEN.fullmatch(piece) is not None


def counts_of(tokenizer: Tokenizer, texts: Sequence[str], size: int) -> NDArray[np.int64]:
    """How often each piece comes."""
    counts = np.zeros(size, np.int64)
    for start in range(0, len(texts), 1000):
        encodings = tokenizer.encode_batch_fast(list(texts[start : start + 1000]), add_special_tokens=False)
        ids = np.concatenate([encoding.ids for encoding in encodings]).astype(np.int64)
        counts += np.bincount(ids, minlength=size)
    return counts


def encoded(encoder: Encoder, ids: Sequence[NDArray[np.int64]], file: Path) -> Vectors:
    """The encoder's vectors, of unit length; kept in ``file``."""
    if file.is_file():
        kept: Vectors = np.load(file)
        return kept
    vectors: list[Vectors | None] = [None] * len(ids)
    for rows in _batches(ids):
        batch = encoder.prepare([ids[row] for row in rows])
        for row, vector in zip(
            rows, normalized(encoder.pooled(encoder.forward(batch), batch, Pooling.MEAN)), strict=True
        ):
            vectors[row] = vector
    stacked = np.stack([vector for vector in vectors if vector is not None])
    np.save(file, stacked)
    return stacked


def _batches(ids: Sequence[NDArray[np.int64]]) -> Iterator[list[int]]:
    rows: list[int] = []
    for row in sorted(range(len(ids)), key=lambda index: len(ids[index])):
        if rows and len(ids[row]) * (len(rows) + 1) > _BATCH_TOKENS:
            yield rows
            rows = []
        rows.append(row)
    yield rows


def piece_inputs(spec: ModelSpec, ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Each piece alone behind the prompt; special ones give the prompt alone."""
    tokenizer = Tokenizer.from_file(str(spec.folder / TOKENIZER))
    *before, after = tokenizer.encode(_PROMPT).ids
    special = {tokenizer.token_to_id(piece) for piece in SPECIAL_PIECES}
    return [np.array([*before, *([] if number in special else [number]), after], np.int64) for number in ids.tolist()]


def rows_of(vectors: Vectors, width: int) -> Vectors:
    """The vectors less their mean, on their first principal axes, each divided by its spread.

    The first axes tell pieces of one kind from another (capitals, digits, beginnings of words), not meanings. Measured
    on STS-B's training half, as the power of the spread: 0 0.686 and 0.669 (en, es), a half 0.703 and 0.680, 1 0.708
    and 0.682, 2 0.706 and 0.678.
    """
    centred = vectors - vectors.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov(centred.T))
    rows: Vectors = (centred @ axes[:, ::-1][:, :width] / np.sqrt(variances[::-1][:width])).astype(np.float32)
    return rows


def weights_of(counts: NDArray[np.int64], scores: NDArray[np.float32]) -> Vectors:
    """What each piece counts in a mean: its share of all pieces is the mean of what texts and vocabulary tell."""
    by_score = np.exp(scores.astype(np.float64))
    share = (counts / counts.sum() + by_score / by_score.sum()) / 2
    weights: Vectors = (_SIF / (_SIF + share)).astype(np.float32)
    return weights


def write(folder: Path, vocabulary: Vocabulary, rows: Vectors, weights: Vectors) -> None:
    """Write the model's folder, but for its card."""
    folder.mkdir(parents=True, exist_ok=True)
    table, scale = quantized_rows(rows)
    tensors = [whole(STATIC_TABLE, table), whole(ROW_WEIGHTS, (scale * weights).astype("<f4"))]
    write_tensors(folder / WEIGHTS, tensors)
    (folder / TOKENIZER).write_text(vocabulary.tokenizer, encoding="utf-8")
    files: dict[str, Any] = {
        "config.json": {
            "model_type": STATIC,
            "architectures": ["StaticModel"],
            "hidden_dim": rows.shape[1],
            "seq_length": 512,
            "normalize": True,
        },
        "config_sentence_transformers.json": {"prompts": {"query": "", "passage": ""}, "default_prompt_name": None},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def distil(data: Path, work: Path, output: Path, *, width: int) -> None:
    """All steps; minutes on two cores. Raises: ModelUnavailable, OSError."""
    work.mkdir(parents=True, exist_ok=True)
    texts = [text for text, _ in read_texts(data)]
    spec = resolve(BUNDLED_FULL)
    vocabulary = vocabulary_of(spec.folder, texts)
    sys.stderr.write(f"{len(vocabulary.pieces)} pieces, {len(texts)} texts\n")
    encoder = OpenVinoEncoder(spec, dtype="bf16", lanes=1, threads=1)
    vectors = encoded(encoder, piece_inputs(spec, vocabulary.ids), work / "pieces.npy")
    counts = counts_of(Tokenizer.from_str(vocabulary.tokenizer), texts, len(vocabulary.pieces))
    write(output, vocabulary, rows_of(vectors, width), weights_of(counts, vocabulary.scores))


def main() -> None:
    """Read the arguments and distil."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--work", type=Path, required=True, help="where the encoder's vectors are kept")
    parser.add_argument("--output", type=Path, default=FOLDER, help="the model's folder (default: %(default)s)")
    parser.add_argument("--width", type=int, default=256, help="of a vector (default: %(default)s)")
    options = parser.parse_args()
    distil(options.data, options.work, options.output, width=options.width)


if __name__ == "__main__":
    main()
