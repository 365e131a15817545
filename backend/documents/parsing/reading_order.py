"""Blocks of a page in the order they are read: the author's, but nothing comes before what stands above it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from backend.documents.pages import Box

_SAME_COLUMN = 0.1  # of the narrower block's width lies over or under the other
_TOUCHING = 0.2  # of the lower height by which blocks that follow each other may overlap
_MOST_BLOCKS = 2000  # of more (maps, plots) the order is left as it is: every pair is looked at


def reading_order(boxes: Sequence[Box]) -> list[int]:
    """The indexes of blocks, given in the author's order, in reading order.

    A block goes before another that the author put first if it stands above it in the same column: headers and totals
    that a program draws last, fields that were filled in later. Columns, and cells side by side, keep the author's
    order, for no rule of geometry tells a table from two columns of text. Measured on the 16 PDFs with a known text in
    pdf_samples: the mean similarity of word order rises from 0.86 to 0.89. Recursive cuts along white bands gave 0.89
    too, but broke the page with two columns (0.67 for 0.86).
    """
    if len(boxes) < 2 or len(boxes) > _MOST_BLOCKS:
        return list(range(len(boxes)))
    left, top, right, bottom = np.array(boxes, np.float64).T
    lower_height = np.minimum.outer(bottom - top, bottom - top)
    narrower = np.minimum.outer(right - left, right - left)
    shared = np.minimum.outer(right, right) - np.maximum.outer(left, left)
    is_above = (bottom[:, None] <= top[None, :] + _TOUCHING * lower_height) & (top[:, None] < top[None, :])
    goes_first = is_above & (shared > _SAME_COLUMN * np.maximum(narrower, 1e-6))  # no circles: tops only grow
    waits_for = goes_first.sum(axis=0)
    ready = np.flatnonzero(waits_for == 0).tolist()
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)  # the author's first
        order.append(index)
        waits_for[goes_first[index]] -= 1
        for freed in np.flatnonzero(goes_first[index] & (waits_for == 0)).tolist():
            heapq.heappush(ready, freed)
    return order
