"""The word model: a document as pages of words, each with its box and its span in the text. Outputs are made of this.

Boxes are in page units (points for a PDF, pixels for an image) with the origin at the top left of the upright page. A
page as a viewer shows it, with a PDF's /Rotate or an image's EXIF orientation applied, may still lie on its side:
`Page.rotation` is the turn that sets it upright, and boxes are those after the turn. Spans are half-open and count
Unicode code points.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Literal, NamedTuple

from backend.files.einvoice.records import EInvoice

Source = Literal["text_layer", "ocr", "speech"]

POINTS_PER_INCH = 72.0  # of PDF user space, ISO 32000-1, 8.3.2.3
WORD_GAP, LINE_GAP, BLOCK_GAP = " ", "\n", "\n\n"
# Between pages. The form feed is what pdftotext writes; with the line break before it, sentences and patterns take it
# for the end of a paragraph, so that no account number continues from a page's last line into the next page's header.
PAGE_GAP = "\n\f"


class Box(NamedTuple):
    """An axis-aligned rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    def shares_width(self, other: Box) -> bool:
        """Whether one stands above, below or on the other: they share a part of the page's width."""
        return self.left < other.right and other.left < self.right

    def gap(self, other: Box) -> float:
        """The white between them sideways; negative where they share a part of the page's width."""
        return max(self.left - other.right, other.left - self.right)

    def aside(self, other: Box) -> float:
        """How far apart the nearest of their left sides, right sides and middles are."""
        left, right = self.left - other.left, self.right - other.right
        return min(abs(left), abs(right), abs(left + right) / 2)

    def scaled(self, factor: float) -> Box:
        """The same rectangle in other units."""
        return Box(self.left * factor, self.top * factor, self.right * factor, self.bottom * factor)


def bounding_box(boxes: Iterable[Box]) -> Box:
    """The smallest box that contains all of them.

    Raises:
        ValueError: ``boxes`` is empty.
    """
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return Box(min(lefts), min(tops), max(rights), max(bottoms))


class Ruling(NamedTuple):
    """A printed line, almost level or almost upright, from its upper or left end to the other; in page units."""

    x0: float
    y0: float
    x1: float
    y1: float


class GridCell(NamedTuple):
    """A cell of a `Grid`: its place, and its words as a range of the page's."""

    row: int  # from 0
    column: int  # from 0
    rowspan: int
    colspan: int
    first: int
    past: int


class Grid(NamedTuple):
    """A table as a file itself has it."""

    rows: int
    columns: int
    header_rows: int
    cells: tuple[GridCell, ...]  # those with words, by row and column


SET = "typeset"  # the engine of pages that were set here, of a file that has none: boxes are as the page is drawn


class RawWord(NamedTuple):
    """A word from an OCR engine or a text layer, without a span in a text yet."""

    text: str
    box: Box
    confidence: float = 1.0  # 0 to 1; 1 for a text layer
    is_joined: bool = False  # to the word before it on its line, without a space


@dataclass(frozen=True, slots=True)
class Word:
    """One word; ``text`` is ``page.text[start:end]``."""

    text: str
    box: Box
    confidence: float  # 0 to 1; 1 for a text layer
    start: int
    end: int
    line: int  # index on the page; words of a line are consecutive
    block: int  # index on the page; lines of a block are consecutive


@dataclass(frozen=True, slots=True)
class Page:
    """One page, upright."""

    number: int  # from 1, in the file: page 3 of a request for pages 3-5 is 3
    width: float  # page units
    height: float  # page units
    units_per_inch: float  # 72 for a PDF; an image's resolution, or 72 where it states none
    rotation: int  # 0, 90, 180 or 270: degrees clockwise from what a viewer shows to upright
    text: str
    words: tuple[Word, ...]  # in reading order, by start
    source: Source
    why: str  # one sentence: why this source
    engine: str  # "pdfium", "tesseract 5.3.0", "rapidocr 3.10"
    confidence: float | None = None  # of the page, 0 to 1; None where it is unknown
    language: str | None = None  # ISO 639-1 of the text, or None
    incomplete: bool = False  # a part of it could not be read, as ``why`` says
    rulings: tuple[Ruling, ...] = ()  # the lines of tables, boxes and forms, as drawn or as seen in the image
    part: str = ""  # of the file: a sheet, a slide, a chapter, an attachment; empty where it has none
    attachment: int = 0  # which file in a mail or an archive it is of, from 1; 0: of no other than the file itself
    grids: tuple[Grid, ...] | None = None  # its tables where the file has them as such; None: they are to be found


BarcodeFormats = Literal["QRCode", "AllReadable"]  # zxing's names of kinds that are looked for


@dataclass(frozen=True, slots=True)
class Barcode:
    """A code for machines on a page: bars, or a QR code and its like."""

    page: int  # its number
    kind: str  # by zxing's name: "QRCode", "EAN13", …
    text: str  # what it says
    box: Box  # on the upright page


@dataclass(frozen=True, slots=True)
class Document:
    """One file. ``page_count`` is the file's, even if fewer pages were read."""

    kind: str  # "pdf", "png", "docx", "eml", …: of `FileType`
    pages: tuple[Page, ...]
    page_count: int
    sha256: str  # of the file's bytes, hexadecimal
    metadata: Mapping[str, str] = field(default_factory=dict)
    einvoice: EInvoice | None = None  # what XML in the file, or beside it, says
    barcodes: tuple[Barcode, ...] = ()  # of all pages, where they were asked for

    @property
    def text(self) -> str:
        """The texts of all pages, joined with `PAGE_GAP` at each call."""
        return PAGE_GAP.join(page.text for page in self.pages)

    @property
    def characters(self) -> int:
        """Those of all pages."""
        return sum(len(page.text) for page in self.pages)

    @property
    def page_starts(self) -> tuple[int, ...]:
        """Where the text of each of ``pages`` begins in `text`."""
        lengths = [len(page.text) + len(PAGE_GAP) for page in self.pages]
        return tuple(accumulate(lengths[:-1], initial=0)) if lengths else ()


@cache
def _offsets() -> Sequence[int]:
    return tuple(range(2**17))


def shared_offset(number: int) -> int:
    """The number as the one object of its value. Each page's words count from 0: a million of two numbers are 64 MB."""
    offsets = _offsets()
    return offsets[number] if 0 <= number < len(offsets) else number


def make_page(
    blocks: Iterable[Iterable[Iterable[RawWord]]],
    *,
    number: int,
    width: float,
    height: float,
    source: Source,
    why: str,
    engine: str,
    units_per_inch: float = POINTS_PER_INCH,
    rotation: int = 0,
    confidence: float | None = None,
    language: str | None = None,
    incomplete: bool = False,
    rulings: Iterable[Ruling] = (),
) -> Page:
    """Build a page, its text and the spans of its words from blocks of lines of words in reading order.

    Words are joined by a space where they are not `RawWord.is_joined`, lines by a line break, blocks by an empty line.
    White space inside a word becomes one space, and what no output format can represent (control characters, lone
    surrogates) is removed, so that all formats agree; words, lines and blocks that are then empty are dropped.
    """
    pieces: list[str] = []
    words: list[Word] = []
    offset = line_index = block_index = 0
    for block in blocks:
        gap = BLOCK_GAP
        for line in block:
            cleaned = [word for word in map(_clean, line) if word.text]
            for word in cleaned:
                if gap == WORD_GAP and word.is_joined:
                    gap = ""
                if words:
                    pieces.append(gap)
                    offset += len(gap)
                end = offset + len(word.text)
                pieces.append(word.text)
                span = shared_offset(offset), shared_offset(end)
                words.append(Word(word.text, word.box, word.confidence, *span, line_index, block_index))
                offset, gap = end, WORD_GAP
            if cleaned:
                line_index, gap = line_index + 1, LINE_GAP
        if gap == LINE_GAP:
            block_index += 1
    return Page(
        number=number,
        width=width,
        height=height,
        units_per_inch=units_per_inch,
        rotation=rotation,
        text="".join(pieces),
        words=tuple(words),
        source=source,
        why=why,
        engine=engine,
        confidence=confidence,
        language=language,
        incomplete=incomplete,
        rulings=tuple(rulings),
    )


def blocks_of(page: Page) -> list[list[list[Word]]]:
    """The words of a page nested into blocks and lines, as they were passed to `make_page`."""
    lines = [list(words) for _, words in groupby(page.words, attrgetter("block", "line"))]
    return [list(group) for _, group in groupby(lines, lambda line: line[0].block)]


def printable_line(text: str) -> str:
    """The text on one line, without characters that XML 1.0 or UTF-8 cannot represent."""
    if text.isprintable():
        return " ".join(text.split())
    return " ".join("".join(filter(_is_representable, text)).split())


def _clean(word: RawWord) -> RawWord:
    text = printable_line(word.text)
    return word if text == word.text else word._replace(text=text)


def _is_representable(character: str) -> bool:
    if character.isspace():
        return True
    return unicodedata.category(character) not in ("Cc", "Cs") and ord(character) & 0xFFFE != 0xFFFE


@dataclass(frozen=True, slots=True)
class TextLocation:
    """The part of a span that is on one line."""

    page: int  # its number, from 1
    box: Box  # page units


def locate(document: Document, start: int, end: int) -> list[TextLocation]:
    """The boxes of ``document.text[start:end]`` in reading order, one for each line.

    A word that the span only touches counts in full: engines give boxes of words, not of letters, and whatever is
    marked or blacked out must be covered completely. An empty span, one of gaps only, or one beyond the text has none.
    """
    if start >= end:
        return []
    starts = document.page_starts
    first = max(0, bisect_right(starts, start) - 1)
    last = bisect_left(starts, end)
    return [
        place
        for page, offset in zip(document.pages[first:last], starts[first:last], strict=True)
        for place in _on_page(page, start - offset, end - offset)
    ]


def _on_page(page: Page, start: int, end: int) -> Iterator[TextLocation]:
    first = bisect_right(page.words, start, key=attrgetter("end"))
    last = bisect_left(page.words, end, lo=first, key=attrgetter("start"))
    for row in printed_rows(page.words[first:last]):
        yield TextLocation(page.number, bounding_box(word.box for word in row))


def printed_rows(words: Iterable[Word]) -> Iterator[list[Word]]:
    """The words of each line; a line that was wrapped where the page was set is several."""
    row: list[Word] = []
    for word in words:
        if row and (word.line != row[-1].line or word.box.top >= row[-1].box.bottom):
            yield row
            row = []
        row.append(word)
    if row:
        yield row
