"""The rows that a reader sees on a page: words side by side, whatever blocks reading order put them in. Pure.

Reading order follows columns of prose; a form or a table is read across. Rows are found on the levelled page: a scan
may be skewed by a few degrees.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from statistics import median

import numpy as np

from backend.files.pages import Box, Document, Page, Word, bounding_box, printed_rows

_LONGEST_WORD = 1_000  # characters; a line of base64 has 76, a leader 200
_FARTHEST = 1e6  # page units; the longest PDF page has 14,400, the longest JPEG 65,500
_SAME_ROW = 0.5  # of the lower word's height: vertical distance of middles at most
_NEIGHBOURS = 3  # words of a row on either side of a place: boxes may overlap
_WIDE_GAP = 1.0  # of the row's height: a gap between cells; spaces within a text are a third of it, in wide fonts half
_LONG_RUN = 6.0  # of its height: words of a line that long show the page's slope
_MAX_SLOPE = 0.09  # 5 degrees
_UPRIGHT_WORDS, _UPRIGHT_LETTERS = 3, 3  # words of a line that runs up a margin, and letters of those that show it
_LEVEL, _LEVEL_SHARE = 0.0005, 0.25  # slope of a run that is drawn level, and the share of such runs on a drawn page


@dataclass(frozen=True, slots=True)
class Cell:
    """Words of a row without a wide gap between them: a label, a value, a stretch of prose."""

    page: int  # number of the page
    words: tuple[Word, ...]  # left to right
    box: Box  # on the levelled page, page units
    row: int  # index of its row on the page

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def middle(self) -> float:
        """Height of its middle on the levelled page."""
        return (self.box.top + self.box.bottom) / 2


@dataclass(frozen=True, slots=True)
class VisualRow:
    """One row of a page."""

    page: int
    index: int
    cells: tuple[Cell, ...]  # left to right
    box: Box  # on the levelled page

    @property
    def words(self) -> tuple[Word, ...]:
        return tuple(word for cell in self.cells for word in cell.words)

    @property
    def text(self) -> str:
        """The cells with a tabulator between them."""
        return "\t".join(cell.text for cell in self.cells)


@dataclass(frozen=True)
class PageRows:
    """A page with its rows from top to bottom."""

    page: Page
    start: int  # where the page's text begins in the document's
    slope: float  # vertical by horizontal, of its text lines
    rows: tuple[VisualRow, ...]
    is_first: bool = True  # of its document
    turned: Mapping[Box, Box] = field(default_factory=dict)  # boxes of lines that run up or down a margin, as if below

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(cell for row in self.rows for cell in row.cells)

    @cached_property
    def line_height(self) -> float:
        """Median height of the words in its rows, page units, above 0; 1 on an empty page."""
        return median([word.box.height for row in self.rows for word in row.words] or [1.0])

    def level(self, box: Box) -> Box:
        """A box of the page on the levelled page; that of a word in a margin's line where the line is read."""
        return self.turned.get(box) or _level(box, self.slope)


MAX_ROW_WORDS = 120  # no invoice and no form has more beside one another


def rows_of(document: Document, most_words: int | None = None) -> tuple[PageRows, ...]:
    """The rows of each page; ``most_words`` as for `page_rows`."""
    starts = zip(document.pages, document.page_starts, strict=True)
    return tuple(page_rows(page, start, most_words, is_first=page is document.pages[0]) for page, start in starts)


def page_rows(page: Page, start: int = 0, most_words: int | None = None, *, is_first: bool = True) -> PageRows:
    """The rows of one page, without words that nobody reads: of 60,000 dots, or off the paper.

    Args:
        start: where the page's text begins in the document's.
        most_words: of a row; one with more is cut, so that who compares all words of a row is linear in the page.
        is_first: of its document.
    """
    words = [word for word in page.words if len(word.text) <= _LONGEST_WORD and _is_printed(word.box)]
    slope, turned = _slope(words), _turned(words)
    level = [(word, turned.get(word.box) or _level(word.box, slope)) for word in words]
    rows: list[VisualRow] = []
    for row in _rows(level) if most_words is None else _bounded(_rows(level), most_words):
        cells = _cells(row, page.number, len(rows))
        rows.append(VisualRow(page.number, len(rows), cells, bounding_box(cell.box for cell in cells)))
    return PageRows(page, start, slope, tuple(rows), is_first, turned)


def ends_of(pages: Sequence[PageRows], count: int) -> Sequence[PageRows]:
    """The first ``count`` pages and the last: what is said of a whole document stands there."""
    return pages if len(pages) <= 2 * count else [*pages[:count], *pages[-count:]]


def _is_printed(box: Box) -> bool:
    """Whether a box has a height and lies on paper: files may place words at NaN, or a light year away."""
    return box.height > 0 and all(abs(side) < _FARTHEST for side in box)


def _turned(words: Sequence[Word]) -> dict[Box, Box]:
    """The boxes of words in lines that run up or down the page, as if each line stood level below all others."""
    found: dict[Box, Box] = {}
    below = max((word.box.bottom for word in words), default=0.0)
    for _, line in groupby(words, key=lambda word: (word.block, word.line)):
        boxes = [(word.box, len(word.text) >= _UPRIGHT_LETTERS) for word in line]
        shown = [box for box, is_long in boxes if is_long]
        if len(shown) < _UPRIGHT_WORDS or any(box.width >= box.height for box in shown):
            continue
        thick = max(box.width for box in shown)
        runs_up = shown[0].top > shown[-1].top
        start = max(box.bottom for box in shown) if runs_up else min(box.top for box in shown)
        for box, _ in boxes:
            ends = (start - box.bottom, start - box.top) if runs_up else (box.top - start, box.bottom - start)
            found[box] = Box(ends[0], below + thick, ends[1], below + 2 * thick)
        below += 2 * thick
    return found


def _level(box: Box, slope: float) -> Box:
    shift = slope * (box.left + box.right) / 2
    return Box(box.left, box.top - shift, box.right, box.bottom - shift)


def _slope(words: Sequence[Word]) -> float:
    """The median slope of long runs of words on one line; 0 where none is long."""
    slopes, weights = [], []
    for first, last in _line_ends(words):
        run = last.box.left - first.box.left
        height = max(first.box.height, last.box.height)
        if height > 0 and run > _LONG_RUN * height:
            # bottoms, not middles: most words stand on the line, and fewer reach below it than above
            slopes.append((last.box.bottom - first.box.bottom) / run)
            weights.append(run)
    if not slopes:
        return 0.0
    if np.dot(np.abs(slopes) < _LEVEL, weights) > _LEVEL_SHARE * sum(weights):
        return 0.0  # a text layer: its other lines join cells of a table at different heights
    order = np.argsort(slopes)
    half = np.searchsorted(np.cumsum(np.array(weights)[order]), sum(weights) / 2)
    slope = float(slopes[int(order[int(half)])])
    return slope if abs(slope) < _MAX_SLOPE else 0.0


def _line_ends(words: Sequence[Word]) -> list[tuple[Word, Word]]:
    return [(row[0], row[-1]) for row in printed_rows(words)]


def _rows(level: Sequence[tuple[Word, Box]]) -> list[list[tuple[Word, Box]]]:
    """Words by rows from top to bottom; a word joins the row whose nearest word is level with it."""
    rows: list[list[tuple[Word, Box]]] = []  # each from left to right
    for word, box in sorted(level, key=lambda pair: (pair[1].top + pair[1].bottom, pair[1].left)):
        for row in reversed(rows[-4:]):  # the middles are sorted: only the last rows can be level
            place = bisect(row, box.left, key=_left)
            beside = row[max(0, place - _NEIGHBOURS) : place + _NEIGHBOURS]
            nearest = min(beside, key=lambda pair: pair[1].gap(box))[1]
            if _is_level(nearest, box):
                row.insert(place, (word, box))
                break
        else:
            rows.append([(word, box)])
    return sorted(rows, key=lambda row: median(box.top + box.bottom for _, box in row))


def _bounded(rows: Sequence[list[tuple[Word, Box]]], most_words: int) -> list[list[tuple[Word, Box]]]:
    return [row[first : first + most_words] for row in rows for first in range(0, len(row), most_words)]


def _left(pair: tuple[Word, Box]) -> float:
    return pair[1].left


def _is_level(a: Box, b: Box) -> bool:
    offset = abs(a.top + a.bottom - b.top - b.bottom) / 2
    return offset <= _SAME_ROW * min(a.height, b.height)


def _cells(row: Sequence[tuple[Word, Box]], page: int, index: int) -> tuple[Cell, ...]:
    groups = [[row[0]]]
    for (_, left), (word, right) in pairwise(row):
        height = min(left.height, right.height)
        if right.left - left.right > _WIDE_GAP * height:
            groups.append([(word, right)])
        else:
            groups[-1].append((word, right))
    return tuple(
        Cell(page, tuple(word for word, _ in group), bounding_box(box for _, box in group), index) for group in groups
    )
