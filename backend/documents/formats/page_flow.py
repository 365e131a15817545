"""The blocks and tables of a page in reading order: what a table holds is left out of the blocks around it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from statistics import median

from backend.files.pages import Box, Page, Word, blocks_of
from backend.tables.records import Table, TableCell

Block = list[list[Word]]  # lines of words
# Least size of a heading's letters relative to the lines around it: heights of the tallest word of a line differ by up
# to a fifth between lines with and without ascenders.
HEADING_RATIO = 1.3


def page_flow(page: Page, tables: Iterable[Table]) -> Iterator[Block | Table]:
    """Blocks of text, and each table once: at its first word on its first page."""
    here = [(table, _TablePart(table, page.number)) for table in tables if page.number in table.pages]
    yielded: list[Table] = []
    usual = median([line_height(line) for block in blocks_of(page) for line in block] or [0.0])
    for block in chain.from_iterable(_headings_apart(block, usual) for block in blocks_of(page)):
        rest: Block = []
        for table, words in _runs(block, here):
            if table is None:
                rest.append(words)
            elif not any(table is known for known in yielded):
                yielded.append(table)
                if rest:
                    yield rest
                    rest = []
                if table.pages[0] == page.number:
                    yield table
        if rest:
            yield rest


def line_height(line: Sequence[Word]) -> float:
    """Of the tallest word, in page units."""
    return max(word.box.height for word in line)


def _headings_apart(block: Block, usual: float) -> Iterator[Block]:
    """The block, cut below lines in larger letters at its start: headings often stand close to their text.

    Args:
        usual: height of a line of the page.
    """
    heights = [line_height(line) for line in block]
    large = next((index for index, height in enumerate(heights) if height < HEADING_RATIO * usual), len(block))
    if 0 < large < len(block) and min(heights[:large]) >= HEADING_RATIO * heights[large]:
        yield block[:large]
        yield block[large:]
    else:
        yield block


def _runs(block: Block, here: Sequence[tuple[Table, _TablePart]]) -> Iterator[tuple[Table | None, list[Word]]]:
    """The words of each line, parted where a table begins or ends; with the table that holds them."""
    for line in block:
        held = ((next((table for table, part in here if part.holds(word.box)), None), word) for word in line)
        for _, run in groupby(held, key=lambda pair: id(pair[0])):
            pairs = list(run)
            yield pairs[0][0], [word for _, word in pairs]


def grid_of(table: Table, written: Callable[[TableCell], str]) -> list[list[str]]:
    """The cells as texts by row and column; one that spans others stands in the first of its places."""
    grid = [[""] * table.columns for _ in range(table.rows)]
    for cell in table.cells:
        grid[cell.row][cell.column] = written(cell)
    return grid


class _TablePart:
    """What of a page a table holds: the lines of its cells, and its header where it is repeated, which no cell holds.

    Its outline alone would swallow words that stand among its cells and belong to none.
    """

    def __init__(self, table: Table, page: int) -> None:
        lines = sorted(
            (box for cell in table.cells if cell.page == page for box in cell.boxes), key=lambda box: box.top
        )
        self._lines, self._tops = lines, [box.top for box in lines]
        self._highest = max((box.height for box in lines), default=0.0)
        self._outline = [box for number, box in zip(table.pages, table.boxes, strict=True) if number == page]
        self._header_end = self._tops[0] if lines and page != table.pages[0] else -math.inf

    def holds(self, box: Box) -> bool:
        x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
        if not any(_is_inside(x, y, one) for one in self._outline):
            return False
        near = self._lines[bisect_left(self._tops, y - self._highest) : bisect_right(self._tops, y)]
        return y < self._header_end or any(_is_inside(x, y, one) for one in near)


def _is_inside(x: float, y: float, box: Box) -> bool:
    return box.left <= x <= box.right and box.top <= y <= box.bottom
