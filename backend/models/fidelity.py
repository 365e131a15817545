"""How far a fast encoder is from float32. Numbers only: no model, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from backend.models.encoder import Vectors

_Floats = TypeVar("_Floats", NDArray[np.float32], NDArray[np.float64])
_TINY = np.finfo(np.float32).tiny
BATCH_SINGLE_AT_LEAST = 0.9999  # whatever the neighbours in the batch (DESIGN §5)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Agreement with float32 on the probe texts, and of the encoder with itself."""

    batch_single: float  # least cosine between a text's vector alone and among others
    spearman: float  # of all pairwise similarities with float32's
    neighbours: float  # share of texts whose nearest neighbour is float32's too
    cosine: float  # least cosine to float32


@dataclass(frozen=True, slots=True)
class Bar:
    """What a candidate must reach."""

    spearman: float
    neighbours: float


AUTO = Bar(spearman=0.995, neighbours=0.9)
FAST = Bar(spearman=0.98, neighbours=0.8)


def compare(vectors: Vectors, places: Sequence[int], alone: Vectors, reference: Vectors) -> Fidelity:
    """Measure a candidate.

    Shapes: vectors, reference (texts, width); alone (places, width), the texts at ``places`` encoded one by one.
    """
    vectors, alone, reference = normalized(vectors), normalized(alone), normalized(reference)
    ours, theirs = vectors @ vectors.T, reference @ reference.T
    pairs = np.triu_indices(len(vectors), k=1)
    return Fidelity(
        batch_single=_least_cosine(vectors[places], alone),
        spearman=spearman(ours[pairs], theirs[pairs]),
        neighbours=float(np.mean(_nearest(ours) == _nearest(theirs))),
        cosine=_least_cosine(vectors, reference),
    )


def fault(fidelity: Fidelity, bar: Bar) -> str:
    """Why the candidate does not pass, or "". A non-finite vector makes every comparison fail."""
    if not fidelity.batch_single >= BATCH_SINGLE_AT_LEAST:
        return f"neighbours change a vector: batch against single {fidelity.batch_single:.5f} < {BATCH_SINGLE_AT_LEAST}"
    if not fidelity.spearman >= bar.spearman:
        return f"similarities differ from float32: Spearman {fidelity.spearman:.4f} < {bar.spearman}"
    if not fidelity.neighbours >= bar.neighbours:
        return f"nearest neighbours differ from float32: {fidelity.neighbours:.0%} agree, {bar.neighbours:.0%} needed"
    return ""


def spearman(first: Vectors, second: Vectors) -> float:
    """Rank correlation of two equally long 1-D arrays (ties in order of appearance)."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def normalized(vectors: _Floats) -> _Floats:
    """Rows of length one, of the same dtype; a row of zeros stays zero. Shapes: (batch, width) -> (batch, width)."""
    squares = np.einsum("ij,ij->i", vectors, vectors)  # half the overhead of np.linalg.norm on one short row
    scaled: _Floats = vectors / np.sqrt(np.maximum(squares, _TINY))[:, None]
    return scaled


def _ranks(values: Vectors) -> Vectors:
    ranks = np.empty(len(values), np.float32)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def _nearest(similarities: Vectors) -> Vectors:
    others = similarities - 4.0 * np.eye(len(similarities), dtype=np.float32)  # never oneself
    nearest: Vectors = others.argmax(axis=1)
    return nearest


def _least_cosine(first: Vectors, second: Vectors) -> float:
    return float((first * second).sum(axis=1).min())
