"""What a classifier head may read beside the vector: a gated copy of the vector, and hashed character n-grams.

Training and serving share this code. A sentence encoder made for one language keeps others apart in its vectors: the
first principal direction of English and Spanish vectors tells the two languages apart in 99 of 100 texts. A head that
is linear on both must do with one set of weights. The gate, a soft sign along that direction, gives each language
weights of its own, without being told the language. The n-grams hold what an English encoder's vector leaves out of
Spanish; they cost kilobytes a label and tens of microseconds a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.normal_forms import normalized

Array = NDArray[Any]
GRAM_BITS = 14  # measured on SIB-200, folds of the training texts: Spanish 0.66 without, 0.70 with 12, 0.71 with 14
_GRAM_WEIGHT = 1.5  # length of a text's grams, where its vector has length 1; 1 to 2 do alike
_RANK_FLOOR = 1e-10  # of the largest eigenvalue; smaller ones are rounding errors
_STEEPNESS = 2.0  # at one standard deviation from the middle the gate is open by tanh(2) = 0.96
SIZES = (3, 4, 5)  # characters; within a word and the blanks beside it
CHARACTERS = 2000  # of a text that are read: about what the encoder's first window holds
_BLANK, _ZERO = ord(" "), ord("0")
_FACTOR = np.uint64(0x100000001B3)  # FNV's prime
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: the upper bits of a product are well mixed


@dataclass(frozen=True, slots=True)
class Gate:
    """A soft sign: on which side of a direction a vector lies. Shapes: direction (width)."""

    direction: Array
    offset: float

    def open(self, vectors: Array) -> Array:
        """From -1 to 1. Shapes: (texts, width) -> (texts, 1)."""
        return np.asarray(np.tanh(vectors @ self.direction - self.offset))[:, None]

    def of_unit(self, size: float) -> Gate:
        """The same gate for vectors that are ``size`` times as long."""
        return Gate(self.direction / size, self.offset)


@dataclass(frozen=True, slots=True)
class WideFeatures:
    """The features of some texts, rotated so that they have no more columns than there are texts.

    A rotation changes neither lengths nor products, so a head with a squared penalty solved on ``rows`` equals the one
    solved on the features themselves; ``lift`` rotates it back. 17,000 features of 1400 texts take as long as 1400.
    """

    rows: Array  # (texts, rank)
    gate: Gate
    _basis: Array  # (texts, rank)
    _dense: Array  # (texts, 2 x width)
    _grams: Any  # scipy.sparse.csr_array (texts, places)

    def lift(self, weight: Array) -> tuple[Array, Array]:
        """The weights of the dense features and of the grams. Shapes: (labels, rank) -> (labels, …) twice."""
        by_text = weight @ self._basis.T
        return by_text @ self._dense, np.asarray((self._grams.T @ by_text.T).T)


def wide_features(vectors: Array, texts: Sequence[str]) -> WideFeatures:
    """Vectors of mean square 1, their gated copies, and grams of a length to match."""
    from scipy.sparse import csr_array  # slow to import, and serving does not need it

    gate = find_gate(vectors)
    grams_of_texts = [gram_places(text, GRAM_BITS) for text in texts]
    ends = np.cumsum([0, *(len(places) for places, _ in grams_of_texts)])
    places = np.concatenate([places for places, _ in grams_of_texts])
    weights = np.concatenate([weights for _, weights in grams_of_texts])
    grams = csr_array((weights * gram_scale(vectors.shape[1]), places, ends), shape=(len(texts), 2**GRAM_BITS))
    dense = np.hstack([vectors, vectors * gate.open(vectors)])
    eigenvalues, eigenvectors = np.linalg.eigh(dense @ dense.T + (grams @ grams.T).toarray())
    kept = eigenvalues > eigenvalues[-1] * _RANK_FLOOR
    lengths = np.sqrt(eigenvalues[kept])
    return WideFeatures(eigenvectors[:, kept] * lengths, gate, eigenvectors[:, kept] / lengths, dense, grams)


def gram_scale(width: int) -> float:
    """Length of a text's grams beside vectors of mean square 1."""
    return _GRAM_WEIGHT * float(np.sqrt(width))


def find_gate(vectors: Array) -> Gate:
    """A gate along the first principal direction, whose largest component is made positive."""
    centre = vectors.mean(axis=0)
    covariance = np.cov((vectors - centre).T)
    direction = np.linalg.eigh(covariance)[1][:, -1]
    direction *= np.sign(direction[np.abs(direction).argmax()])
    deviation = float(np.sqrt(max(direction @ covariance @ direction, 0.0))) or 1.0
    direction = direction * (_STEEPNESS / deviation)
    return Gate(direction, float(centre @ direction))


def gram_places(text: str, bits: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """A text's character n-grams hashed into a table of ``2 ** bits`` places: places and weights; squares sum to 1.

    Case, accents and the values of digits are ignored. Half of the n-grams count negatively, so that those which share
    a place cancel out on average instead of adding up. A text without n-grams has no place.

    Shapes: both (places), ascending. Source: Weinberger et al. 2009, "Feature Hashing for Large Scale Multitask
    Learning".
    """
    codes = _codes(text)
    blank = codes == _BLANK
    hashes = [_hashes(codes, blank, size) for size in SIZES if len(codes) >= size]
    unique = np.unique(np.concatenate(hashes)) if hashes else np.zeros(0, np.uint64)
    if not len(unique):
        return np.zeros(0, np.int64), np.zeros(0)
    signs = np.where(unique >> np.uint64(63), -1.0, 1.0)
    table = np.bincount(((unique << np.uint64(1)) >> np.uint64(64 - bits)).astype(np.int64), signs, 2**bits)
    places = np.flatnonzero(table)
    weights = table[places]
    return places, weights / max(float(np.sqrt(np.square(weights).sum())), 1.0)


def gram_scores(texts: Sequence[str], table: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the n-grams add to each label's logit. Shapes: table (labels, 2 ** bits) -> (texts, labels)."""
    bits = table.shape[1].bit_length() - 1
    scores = np.zeros((len(texts), len(table)), np.float32)
    for row, text in enumerate(texts):
        places, weights = gram_places(text, bits)
        scores[row] = table[:, places] @ weights
    return scores


def _codes(text: str) -> NDArray[np.uint64]:
    """Code points of the text's beginning, lower case without accents, between two blanks."""
    folded = normalized("NFKD", " ".join(text[:CHARACTERS].lower().split()))
    codes = np.frombuffer(f" {folded} ".encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    codes = codes[(codes < 0x300) | (codes > 0x36F)]  # combining marks: accents come off
    return np.where((codes >= _ZERO) & (codes <= _ZERO + 9), np.uint64(_ZERO), codes)


def _hashes(codes: NDArray[np.uint64], blank: NDArray[np.bool_], size: int) -> NDArray[np.uint64]:
    """Hashes of every n-gram of ``size`` without a blank inside."""
    count = len(codes) - size + 1
    hashes = np.full(count, size, np.uint64)
    within_word = np.ones(count, np.bool_)
    for place in range(size):
        hashes = (hashes ^ codes[place : place + count]) * _FACTOR  # wraps, as it should
        if 0 < place < size - 1:
            within_word &= ~blank[place : place + count]
    hashes = hashes[within_word]
    return (hashes ^ (hashes >> np.uint64(29))) * _MIX
