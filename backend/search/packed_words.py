"""The words of a chunk with their places as bytes: columns of differences, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from backend.files.pages import Box
from backend.search.records import PlacedWord

_UNITS = 100  # a page unit: a hundredth of a point is a quarter of a hair
_COLUMNS = 8


def pack_words(words: Sequence[PlacedWord]) -> bytes:
    """Some 9 bytes a word. Boxes are rounded to 0.01 page units."""
    if not words:
        return b""
    table = np.empty((_COLUMNS, len(words)), np.int64)
    table[:4] = np.array([word[:4] for word in words], np.int64).T
    table[4:] = np.rint(np.array([word.box for word in words], np.float64).T * _UNITS)
    table[1] -= table[0]  # lengths
    table[6:] -= table[4:6]  # widths and heights
    return zlib.compress(np.diff(table, axis=1, prepend=0).astype("<i4").tobytes(), 1)


def unpack_words(packed: bytes) -> tuple[PlacedWord, ...]:
    """Raises: ValueError, zlib.error for bytes that `pack_words` did not write."""
    if not packed:
        return ()
    table = np.frombuffer(zlib.decompress(packed), "<i4").reshape(_COLUMNS, -1).cumsum(axis=1, dtype=np.int64)
    table[6:] += table[4:6]
    table[1] += table[0]
    places, boxes = table[:4].T.tolist(), (table[4:].T / _UNITS).tolist()
    return tuple(
        PlacedWord(start, end, page, line, Box(*box))
        for (start, end, page, line), box in zip(places, boxes, strict=True)
    )
