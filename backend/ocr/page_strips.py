"""Cuts a page into strips that can be recognised apart: only between lines of one column, where no ink is. Pure.

A cut through two columns would change their order, so the lines above and below it must fill the page's width without
a gap that goes through several of them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.ocr.preprocessing import ink_of, shrink
from backend.ocr.records import Gray

_STEP = 2  # pixels of the page for one of the ink's map
# Measured on 25 cut pages: as much time in all as the whole page takes; CER of prose within 0.005, mostly equal.
_STRIP_LINES = 5  # of a strip
_MAX_STRIPS = 8
_NEAR = 0.35  # strips: how far from its place a cut may be for wider white
_LINES_BESIDE = 9.0  # glyph heights above and below a cut that show its columns
_MIN_LINES_BESIDE = 3  # lines within them, of which most have no wide gap: a form's or a table's have
_GUTTER = 1.6  # glyph heights of white through all of these lines; gaps between words are narrower
_MARGIN_INK = 0.02  # of the ink on either side that may be stains, borders, or notes
_FULL_WIDTH = 0.75  # of the page's text width that prose beside a cut has
_SAME_PARAGRAPH = 1.3  # times the usual white between lines


class Strip(NamedTuple):
    """Rows of a page."""

    top: int
    bottom: int  # the first row below
    continues: bool  # the paragraph of the strip above
    ink_share: float  # of the page's ink


class _Gap(NamedTuple):
    """Rows of the ink's map without ink, between two lines."""

    top: int
    bottom: int

    @property
    def middle(self) -> int:
        return (self.top + self.bottom) // 2

    @property
    def height(self) -> int:
        return self.bottom - self.top


def cut_into_strips(gray: Gray, glyph_height: float | None) -> tuple[Strip, ...]:
    """The page in strips of about as much ink each, from the top; a single one where no cut is safe.

    Args:
        gray: (height, width_px), dark ink on light paper, lines level.
        glyph_height: of its letters, in pixels; None where there are too few to tell.
    """
    height = gray.shape[0]
    whole = (Strip(0, height, continues=False, ink_share=1.0),)
    if glyph_height is None:
        return whole
    ink = ink_of(shrink(gray, _STEP)) > 0
    letter = max(1.0, glyph_height / _STEP)
    gaps = _gaps(ink)
    wanted = min(_MAX_STRIPS, (len(gaps) + 1) // _STRIP_LINES)
    if wanted < 2:
        return whole
    usual = float(np.median([gap.height for gap in gaps]))
    cuts = _choose(gaps, ink, letter, wanted)
    rows = [0, *(gap.middle * _STEP for gap in cuts), height]
    continues = [False, *(gap.height <= _SAME_PARAGRAPH * usual for gap in cuts)]
    total = float(ink.sum())
    return tuple(
        Strip(top, bottom, joins, float(ink[top // _STEP : bottom // _STEP].sum()) / total)
        for (top, bottom), joins in zip(pairwise(rows), continues, strict=True)
    )


def _gaps(ink: NDArray[np.bool_]) -> list[_Gap]:
    """The white rows between lines; those above the first and below the last line are none."""
    inked = np.flatnonzero(ink.any(axis=1))
    above, below = inked[:-1], inked[1:]
    apart = below - above > 1
    return [_Gap(int(top) + 1, int(bottom)) for top, bottom in zip(above[apart], below[apart], strict=True)]


def _choose(gaps: list[_Gap], ink: NDArray[np.bool_], letter: float, wanted: int) -> list[_Gap]:
    """The widest safe gap around each place where a strip should end."""
    total = np.cumsum(ink.sum(axis=1))
    width = _text_width(ink)
    chosen: list[_Gap] = []
    for part in range(1, wanted):
        around = [gap for gap in gaps if abs(total[gap.middle] * wanted / total[-1] - part) < _NEAR]
        around.sort(key=lambda gap: -gap.height)
        safe = next((gap for gap in around if _is_one_column(ink, gap, letter, width)), None)
        if safe is not None:
            chosen.append(safe)
    return chosen


def _is_one_column(ink: NDArray[np.bool_], gap: _Gap, letter: float, width: int) -> bool:
    """Whether prose as wide as the page's is above and below: beside narrower prose, another column may have ended."""
    rows = round(_LINES_BESIDE * letter)
    beside = (ink[max(0, gap.top - rows) : gap.top], ink[gap.bottom : gap.bottom + rows])
    return all(_text_width(lines) >= _FULL_WIDTH * width and _is_prose(lines, _GUTTER * letter) for lines in beside)


def _text_width(rows: NDArray[np.bool_]) -> int:
    """Columns of the ink's map from the left to the right edge of the text, without what little is beside it."""
    total = np.cumsum(rows.sum(axis=0))
    left, right = np.searchsorted(total, np.array([_MARGIN_INK, 1 - _MARGIN_INK]) * total[-1])
    return int(right - left)


def _is_prose(rows: NDArray[np.bool_], gutter: float) -> bool:
    ends = [0, *(gap.middle for gap in _gaps(rows)), len(rows)]
    widest = [_widest_gutter(rows[top:bottom]) for top, bottom in pairwise(ends)]
    return len(widest) >= _MIN_LINES_BESIDE and float(np.median(widest)) < gutter and _widest_gutter(rows) < gutter


def _widest_gutter(lines: NDArray[np.bool_]) -> int:
    """Columns of the widest white gap that goes through all lines; 0 for lines without ink."""
    inked = np.flatnonzero(lines.any(axis=0))
    return int(np.diff(inked).max(initial=1)) - 1
