"""Whether a server's vectors are the ones sentence-transformers computes, judged over HTTP like any client would."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float64]  # (texts, width), rows of length 1

_PER_REQUEST = 32
_ALONE = 32  # texts also sent one by one


def fetch(url: str, texts: Sequence[str]) -> Vectors:
    """The vectors of ``texts`` in order, asked for ``_PER_REQUEST`` at a time; shape (texts, width)."""
    rows: list[list[float]] = []
    for at in range(0, len(texts), _PER_REQUEST):
        rows.extend(_ask(url, texts[at : at + _PER_REQUEST]))
    return normalized(np.asarray(rows, dtype=np.float64))


def _ask(url: str, texts: Sequence[str]) -> list[list[float]]:
    data = json.loads(raw_answer(url, texts))["data"]
    return [item["embedding"] for item in sorted(data, key=lambda item: cast("int", item["index"]))]


def raw_answer(url: str, texts: str | Sequence[str]) -> bytes:
    """The body of one answer with float vectors."""
    wanted = texts if isinstance(texts, str) else list(texts)
    body = json.dumps({"model": "bundled", "input": wanted, "encoding_format": "float"}).encode()
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return cast("bytes", answer.read())


def accuracy(url: str, texts: Sequence[str], reference: Vectors) -> dict[str, float]:
    """Agreement of the server at ``url`` with ``reference``, and of a text alone with the same text in company."""
    vectors = fetch(url, texts)
    alone = np.concatenate([fetch(url, [text]) for text in texts[:_ALONE]])
    return agreement(vectors, reference) | {"alone_cosine_min": float(_cosines(alone, vectors[:_ALONE]).min())}


def agreement(vectors: Vectors, reference: Vectors) -> dict[str, float]:
    """Cosine text by text, and Spearman's rank correlation of all pairwise similarities."""
    cosines = _cosines(vectors, reference)
    pairs = np.triu_indices(len(vectors), k=1)
    return {
        "texts": float(len(vectors)),
        "cosine_min": float(cosines.min()),
        "cosine_mean": float(cosines.mean()),
        "spearman": spearman((vectors @ vectors.T)[pairs], (reference @ reference.T)[pairs]),
    }


def spearman(one: Vectors, other: Vectors) -> float:
    """Rank correlation of two series without ties, as similarities of distinct texts are."""
    ranks = [np.argsort(np.argsort(series)).astype(np.float64) for series in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def normalized(vectors: Vectors) -> Vectors:
    return cast("Vectors", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def _cosines(one: Vectors, other: Vectors) -> Vectors:
    return cast("Vectors", np.sum(one * other, axis=1))
