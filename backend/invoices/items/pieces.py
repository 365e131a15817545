"""Cuts the rows of a page into pieces: stretches of text, and numbers that may stand in a column of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from backend.files.pages import Word, bounding_box
from backend.files.visual_rows import Cell, PageRows, VisualRow
from backend.tables.numbers import Number, numbers_in

_OWN_NUMBER = 0.5  # of the height: two numbers with a wider gap between them are two, not "1 284,50"
_MISREAD = re.compile(r"[Il|]|(?=\D{0,3}\d)[-\dOoIl|SB.,]+[€$£]?")
_GLUED = re.compile(r"(-?\d{1,5}(?:[.,]\d{1,3})?)[^\W\d_]{1,5}[23²³]?\.?")
_FIGURES = str.maketrans("OoIl|SB", "0011158")
_MAX_PIECES = 60  # of a row; a table of goods has a dozen columns


@dataclass(frozen=True, slots=True)
class RowPiece:
    """Words of a row that belong together."""

    words: tuple[Word, ...]
    left: float  # on the levelled page, where columns are upright
    right: float
    number: Number | None  # None for text
    joined: bool  # a number right beside text: "caja 50", "2 Tornillos"

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2

    @property
    def has_letters(self) -> bool:
        """Whether it can name something: two letters at least."""
        return sum(character.isalpha() for character in self.text) > 1


@dataclass(frozen=True, slots=True)
class PieceRow:
    """A row of a page in pieces, left to right."""

    page: PageRows
    row: VisualRow
    pieces: tuple[RowPiece, ...]

    @property
    def top(self) -> float:
        return self.row.box.top

    @property
    def bottom(self) -> float:
        return self.row.box.bottom

    @property
    def text(self) -> str:
        return " ".join(piece.text for piece in self.pieces)


def piece_rows(page: PageRows, mark: str) -> list[PieceRow]:
    """The rows of a page in pieces.

    Args:
        mark: the document's decimal separator.
    """
    rows = []
    for row in page.rows:
        pieces = tuple(piece for cell in row.cells[:_MAX_PIECES] for piece in _pieces(page, cell, mark))
        rows.append(PieceRow(page, row, pieces[:_MAX_PIECES]))
    return rows


def make_piece(
    page: PageRows, words: Sequence[Word], number: Number | None = None, *, joined: bool = False
) -> RowPiece:
    """A piece of some words, with its sides where they are on the levelled page."""
    left, right = words[0].box, words[-1].box
    return RowPiece(
        tuple(words),
        left.left + page.slope * (left.top + left.bottom) / 2,
        max(word.box.right for word in words) + page.slope * (right.top + right.bottom) / 2,
        number,
        joined,
    )


def piece_of(page: PageRows, row: int, words: Sequence[Word], mark: str) -> RowPiece:
    """Some words of a row as a number, where they print one."""
    cell = Cell(page.page.number, tuple(words), bounding_box(word.box for word in words), row)
    lone = _lone_number(cell, mark).values() if len(words) == 1 else ()
    return make_piece(page, words, next(iter((*numbers_in(cell, mark)[-1:], *lone)), None))


def _pieces(page: PageRows, cell: Cell, mark: str) -> Iterator[RowPiece]:
    for part in _parts(cell):
        numbers = numbers_in(part, mark)
        owners: dict[int, Number] = {}  # a word's start in the text -> its number
        for number in numbers:
            if _is_whole(number):
                owners.update(dict.fromkeys((word.start for word in number.words), number))
        if not numbers and len(part.words) == 1:
            owners = _lone_number(part, mark)
        first, last = _text_span(part.words, owners)
        joined = any(len(word.text) > 1 for word in part.words[first:last])
        yield from _number_pieces(page, part.words[:first], owners, joined=joined)
        if first < last:
            yield make_piece(page, part.words[first:last])
        yield from _number_pieces(page, part.words[last:], owners, joined=joined)


def _lone_number(cell: Cell, mark: str) -> dict[int, Number]:
    """The number of a lone word that is one but for letters: "I" for 1, "1O,50" for 10,50, "2UD" for 2."""
    word = cell.words[0]
    glued = _GLUED.fullmatch(word.text)
    if glued is None and not _MISREAD.fullmatch(word.text):
        return {}
    repaired = replace(word, text=glued[1] if glued else word.text.translate(_FIGURES))
    numbers = numbers_in(Cell(cell.page, (repaired,), cell.box, cell.row), mark)
    return {word.start: numbers[0]._replace(cell=cell, words=(word,))} if len(numbers) == 1 else {}


def _is_whole(number: Number) -> bool:
    """Whether its words hold little else than the number: "(50" of "(50 uds.)" is none, a lone "(5.00)" is negative."""
    others = sum(character.isalpha() for word in number.words for character in word.text)
    opens, closes = number.words[0].text.startswith("("), number.words[-1].text.endswith(")")
    alone = opens and closes and number.words == number.cell.words
    return others <= 3 * len(number.words) and (alone or not (opens or (closes and number.value >= 0)))


def _text_span(words: Sequence[Word], owners: dict[int, Number]) -> tuple[int, int]:
    """The words between the numbers at both ends."""
    first, last = 0, len(words)
    while first < last and words[first].start in owners:
        first += 1
    while last > first and words[last - 1].start in owners:
        last -= 1
    return first, last


def _number_pieces(
    page: PageRows, words: Sequence[Word], owners: dict[int, Number], *, joined: bool
) -> Iterator[RowPiece]:
    groups: list[tuple[Number, list[Word]]] = []
    for word in words:
        number = owners[word.start]
        if groups and groups[-1][0] is number:
            groups[-1][1].append(word)
        else:
            groups.append((number, [word]))
    for number, group in groups:
        yield make_piece(page, group, number, joined=joined)


def _parts(cell: Cell) -> Iterator[Cell]:
    """A cell, cut between figures that stand too far apart to be one number."""
    begin = 0
    for index, (left, right) in enumerate(pairwise(cell.words), 1):
        gap = right.box.left - left.box.right
        if gap > _OWN_NUMBER * right.box.height and left.text[-1:].isdigit() and right.text[:1].isdigit():
            yield Cell(cell.page, cell.words[begin:index], cell.box, cell.row)
            begin = index
    yield Cell(cell.page, cell.words[begin:], cell.box, cell.row) if begin else cell
