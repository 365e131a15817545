"""Values of a type on the pages of a document, with the words around them and their place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import NamedTuple

from backend.abandoned import require_wanted
from backend.files.pages import Box, Word, bounding_box
from backend.files.visual_rows import Cell, PageRows, ends_of
from backend.invoices.header.dates import dates_in
from backend.invoices.parties.tax_ids import is_valid
from backend.invoices.records import Field
from backend.tables.numbers import Number, numbers_in
from backend.text.patterns.date_order import DateOrder
from backend.text.patterns.dates import order_of
from backend.text.patterns.folding import fold, letters_of
from backend.text.patterns.numbers import decimal_mark, format_decimal

AMOUNTS = (
    "SubTotal", "TotalTax", "TotalDiscount", "InvoiceTotal", "AmountDue", "WithholdingAmount", "EquivalenceSurcharge",
    "Total", "Tip",
)  # fmt: skip
DATES = ("InvoiceDate", "DueDate", "TransactionDate")
NUMBERS = ("InvoiceId", "PurchaseOrder", "RectifiedInvoiceId")
NAMES = ("VendorName", "CustomerName", "MerchantName")
_MOST_PAGES = 2  # at either end of a document: heads stand on the first, sums on the last
_MOST_ROWS = 400  # of a page
_AROUND = 4  # words that are kept on a side
_ABOVE_ROWS, _ABOVE_HEIGHTS = 3, 5.0
_MOST_WORDS = 8  # of a number or name
_DIGITS = re.compile(r"\d+")


class Place(NamedTuple):
    """Where a value stands on the levelled page, in widths of the page: receipts are as long as what was bought."""

    left: float
    top: float
    right: float
    bottom: float
    end: float  # how far above the last row of the page


class Printed(NamedTuple):
    """A value that is printed, and what stands around it."""

    value: str
    words: tuple[Word, ...]
    page: PageRows
    before: tuple[str, ...]  # words before it in its row, the nearest first, as of `plain`
    above: tuple[str, ...]  # words above it, those of the nearest row first
    place: Place
    after: str  # the word behind it in its cell; empty where it ends the cell
    ambiguous: bool = False
    valid: bool | None = None
    number: Number | None = None  # of an amount


def printed_pages(pages: Sequence[PageRows]) -> PrintedPages:
    """The pages, with the decimal separator and the order of dates that their text tells."""
    text = fold("\n".join(page.page.text for page in pages)).text
    return PrintedPages(pages, decimal_mark(text), order_of(text))


def plain(text: str) -> str:
    """A word without case, accents and punctuation, its digits as "0"."""
    return _DIGITS.sub("0", letters_of(text)) or ("%" if "%" in text else "")


class PrintedPages:
    """The first and the last pages of a document, to be searched.

    Args:
        mark: the document's decimal separator.
        order: of day and month in its dates.
    """

    def __init__(self, pages: Sequence[PageRows], mark: str, order: DateOrder) -> None:
        pages = ends_of(pages, _MOST_PAGES)
        self.pages, self.mark, self.order = pages, mark, order
        self._rows = {page.page.number: [row.words for row in page.rows[:_MOST_ROWS]] for page in pages}
        self._known: dict[str, list[Printed]] = {}

    def amounts(self) -> list[Printed]:
        """Every number that is no rate."""
        return self._once("amounts", self._amounts())

    def dates(self, order: DateOrder | None = None) -> list[Printed]:
        """Every date."""
        return self._once(f"dates {order}", self._dates(order or self.order))

    def tax_ids(self, words: int) -> list[Printed]:
        """Every run of some words that may be a tax number."""
        return self._once(f"tax ids {words}", self._tax_ids(words))

    def runs(self, shape: str, words: int, glue: str) -> list[Printed]:
        """Every run of some words with a shape, as of `shape_of`."""
        return self._once(f"runs {shape} {words} {glue}", self._runs(shape, words, glue))

    def texts(self, label: str) -> list[Printed]:
        """Every cell, and what stands behind a label in one."""
        return self._once(f"texts {label}", self._texts(label))

    def spans(self, may_end: Callable[[Word, Word | None], bool]) -> Iterator[tuple[Printed, Sequence[Word], int, int]]:
        """Every run of words of a cell, with the words of the cell and where in them it begins and ends.

        Args:
            may_end: whether one may end with a word before another; None where the cell ends.
        """
        for page, cell, start in self._cells():
            require_wanted()
            words = cell.words
            for last, (word, behind) in enumerate(zip_longest(words, words[1:]), 1):
                if not may_end(word, behind):
                    continue
                for first in range(max(0, last - _MOST_WORDS), last):
                    text = " ".join(word.text for word in words[first:last])
                    found = self._printed(text, words[first:last], page, cell.row, start + first)
                    yield found, words, first, last

    def find(self, value: str) -> list[Printed]:
        """Where a text is printed, on one line or on several below one another."""
        wanted = letters_of(value)
        return [found for page in self.pages for found in self._find(page, wanted)] if wanted else []

    def at(self, number: int, boxes: Sequence[Box], value: str) -> Printed | None:
        """The words of a page that stand in some boxes, as a value."""
        page = next((page for page in self.pages if page.page.number == number), None)
        if page is None:
            return None
        rows = self._rows[number]
        words = [(i, j, word) for i, row in enumerate(rows) for j, word in enumerate(row) if _is_in(word.box, boxes)]
        if not words:
            return None
        row, column, _ = words[0]
        return self._printed(value, tuple(word for *_, word in words), page, row, column)

    def read_at(self, field: Field) -> Printed | None:
        """What stands at the place of a field."""
        if not field.places:
            return None
        page = field.places[0].page
        return self.at(page, [place.box for place in field.places if place.page == page], field.value)

    def _once(self, key: str, found: Iterator[Printed]) -> list[Printed]:
        if key not in self._known:
            self._known[key] = list(found)
        return self._known[key]

    def _amounts(self) -> Iterator[Printed]:
        for page, cell, start in self._cells():
            for number in numbers_in(cell, self.mark):
                if not number.percent:
                    column = start + cell.words.index(number.words[0])
                    value = format_decimal(number.value)
                    yield self._printed(value, number.words, page, cell.row, column)._replace(number=number)

    def _dates(self, order: DateOrder) -> Iterator[Printed]:
        for page, cell, start in self._cells():
            for date in dates_in(cell.words, order, is_ocr=page.page.source == "ocr"):
                found = self._printed(date.value, date.words, page, cell.row, start + date.first)
                yield found._replace(ambiguous=date.ambiguous and not order.settled, valid=True)

    def _tax_ids(self, count: int) -> Iterator[Printed]:
        for page, row, column, words in self._windows(count):
            value = "".join(filter(str.isalnum, "".join(word.text for word in words).rpartition(":")[2])).upper()
            if 8 <= len(value) <= 15 and sum(map(str.isdecimal, value)) >= 6:
                yield self._printed(value, words, page, row, column)._replace(valid=is_valid(value))

    def _runs(self, shape: str, count: int, glue: str) -> Iterator[Printed]:
        for page, row, column, words in self._windows(count):
            value = glue.join(word.text for word in words)
            if shape_of(value) == shape:
                yield self._printed(value, words, page, row, column)

    def _texts(self, label: str) -> Iterator[Printed]:
        for page, cell, start in self._cells():
            for first in (0, *(i + 1 for i, word in enumerate(cell.words[:-1]) if label and plain(word.text) == label)):
                words = cell.words[first : first + _MOST_WORDS]
                yield self._printed(" ".join(w.text for w in words), words, page, cell.row, start + first)

    def _cells(self) -> Iterator[tuple[PageRows, Cell, int]]:
        """Cells with the index of their first word in the row."""
        for page in self.pages:
            for row in page.rows[:_MOST_ROWS]:
                start = 0
                for cell in row.cells:
                    yield page, cell, start
                    start += len(cell.words)

    def _windows(self, count: int) -> Iterator[tuple[PageRows, int, int, tuple[Word, ...]]]:
        for page, cell, start in self._cells():
            for first in range(len(cell.words) - count + 1):
                words = cell.words[first : first + count]
                if any(character.isdecimal() for word in words for character in word.text):
                    yield page, cell.row, start + first, words

    def _find(self, page: PageRows, wanted: str) -> Iterator[Printed]:
        for row, words in enumerate(self._rows[page.page.number]):
            texts = [letters_of(word.text) for word in words]
            for column, text in enumerate(texts):
                if text and wanted.startswith(text):
                    found = self._run(page, row, column, wanted)
                    if found:
                        yield self._printed(" ".join(w.text for w in found), tuple(found), page, row, column)

    def _run(self, page: PageRows, row: int, column: int, wanted: str) -> list[Word]:
        """Words that print a text, from one on; on the next rows below the first word."""
        rows = self._rows[page.page.number]
        found: list[Word] = []
        left, words = rows[row][column].box.left, rows[row][column:]
        for _ in range(_MOST_WORDS):
            for word in words:
                text = letters_of(word.text)
                if not wanted.startswith(text):
                    break
                wanted = wanted[len(text) :]
                found.append(word)
                if not wanted:
                    return found
            row += 1
            if row >= len(rows):
                break
            words = tuple(word for word in rows[row] if word.box.left > left - page.line_height)
        return []

    def _printed(self, value: str, words: Sequence[Word], page: PageRows, row: int, column: int) -> Printed:
        rows = self._rows[page.page.number]
        box = page.level(bounding_box(word.box for word in words))
        wide = page.page.width or 1.0
        end = (page.rows[-1].box.bottom - box.bottom) / wide
        place = Place(box.left / wide, box.top / wide, box.right / wide, box.bottom / wide, end)
        before = [
            text for word in reversed(rows[row][max(0, column - 2 * _AROUND) : column]) if (text := plain(word.text))
        ]
        beside = rows[row][column + len(words) : column + len(words) + 1]
        after = plain(beside[0].text) if beside and beside[0].box.left - words[-1].box.right < page.line_height else ""
        return Printed(value, tuple(words), page, tuple(before[:_AROUND]), self._above(page, row, box), place, after)

    def _above(self, page: PageRows, row: int, box: Box) -> tuple[str, ...]:
        rows, found = self._rows[page.page.number], []
        reach = page.line_height
        for above in range(row - 1, max(-1, row - 1 - _ABOVE_ROWS), -1):
            if box.top - page.rows[above].box.bottom > _ABOVE_HEIGHTS * reach:
                break
            words = [w for w in rows[above] if w.box.right > box.left - reach and w.box.left < box.right + reach]
            found += [text for word in words if (text := plain(word.text))]
            if len(found) >= _AROUND:
                break
        return tuple(found[:_AROUND])


def _is_in(box: Box, boxes: Sequence[Box]) -> bool:
    x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    return any(other.left <= x <= other.right and other.top <= y <= other.bottom for other in boxes)


def shape_of(text: str) -> str:
    """The form of a number: runs of digits as "0", of letters as "A"."""
    kinds = ("0" if c.isdecimal() else "A" if c.isalpha() else c for c in fold(text).text)
    return "".join(kind for kind, _ in groupby(kinds))
