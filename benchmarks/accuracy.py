"""Compares a server's vectors, requested over HTTP, with those of sentence-transformers."""

import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from benchmarks.client import sent
from benchmarks.peers import model_folder

Vectors = npt.NDArray[np.float64]  # (texts, width), rows of length 1

_TEXTS_PER_REQUEST = 32


def fetch(port: int, texts: Sequence[str]) -> Vectors:
    """The normalized vectors of ``texts`` in order, by requests of ``_TEXTS_PER_REQUEST``; shape (texts, width)."""
    rows: list[list[float]] = []
    for first in range(0, len(texts), _TEXTS_PER_REQUEST):
        rows.extend(_request_vectors(port, texts[first : first + _TEXTS_PER_REQUEST]))
    return normalized(np.asarray(rows, dtype=np.float64))


def _request_vectors(port: int, texts: Sequence[str]) -> list[list[float]]:
    data = json.loads(response_body(port, texts))["data"]
    return [item["embedding"] for item in sorted(data, key=lambda item: cast("int", item["index"]))]


def response_body(port: int, texts: str | Sequence[str]) -> bytes:
    """The body of a response with float vectors. Raises: RequestRefused, OSError."""
    input_texts = texts if isinstance(texts, str) else list(texts)
    body = {"model": "bundled", "input": input_texts, "encoding_format": "float"}
    with sent(port, "/v1/embeddings", body) as response:
        return response.read()


def reference_vectors(texts: Sequence[str], folder: Path | None = None) -> Vectors:
    """sentence-transformers' fp32 vectors, computed in a temporary process; shape (texts, width).

    Args:
        folder: the served model's unless said.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_reference, list(texts), folder or model_folder()).result()


def _reference(texts: list[str], folder: Path) -> Vectors:
    from sentence_transformers import SentenceTransformer  # seconds of import, only in the process that uses it

    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": "float32"})
    return normalized(model.encode(texts, batch_size=_TEXTS_PER_REQUEST).astype("float64"))


def accuracy(port: int, texts: Sequence[str], reference: Vectors) -> dict[str, float]:
    """Cosine to ``reference`` per text, and Spearman's rank correlation of all pairwise similarities."""
    vectors = fetch(port, texts)
    cosines = cast("Vectors", np.sum(vectors * reference, axis=1))
    pairs = np.triu_indices(len(vectors), k=1)
    return {
        "texts": float(len(vectors)),
        "cosine_min": float(cosines.min()),
        "cosine_mean": float(cosines.mean()),
        "spearman": spearman((vectors @ vectors.T)[pairs], (reference @ reference.T)[pairs]),
    }


def spearman(first: Vectors, second: Vectors) -> float:
    """Rank correlation of two series without ties; similarities of distinct texts have none."""
    ranks = [np.argsort(np.argsort(series)).astype(np.float64) for series in (first, second)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def normalized(vectors: Vectors) -> Vectors:
    return cast("Vectors", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
