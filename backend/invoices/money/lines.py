"""Amounts with what stands beside them: labels to the left, in the same sentence, or above in a header row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise, starmap

from backend.files.pages import Box, Word, bounding_box
from backend.files.visual_rows import PageRows, VisualRow
from backend.invoices.items.find import ItemLines
from backend.invoices.label_match import LabelMatch, tokens_of
from backend.invoices.money.labels import (
    KNOWN_RATES,
    MONEY_LABELS,
    SURCHARGE_RATES,
    Kind,
    Reading,
    readings_of,
    says,
)
from backend.tables.numbers import Number, numbers_in

_MAX_DECIMALS = 2  # of an amount: unit prices may have more
_MAX_BELOW = 14  # rows
_REACH = 4.0  # line heights from one row of a table of differences to the next
_MAX_TABLES, _MAX_COLUMNS = 20, 8  # what is compared stays cheap whatever is on the page
_CENTS = 2  # decimals
_DIFFERENCE = frozenset((
    "diferencia", "diferencias", "difference", "differences", "differenz", "differenza", "diferenca",
))  # fmt: skip
_COMPARED = frozenset((
    "facturado", "facturada", "facturat", "correcto", "correcta", "correcte", "rectificado", "rectificada",
    "rectificat", "original", "inicial", "anterior", "nuevo", "nueva", "debido", "billed", "invoiced", "charged",
    "correct", "corrected", "revised", "right", "previous", "new", "facture", "corrige", "rectifie", "initial",
    "berechnet", "korrekt", "richtig", "korrigiert", "fatturato", "corretto", "faturado", "correto",
))  # fmt: skip

_ON = frozenset(("s", "sobre", "sb", "on", "of", "sur", "su", "sulla", "auf"))  # "IRPF 19 % s/ base"
_PROSE_WORDS = 9  # of a cell, beyond label and number: a sentence
_HEADER_REACH = 3.5  # line heights from one row of a column to the next
_ITEM_COLUMNS = 2  # so many headers of goods in a row begin the lines of an invoice
_MAX_LABELLED = 400  # what is compared pairwise stays cheap whatever is on the pages
_WORDS_BESIDE = 2  # in the cell of a header or a number of a table
_LETTERS_OF_CURRENCY = 3
_DIGITS_OF_RATE = 2
_ASIDES: tuple[Kind, ...] = ("charge", "paid", "cash", "column", "ignored")  # when they stand in brackets
# Lines of goods that may be sums, too: fees that are the base, a discount, portage.
_ALSO_ITEMS: tuple[Kind, ...] = ("base", "gross", "discount", "charge")
_AMONG_ITEMS = 0.4
# After a number they make it a quantity: "30 días", "97 kWh".
_UNITS = frozenset((
    "kwh", "kw", "dias", "dia", "days", "day", "h", "hrs", "hours", "horas", "uds", "ud", "unidades", "kg", "km", "m2",
    "m3", "min", "noches", "nights", "meses", "months", "x", "pcs", "pc", "items", "días", "tage", "jours",
))  # fmt: skip
# Before a number they make it one of an article of law.
_LAWS = frozenset((
    "art", "arts", "article", "articles", "articulo", "articulos", "articolo", "articoli", "artigo",
    "artigos", "artikel", "section", "sections", "sec", "ley", "law", "loi", "legge", "lei", "llei",
    "decreto", "decret", "decree", "directive", "directiva", "apartado", "notice", "regulation", "schedule", "group",
    "paragraph", "annex", "anexo", "annexe", "anhang",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label with its amounts."""

    match: LabelMatch
    readings: Sequence[Reading]
    amounts: tuple[Number, ...]  # to the right of a label in its row, or one below it
    rates: tuple[Decimal, ...]  # percentages beside the label
    page: PageRows
    row: int
    weight: float  # 0 to 1: how surely the amounts belong to the label

    def strength(self, kind: Kind) -> float:
        """How surely the amounts are of a kind; 0 where they are not."""
        return max((reading.strength for reading in self.readings if reading.kind == kind), default=0.0) * self.weight

    @property
    def kind(self) -> Kind:
        """The surest kind."""
        return max(self.readings, key=lambda reading: reading.strength).kind


@dataclass(frozen=True, slots=True)
class Column:
    """A header with the numbers below it."""

    match: LabelMatch
    readings: Sequence[Reading]
    rates: tuple[Decimal, ...]
    box: Box  # of the header


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row below headers."""

    row: VisualRow
    numbers: tuple[tuple[Column, Number], ...]
    label: Labelled | None  # to the left, in the row

    def number(self, kind: Kind) -> Number | None:
        """The first number below a header of a kind."""
        for column, number in self.numbers:
            if any(reading.kind == kind for reading in column.readings):
                return number
        return None


@dataclass(frozen=True, slots=True)
class HeaderTable:
    """Headers in a row, and the rows below them."""

    page: PageRows
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]


@dataclass(slots=True)
class MoneyLines:
    """All labelled amounts of a document."""

    labelled: list[Labelled] = field(default_factory=list)
    tables: list[HeaderTable] = field(default_factory=list)
    plain: list[tuple[PageRows, VisualRow, tuple[Number, ...]]] = field(
        default_factory=list
    )  # of rows that are no goods
    goods: list[tuple[PageRows, VisualRow, tuple[Number, ...]]] = field(default_factory=list)
    loose: list[tuple[LabelMatch, tuple[Decimal, ...]]] = field(default_factory=list)  # labels with a rate, no amount

    def loose_rates(self, *kinds: Kind) -> list[Decimal]:
        """The rates beside labels of some kinds that have no amount: "TAX RATE  8.00%"."""
        return [rate for match, rates in self.loose if says(match, *kinds) for rate in rates]


@dataclass(frozen=True, slots=True)
class _Row:
    """The labels and numbers of one row, left to right."""

    row: VisualRow
    labels: tuple[LabelMatch, ...]
    numbers: tuple[Number, ...]
    labelled: tuple[Labelled, ...]
    open_labels: tuple[tuple[LabelMatch, tuple[Decimal, ...]], ...]  # without an amount to the right


_Numbers = Sequence[tuple[VisualRow, Sequence[Number]]]  # of each row of a page, from top to bottom


def compared_words(page: PageRows, mark: str) -> frozenset[int]:
    """Where the amounts begin, in the page's text, that are only compared: they are no sums or taxes of this document.

    Args:
        mark: of `numbers.decimal_mark_of`.
    """
    marked = [(index, words) for index, row in enumerate(page.rows) if len(words := _words(row, _DIFFERENCE)) == 1]
    if not marked:
        return frozenset()
    numbers = [(row, [number for cell in row.cells for number in numbers_in(cell, mark)]) for row in page.rows]
    found: set[int] = set()
    for index, differences in marked[:_MAX_TABLES]:
        row, own = numbers[index]
        compared = _words(row, _COMPARED)
        if compared and not own:
            boxes = [page.level(word.box) for word in (*differences, *compared[:_MAX_COLUMNS])]
            found.update(number.words[0].start for number in _in_other_columns(page, boxes, numbers, index))
    return frozenset(found)


def _words(row: VisualRow, words: frozenset[str]) -> list[Word]:
    return [word for word in row.words if any(token in words for token in tokens_of(word.text))]


def _is_amount(number: Number) -> bool:
    return not number.percent and (number.decimals == _CENTS or number.currency is not None)


def _in_other_columns(page: PageRows, boxes: Sequence[Box], numbers: _Numbers, header: int) -> Iterator[Number]:
    """The amounts below headers that are nearer to another header than to the first one, of the difference."""
    bottom = numbers[header][0].box.bottom
    for row, own in numbers[header + 1 : header + 1 + _MAX_BELOW]:
        if row.box.top - bottom > _REACH * page.line_height:
            return
        bottom = row.box.bottom
        amounts = [number for number in own if _is_amount(number)]
        if len(amounts) > 1:
            yield from (number for number in amounts if _nearest(page, number, boxes) != 0)


def _nearest(page: PageRows, number: Number, boxes: Sequence[Box]) -> int:
    own = bounding_box(page.level(word.box) for word in number.words)
    return min(range(len(boxes)), key=lambda index: boxes[index].gap(own))


def money_lines(pages: Sequence[PageRows], mark: str, items: ItemLines | None) -> MoneyLines:
    """The labelled amounts of all pages.

    Args:
        mark: of `numbers.decimal_mark_of`.
        items: amounts among them are no totals.
    """
    lines = MoneyLines()
    for page in pages:
        compared = compared_words(page, mark)
        rows = [_read_row(page, row, mark, compared) for row in page.rows]
        among = _among_items(page, rows, items)
        for index, row in enumerate(rows):
            if not among[index]:
                lines.labelled += row.labelled
                lines.plain.append((page, row.row, row.numbers))
                lines.loose += [(label, rates) for label, rates in row.open_labels if rates]
            else:
                lines.goods.append((page, row.row, row.numbers))
                lines.labelled += [
                    replace(label, weight=_AMONG_ITEMS * label.weight)
                    for label in row.labelled
                    if label.match.first == 0 and label.kind in _ALSO_ITEMS
                ]
            if row.open_labels and not _heads_items(row):
                columns = _columns(page, row)
                table = _table_below(page, rows, index, columns, among)
                if table.rows:
                    lines.tables.append(table)
    del lines.labelled[_MAX_LABELLED // 2 : -_MAX_LABELLED // 2]  # totals stand at a document's ends
    del lines.tables[_MAX_LABELLED // 2 : -_MAX_LABELLED // 2]
    return lines


def _heads_items(row: _Row) -> bool:
    return len({match.cell for match, _ in row.open_labels if says(match, "column")}) >= _ITEM_COLUMNS


def _among_items(page: PageRows, rows: Sequence[_Row], items: ItemLines | None) -> list[bool]:
    """Which rows are lines of goods: as found, else their header alone."""
    if items is None:
        return [_heads_items(row) for row in rows]
    return [items.contains(page.page.number, (row.row.box.top + row.row.box.bottom) / 2) for row in rows]


def _read_row(page: PageRows, row: VisualRow, mark: str, compared: frozenset[int]) -> _Row:
    labels: list[LabelMatch] = []
    numbers: list[Number] = []
    labelled: list[Labelled] = []
    open_labels: list[tuple[LabelMatch, tuple[Decimal, ...]]] = []
    for label, amounts, rates in _groups(_events(row, mark, compared), labels, numbers):
        kept, all_rates = _split_rates(label, amounts, rates)
        if kept:
            readings = readings_of(label, _between(label, kept[0]))
            weight = _weight(row, label, kept)
            labelled.append(Labelled(label, readings, kept, all_rates, page, row.index, weight))
        else:
            open_labels.append((label, all_rates))
    return _Row(row, tuple(labels), tuple(numbers), tuple(labelled), tuple(open_labels))


def _groups(
    events: Iterator[LabelMatch | Number], labels: list[LabelMatch], numbers: list[Number]
) -> Iterator[tuple[LabelMatch, list[Number], list[Decimal]]]:
    """Each label with the amounts after it and the percentages beside it; all labels and numbers into the lists."""
    current: LabelMatch | None = None
    amounts: list[Number] = []
    rates: list[Number] = []  # those before the first amount
    later: list[Number] = []  # those after it: the label's, unless the next one stands in their cell ("15 % IRPF")
    for event in events:
        if isinstance(event, LabelMatch):
            labels.append(event)
            if current is not None and not amounts and current.cell is event.cell and _qualifies(current, event):
                continue
            own = [rate for rate in (later if amounts else rates if current is None else []) if rate.cell is event.cell]
            if current is not None:
                yield current, amounts, [rate.value for rate in rates or later if rate not in own]
            elif not own and not amounts:
                own = rates
            current, amounts, rates, later = event, [], list(own), []
            continue
        numbers.append(event)
        if event.percent:
            (later if amounts else rates).append(event)
        else:
            amounts.append(event)
    if current is not None:
        yield current, amounts, [rate.value for rate in rates or later]


def _events(row: VisualRow, mark: str, compared: frozenset[int]) -> Iterator[LabelMatch | Number]:
    """Labels and numbers from left to right, without those that are only compared."""
    for cell in row.cells:
        index_of = {id(word): index for index, word in enumerate(cell.words)}
        citations = (index for index, (word, after) in enumerate(pairwise(cell.words)) if _cites_law(word, after))
        law = next(citations, len(cell.words))
        events: list[tuple[int, int, LabelMatch | Number]] = [
            (match.first, 0, match) for match in MONEY_LABELS.find(cell)
        ]
        for number in numbers_in(cell, mark):
            first = index_of[id(number.words[0])]
            after = cell.words[index_of[id(number.words[-1])] + 1 :][:1]
            if after and after[0].text.lower().strip(".,()") in _UNITS:
                continue
            if number.words[0].start in compared:
                continue
            if first > law and not number.decimals and not number.percent and number.currency is None:
                continue
            events.append((first, 0 if number.percent else 1, number))
        for _, _, event in sorted(events, key=lambda entry: entry[:2]):
            yield event


def _cites_law(word: Word, number: Word) -> bool:
    """Whether whole numbers after a word are of an article of law: "art. 293 B du CGI", "Schedule 9, VATA 1994"."""
    named = word.text in ("§", "§§") or any(token in _LAWS for token in tokens_of(word.text)[-1:])
    return named and number.text[:1].isdigit()


def _qualifies(label: LabelMatch, after: LabelMatch) -> bool:
    """Whether a second label only adds to the first: "Total (sin IVA)", "VAT 0% (reverse charge)", "IVA s/ base"."""
    if any(word.text.startswith("(") for word in label.cell.words[label.last : after.first + 1]) and says(
        after, *_ASIDES
    ):
        return True
    if says(label, "tax", "surcharge", "withholding") and says(after, "base"):
        between = [token for word in label.cell.words[label.last : after.first + 1] for token in tokens_of(word.text)]
        return not _ON.isdisjoint(between)
    if says(label, "withholding"):  # "Ret. IRPF"
        return says(after, "withholding")
    return says(label, "total", "base", "due", "gross")


def _between(label: LabelMatch, number: Number) -> Sequence[Word]:
    """The words from a label to its amount, within the label's cell."""
    stop = len(label.cell.words)
    if number.cell is label.cell:
        stop = next(index for index, word in enumerate(label.cell.words) if word is number.words[0])
    return label.cell.words[label.last : max(stop, label.last)]


def _split_rates(
    label: LabelMatch, numbers: Sequence[Number], rates: Sequence[Decimal]
) -> tuple[tuple[Number, ...], tuple[Decimal, ...]]:
    """Amounts, and rates: a bare "21" between a tax's label and its amount is one, too."""
    kept = [number for number in numbers if number.decimals <= _MAX_DECIMALS]
    if not rates and len(kept) > 1 and says(label, "tax", "surcharge", "withholding"):
        known = SURCHARGE_RATES if says(label, "surcharge") else KNOWN_RATES
        bare = next((n for n in kept if n.currency is None and n.value in known and not n.decimals), None)
        if bare is not None:
            return tuple(number for number in kept if number is not bare), (bare.value,)
    return tuple(_likeliest(kept)), tuple(rates)


def _likeliest(numbers: Sequence[Number]) -> Sequence[Number]:
    """Of numbers beside a label those that look like money, else all: "due on August 3, 2014  $4.11"."""
    money = [number for number in numbers if number.decimals == _MAX_DECIMALS or number.currency]
    return money or numbers


def _weight(row: VisualRow, label: LabelMatch, amounts: Sequence[Number]) -> float:
    """How surely amounts belong to a label: less in prose, after other words, without decimals or currency."""
    weight = 1.0
    words = len(label.cell.words) - (label.last - label.first)
    if words > _PROSE_WORDS:
        weight *= 0.5
    elif label.first > 0 and any(map(str.isalpha, label.cell.words[label.first - 1].text)):
        weight *= 0.7
    after = label.cell.words[label.last : label.last + 1]
    if says(label, "total") and after and "%" in after[0].text and after[0].text[0].isdigit():
        weight *= 0.4  # of one rate: "Total 6% supplies"
    amount = amounts[0]
    if not amount.decimals and amount.currency is None:
        weight *= 0.6
        if len(amount.digits) > 6 or (amount.digits.startswith("0") and len(amount.digits) > 1):
            weight *= 0.2  # an id or a code
    gap = sum(1 for cell in row.cells if label.cell.box.right < cell.box.left and cell.box.right < amount.cell.box.left)
    return weight * 0.85 ** min(gap, 4)


def _columns(page: PageRows, header: _Row) -> tuple[Column, ...]:
    """The labels of a row as headers."""
    columns: list[Column] = []
    for match, rates in header.open_labels:
        if any(starmap(_cites_law, pairwise(match.cell.words))):
            continue  # a sentence, whose number is not the amount: no more is what stands below it
        if not says(match, "ignored") and _other_words(match, header) <= _WORDS_BESIDE:
            box = bounding_box(page.level(word.box) for word in match.words)
            readings = readings_of(match)
            if columns and _has_kind(columns[-1], "surcharge_rate") and "tax" in {kind for kind, _ in readings}:
                readings = (Reading("surcharge", 1.0),)  # the second "Cuota" of "% IVA | Base | Cuota | % R.E. | Cuota"
            columns.append(Column(match, readings, rates, box))
    return tuple(columns)


def _has_kind(column: Column, kind: Kind) -> bool:
    return any(reading.kind == kind for reading in column.readings)


def _other_words(match: LabelMatch, header: _Row) -> int:
    """Words beside the labels in a header's cell: titles and sentences have many."""
    labels = {word.start for other in header.labels if other.cell is match.cell for word in other.words}
    return sum(_is_text(word) for word in match.cell.words if word.start not in labels)


def _is_text(word: Word) -> bool:
    return sum(map(str.isalpha, word.text)) > _LETTERS_OF_CURRENCY


def _table_below(
    page: PageRows, rows: Sequence[_Row], index: int, columns: tuple[Column, ...], among: Sequence[bool]
) -> HeaderTable:
    """The rows below labels that have no amount to their right."""
    header = rows[index]
    found: list[TableRow] = []
    if not columns:
        return HeaderTable(page, columns, ())
    bottom = header.row.box.bottom
    for below in range(index + 1, min(index + 1 + _MAX_BELOW, len(rows))):
        row = rows[below]
        if row.row.box.top - bottom > _HEADER_REACH * page.line_height or among[below] or _heads_items(row):
            break
        table_row = _below(page, row, columns)
        if table_row.numbers:
            found.append(table_row)
            bottom = row.row.box.bottom
    return HeaderTable(page, columns, tuple(found))


def _below(page: PageRows, row: _Row, columns: Sequence[Column]) -> TableRow:
    """Which numbers of a row stand below which headers. Those with a label of their own among the columns do not."""
    left = min(column.box.left for column in columns)
    claimed: set[int] = set()
    heading: Labelled | None = None
    for label in row.labelled:
        box = page.level(label.match.words[0].box)
        if box.left <= left + page.line_height and heading is None:
            heading = label
        if label is not heading or (len(label.amounts) == 1 and len(columns) > 1 and not label.rates):
            claimed.update(id(number) for number in label.amounts)
    numbers: list[tuple[Column, Number]] = []
    for number in row.numbers:
        if id(number) in claimed or number.decimals > _MAX_DECIMALS or _is_part_of_code(number):
            continue
        column = _column_of(bounding_box(page.level(word.box) for word in number.words), columns)
        if column is not None and all(column is not taken for taken, _ in numbers):
            numbers.append((column, number))
    return TableRow(row.row, tuple(numbers), heading)


def _is_part_of_code(number: Number) -> bool:
    """Whether a number is a piece of an account number, an id, an address or a sentence, not an amount or a rate."""
    if sum(map(_is_text, number.cell.words)) > _WORDS_BESIDE:
        return True
    plain = not number.decimals and number.currency is None and not number.percent
    return plain and (len(number.digits) > _DIGITS_OF_RATE or len(number.cell.words) > len(number.words) + 2)


def _column_of(box: Box, columns: Sequence[Column]) -> Column | None:
    """The header above a number: the one it overlaps most, else the nearest that is not far."""
    best = min(columns, key=lambda column: column.box.gap(box))
    return best if best.box.gap(box) <= max(0.6 * box.width, 2 * box.height) else None
