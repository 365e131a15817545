"""Values of fields from the words that the network labels: grouped, then read by the readers of their type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from stdnum.iso7064 import mod_97_10

from backend.abandoned import require_wanted
from backend.files.pages import Word, bounding_box
from backend.files.visual_rows import Cell, PageRows, ends_of
from backend.invoices.header.dates import dates_in
from backend.invoices.header.ids import id_in
from backend.invoices.label_match import tokens_of
from backend.invoices.parties.names import clean_name, is_department, legal_form_end
from backend.invoices.parties.tax_ids import is_valid
from backend.models.fields_network import KINDS, LABELS, Network, Reading
from backend.tables.numbers import Number, numbers_in
from backend.text.patterns.date_order import DateOrder
from backend.text.patterns.folding import fold
from backend.text.patterns.numbers import format_decimal

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
        printed = id_in(words, is_ocr=page.page.source == "ocr")
        if printed is not None and not printed.rest:
            return printed.value
        return text.rpartition(": ")[2].strip(".,:;()#|")
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
