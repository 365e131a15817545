"""A file as it was read: pages of words, each with its box and its place in the text. Every output is made of this.

Boxes are in the units of their page, origin at the top left of the page as it stands upright: points for a page of a
PDF, whoever read it, and pixels for an image. What a viewer shows, a PDF's /Rotate and an image's EXIF orientation
obeyed, may still lie on its side: `Page.rotation` says how far it was turned, and boxes are those after the turn.
Places are half-open and count Unicode code points.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Literal, NamedTuple

Source = Literal["text_layer", "ocr"]

POINTS_PER_INCH = 72.0  # of PDF user space, ISO 32000-1, 8.3.2.3
WORD_GAP, LINE_GAP, BLOCK_GAP = " ", "\n", "\n\n"
# Between pages. The form feed is what pdftotext writes; with the line break before it, sentences and patterns read an
# end of paragraph there, so that no account number goes on from a page's last line into the next page's head.
PAGE_GAP = "\n\f"


class Box(NamedTuple):
    """A rectangle with its sides along the page's; ``right`` and ``bottom`` are the far edges."""

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

    def scaled(self, factor: float) -> Box:
        """The same rectangle in other units."""
        return Box(self.left * factor, self.top * factor, self.right * factor, self.bottom * factor)


def around(boxes: Iterable[Box]) -> Box:
    """The smallest box that holds them all.

    Raises:
        ValueError: there is none.
    """
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return Box(min(lefts), min(tops), max(rights), max(bottoms))


class Seen(NamedTuple):
    """A word before it has a place in a text: what an engine or a text layer gives."""

    text: str
    box: Box
    confidence: float = 1.0  # 0 to 1; 1 for a text layer


@dataclass(frozen=True, slots=True)
class Word:
    """One word; ``text`` is ``page.text[start:end]``."""

    text: str
    box: Box
    confidence: float  # 0 to 1; 1 for a text layer
    start: int
    end: int
    line: int  # counted through the page from 0; words of a line follow each other
    block: int  # the same for blocks; lines of a block follow each other


@dataclass(frozen=True, slots=True)
class Page:
    """One page, upright."""

    number: int  # from 1, in the file: page 3 of a request for pages 3-5 is 3
    width: float  # page units
    height: float  # page units
    units_per_inch: float  # 72 for a PDF; an image's own resolution, or 72 where it says none
    rotation: int  # 0, 90, 180 or 270: degrees clockwise that what a viewer shows was turned to stand upright
    text: str
    words: tuple[Word, ...]  # in reading order, by start
    source: Source
    why: str  # why this source: one sentence
    engine: str  # "pdfium", "tesseract 5.3.0", "rapidocr 3.10"
    confidence: float | None = None  # of the page, 0 to 1; None where nothing can tell
    language: str | None = None  # ISO 639-1 of the text, or None


@dataclass(frozen=True, slots=True)
class Document:
    """One file. ``page_count`` is the file's own, also where fewer pages were read."""

    kind: str  # "pdf", "png", "jpeg", "tiff", "webp", "bmp", "gif", "heic"
    pages: tuple[Page, ...]
    page_count: int
    sha256: str  # of the file's bytes, hexadecimal
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text of all pages, `PAGE_GAP` between them; joined anew at each call."""
        return PAGE_GAP.join(page.text for page in self.pages)

    @property
    def page_starts(self) -> tuple[int, ...]:
        """Where the text of each page of ``pages`` begins in `text`."""
        lengths = [len(page.text) + len(PAGE_GAP) for page in self.pages]
        return tuple(accumulate(lengths[:-1], initial=0)) if lengths else ()


def make_page(
    blocks: Iterable[Iterable[Iterable[Seen]]],
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
) -> Page:
    """A page of the words of lines of blocks, in reading order: its text is made of them, and their places in it.

    Words are joined by a blank, lines by a line break, blocks by an empty line. A word's own white space becomes one
    blank, and what no output can carry (control characters, half a surrogate pair) is left out, so that every format
    says the same; a word, line or block that is then empty is none.
    """
    pieces: list[str] = []
    words: list[Word] = []
    place = line_index = block_index = 0
    for block in blocks:
        gap = BLOCK_GAP
        for line in block:
            seen = [one for one in map(_clean, line) if one.text]
            for one in seen:
                if words:
                    pieces.append(gap)
                    place += len(gap)
                end = place + len(one.text)
                pieces.append(one.text)
                words.append(Word(one.text, one.box, one.confidence, place, end, line_index, block_index))
                place, gap = end, WORD_GAP
            if seen:
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
    )


def blocks_of(page: Page) -> list[list[list[Word]]]:
    """The words of the lines of the blocks of a page: what `make_page` was given, with places."""
    lines = [list(words) for _, words in groupby(page.words, attrgetter("block", "line"))]
    return [list(group) for _, group in groupby(lines, lambda line: line[0].block)]


def plain_text(text: str) -> str:
    """A text on one line, without what neither XML 1.0 nor UTF-8 can hold; the same object where nothing is to do."""
    if text.isprintable() and " " not in text:
        return text
    return " ".join("".join(filter(_can_be_written, text)).split())


def _clean(seen: Seen) -> Seen:
    text = plain_text(seen.text)
    return seen if text == seen.text else seen._replace(text=text)


def _can_be_written(character: str) -> bool:
    if character.isspace():
        return True
    return unicodedata.category(character) not in ("Cc", "Cs") and ord(character) & 0xFFFE != 0xFFFE
