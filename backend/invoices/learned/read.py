"""Values of fields from the words that the network labels: grouped, then read by the readers of their type.

And lines of goods and rows of taxes of them; which lines count, theirs or the rules'.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import dropwhile, groupby, pairwise
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from stdnum.iso7064 import mod_97_10

from backend.abandoned import require_wanted
from backend.files.pages import Word, bounding_box
from backend.files.visual_rows import Cell, PageRows, ends_of
from backend.invoices.header.dates import dates_in
from backend.invoices.items.find import ItemLines, item_lines
from backend.invoices.items.lines import ItemLine, Value, piece_value, settled, with_descriptions, with_product
from backend.invoices.items.pieces import PieceRow, RowPiece, make_piece, piece_of
from backend.invoices.label_match import tokens_of
from backend.invoices.money.taxes import TaxRow, type_of
from backend.invoices.parties.names import clean_name, is_department, legal_form_end
from backend.invoices.parties.tax_ids import is_valid
from backend.invoices.records import FieldRow
from backend.models.fields_network import KINDS, LABELS, Network, Reading
from backend.reasons import because
from backend.tables.numbers import Number, numbers_in
from backend.text.patterns.amounts import format_decimal
from backend.text.patterns.dates import DateOrder
from backend.text.patterns.folding import fold

_MARK = re.compile(
    r"(?:n|no|nr|num|núm|nro|número|numero|number|nummer|n\.?o|id|:|#|-|\N{EN DASH}|=|\.|º|°|№|\()[.:ºª°#]*",
    re.IGNORECASE,
)
_MISREAD = str.maketrans("OoIl|", "00111")
_DIGIT_RUN = re.compile(r"(?<![A-Za-z0-9|])[\dOoIl|]{3,}(?![A-Za-z0-9|])")


def _joined(texts: Sequence[str]) -> str:
    """Joined as printed: a separator between blanks stands without them, other words with one blank."""
    value = " ".join(texts)
    value = re.sub(r" ?([/\N{EN DASH}-]) ?", r"\1", value) if len(texts) > 1 else value
    return value.strip("#()[].,;:| ").rstrip("/-\N{EN DASH}_")


def _read_digits(match: re.Match[str]) -> str:
    read = match[0]
    return read.translate(_MISREAD) if sum(map(str.isdecimal, read)) * 2 > len(read) else read


AMOUNTS = ("SubTotal", "TotalTax", "InvoiceTotal", "AmountDue")
_IDS = ("InvoiceId", "RectifiedInvoiceId", "PurchaseOrder")
READ = (
    *(f"{party}{part}" for party in ("Vendor", "Customer") for part in ("Name", "Address", "TaxId")), *_IDS,
    "InvoiceDate", "DueDate", "IBAN", *AMOUNTS,
)  # fmt: skip
_MAX_WORDS = 700  # of a page that are read at once, as in training
_MAX_PAGES = 4  # of a document at either end
_LEAST = 0.45  # probability with which a word counts although another label is likelier
_GAP, _COLUMN = 2.5, 3.0  # heights between two words of a value, and between the edges of its lines
_NEXT_ROWS, _NEXT_HEIGHTS = 3, 4.5
_SHORTEST_IBAN, _SHORTEST_TAX_ID = 15, 6  # characters
_LABEL_IN_ID = re.compile(r"^(?:VAT|NIF|CIF|TVA|BTW)(?=[A-Z]{0,3}\d)")  # "VATESB12345674" without a blank
_WHOLE_ADDRESS = 4  # words; a shorter one is less sure
_PRINTED = 0.8  # probability of a value that tells documents apart
_MOST = 3  # values of a field on a page
_INDEX = {label: index for index, label in enumerate(LABELS)}
_NEVER = 1e-3  # probability that none is less, or more sure, than
_TOLD_APART = ("fields", "contract", "letter")
_WITH_FIELDS = ("invoice", "simplified", "credit", "utility", "proforma")  # of its kinds


class Guess(NamedTuple):
    """A value that a field may have."""

    name: str
    value: str
    score: float
    words: tuple[Word, ...]
    page: PageRows
    valid: bool | None = None
    ambiguous: bool = False
    number: Number | None = None  # of an amount


class _Forms(NamedTuple):
    """How the document prints numbers and dates."""

    mark: str  # between units and decimals
    order: DateOrder


class ReadPage(NamedTuple):
    """A part of a page as the network reads it."""

    page: PageRows
    words: tuple[Word, ...]
    places: NDArray[np.float64]  # (words, 4), on the levelled page in median heights
    rows: tuple[int, ...]  # index of each word's row
    reading: Reading


class PageReader:
    """Reads pages with the network, each once."""

    def __init__(self, network: Network | None) -> None:
        self._network = network
        self.has_network = network is not None
        self._read: dict[tuple[int, int, int], list[ReadPage]] = {}

    def parts(self, page: PageRows) -> list[ReadPage]:
        """The page as read, one with very many words in parts; nothing where there is no network."""
        words = page.page.words
        key = page.page.number, words[0].start if words else 0, len(words)  # of papers on one page each has its own
        if key not in self._read:
            self._read[key] = [] if self._network is None else list(_parts(page, self._network))
        return self._read[key]

    def ends(self, pages: Sequence[PageRows]) -> list[ReadPage]:
        """The first and last pages of a document."""
        return [part for page in ends_of(pages, _MAX_PAGES) for part in self.parts(page)]

    def kinds(self, page: PageRows) -> dict[str, float]:
        """The probability of each kind that the page may be of, and as "fields" of those with fields; may be empty."""
        part = next(iter(self.parts(page)), None)
        if part is None:
            return {}
        kinds = dict(zip(KINDS, part.reading.kinds.tolist(), strict=True))
        return kinds | {"fields": sum(kinds[kind] for kind in _WITH_FIELDS)}

    def printed(self, page: PageRows, name: str) -> str:
        """A field as a page prints it; empty where the network is sure of none."""
        spans = [span for part in self.parts(page) for span in _spans(part, name)[:1]]
        return next((_text_value(page, name, words) for score, words in spans if score > _PRINTED), "")

    def looks(self, page: PageRows) -> dict[str, float]:
        """What the network says of a page that may begin a document: "first" in log odds, kinds; empty if not read."""
        part = next(iter(self.parts(page)), None)
        if part is None:
            return {}
        first = min(max(part.reading.opens, _NEVER), 1 - _NEVER)
        kinds = self.kinds(page)
        return {"first": log(first / (1 - first)), **{name: kinds[name] for name in _TOLD_APART}}


def _parts(page: PageRows, network: Network) -> Iterator[ReadPage]:
    printed = [(word, row.index) for row in page.rows for word in row.words]
    starts = range(0, len(printed), _MAX_WORDS)
    for start in (*starts[:1], *starts[1:][-1:]):  # the beginning and the end of a page of thousands
        require_wanted()
        part = printed[start : start + _MAX_WORDS]
        words = tuple(word for word, _ in part)
        boxes = np.array([page.level(word.box) for word in words], float)
        unit = float(np.median(boxes[:, 3] - boxes[:, 1])) or 1.0
        reading = network.read([word.text for word in words], boxes)
        yield ReadPage(page, words, boxes / unit, tuple(row for _, row in part), reading)


def guesses(parts: Sequence[ReadPage], mark: str, order: DateOrder) -> dict[str, list[Guess]]:
    """The values of each field, likeliest first.

    Args:
        mark: the document's decimal separator.
    """
    forms = _Forms(mark, order)
    found: dict[str, list[Guess]] = {}
    for part in parts:
        for name in READ:
            for score, words in _spans(part, name)[:_MOST]:
                guess = _typed(part.page, name, words, score, forms)
                if guess is not None:
                    found.setdefault(name, []).append(guess)
    for options in found.values():
        options.sort(key=lambda guess: -guess.score)
    return found


def _spans(part: ReadPage, name: str) -> list[tuple[float, tuple[Word, ...]]]:
    """Groups of words with a label, with their probability, likeliest first."""
    scores = part.reading.labels[:, _INDEX[name]]
    chosen = np.flatnonzero((part.reading.labels.argmax(1) == _INDEX[name]) | (scores > _LEAST))
    groups: list[list[int]] = []
    for index in chosen.tolist():
        group = next((group for group in reversed(groups[-5:]) if _goes_on(part, group, index, name)), None)
        if group is None:
            groups.append([index])
        else:
            group.append(index)
    spans = []
    for group in groups:
        score = float(scores[group].mean())
        if name.endswith("Address"):
            score *= min(1.0, len(group) / _WHOLE_ADDRESS)
        words = tuple(part.words[index] for index in group)
        spans.append((score, (*words, *_broken_off(part.page, words[-1])) if name in _IDS else words))
    return sorted(spans, key=lambda span: -span[0])


def _broken_off(page: PageRows, last: Word) -> Sequence[Word]:
    """The first word on the line below, where a number ends its line with a dash: the rest of it."""
    cell = next((cell for cell in page.cells if cell.words[-1] is last), None) if last.text[-1] in "-/" else None
    below = page.rows[cell.row + 1].cells if cell is not None and cell.row + 1 < len(page.rows) else ()
    return next(
        (c.words[:1] for c in below if cell is not None and abs(c.box.left - cell.box.left) < page.line_height), ()
    )


def _goes_on(part: ReadPage, group: Sequence[int], index: int, name: str) -> bool:
    """Whether a value goes on with a word: beside it, or of names and addresses on one of the next lines."""
    last, begins = group[-1], part.reading.begins[index]
    places, down = part.places, part.rows[index] - part.rows[last]
    is_address = name.endswith("Address")
    if down == 0:
        listed = is_address and part.words[last].text.endswith(",")
        return bool((begins < 0.6 or listed) and places[index, 0] - places[last, 2] < _GAP)
    far = places[index, 3] - places[last, 3] >= _NEXT_HEIGHTS
    if not (is_address or name.endswith("Name")) or down > _NEXT_ROWS or far:
        return False
    line = [other for other in group if part.rows[other] == part.rows[last]]
    if begins < 0.1 and down == 1:  # right-aligned, or wrapped in running text
        return True
    if is_address and down == 1 and abs(places[index, 0] - places[line[0], 0]) < 1:
        return bool(begins < 0.9)
    is_below = places[index, 0] < places[line[-1], 2] + _COLUMN and places[index, 2] > places[line[0], 0] - _COLUMN
    return bool(begins < 0.5 and is_below)


def _typed(page: PageRows, name: str, words: tuple[Word, ...], score: float, forms: _Forms) -> Guess | None:
    """A value of the field's type; None where the words print none."""
    if name in ("InvoiceDate", "DueDate"):
        dates = dates_in(words, forms.order, is_ocr=page.page.source == "ocr")[:1]
        return next((Guess(name, d.value, score, words, page, valid=True, ambiguous=d.ambiguous) for d in dates), None)
    if name in AMOUNTS:
        cell = Cell(page.page.number, words, bounding_box(word.box for word in words), 0)
        amounts = [number for number in numbers_in(cell, forms.mark) if not number.percent][-1:]
        return next((Guess(name, format_decimal(n.value), score, n.words, page, number=n) for n in amounts), None)
    value = _text_value(page, name, words)
    if not value:
        return None
    valid = None
    if name.endswith("TaxId"):
        valid = is_valid(value)
    elif name == "IBAN":
        valid = len(value) >= _SHORTEST_IBAN and mod_97_10.is_valid(value[4:] + value[:4])
    return Guess(name, value, score, words, page, valid)


def _text_value(page: PageRows, name: str, words: Sequence[Word]) -> str:
    """A name, address or number; empty where the words print none."""
    text = " ".join(word.text for word in words)
    if name == "IBAN" or name.endswith("TaxId"):
        value = _LABEL_IN_ID.sub("", re.sub(r"[^A-Z0-9]", "", text.rpartition(":")[2].upper()))
        return value if len(value) >= _SHORTEST_TAX_ID and any(map(str.isdecimal, value)) else ""
    if name in _IDS:
        texts = [word.text for word in words]
        value = _joined(list(dropwhile(_MARK.fullmatch, texts)) or texts).rpartition(": ")[2]
        return _DIGIT_RUN.sub(_read_digits, value) if page.page.source == "ocr" else value
    lines = [" ".join(word.text for word in line) for _, line in groupby(words, lambda word: (word.block, word.line))]
    if name.endswith("Name"):
        text = " ".join(_told_once(lines)).strip(" ,;:·|-")
        return "" if is_department(fold(text).text) else _without_address(clean_name(text) or text)
    return ", ".join(line.strip(" ,·-|") for line in lines)


def _without_address(name: str) -> str:
    """A company's name without what follows a comma after its legal form: "…, 2nd Floor"."""
    end = legal_form_end(fold(name).text)
    return name[:end] if end is not None and name[end : end + 1] == "," and any(map(str.isdigit, name[end:])) else name


def _told_once(lines: Sequence[str]) -> list[str]:
    """The lines of a name without those that the longest says again: a logo above the company's whole name."""
    whole = tokens_of(max(lines, key=len))
    return [line for line in lines if tokens_of(line) == whole or not set(tokens_of(line)) <= set(whole)]


_COLUMNS = {"ItemQuantity": "Quantity", "ItemPrice": "UnitPrice", "ItemDiscount": "Discount", "ItemTaxRate": "TaxRate"}
_TEXTS = ("ItemDescription", "ItemCode", "ItemUnit")
_FIRST = LABELS.index("ItemCode")  # of a line's labels, which end the list
_LEAST_OF_LINE = 0.5  # probability that a word is of a line
_CENTS = 2  # decimals of a printed sum
_SUMMED = 2  # lines at least
_TAXES = [LABELS.index(name) for name in ("TaxRate", "TaxBase", "TaxAmount", "SubTotal", "TotalTax")]


def settled_items(
    rules: ItemLines | None, parts: Sequence[ReadPage], pages: Sequence[PageRows], mark: str
) -> ItemLines | None:
    """The lines of rules or of the network: whose sum is printed, then whose amounts follow from quantity and price.

    Args:
        parts: of these pages, as the network reads them; lines of more pages than it reads are the rules'.
        mark: the document's decimal separator.
    """
    lines = learned_lines(parts, mark)
    if len({part.page.page.number for part in parts}) < len(pages):
        lines = []
    tops = {number: top for number, (top, _) in rules.regions.items()} if rules is not None else {}
    learned = item_lines(lines, tops, because("network"), because("network")) if lines else None
    found = [items for items in (rules, learned) if items is not None]
    printed = Counter(
        abs(number.value)
        for page in pages
        for cell in page.cells
        for number in numbers_in(cell, mark)
        if number.decimals == _CENTS and not number.percent
    )
    found += [once for items in found if (once := _each_once(items)) is not items]
    return max(found, key=lambda items: _worth(items, printed), default=None)


def _each_once(items: ItemLines) -> ItemLines:
    """The lines without sums of those before them, carried over pages too, and without an annex that details them."""
    kept: list[FieldRow] = []
    sums, group = [Decimal(0)], 0  # of the lines before each, and where those that the last sum is of end
    for row in items.field.rows:
        values = row.values
        amount = Decimal(values["Amount"])
        is_whole = len(sums) > _SUMMED and amount == sums[-1]
        is_group = len(sums) - group > _SUMMED and amount == sums[-1] - sums[group]
        if "UnitPrice" not in values and (is_whole or is_group):
            group = len(sums) - 1
            continue
        kept.append(row)
        sums.append(sums[-1] + amount)
    pages = [next((place.page for place in row.fields[-1].places), 0) for row in kept]
    for first, (page, following) in enumerate(pairwise(pages), 1):
        earlier, rest = set(sums[: first + 1]), sums[-1] - sums[first]
        if page != following and not earlier.isdisjoint(before + rest for before in earlier):
            del kept[first:]
            break
    return items if len(kept) == len(items.field.rows) else replace(items, field=replace(items.field, rows=tuple(kept)))


def _worth(items: ItemLines, printed: Counter[Decimal]) -> tuple[bool, int, int, int]:
    """How sure lines are: their sum stands beside them, their arithmetic holds, and how much of each is told.

    Args:
        printed: how often each amount is, those of lines too.
    """
    values = [row.values for row in items.field.rows]
    others = printed - Counter(abs(Decimal(value["Amount"])) for value in values)
    named = sum("Description" in value for value in values)
    return abs(items.total) in others, items.reckoned, named, sum(map(len, values))


def learned_lines(parts: Sequence[ReadPage], mark: str) -> list[ItemLine]:
    """The lines of a document, top to bottom.

    Args:
        mark: the document's decimal separator.
    """
    return [
        with_product(line)
        for part in parts
        for line in with_descriptions(list(_entries(part, mark)), max(part.page.line_height, 1e-6))
    ]


def _entries(part: ReadPage, mark: str) -> Iterator[ItemLine | PieceRow | None]:
    """Each row of a part: a line where it has an amount, text where it has other words of lines, else None."""
    rows = {row.index: row for row in part.page.rows}
    for index, pieces in _labelled(part, part.reading.labels[:, _FIRST:], LABELS[_FIRST:], mark):
        row = PieceRow(part.page, rows[index], tuple(piece for _, piece in pieces))
        yield (_line(row, pieces) or row) if pieces else None


def _labelled(
    part: ReadPage, scores: NDArray[np.floating], names: Sequence[str], mark: str
) -> Iterator[tuple[int, list[tuple[str, RowPiece]]]]:
    """Each row's index, and its words from the first to the last that some labels share, parted by these.

    Shapes: scores (words, names), probabilities.
    """
    of_word = [
        names[best] if sure else "" for best, sure in zip(scores.argmax(1), scores.sum(1) > _LEAST_OF_LINE, strict=True)
    ]
    for index, printed in groupby(zip(part.rows, part.words, of_word, strict=True), key=lambda entry: entry[0]):
        words = [(word, name) for _, word, name in printed]
        own = [place for place, (_, name) in enumerate(words) if name] or [0, -1]
        pieces = []
        for name, group in groupby(words[own[0] : own[-1] + 1], key=lambda entry: entry[1]):
            run = [word for word, _ in group]
            is_text = name in _TEXTS
            pieces.append((name, make_piece(part.page, run) if is_text else piece_of(part.page, index, run, mark)))
        yield index, pieces


def _line(row: PieceRow, pieces: Sequence[tuple[str, RowPiece]]) -> ItemLine | None:
    """The line of a row; None where it has no amount."""
    values: dict[str, Value] = {}
    texts: dict[str, tuple[Word, ...]] = {}
    amount: Value | None = None
    for name, piece in pieces:
        if name in _TEXTS:
            texts[name] = (*texts.get(name, ()), *piece.words)
        elif piece.number is None:
            continue
        elif name == "ItemAmount":
            amount = piece_value(piece)
        elif name in _COLUMNS:
            values[_COLUMNS[name]] = piece_value(piece)
    if amount is None or amount.percent:
        return None
    description, code, unit = (texts.get(name, ()) for name in _TEXTS)
    return settled(
        ItemLine(row.page, row.top, row.bottom, amount, values, description=description, code=code, unit=unit)
    )


def learned_taxes(parts: Sequence[ReadPage], mark: str) -> list[TaxRow]:
    """Rows of taxes: each amount with the rate before it, 0 where there is none, and the base in its row.

    Args:
        mark: the document's decimal separator.
    """
    return [row for part in parts for row in _taxes(part, mark)]


def _taxes(part: ReadPage, mark: str) -> Iterator[TaxRow]:
    rows = {row.index: row for row in part.page.rows}
    rate = Decimal(0)
    for index, pieces in _labelled(part, part.reading.labels[:, _TAXES], [LABELS[index] for index in _TAXES], mark):
        base: Number | None = None
        for name, piece in pieces:
            if piece.number is None:
                continue
            if name == "TaxRate":
                rate = abs(piece.number.value)
            elif name in ("TaxBase", "SubTotal"):
                base = piece.number
            elif name == "TaxAmount" or rate:
                yield TaxRow(rate, piece.number, base, part.page, type_of(rows[index].text), "network")
                rate, base = Decimal(0), None
