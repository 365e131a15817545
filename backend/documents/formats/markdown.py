"""Markdown (CommonMark with GitHub's tables): headings, paragraphs, lists, tables.

A heading is a short block in larger letters than the document's body text. A line break is kept as a hard break where
the next word would still have fitted on the line. A cell that spans others stands in the first of its places. Not
done: bold and italics (fonts are unknown), paragraphs inside a list item, and joining of words hyphenated at line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Literal, NamedTuple

from backend.documents.formats.page_flow import HEADING_RATIO, grid_of, line_height, page_flow
from backend.files.pages import Box, Document, Page, Word, blocks_of, bounding_box
from backend.invoices.structure import tables_or_none
from backend.tables.records import Table

_LEVELS = ((1.9, 1), (1.5, 2), (HEADING_RATIO, 3))  # least size relative to the body text, and the heading's level
_LONGEST_HEADING = 120  # characters
_MAX_HEADING_LINES = 2

_MARKUP = re.compile(r"[\\`*\[\]<|~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w{1,32};)")
_AT_START = re.compile(r"\A(?:#{1,6}|[-+])(?=\s|$)|\A>|\A(?:=+|-+)$")
_NUMBER_AT_START = re.compile(r"(\d{1,9})([.)])(?=\s|$)")
_BULLET = re.compile(r"[•◦▪▫●○■□‣\u2043·►▶➢✓\u2013\u2014*-]\s+(?=\S)")
_ITEM_NUMBER = re.compile(r"\d{1,3}[.)]\s+(?=\S)")
_LETTER = re.compile(r"[^\W\d_]")
_NEAR_CHARS = 300  # how far ahead a word of the page is looked for
_FAR_CHARS = 5_000  # and then around: all of most pages, and no square of a long one

Line = Sequence[Word]


def stream_markdown(document: Document, tables: Sequence[Table] | None = None) -> Iterator[bytes]:
    """The Markdown, page by page; a comment gives the number of each page after the first.

    Args:
        tables: the document's, where they were found before.
    """
    for index, (page, text) in enumerate(zip(document.pages, pages_markdown(document, tables), strict=True)):
        mark = f"<!-- page {page.number} -->" if index else ""
        yield ("\n" * bool(index) + "\n\n".join(filter(None, (mark, text))) + "\n").encode()


def pages_markdown(document: Document, tables: Sequence[Table] | None = None) -> Iterator[str]:
    """The Markdown of each page; ``tables`` as above."""
    for blocks in pages_blocks(document, tables):
        yield "\n\n".join(block.text for block in blocks)


class MarkdownBlock(NamedTuple):
    """A heading, a paragraph, a list or a table of a page."""

    kind: Literal["title", "text", "list", "table"]
    text: str  # its Markdown
    box: Box  # page units; of a table its part on the page
    lines: Sequence[Line] = ()  # none of a table
    table: Table | None = None


def place_in_markdown(text: str, word: str, cursor: int) -> tuple[int, int]:
    """Where a word of the page stands, best behind the cursor and near it; an empty place where it is not found."""
    forms = (word, escape(word))
    for start, end in ((cursor, cursor + _NEAR_CHARS), (max(0, cursor - _FAR_CHARS), cursor + _FAR_CHARS)):
        for form in forms:
            if (at := text.find(form, start, end)) >= 0:
                return at, at + len(form)
    return cursor, cursor


def pages_blocks(document: Document, tables: Sequence[Table] | None = None) -> Iterator[list[MarkdownBlock]]:
    """The blocks of each page in reading order; ``tables`` as above."""
    size, tables = body_size(document), tables_or_none(document, tables)
    for page in document.pages:
        yield list(_blocks(page, tables, size))


def escape(line: str) -> str:
    """Escape one line of text, so that Markdown shows it literally."""
    line = _MARKUP.sub(r"\\\g<0>", line)
    line = _NUMBER_AT_START.sub(r"\1\\\2", line, count=1) if _NUMBER_AT_START.match(line) else line
    return f"\\{line}" if _AT_START.match(line) else line


def _blocks(page: Page, tables: Sequence[Table], size: float) -> Iterator[MarkdownBlock]:
    for part in page_flow(page, tables):
        if isinstance(part, Table):
            here = (box for number, box in zip(part.pages, part.boxes, strict=True) if number == page.number)
            yield MarkdownBlock("table", _table(part), bounding_box(here), table=part)
            continue
        box = bounding_box(word.box for line in part for word in line)
        if level := heading_level(page, part, size):
            text = "#" * level + " " + _MARKUP.sub(r"\\\g<0>", " ".join(map(text_of, part)))
            yield MarkdownBlock("title", text, box, part)
        else:
            yield MarkdownBlock("list" if list_starts(part) else "text", _paragraph_or_list(part), box, part)


def _table(table: Table) -> str:
    """The rows between bars; a table without a header has an empty one, as GitHub's Markdown demands one."""
    rows = [[_MARKUP.sub(r"\\\g<0>", text) for text in row] for row in grid_of(table, attrgetter("text"))]
    has_header = any(cell.header and cell.row == 0 for cell in table.cells)
    header, body = (rows[0], rows[1:]) if has_header else ([""] * table.columns, rows)
    lines = [header, ["---"] * table.columns, *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def heading_level(page: Page, block: Sequence[Line], size: float) -> int:
    """1 to 3 where the block is a heading among text of ``body_size``; 0 where it is none."""
    text = " ".join(map(text_of, block))
    if len(block) > _MAX_HEADING_LINES or len(text) > _LONGEST_HEADING:
        return 0
    if len(_LETTER.findall(text)) * 2 <= len(text):  # an amount, a rule read as characters
        return 0
    ratio = min(_size(page, line) for line in block) / size if size > 0 else 1.0
    return next((level for least, level in _LEVELS if ratio >= least), 0)


def _paragraph_or_list(block: Sequence[Line]) -> str:
    items = list_starts(block)
    if not items:
        return _joined(block, "")
    paragraphs = [_joined(block[: items[0]], "")] if items[0] else []
    listed = []
    for start, stop in pairwise([*items, len(block)]):
        printed, rest = split_mark(text_of(block[start]))
        mark = printed if printed[:1].isdigit() else "-"
        indent = " " * (len(mark) + 1)
        lines = _joined(block[start:stop], indent, skip=len(text_of(block[start])) - len(rest))
        listed.append(f"{mark} {lines}")
    return "\n\n".join([*paragraphs, "\n".join(listed)])


def list_starts(block: Sequence[Line]) -> list[int]:
    """Indexes of lines that begin a list item: all with bullets, else at least two with consecutive numbers."""
    texts = [text_of(line) for line in block]
    bullets = [index for index, text in enumerate(texts) if _BULLET.match(text)]
    if bullets:
        return bullets
    numbered = [(index, int(re.split("[.)]", text)[0])) for index, text in enumerate(texts) if _ITEM_NUMBER.match(text)]
    counts_up = all(after == before + 1 for (_, before), (_, after) in pairwise(numbered))
    return [index for index, _ in numbered] if len(numbered) > 1 and counts_up else []


def split_mark(text: str) -> tuple[str, str]:
    """The bullet or number at the beginning of a list item, empty where it has none, and the rest."""
    mark = _BULLET.match(text) or _ITEM_NUMBER.match(text)
    return (mark[0].strip(), text[mark.end() :]) if mark else ("", text)


def _joined(lines: Sequence[Line], indent: str, skip: int = 0) -> str:
    """The lines joined, with a hard break (two spaces) where the next word would have fitted.

    Args:
        skip: characters to drop from the first line: a list item's mark.
    """
    right = bounding_box(word.box for line in lines for word in line).right
    escaped = [escape(text_of(lines[0])[skip:])] + [escape(text_of(line)) for line in lines[1:]]
    pieces = [escaped[0]]
    for (line, after), text in zip(pairwise(lines), escaped[1:], strict=True):
        gap = _space_width(line)
        fitted = bounding_box(word.box for word in line).right + gap + after[0].box.width < right
        pieces.append(f"{'  ' if fitted else ''}\n{indent}{text}")
    return "".join(pieces)


def _space_width(line: Line) -> float:
    """Approximate width of a space on a line: half a letter."""
    return 0.5 * sum(word.box.width for word in line) / max(1, sum(len(word.text) for word in line))


def text_of(line: Line) -> str:
    return " ".join(word.text for word in line)


def _size(page: Page, line: Line) -> float:
    """Height of a line in inches."""
    return line_height(line) / page.units_per_inch


def body_size(document: Document) -> float:
    """Median height of the document's lines in inches, weighted by their characters; 0 without text."""
    sizes = [
        (_size(page, line), len(text_of(line)))
        for page in document.pages
        for block in blocks_of(page)
        for line in block
    ]
    return _weighted_median(sizes)


def _weighted_median(values: Iterable[tuple[float, int]]) -> float:
    ordered = sorted(values)
    half = sum(weight for _, weight in ordered) / 2
    for value, weight in ordered:
        half -= weight
        if half <= 0:
            return value
    return 0.0
