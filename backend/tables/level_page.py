"""A page turned level: its words in text lines, and its rulings merged into long ones. Pure.

A scan is skewed by a degree or two: over a page, columns then drift sideways by several characters, so that words and
rulings are turned around the origin, not only shifted up and down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.files.pages import Box, Page, Ruling, Word, bounding_box
from backend.files.visual_rows import PageRows

_TIGHT_BOXES = 1.3  # Tesseract's boxes end at the ink, those of RapidOCR and of text layers at ascent and descent
_MERGE = 0.2  # of the line height: rulings this close to each other, or whose ends are, are one
_MIN_LEVEL = 1.5  # of the line height: shorter rulings are underlines of a word, or letters
_MIN_UPRIGHT = 0.7
_LONG = 8.0  # of the line height: no run of letters is as long
_EDGE = 0.15  # of the line height: an underline touches the lower edge of its word


class PlacedWord(NamedTuple):
    """A word and its box on the level page."""

    word: Word
    box: Box

    @property
    def x(self) -> float:
        return (self.box.left + self.box.right) / 2

    @property
    def y(self) -> float:
        return (self.box.top + self.box.bottom) / 2


class Segment(NamedTuple):
    """A ruling on the level page."""

    at: float  # height of a level one, x of an upright one
    start: float  # left or upper end
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start


TextLine = tuple[PlacedWord, ...]  # the words of one height, left to right


@dataclass(frozen=True, slots=True)
class LevelPage:
    """A page as tables are looked for on it."""

    page: Page
    start: int  # where the page's text begins in the document's
    lines: tuple[TextLine, ...]  # from top to bottom
    levels: tuple[Segment, ...]  # by height
    uprights: tuple[Segment, ...]  # by x
    unit: float  # height of a line, page units


def level_page(rows: PageRows) -> LevelPage:
    """The page of these rows, level."""
    is_scan = rows.page.source == "ocr"
    is_tight = is_scan and "rapidocr" not in rows.page.engine.lower()
    unit, slope = rows.line_height * (_TIGHT_BOXES if is_tight else 1.0), rows.slope
    placed = (
        tuple(PlacedWord(word, _turned(word.box, slope)) for word in row.words if not (is_scan and _is_bar(word)))
        for row in rows.rows
    )
    lines = tuple(line for line in placed if line)
    levels, uprights = _segments(rows.page.rulings, slope)
    levels = _beside_words(levels, lines, unit)
    return LevelPage(
        rows.page,
        rows.start,
        lines,
        tuple(segment for segment in merged(levels, _MERGE * unit) if segment.length >= _MIN_LEVEL * unit),
        tuple(segment for segment in merged(uprights, _MERGE * unit) if segment.length >= _MIN_UPRIGHT * unit),
        unit,
    )


def outline(words: Iterable[PlacedWord]) -> Box:
    """The box around words on the level page. Raises: ValueError where there are none."""
    return bounding_box(word.box for word in words)


def merged(segments: Sequence[Segment], tolerance: float) -> list[Segment]:
    """Parallel segments joined where they continue each other or lie on each other, by ``at``."""
    groups: list[list[Segment]] = []
    for segment in sorted(segments):
        if groups and segment.at - groups[-1][-1].at <= tolerance and segment.at - groups[-1][0].at <= 2 * tolerance:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return [segment for group in groups for segment in _joined(group, tolerance)]


def _joined(group: Sequence[Segment], tolerance: float) -> list[Segment]:
    """Segments of one height, joined end to end."""
    weight = sum(segment.length for segment in group) or 1.0
    at = sum(segment.at * segment.length for segment in group) / weight
    joined: list[Segment] = []
    for segment in sorted(group, key=lambda segment: segment.start):
        if joined and segment.start <= joined[-1].end + tolerance:
            joined[-1] = joined[-1]._replace(end=max(joined[-1].end, segment.end))
        else:
            joined.append(Segment(at, segment.start, segment.end))
    return joined


def _is_bar(word: Word) -> bool:
    """Whether an OCR engine has read an upright ruling as a character."""
    return not word.text.strip("|¦│")


def _beside_words(levels: Sequence[Segment], lines: Sequence[TextLine], unit: float) -> list[Segment]:
    """The level segments without short ones that run through a word: letters of an image, or struck out."""
    short = np.array([index for index, segment in enumerate(levels) if segment.length < _LONG * unit], np.intp)
    if not len(short):
        return list(levels)
    boxes = np.array([word.box for line in lines for word in line]).reshape(-1, 4)
    inner = boxes + np.array([0.0, _EDGE * unit, 0.0, -_EDGE * unit])
    struck = set(short[_in_boxes(np.array([levels[index] for index in short]), inner)].tolist())
    return [segment for index, segment in enumerate(levels) if index not in struck]


_PAIRS = 2**18  # of a segment and a box that are compared at once


def _in_boxes(segments: NDArray[np.float64], boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which segments have more than half of their length in one of the boxes.

    Such a box has the middle of the segment in it. Segments are halved by where these are, so that a box is compared
    with the few near its edges: near linear in both, for drawings of thousands of lines and words.

    Shapes: segments (segments, 3) as `Segment`; boxes (boxes, 4) as `Box` -> (segments,).
    """
    at, middle, half = segments[:, 0], segments[:, 1:].mean(axis=1), (segments[:, 2] - segments[:, 1]) / 2
    inside = np.zeros(len(segments), bool)
    waiting = [(np.flatnonzero(half > 0), boxes)]
    while waiting:
        some, near = waiting.pop()
        if not len(some) or not len(near):
            continue
        x, y = middle[some], at[some]
        left, top, right, bottom = near.T
        near = near[(left < x.max()) & (x.min() < right) & (top < y.max()) & (y.min() < bottom)]
        left, top, right, bottom = near.T
        is_around = (left < x.min()) & (x.max() < right) & (top < y.min()) & (y.max() < bottom)
        widest = np.max((right - left)[is_around], initial=0.0)
        inside[some] |= half[some] < widest
        some, near = some[half[some] >= widest], near[~is_around]
        if len(some) * len(near) <= _PAIRS:
            inside[some] |= _compared(segments[some], near)
        else:
            ranked = some[np.argsort(middle[some] if np.ptp(x) > np.ptp(y) else at[some])]
            waiting += [(part, near) for part in np.array_split(ranked, 2)]
    return inside


def _compared(segments: NDArray[np.float64], boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    at, start, end = (column[:, np.newaxis] for column in segments.T)
    left, top, right, bottom = boxes.T
    shared = np.minimum(right, end) - np.maximum(left, start)
    is_inside = (top < at) & (at < bottom) & (shared > 0.5 * (end - start))
    found: NDArray[np.bool_] = is_inside.any(axis=1)
    return found


def _turned(box: Box, slope: float) -> Box:
    if not slope:
        return box
    down, right = slope * (box.left + box.right) / 2, slope * (box.top + box.bottom) / 2
    return Box(box.left + right, box.top - down, box.right + right, box.bottom - down)


def _segments(rulings: Iterable[Ruling], slope: float) -> tuple[list[Segment], list[Segment]]:
    """Level and upright ones."""
    levels, uprights = [], []
    for ruling in rulings:
        if not all(map(math.isfinite, ruling)):
            continue
        x0, y0 = ruling.x0 + slope * ruling.y0, ruling.y0 - slope * ruling.x0
        x1, y1 = ruling.x1 + slope * ruling.y1, ruling.y1 - slope * ruling.x1
        if abs(x1 - x0) >= abs(y1 - y0):
            levels.append(Segment((y0 + y1) / 2, min(x0, x1), max(x0, x1)))
        else:
            uprights.append(Segment((x0 + x1) / 2, min(y0, y1), max(y0, y1)))
    return levels, uprights
