"""What a confirmed table of goods teaches: which of its columns is which, by their labels or where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from statistics import median

from backend.files.pages import Word
from backend.files.visual_rows import PageRows
from backend.invoices.items.find import ItemLines, item_lines
from backend.invoices.items.pieces import PieceRow, RowPiece, make_piece, piece_rows
from backend.invoices.items.tables import Column, Header, Span, are_near, has_long_number, lines_below
from backend.invoices.records import Field
from backend.invoices.taught.printed import plain

_NUMBERS = ("Quantity", "UnitPrice", "Discount", "TaxRate", "Amount")
_TEXTS = ("Description", "ProductCode", "Unit")
_CODE = "ProductCode"
_MAX_ROWS = 60  # of an example that are looked for
_MAX_WORDS, _LONGEST = 8, 40  # of a label, and characters of each
_HEAD_ROWS = 3  # above the first line
_BESIDE = 1.0  # line heights between a label and its column
_SAME_HEAD = 0.5  # share of a header's labels that are found again
_SAME_X = 0.01  # widths of the page


@dataclass(frozen=True, slots=True)
class ColumnSpot:
    """A column of an example's table, in widths of the page."""

    kind: str  # of a row's field
    label: tuple[str, ...]  # words above it, as of `plain`
    label_left: float
    left: float
    right: float


def columns_of(pages: Sequence[PageRows], mark: str, items: Field | None) -> tuple[ColumnSpot, ...]:
    """The columns in which the values of confirmed lines stand; empty where their amounts are not found.

    Args:
        mark: the document's decimal separator.
        items: "Items" with its rows.
    """
    if items is None:
        return ()
    rows = [row for page in pages for row in piece_rows(page, mark)]
    printing: dict[Decimal, dict[int, None]] = {}  # an amount -> indices of the rows that print it
    for index, row in enumerate(rows):
        for piece in row.pieces:
            if piece.number is not None:
                printing.setdefault(abs(piece.number.value), {})[index] = None
    places: dict[str, list[RowPiece]] = {}
    lines: dict[int, dict[str, RowPiece]] = {}
    for line in items.rows[:_MAX_ROWS]:
        values = line.values
        amount = _decimal(values.get("Amount"))
        same = printing.get(abs(amount), {}) if amount is not None else {}
        options = [(_match(rows[index], values), -index) for index in same if index not in lines][:_MAX_ROWS]
        found, index = max(options, key=lambda option: (len(option[0]), option[1]), default=({}, 0))
        if found:
            lines[-index] = found
            for kind, piece in found.items():
                places.setdefault(kind, []).append(piece)
    if not lines:
        return ()
    spans = list(places.items())
    spans += [("Other", pieces) for pieces in _others(rows, lines, places)]
    page = rows[min(lines)].page
    labels = _labels(rows[max(0, min(lines) - _HEAD_ROWS) : min(lines)], page, [_reach(pieces) for _, pieces in spans])
    wide = page.page.width or 1.0
    return tuple(
        ColumnSpot(
            kind, tuple(plain(word)[:_LONGEST] for word, _ in named[:_MAX_WORDS]),
            min((left for _, left in named), default=0.0) / wide,
            median(piece.left for piece in pieces) / wide, median(piece.right for piece in pieces) / wide,
        )
        for (kind, pieces), named in zip(spans, labels, strict=True)
    )  # fmt: skip


def _others(
    rows: Sequence[PieceRow], lines: Mapping[int, Mapping[str, RowPiece]], places: Mapping[str, Sequence[RowPiece]]
) -> list[list[RowPiece]]:
    """The numbers of the lines that are in no known column, by column."""
    known = [_reach(pieces) for pieces in places.values()]
    found: list[list[RowPiece]] = []
    for index, own in lines.items():
        for piece in rows[index].pieces:
            if piece.number is None or piece in own.values() or any(not _aside(piece, span) for span in known):
                continue
            column = next((pieces for pieces in found if not _aside(piece, _reach(pieces))), None)
            if column is None:
                found.append([piece])
            else:
                column.append(piece)
    return found


def _reach(pieces: Sequence[RowPiece]) -> Span:
    return Span(min(piece.left for piece in pieces), max(piece.right for piece in pieces))


def _match(row: PieceRow, values: Mapping[str, str]) -> dict[str, RowPiece]:
    """The pieces of a row that print a line's values; nothing where its amount is not among them."""
    found: dict[str, RowPiece] = {}
    numbers = [piece for piece in row.pieces if piece.number is not None]
    for kind in reversed(_NUMBERS):  # amounts stand right of prices of the same value, as a rule
        fitting = [piece for piece in numbers if kind in values and _is_number(piece, values[kind])]
        if fitting:
            found[kind] = fitting[-1] if kind in ("Amount", "UnitPrice") else fitting[0]
            numbers.remove(found[kind])
    if "Amount" not in found:
        return {}
    for kind in _TEXTS:
        words = {plain(word) for word in values.get(kind, "").split()} - {""}
        texts = [
            piece for piece in row.pieces if piece not in found.values() and (piece.number is None or kind == _CODE)
        ]
        own = [piece for piece in texts if words and {plain(word.text) for word in piece.words} - {""} <= words]
        if own:
            found[kind] = max(own, key=lambda piece: len(piece.words))
    return found


def _is_number(piece: RowPiece, value: str) -> bool:
    number = _decimal(value)
    return piece.number is not None and number is not None and abs(piece.number.value) == abs(number)


def _decimal(value: str | None) -> Decimal | None:
    try:
        return None if value is None else Decimal(value)
    except InvalidOperation:
        return None


def _labels(above: Sequence[PieceRow], page: PageRows, spans: Sequence[Span]) -> list[list[tuple[str, float]]]:
    """The words of the nearest row above a table that names its columns, with their left sides, for each column."""
    found: list[list[tuple[str, float]]] = [[] for _ in spans]
    lower: PieceRow | None = None
    for row in reversed(above):
        if row.page is not page or _has_figures(row) or (lower is not None and not are_near(row, lower)):
            break
        own: list[list[tuple[str, float]]] = [[] for _ in spans]
        for word in row.row.words:
            piece = make_piece(page, [word])
            nearest = min(range(len(spans)), key=lambda index: _aside(piece, spans[index]))
            if plain(word.text) and _aside(piece, spans[nearest]) <= _BESIDE * page.line_height:
                own[nearest].append((word.text, piece.left))
        if sum(map(bool, own)) > 1:
            found = [upper + below for upper, below in zip(own, found, strict=True)]
            if lower is not None:
                break
            lower = row
    return found


def _has_figures(row: PieceRow) -> bool:
    """Whether a row has an amount, a date or an id: no header has."""
    return has_long_number(row) or any(piece.number is not None and piece.number.decimals for piece in row.pieces)


def _aside(piece: RowPiece, span: Span) -> float:
    """How far a word is from a column: nothing above it, else by the nearest sides."""
    if piece.left < span.right and piece.right > span.left:
        return 0.0
    return max(piece.left - span.right, span.left - piece.right)


def taught_items(pages: Sequence[PageRows], mark: str, columns: Sequence[ColumnSpot], why: str) -> ItemLines | None:
    """The lines below the labels, or at the places, of an example's columns; None where there are none."""
    rows = [piece_rows(page, mark) for page in pages]
    headers = [(number, header) for number, own in enumerate(rows) for header in _headers(own, columns)]
    if not headers and not any(spot.label for spot in columns):
        headers = [(number, header) for number, own in enumerate(rows) if (header := _at_places(own, columns))]
    table = lines_below(rows, headers)
    return item_lines(table.lines, table.tops, why) if table is not None and table.lines else None


def _headers(rows: Sequence[PieceRow], columns: Sequence[ColumnSpot]) -> list[Header]:
    kinds = {word: spot.kind for spot in columns for word in spot.label}
    found: list[Header] = []
    for index, row in enumerate(rows):
        if not kinds or _has_figures(row) or (found and index <= found[-1].last):
            continue
        under = rows[index + 1 : index + 2]
        with_under = under and are_near(row, under[0]) and not _has_figures(under[0])
        options = [
            (index, row.row.words),
            *([(index + 1, (*row.row.words, *under[0].row.words))] if with_under else ()),
        ]
        told = [(len(_named(words, kinds)), -last, words) for last, words in options]
        named, last, words = max(told, key=lambda option: option[:2])
        if named >= max(2.0, _SAME_HEAD * len(kinds)) and len({kinds[word] for word in _named(words, kinds)}) > 1:
            found.append(_header(row.page, (index, -last), words, kinds, columns))
    return found


def _named(words: Sequence[Word], kinds: Mapping[str, str]) -> set[str]:
    return {text for word in words if (text := plain(word.text)) in kinds}


def _header(
    page: PageRows,
    rows: tuple[int, int],
    words: Sequence[Word],
    kinds: Mapping[str, str],
    columns: Sequence[ColumnSpot],
) -> Header:
    """The columns where their labels stand now; numbers stand below as in the example where the label does."""
    wide = page.page.width or 1.0
    made: list[Column] = []
    for piece in sorted((make_piece(page, [word]) for word in words), key=lambda piece: piece.left):
        kind = kinds.get(plain(piece.text), "")
        if made and made[-1].kind == kind:
            made[-1] = Column(kind, (Span(made[-1].label.left, max(made[-1].label.right, piece.right)),))
        else:
            made.append(Column(kind, (Span(piece.left, piece.right),)))
    for spot in columns:
        numbers = Span(spot.left * wide, spot.right * wide)
        place = next((i for i, column in enumerate(made) if column.kind == spot.kind), None)
        if place is None:  # below another label now, perhaps
            place = next((i for i, c in enumerate(made) if not c.kind and _overlaps(c.label, numbers)), None)
        if place is None:
            made.append(Column(spot.kind, (numbers,)))
        elif spot.kind in _NUMBERS and abs(made[place].label.left - spot.label_left * wide) <= _SAME_X * wide:
            made[place] = Column(spot.kind, (made[place].label, numbers))
        else:
            made[place] = Column(spot.kind, made[place].spans)
    named = (Column(column.kind or "Other", column.spans) for column in made)
    return Header(page, *rows, tuple(sorted(named, key=lambda c: c.label.left)), max(page.line_height, 1e-6))


def _overlaps(one: Span, other: Span) -> bool:
    return one.left < other.right and one.right > other.left


def _at_places(rows: Sequence[PieceRow], columns: Sequence[ColumnSpot]) -> Header | None:
    """The columns of a table without labels, above its first row that fills those of numbers."""
    if not rows:
        return None
    page = rows[0].page
    wide, height = page.page.width or 1.0, max(page.line_height, 1e-6)
    made = [Column(spot.kind, (Span(spot.left * wide, spot.right * wide),)) for spot in columns]
    amount = next(column.label for column in made if column.kind == "Amount")
    least = min(2, sum(column.kind in _NUMBERS for column in made))
    for index, row in enumerate(rows):
        pieces = [piece for piece in row.pieces if piece.number is not None]
        if len(pieces) >= least and any(_is_aligned(piece, amount, height) for piece in pieces):
            return Header(page, index - 1, index - 1, tuple(sorted(made, key=lambda c: c.label.left)), height)
    return None


def _is_aligned(piece: RowPiece, span: Span, height: float) -> bool:
    return min(abs(piece.left - span.left), abs(piece.right - span.right)) < height
