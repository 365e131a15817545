"""Values of a type on the pages of a document, with the words around them and their place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from itertools import groupby, zip_longest
from typing import NamedTuple

from backend.abandoned import require_wanted
from backend.files.pages import Box, Word, bounding_box
from backend.files.visual_rows import Cell, PageRows, ends_of
from backend.invoices.header.dates import dates_in
from backend.invoices.parties.tax_ids import is_valid
from backend.invoices.records import Field
from backend.tables.numbers import Number, numbers_in
from backend.text.patterns.amounts import decimal_mark, format_decimal
from backend.text.patterns.dates import DateOrder, order_of
from backend.text.patterns.folding import fold, letters_of

AMOUNTS = (
    "SubTotal", "TotalTax", "TotalDiscount", "InvoiceTotal", "AmountDue", "WithholdingAmount", "EquivalenceSurcharge",
    "Total", "Tip",
)  # fmt: skip
RATES = ("WithholdingRate",)
DATES = ("InvoiceDate", "DueDate", "TransactionDate")
NUMBERS = ("InvoiceId", "PurchaseOrder", "RectifiedInvoiceId")
NAMES = ("VendorName", "CustomerName", "MerchantName")
_MAX_PAGES = 2  # at either end of a document: heads stand on the first, sums on the last
_MAX_ROWS = 400  # of a page
_AROUND = 4  # words that are kept on a side
_ABOVE_ROWS, _ABOVE_HEIGHTS = 3, 5.0
_MAX_WORDS = 12  # of a number, a name or a line of an address
_MORE_ROWS = 2  # of an address than the example's has
_GAP = 2.0  # line heights between the lines of a value
DATE_FORMS = ("dmy", "mdy", "ymd")  # orders of a date's figures
_DATE_WORDS = 3  # "24 10 2023"
_CENTURY, _YEARS = 2000, (1970, 2100)
_DIGITS = re.compile(r"\d+")
_POSTCODE = re.compile(r"\d{4}")
_LABEL_ENDS = re.compile("[:º°]")  # "NIF:", "Nº"


class PageArea(NamedTuple):
    """Where a value stands on the levelled page, in widths of the page: receipts are as long as what was bought."""

    left: float
    top: float
    right: float
    bottom: float
    end: float  # how far above the last row of the page


class Extent(NamedTuple):
    """How far a name or an address reaches."""

    rows: int  # lines; an address may have one or two more or fewer
    after: str  # the word or mark before which its last line ends; empty where that ends its cell
    below: str  # the word or mark with which the line below it begins; empty where none is near
    marks: bool  # marks between its words are part of it
    postcode: bool  # it has a figure of four digits or more

    def ends_at(self, word: Word) -> bool:
        """Whether it ends before a word of its last line."""
        text = plain(word.text)
        return (text or word.text) == self.after or not (text or self.marks)


class Printed(NamedTuple):
    """A value that is printed, and what stands around it."""

    value: str
    words: tuple[Word, ...]
    page: PageRows
    before: tuple[str, ...]  # words before it in its row, the nearest first, as of `plain`
    above: tuple[str, ...]  # words above it, those of the nearest row first
    place: PageArea
    after: str  # the word or mark behind it in its cell; empty where it ends the cell
    below: str = ""  # the first word of the line below its last one; empty where there is none near
    rows: int = 1  # lines that it takes
    ambiguous: bool = False
    valid: bool | None = None
    number: Number | None = None  # of an amount

    @property
    def box(self) -> Box:
        """On the levelled page."""
        return self.page.level(bounding_box(word.box for word in self.words))


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
        pages = ends_of(pages, _MAX_PAGES)
        self.pages, self.mark, self.order = pages, mark, order
        self._rows = {page.page.number: [row.words for row in page.rows[:_MAX_ROWS]] for page in pages}
        self._at = {
            (number, word.start): (row, column)
            for number, rows in self._rows.items()
            for row, words in enumerate(rows)
            for column, word in enumerate(words)
        }
        self._changing: set[tuple[int, int]] = set()
        self._known: dict[str, list[Printed]] = {}

    def amounts(self) -> list[Printed]:
        """Every number that is no rate."""
        return self._once("amounts", self._amounts())

    def dates(self, form: str = "") -> list[Printed]:
        """Every date; with forms of `DATE_FORMS` those of figures alone, in the first that fits."""
        return self._once(f"dates {form}", self._figures(form) if form else self._dates())

    def tax_ids(self, words: int) -> list[Printed]:
        """Every run of some words that may be a tax number."""
        return self._once(f"tax ids {words}", self._tax_ids(words))

    def runs(self, shape: str, words: int, glue: str) -> list[Printed]:
        """Every run of some words with a shape, as of `shape_of`."""
        return self._once(f"runs {shape} {words} {glue}", self._runs(shape, words, glue))

    def blocks(self, label: str, extent: Extent) -> list[Printed]:
        """Every cell, and what stands behind a label in one, with the cells below it; a line break between lines."""
        return self._once(f"blocks {label} {extent}", self._blocks(label, extent))

    def without(self, value: Printed) -> list[Printed]:
        """Take no words of a value around others: each paper has other ones. A name's wherever it is printed."""
        again = [] if any(map(str.isdecimal, value.value)) else self.find(value.value)
        for one in (value, *again):
            self.without_words(one.words, one.page.page.number)
        return [value, *again]

    def without_words(self, changing: Iterable[Word], page: int) -> None:
        """The same for some words of a page."""
        self._changing.update((page, word.start) for word in changing)

    def around(self, found: Printed) -> Printed:
        """The value with the words around it that are the same on each paper."""
        return self.printed(found.value, found.words, found.page)

    def spans(self, may_end: Callable[[Word, Word | None], bool]) -> Iterator[tuple[Printed, Sequence[Word], int, int]]:
        """Every run of words of a cell, with the words of the cell and where in them it begins and ends.

        Args:
            may_end: whether one may end with a word before another; None where the cell ends.
        """
        for page, cell in self._cells():
            require_wanted()
            words = cell.words
            for last, (word, behind) in enumerate(zip_longest(words, words[1:]), 1):
                if not may_end(word, behind):
                    continue
                for first in range(max(0, last - _MAX_WORDS), last):
                    text = " ".join(word.text for word in words[first:last])
                    found = self.printed(text, words[first:last], page)
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
        words = tuple(word for row in self._rows[number] for word in row if _is_in(word.box, boxes))
        return self.printed(value, words, page) if words else None

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
        for page, cell in self._cells():
            for number in numbers_in(cell, self.mark):
                if not number.percent:
                    yield self.printed(format_decimal(number.value), number.words, page)._replace(number=number)

    def _dates(self) -> Iterator[Printed]:
        for page, cell in self._cells():
            for day in dates_in(cell.words, self.order, is_ocr=page.page.source == "ocr"):
                found = self.printed(day.value, day.words, page)
                yield found._replace(ambiguous=day.ambiguous and not self.order.settled, valid=True)

    def _figures(self, form: str) -> Iterator[Printed]:
        for count in range(1, _DATE_WORDS + 1):
            for page, words in self._windows(count):
                if all(any(map(str.isdecimal, word.text)) for word in words):
                    text = " ".join(word.text for word in words)
                    value = next((day for one in form.split() if (day := date_of(text, one))), "")
                    if value:
                        yield self.printed(value, words, page)._replace(valid=True)

    def _tax_ids(self, count: int) -> Iterator[Printed]:
        for page, words in self._windows(count):
            text = _LABEL_ENDS.split("".join(word.text for word in words))[-1]
            value = "".join(filter(str.isalnum, text)).upper()
            if 8 <= len(value) <= 15 and sum(map(str.isdecimal, value)) >= 6:
                yield self.printed(value, words, page)._replace(valid=is_valid(value))

    def _runs(self, shape: str, count: int, glue: str) -> Iterator[Printed]:
        for page, words in self._windows(count):
            value = glue.join(word.text for word in words)
            if shape_of(value) == shape:
                yield self.printed(value, words, page)

    def _blocks(self, label: str, extent: Extent) -> Iterator[Printed]:
        for page, cell in self._cells():
            for first in (0, *(i + 1 for i, word in enumerate(cell.words[:-1]) if label and plain(word.text) == label)):
                lines = [cell.words[first : first + _MAX_WORDS]]
                lines += self._lines_below(page, cell.row, lines[0], extent)
                lines[-1] = lines[-1][: next((i for i, w in enumerate(lines[-1]) if i and extent.ends_at(w)), None)]
                words = tuple(word for line in lines for word in line)
                yield self.printed("\n".join(" ".join(word.text for word in line) for line in lines), words, page)

    def _lines_below(self, page: PageRows, row: int, words: Sequence[Word], extent: Extent) -> list[tuple[Word, ...]]:
        """The cells below some words that are their block's next lines."""
        found: list[tuple[Word, ...]] = []
        box = page.level(bounding_box(word.box for word in words))
        bottom, whole = box.bottom, not extent.postcode or _has_postcode(words)
        for under in page.rows[row + 1 : row + 2 * extent.rows + _MORE_ROWS]:
            enough = len(found) + 1 >= extent.rows and whole
            if under.box.top - bottom > _GAP * page.line_height or (enough and not extent.below):
                break
            cell = next((cell for cell in under.cells if cell.box.aside(box) < page.line_height), None)
            if cell is None:
                continue
            if extent.below and _mark_or_word(cell.words[0]) == extent.below:
                return found
            found.append(cell.words[:_MAX_WORDS])
            bottom, whole = cell.box.bottom, whole or _has_postcode(cell.words)
        return found if not extent.below else found[: extent.rows - 1]

    def _cells(self) -> Iterator[tuple[PageRows, Cell]]:
        for page in self.pages:
            for row in page.rows[:_MAX_ROWS]:
                for cell in row.cells:
                    yield page, cell

    def _windows(self, count: int) -> Iterator[tuple[PageRows, tuple[Word, ...]]]:
        for page, cell in self._cells():
            for first in range(len(cell.words) - count + 1):
                words = cell.words[first : first + count]
                if any(character.isdecimal() for word in words for character in word.text):
                    yield page, words

    def _find(self, page: PageRows, wanted: str) -> Iterator[Printed]:
        for row, words in enumerate(self._rows[page.page.number]):
            texts = [letters_of(word.text) for word in words]
            for column, text in enumerate(texts):
                if _begins(wanted, text):
                    found = self._run(page, row, column, wanted)
                    if found:
                        yield self.printed(" ".join(w.text for w in found), tuple(found), page)

    def _run(self, page: PageRows, row: int, column: int, wanted: str) -> list[Word]:
        """Words that print a text, from one on; a line goes on below, whatever stands beside it or between."""
        found: list[Word] = []
        rows = page.rows[row : min(row + _MAX_WORDS, _MAX_ROWS)]
        line = rows[0].words[column:]
        box = line[0].box
        for below in (*rows[1:], None):
            own: list[Word] = []
            for word in line:
                text = letters_of(word.text)
                if not wanted.startswith(text):
                    break
                wanted = wanted[len(text) :]
                own.append(word)
                if not wanted:
                    return [*found, *own]
            if below is None:
                break
            found += own
            box = bounding_box(word.box for word in own) if own else box
            cells = (cell for cell in below.cells if cell.box.shares_width(box))
            goes_on = (word for cell in cells for word in cell.words if _begins(wanted, letters_of(word.text)))
            first = next(goes_on, None)
            line = () if first is None else below.words[below.words.index(first) :]
        return []

    def printed(self, value: str, words: Sequence[Word], page: PageRows) -> Printed:
        """A value of some words with what stands around them."""
        number = page.page.number
        rows = self._rows[number]
        row, column = self._at[number, words[0].start]
        last, end = self._at[number, words[-1].start]
        box = page.level(bounding_box(word.box for word in words))
        wide = page.page.width or 1.0
        place = PageArea(
            box.left / wide, box.top / wide, box.right / wide, box.bottom / wide,
            (page.rows[-1].box.bottom - box.bottom) / wide,
        )  # fmt: skip
        before = self._plain(number, reversed(rows[row][max(0, column - 2 * _AROUND) : column]))
        beside = rows[last][end + 1 : end + 2]
        is_near = beside and beside[0].box.left - words[-1].box.right < page.line_height
        after = _mark_or_word(beside[0]) if is_near else ""
        under = page.rows[last + 1] if last + 1 < len(rows) else None
        below = ""
        if under is not None and under.box.top - box.bottom < _GAP * page.line_height:
            next_lines = (c.words[0] for c in under.cells if c.box.aside(box) < page.line_height)
            below = next(map(_mark_or_word, next_lines), "")
        lines = len({self._at[number, word.start][0] for word in words})
        return Printed(value, tuple(words), page, before, self._above(page, row, box), place, after, below, lines)

    def _plain(self, number: int, words: Iterable[Word]) -> tuple[str, ...]:
        """The nearest of some words that are the same on each paper."""
        same = (word for word in words if (number, word.start) not in self._changing)
        return tuple(text for word in same if (text := plain(word.text)))[:_AROUND]

    def _above(self, page: PageRows, row: int, box: Box) -> tuple[str, ...]:
        rows, found = self._rows[page.page.number], list[str]()
        reach = page.line_height
        for above in range(row - 1, max(-1, row - 1 - _ABOVE_ROWS), -1):
            if box.top - page.rows[above].box.bottom > _ABOVE_HEIGHTS * reach:
                break
            words = [w for w in rows[above] if w.box.right > box.left - reach and w.box.left < box.right + reach]
            found += self._plain(page.page.number, words)
            if len(found) >= _AROUND:
                break
        return tuple(found[:_AROUND])


def _has_postcode(words: Sequence[Word]) -> bool:
    return any(_POSTCODE.search(word.text) for word in words)


def _mark_or_word(word: Word) -> str:
    return plain(word.text) or word.text


def date_of(text: str, form: str) -> str:
    """The day that three figures say, by a form of `DATE_FORMS`, in ISO 8601; empty where they say none."""
    figures = _DIGITS.findall(text)
    if len(figures) != len(form) or any(map(str.isalpha, text)):
        return ""
    parts = dict(zip(form, figures, strict=True))
    try:
        year = int(parts["y"]) + (_CENTURY if len(parts["y"]) == 2 else 0)
        return date(year, int(parts["m"]), int(parts["d"])).isoformat() if _YEARS[0] <= year < _YEARS[1] else ""
    except ValueError:
        return ""


def _begins(text: str, word: str) -> bool:
    return bool(word) and text.startswith(word)


def _is_in(box: Box, boxes: Sequence[Box]) -> bool:
    x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    return any(other.left <= x <= other.right and other.top <= y <= other.bottom for other in boxes)


def shape_of(text: str) -> str:
    """The form of a number: runs of digits as "0", of letters as "A"."""
    kinds = ("0" if c.isdecimal() else "A" if c.isalpha() else c for c in fold(text).text)
    return "".join(kind for kind, _ in groupby(kinds))
