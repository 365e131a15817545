"""Gives rows of text between the lines of a table to the lines whose descriptions they continue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Literal

from backend.files.pages import Word
from backend.invoices.items.labels import is_page_number, is_subheading
from backend.invoices.items.lines import ItemLine, factors_of, with_factors
from backend.invoices.items.pieces import PieceRow

Order = Literal["before", "beside", "after"]

_UNEVEN = 0.3  # line heights: gaps between rows that differ less are equal
_CLOSE = 0.35  # line heights between two rows of one cell
_BELOW_LAST = 0.75  # line heights: rows below the last line that still continue it, where none before was further
_MAX_ROWS = 40  # of text between two lines
_INDENT = 1.5  # line heights: a row that begins further left than the descriptions is none of them


def with_descriptions(entries: Sequence[ItemLine | PieceRow | None], height: float) -> list[ItemLine]:
    """The lines with the rows of text that belong to them.

    Args:
        entries: lines and rows of text from top to bottom, None where something else parts them.
        height: of a line of text.
    """
    lines: list[ItemLine] = []
    segment: list[ItemLine | PieceRow] = []
    named = [entry for entry in entries if isinstance(entry, ItemLine)]
    order = _order_of(entries)
    left = _left_of(named)
    for entry in (*entries, None):
        if entry is not None:
            segment.append(entry)
            continue
        lines.extend(_joined(segment, height, left, order))
        segment = []
    return lines


def _order_of(entries: Sequence[ItemLine | PieceRow | None]) -> Order:
    """Where descriptions stand: mostly beside their numbers, or in rows before or after them."""
    lines = [entry for entry in entries if isinstance(entry, ItemLine)]
    if 2 * sum(not line.description for line in lines) <= len(lines):
        return "beside"
    first = next(entry for entry in entries if entry is not None)
    return "after" if isinstance(first, ItemLine) and not first.description else "before"


def _left_of(lines: Sequence[ItemLine]) -> float | None:
    """Where descriptions begin; None where no line has one."""
    lefts = [_left(line.page.slope, line.description[0]) for line in lines if line.description]
    return median(lefts) if lefts else None


def _left(slope: float, word: Word) -> float:
    return word.box.left + slope * (word.box.top + word.box.bottom) / 2


def _joined(segment: Sequence[ItemLine | PieceRow], height: float, left: float | None, order: Order) -> list[ItemLine]:
    """The lines of a stretch without breaks, each with its rows of text."""
    lines: list[ItemLine] = []
    waiting: list[PieceRow] = []
    usual = _BELOW_LAST * height
    for entry in segment:
        if isinstance(entry, PieceRow):
            lines, waiting = _take_row(lines, waiting, entry, left, height)
            continue
        above, below = _split(lines[-1] if lines else None, waiting, entry, height, order)
        if lines and above:
            usual = max(usual, above[0].top - lines[-1].bottom + _UNEVEN * height)
            lines[-1] = _extended(lines[-1], above, [])
        lines.append(_extended(entry, [], below))
        waiting = []
    if lines:
        lines[-1] = _extended(lines[-1], _below_last(lines[-1], waiting, usual), [])
    return lines


def _take_row(
    lines: list[ItemLine], waiting: list[PieceRow], row: PieceRow, left: float | None, height: float
) -> tuple[list[ItemLine], list[PieceRow]]:
    """A row of text after some lines: the product that makes the last amount, a sub-heading, or a description."""
    factors = factors_of(row)
    if factors is not None:
        reckoned = with_factors(lines[-1], factors) if lines and lines[-1].holds is None else None
        if reckoned is not None:
            return [*lines[:-1], replace(reckoned, bottom=max(reckoned.bottom, row.bottom))], waiting
        return lines, [*waiting, row]
    if is_subheading(row.text) or not _names(row, left, height):
        return lines, waiting
    return lines, [*waiting, row][:_MAX_ROWS]


def _names(row: PieceRow, left: float | None, height: float) -> bool:
    """Whether a row can be a piece of a description."""
    texts = [piece for piece in row.pieces if piece.has_letters]
    sums = sum(piece.number is not None and piece.number.decimals > 0 for piece in row.pieces)
    if not texts or sums > 1 or is_page_number(row.text):
        return False
    return left is None or texts[0].left >= left - _INDENT * height


def _split(
    last: ItemLine | None, rows: Sequence[PieceRow], line: ItemLine, height: float, order: Order
) -> tuple[list[PieceRow], list[PieceRow]]:
    """Rows between two lines: those that continue the upper one and those that begin the lower one."""
    rows = [row for row in rows if factors_of(row) is None]
    if not rows:
        return [], []
    gaps = [lower - upper for upper, lower in _edges(last, rows, line)]
    count = 0 if order == "before" or last is None else len(rows)
    if last is not None and max(gaps) - min(gaps) > _UNEVEN * height:
        count = gaps.index(max(gaps))
    if not line.description and order != "after":
        count = min(count, len(rows) - 1)
    if _goes_on(rows[-1], line):
        return list(rows[:-1]), [rows[-1]]
    upper, lower = list(rows[:count]), list(rows[count:])
    if lower and line.description and gaps[-1] > _CLOSE * height:
        lower = []  # a heading over some lines
    return upper, lower


def _goes_on(row: PieceRow, line: ItemLine) -> bool:
    """Whether a line's text goes on within what the row above it begins: "Mantenimiento" / "del jardín  1  40,00"."""
    first = next((piece for piece in row.pieces if piece.has_letters), None)
    if first is None or not line.description:
        return False
    return first.text[:1].isupper() and line.description[0].text[:1].islower()


def _edges(last: ItemLine | None, rows: Sequence[PieceRow], line: ItemLine) -> list[tuple[float, float]]:
    """The lower side of each row and the upper side of the next one."""
    bottoms = [last.bottom if last is not None else rows[0].top, *(row.bottom for row in rows)]
    tops = [*(row.top for row in rows), line.top]
    return list(zip(bottoms, tops, strict=True))


def _below_last(line: ItemLine, rows: Sequence[PieceRow], gap: float) -> list[PieceRow]:
    """The rows below the last line that follow each other at gaps no wider than those before."""
    found: list[PieceRow] = []
    bottom = line.bottom
    for row in rows:
        if row.top - bottom > gap or factors_of(row) is not None:
            break
        found.append(row)
        bottom = row.bottom
    return found


def _extended(line: ItemLine, after: Sequence[PieceRow], above: Sequence[PieceRow]) -> ItemLine:
    """The line with rows of text above and below its own."""
    if not after and not above:
        return line
    return replace(
        line,
        description=(*_words(above), *line.description, *_words(after)),
        top=min([line.top, *(row.top for row in above)]),
        bottom=max([line.bottom, *(row.bottom for row in after)]),
    )


def _words(rows: Sequence[PieceRow]) -> list[Word]:
    return [word for row in rows for piece in row.pieces for word in piece.words]
