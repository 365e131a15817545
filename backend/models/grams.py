"""Character n-grams of texts as places in a small hashed table: what an English encoder's vector leaves out of Spanish.

The table is a feature beside the vector, kilobytes a label. numpy alone, tens of microseconds a text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SIZES = (3, 4, 5)  # characters; within a word and the blanks beside it
CHARACTERS = 2000  # of a text that are read: about what the encoder's first window holds
_BLANK, _ZERO = ord(" "), ord("0")
_FACTOR = np.uint64(0x100000001B3)  # FNV's prime
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: the upper bits of a product are well mixed


def gram_places(text: str, bits: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Where a text stands in a table of ``2 ** bits`` places, and with which weight; the squares sum to 1.

    Case, accents and the digits' values do not count. Half of the grams count negatively, so that those which share a
    place cancel out on average instead of adding up. A text without grams has no place.

    Shapes: both (places), ascending. Source: Weinberger et al. 2009, "Feature Hashing for Large Scale Multitask
    Learning".
    """
    codes = _codes(text)
    blank = codes == _BLANK
    hashes = [_hashes(codes, blank, size) for size in SIZES if len(codes) >= size]
    found = np.unique(np.concatenate(hashes)) if hashes else np.zeros(0, np.uint64)
    if not len(found):
        return np.zeros(0, np.int64), np.zeros(0)
    signs = np.where(found >> np.uint64(63), -1.0, 1.0)
    table = np.bincount(((found << np.uint64(1)) >> np.uint64(64 - bits)).astype(np.int64), signs, 2**bits)
    places = np.flatnonzero(table)
    weights = table[places]
    return places, weights / max(float(np.sqrt(np.square(weights).sum())), 1.0)


def gram_scores(texts: Sequence[str], table: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the grams add to each label's logit. Shapes: table (labels, 2 ** bits) -> (texts, labels)."""
    bits = table.shape[1].bit_length() - 1
    scores = np.zeros((len(texts), len(table)), np.float32)
    for row, text in enumerate(texts):
        places, weights = gram_places(text, bits)
        scores[row] = table[:, places] @ weights
    return scores


def _codes(text: str) -> NDArray[np.uint64]:
    """Code points of the text's beginning, folded, between two blanks."""
    folded = unicodedata.normalize("NFKD", " ".join(text[:CHARACTERS].lower().split()))
    codes = np.frombuffer(f" {folded} ".encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    codes = codes[(codes < 0x300) | (codes > 0x36F)]  # combining marks: accents come off
    return np.where((codes >= _ZERO) & (codes <= _ZERO + 9), np.uint64(_ZERO), codes)


def _hashes(codes: NDArray[np.uint64], blank: NDArray[np.bool_], size: int) -> NDArray[np.uint64]:
    """Of every gram of this size that no blank parts."""
    count = len(codes) - size + 1
    made = np.full(count, size, np.uint64)
    whole = np.ones(count, np.bool_)
    for place in range(size):
        made = (made ^ codes[place : place + count]) * _FACTOR  # wraps, as it should
        if 0 < place < size - 1:
            whole &= ~blank[place : place + count]
    made = made[whole]
    return (made ^ (made >> np.uint64(29))) * _MIX
