"""Reads lines without a header of columns: receipts and bills, a text at the left and its amount at the right.

Amounts that end at one height of the page form a column; lines are the rows of a column above a total, and best those
that add up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import median

from backend.files.pages import Word
from backend.files.visual_rows import Cell
from backend.invoices.items.descriptions import with_descriptions
from backend.invoices.items.labels import end_label
from backend.invoices.items.lines import (
    ItemLine,
    factors_in,
    piece_value,
    settled,
    with_counts,
    with_product,
    without_used_words,
)
from backend.invoices.items.pieces import PieceRow, RowPiece
from backend.tables.numbers import numbers_in

_DECIMALS = (2, 4)  # of amounts; telephone bills print four
_SAME_SIDE = 1.0  # line heights between the right sides of amounts in one column
_CENTS = Decimal("0.02")
_TOTALS = 5  # rows after the lines, one of which may be their sum
_MIN_OF_TOTAL, _MAX_OF_TOTAL = Decimal("0.6"), Decimal("1.5")  # sum by total where they differ: OCR, discounts
_MAX_SUMMED = 200  # lines of a run that are tried as sums
_WIDE = 6.0  # line heights between two texts of one description
_FAR = 5.0  # line heights: a row further above the lines is none of them
_CLOSE = 0.3  # line heights by which rows of one line are nearer than lines
_MAX_PARTS = 6  # rows below an amount that may make it
_ABOVE = 3  # rows above the first amount that may belong to its line


@dataclass(frozen=True, slots=True)
class _Entry:
    """An amount in a column, with what stands left of it."""

    index: int  # of its row on the page
    row: PieceRow  # without what stands right of the amount
    amount: RowPiece
    label: str | None  # "total", "tax"… where it is no line

    @property
    def number(self) -> Decimal:
        assert self.amount.number is not None
        return self.amount.number.value


@dataclass(frozen=True, slots=True)
class _Run:
    """Amounts, each with those that make it below, up to the entry ``end``."""

    end: int
    count: int = 0
    total: Decimal = Decimal(0)
    named: int = 0  # with a text at their left

    def after(self, entry: _Entry) -> _Run:
        return _Run(self.end, self.count + 1, self.total + entry.number, self.named + _has_name(entry))


@dataclass(frozen=True, slots=True)
class _Block:
    entries: tuple[_Entry, ...]
    added_up: bool  # to a total below them
    broken_down: bool = False  # each in the rows below it, which are no lines

    @property
    def sure(self) -> bool:
        """Whether that is no coincidence."""
        return self.added_up and len(self.entries) > 1


def list_lines(pages: Sequence[Sequence[PieceRow]]) -> list[ItemLine]:
    """The lines of the document's best list of amounts; none where no list ends in a total."""
    best: _Block | None = None
    rows_of_best: Sequence[PieceRow] = ()
    for rows in pages:
        columns = _columns(rows)
        blocks = [block for entries in columns for block in _blocks(entries)]
        blocks += [block for entries in columns if (block := _broken_down(entries)) is not None]
        if not any(block.sure for block in blocks):
            blocks += [block for block in _blocks_of_sentences(rows) if block.sure or not blocks]
        for block in blocks:
            if best is None or _rank(block) > _rank(best):
                best, rows_of_best = block, rows
    return _lines(best, rows_of_best) if best is not None else []


def _rank(block: _Block) -> tuple[bool, int]:
    return block.sure, len(block.entries)


def _columns(rows: Sequence[PieceRow]) -> list[list[_Entry]]:
    """The columns of amounts of a page, each from top to bottom."""
    found = [
        (piece.right, index, piece)
        for index, row in enumerate(rows)
        for piece in row.pieces
        if piece.number is not None and _is_amount(piece)
    ]
    found.sort(key=lambda entry: entry[0])
    columns: list[list[_Entry]] = []
    last = 0.0
    for right, index, piece in found:
        if not columns or right - last > _SAME_SIDE * max(rows[index].page.line_height, 1e-6):
            columns.append([])
        columns[-1].append(_entry(rows[index], index, piece))
        last = right
    for column in columns:
        column.sort(key=lambda entry: entry.index)
    return [column for column in columns if len(column) > 1]


def _blocks_of_sentences(rows: Sequence[PieceRow]) -> list[_Block]:
    """Lines whose amounts stand at the end of a text, in no column: "Revisión de estilo: 241,74 euros"."""
    lasts = [(index, row, row.pieces[-1]) for index, row in enumerate(rows) if len(row.pieces) > 1]
    entries = [_entry(row, index, piece) for index, row, piece in lasts if _is_amount(piece)]
    taxed = {"tax", "subtotal"} <= {entry.label for entry in entries}  # a bill, not a letter that names sums
    return [block for block in _blocks(entries) if block.sure or (taxed and block.added_up)]


def _is_amount(piece: RowPiece) -> bool:
    number = piece.number
    return number is not None and not number.percent and (number.decimals in _DECIMALS or number.currency is not None)


def _entry(row: PieceRow, index: int, amount: RowPiece) -> _Entry:
    left = replace(row, pieces=_own_pieces(row, amount))
    starts = {word.start for piece in left.pieces for word in piece.words}
    cells = [_within(cell, starts) for cell in row.row.cells if any(word.start in starts for word in cell.words)]
    return _Entry(index, left, amount, end_label(cells))


def _own_pieces(row: PieceRow, amount: RowPiece) -> tuple[RowPiece, ...]:
    """An amount with what stands left of it, as far as to another column of text, or to an amount before the text."""
    found: list[RowPiece] = []
    text: RowPiece | None = None  # the leftmost so far
    for piece in reversed(row.pieces):
        if piece.right > amount.right:
            continue
        if text is not None and (
            text.left - piece.right > _WIDE * row.page.line_height or (_is_amount(piece) and not piece.joined)
        ):
            break
        found.append(piece)
        if piece.has_letters:
            text = piece
    return tuple(reversed(found))


def _within(cell: Cell, starts: set[int]) -> Cell:
    return replace(cell, words=tuple(word for word in cell.words if word.start in starts))


def _blocks(entries: Sequence[_Entry]) -> list[_Block]:
    """Runs of lines that a total follows."""
    found: list[_Block] = []
    begin = 0
    for index, entry in enumerate(entries):
        if entry.label is None:
            continue
        run = entries[begin:index]
        begin = index + 1
        totals: list[Decimal] = []
        for other in entries[index : index + _TOTALS]:
            if other.label is None:
                break
            totals += _amounts(other)
        if run:
            likely = _likely(run, totals) if entry.label != "payment" else None
            found += filter(None, (_exact(run, totals), _summed(run), likely))
    return found


def _broken_down(entries: Sequence[_Entry]) -> _Block | None:
    """The longest run of amounts that the rows below each make up, where the run makes another amount of the column.

    So bills tell what each service costs, and of what: "Storage  5.00", "Charges  4.20", "VAT  0.80".
    """
    parts = [_parts_of(entries, index) for index in range(len(entries))]
    runs = [_Run(len(entries))] * (len(entries) + 1)  # from each amount on, to where one is not made up
    first, last = dict[Decimal, int](), dict[Decimal, int]()
    for index in reversed(range(len(entries))):
        number, rest = entries[index].number, runs[index + 1 + parts[index]]
        runs[index] = rest.after(entries[index]) if parts[index] else _Run(index)
        first[number] = index
        last.setdefault(number, index)
    start, count = 0, 1
    for index, run in enumerate(runs):
        is_printed = first.get(run.total, index) < index or last.get(run.total, -1) >= run.end
        if run.count > count and is_printed and 2 * run.named >= run.count:
            start, count = index, run.count
    best: list[_Entry] = []
    while len(best) < count:
        best.append(entries[start])
        start += 1 + parts[start]
    return _Block(tuple(best), added_up=True, broken_down=True) if count > 1 else None


def _parts_of(entries: Sequence[_Entry], index: int) -> int:
    """How many amounts below one make it; 0 where none do, or it is no line."""
    if index >= len(entries) or entries[index].label is not None or entries[index].number <= 0:
        return 0
    left, count = entries[index].number, 0
    for part in entries[index + 1 : index + 1 + _MAX_PARTS]:
        if not left and part.number:
            break
        left, count = left - part.number, count + 1
    return count if not left else 0


def _amounts(entry: _Entry) -> list[Decimal]:
    """The amounts of a row that sums up: "Net £460.00, VAT £92.00, total £552.00"."""
    words = {word.start for piece in entry.row.pieces for word in piece.words}
    numbers = (number for cell in entry.row.row.cells for number in numbers_in(cell) if number.words[0].start in words)
    return [entry.number, *(number.value for number in numbers if number.decimals in _DECIMALS and not number.percent)]


def _exact(run: Sequence[_Entry], totals: Sequence[Decimal]) -> _Block | None:
    """The longest end of a run that adds up to a total."""
    added, count = Decimal(0), 0
    for place, entry in enumerate(reversed(run), 1):
        added += entry.number
        if any(abs(added - printed) <= _CENTS for printed in totals):
            count = place
    block = tuple(run[len(run) - count :])
    return _Block(block, added_up=True) if count and _has_names(block) else None


def _summed(run: Sequence[_Entry]) -> _Block | None:
    """The longest part of a run whose sum comes next in it: a total, whatever its label says."""
    best: _Block | None = None
    for index in range(1, min(len(run), _MAX_SUMMED)):
        block = _exact(run[:index], [run[index].number])
        if block is not None and (best is None or len(block.entries) > len(best.entries)):
            best = block
    return best


def _likely(run: Sequence[_Entry], totals: Sequence[Decimal]) -> _Block | None:
    """The rows right above a total, where they come near to it."""
    near = [run[-1]]
    for entry in reversed(run[:-1]):
        gap = near[-1].row.top - entry.row.bottom
        if gap > _FAR * max(entry.row.page.line_height, 1e-6):
            break
        near.append(entry)
    near.reverse()
    total = max(totals)
    added = sum((entry.number for entry in near), Decimal(0))
    if total <= 0 or not _MIN_OF_TOTAL * total <= added <= _MAX_OF_TOTAL * total or not _has_names(near):
        return None
    return _Block(tuple(near), added_up=False)


def _has_names(entries: Sequence[_Entry]) -> bool:
    """Whether most amounts have a text at their left."""
    return 2 * sum(map(_has_name, entries)) >= len(entries)


def _has_name(entry: _Entry) -> bool:
    return any(piece.has_letters for piece in entry.row.pieces) or _is_product(entry)


def _is_product(entry: _Entry) -> bool:
    """Whether only a product stands left of the amount: "3 x 13,51", below the name."""
    words = [word for piece in entry.row.pieces if piece is not entry.amount for word in piece.words]
    return bool(words) and factors_in(words) is not None


def _lines(block: _Block, rows: Sequence[PieceRow]) -> list[ItemLine]:
    entries: list[ItemLine | PieceRow | None] = []
    lines = {entry.index: with_product(_line(entry)) for entry in block.entries}
    right = max(entry.amount.right for entry in block.entries)
    first, last = block.entries[0].index, block.entries[-1].index
    height = max(block.entries[0].row.page.line_height, 1e-6)
    above = _rows_above(block, rows, height, nameless=not lines[first].description)
    for index, row in enumerate(rows[: last + 1]):
        if index in lines:
            entries.append(lines[index])
        elif index >= first - above and not block.broken_down:
            entries.append(replace(row, pieces=tuple(piece for piece in row.pieces if piece.left <= right)))
    return with_counts(with_descriptions(entries, height))


def _rows_above(block: _Block, rows: Sequence[PieceRow], height: float, *, nameless: bool) -> int:
    """How many rows above the first amount belong to its line: they stand closer than lines do."""
    gaps = [rows[lower.index].top - rows[lower.index - 1].bottom for lower in block.entries[1:] if lower.index > 0]
    usual = median(gaps) if gaps else 0.0
    count, index = 0, block.entries[0].index
    while count < _ABOVE and index > 0:
        gap = rows[index].top - rows[index - 1].bottom
        if gap > usual - _CLOSE * height and not (nameless and count == 0):
            break
        count, index = count + 1, index - 1
    return count


def _line(entry: _Entry) -> ItemLine:
    loose = tuple(
        piece_value(piece)
        for piece in entry.row.pieces
        if piece.number is not None and piece is not entry.amount and not piece.number.percent
    )
    line = ItemLine(entry.row.page, entry.row.top, entry.row.bottom, piece_value(entry.amount), loose=loose)
    line = settled(line)
    used = {word.start for value in (*line.values.values(), line.amount) for word in value.words}
    return without_used_words(replace(line, description=tuple(_description(entry, used))))


def _description(entry: _Entry, used: set[int]) -> list[Word]:
    """The text left of the amount, with the numbers in it that are no quantity and no price."""
    found = [piece for piece in entry.row.pieces if piece is not entry.amount and piece.words[0].start not in used]
    named = any(piece.has_letters for piece in found)
    return [word for piece in found for word in piece.words] if named else []
