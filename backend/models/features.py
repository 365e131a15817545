"""What a head may read beside the vector: a gated copy of it, and the text's grams. The same in learning and serving.

A sentence encoder made for one language keeps others apart in its vectors: the first principal direction of English
and Spanish vectors tells the two languages apart in 99 of 100 texts. A head that is linear on both must do with one
set of weights. The gate, a soft sign along that direction, gives each side weights of its own; nothing is said to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.models.grams import gram_places

Array = NDArray[Any]
GRAM_BITS = 14  # measured on SIB-200, folds of the training texts: Spanish 0.66 without, 0.70 with 12, 0.71 with 14
_GRAM_WEIGHT = 1.5  # length of a text's grams, where its vector has length 1; 1 to 2 do alike
_RANK_FLOOR = 1e-10  # of the greatest square; below it a direction is rounding
_STEEPNESS = 2.0  # at one standard deviation from the middle the gate is open by tanh(2) = 0.96


@dataclass(frozen=True, slots=True)
class Gate:
    """Which side of a direction a vector is on, softly. Shapes: direction (width)."""

    direction: Array
    offset: float

    def open(self, vectors: Array) -> Array:
        """From -1 to 1. Shapes: (texts, width) -> (texts, 1)."""
        return np.asarray(np.tanh(vectors @ self.direction - self.offset))[:, None]

    def of_unit(self, size: float) -> Gate:
        """The same gate for vectors that are ``size`` times as long."""
        return Gate(self.direction / size, self.offset)


@dataclass(frozen=True, slots=True)
class Wide:
    """The wider features of some texts, turned so that they have no more columns than there are texts.

    Turning changes neither lengths nor products, so a head with a squared penalty solved on ``rows`` is the one solved
    on the features themselves; ``lift`` turns it back. 17,000 features of 1400 texts take as long as 1400.
    """

    rows: Array  # (texts, rank)
    gate: Gate
    _basis: Array  # (texts, rank)
    _dense: Array  # (texts, 2 x width)
    _grams: Any  # scipy.sparse.csr_array (texts, places)

    def lift(self, weight: Array) -> tuple[Array, Array]:
        """The weights of the dense features and of the grams. Shapes: (labels, rank) -> (labels, …) twice."""
        shares = weight @ self._basis.T
        return shares @ self._dense, np.asarray((self._grams.T @ shares.T).T)


def wide_features(vectors: Array, texts: Sequence[str]) -> Wide:
    """Vectors of mean square 1, their gated copies, and grams of a length to match."""
    from scipy.sparse import csr_array  # serving must not pay for it at the start

    gate = find_gate(vectors)
    found = [gram_places(text, GRAM_BITS) for text in texts]
    ends = np.cumsum([0, *(len(places) for places, _ in found)])
    places, weights = (np.concatenate([one[part] for one in found]) for part in (0, 1))
    grams = csr_array((weights * gram_scale(vectors.shape[1]), places, ends), shape=(len(texts), 2**GRAM_BITS))
    dense = np.hstack([vectors, vectors * gate.open(vectors)])
    squares, turned = np.linalg.eigh(dense @ dense.T + (grams @ grams.T).toarray())
    kept = squares > squares[-1] * _RANK_FLOOR
    lengths = np.sqrt(squares[kept])
    return Wide(turned[:, kept] * lengths, gate, turned[:, kept] / lengths, dense, grams)


def gram_scale(width: int) -> float:
    """Length of a text's grams beside vectors of mean square 1."""
    return _GRAM_WEIGHT * float(np.sqrt(width))


def find_gate(vectors: Array) -> Gate:
    """Along the direction in which the vectors differ most; its sign is that of its largest part."""
    centre = vectors.mean(axis=0)
    spread = np.cov((vectors - centre).T)
    direction = np.linalg.eigh(spread)[1][:, -1]
    direction *= np.sign(direction[np.abs(direction).argmax()])
    deviation = float(np.sqrt(max(direction @ spread @ direction, 0.0))) or 1.0
    direction = direction * (_STEEPNESS / deviation)
    return Gate(direction, float(centre @ direction))
