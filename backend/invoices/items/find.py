"""The lines of goods and services of an invoice or a receipt, with a header of columns or as a list.

Lists are receipts and bills, a text at the left and its amount at the right. Amounts that end at one height of the page
form a column; lines are the rows of a column above a total, and best those that add up to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import median

from backend.files.pages import Word
from backend.files.visual_rows import Cell, PageRows
from backend.invoices.items.labels import end_label
from backend.invoices.items.lines import (
    ItemLine,
    Value,
    factors_in,
    piece_value,
    settled,
    with_counts,
    with_descriptions,
    with_product,
    without_used_words,
)
from backend.invoices.items.pieces import PieceRow, RowPiece, piece_rows
from backend.invoices.items.tables import table_lines
from backend.invoices.records import Field, FieldRow, printed_field
from backend.reasons import because
from backend.tables.numbers import numbers_in
from backend.text.patterns.amounts import format_decimal

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


_LEADERS = re.compile(r"(?<![\s.:·…_])[\s.:·…_]{2,}$|\s?:$")  # between a text and its amount
_FIGURE = re.compile(r"^[-\d.,]+")  # to which a unit is glued: "2UD"
_SURE, _LIKELY = 0.95, 0.8  # of a line: its arithmetic holds; nothing to reckon
_COMPUTED = 0.6  # of a quantity that follows from price and amount


@dataclass(frozen=True, slots=True)
class ItemLines:
    """The lines and where they stand."""

    field: Field  # "Items", with its rows
    regions: Mapping[int, tuple[float, float]]  # page number -> top and bottom of header and lines, on the level page
    reckoned: int  # how many lines' amounts are made by their other numbers

    @property
    def amounts(self) -> tuple[Decimal, ...]:
        """The amount of each line."""
        return tuple(Decimal(c.value) for row in self.field.rows for c in row.fields if c.name == "Amount")

    @property
    def total(self) -> Decimal:
        """The sum of the amounts."""
        return sum(self.amounts, Decimal(0))

    def contains(self, page: int, middle: float) -> bool:
        """Whether a height of the levelled page is among the lines."""
        region = self.regions.get(page)
        return region is not None and region[0] <= middle <= region[1]


def find_items(pages: Sequence[PageRows], mark: str) -> ItemLines | None:
    """The lines; None where there are none.

    Args:
        mark: the document's decimal separator, from `numbers.decimal_mark_of`.
    """
    rows = [piece_rows(page, mark) for page in pages]
    if (table := table_lines(rows)) is not None:
        return item_lines(table.lines, table.tops, because("columns_labelled"))
    lines = list_lines(rows)
    return item_lines(lines, {}, because("rows_above_total")) if lines else None


def item_lines(
    lines: Sequence[ItemLine], tops: Mapping[int, float], why: str, why_number: str = because("in_column")
) -> ItemLines:
    """Lines as the field that they are.

    Args:
        tops: page number -> top of the header.
        why_number: of a number that no arithmetic proves.
    """
    regions: dict[int, tuple[float, float]] = {}
    for line in lines:
        number = line.page.page.number
        top, bottom = regions.get(number, (tops.get(number, line.top), line.bottom))
        regions[number] = (min(top, line.top), max(bottom, line.bottom))
    rows = tuple(FieldRow(tuple(_fields(line, why_number))) for line in lines)
    score = sum(_score(line) for line in lines) / len(lines)
    field = Field("Items", "", "", round(score, 4), "text", why, rows=rows)
    return ItemLines(field, regions, sum(line.holds is True for line in lines))


def _score(line: ItemLine) -> float:
    return _SURE if line.holds else _LIKELY


def _fields(line: ItemLine, why_number: str) -> Iterator[Field]:
    if line.description:
        yield _text("Description", line.description, line)
    if line.code:
        yield _text("ProductCode", line.code, line)
    if line.unit:
        yield _text("Unit", line.unit, line, dropped=_FIGURE)
    for name in ("Quantity", "UnitPrice", "Discount", "TaxRate"):
        value = line.values.get(name)
        if value is not None:
            yield _number(name, value, line, why_number)
    yield _number("Amount", line.amount, line, why_number)


def _text(name: str, words: Sequence[Word], line: ItemLine, dropped: re.Pattern[str] = _LEADERS) -> Field:
    text = dropped.sub("", " ".join(word.text for word in words))
    return printed_field(name, text, words, line.page, score=_score(line), why=because("beside_amount"))


def _number(name: str, value: Value, line: ItemLine, why: str) -> Field:
    if not value.words:
        why = f"{because('amount_by_price')}; {because('not_read')}"
        return Field(name, format_decimal(value.number), "", _COMPUTED, "computed", why)
    why = because("quantity_by_price") if line.holds else why
    return printed_field(name, format_decimal(value.number), value.words, line.page, score=_score(line), why=why)
