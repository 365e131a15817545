"""Markdown (CommonMark): headings, paragraphs, lists.

A heading is a short block that is set larger than the document's own text; a line is broken where its writer broke it,
which is where the next word would still have fitted. Not done: tables (engines give a table's columns as often as its
rows, and a wrong table is worse than lines), bold and italics (a word's font is not known), two lines of one list
item as paragraphs of their own, and hyphens at line ends, which stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from backend.documents.pages import Document, Page, Word, around, blocks_of

# How much larger than the document's text, and the level that makes. Heights are of the tallest word of a line, which
# differs by up to a fifth between a line with long letters and one without; below 1.3 that would make headings.
_LEVELS = ((1.9, "# "), (1.5, "## "), (1.3, "### "))
_LONGEST_HEADING = 120  # characters
_MOST_HEADING_LINES = 2

_MARKUP = re.compile(r"[\\`*\[\]<|~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w{1,32};)")
_AT_START = re.compile(r"(?:#{1,6}|[-+])(?=\s|$)|>|(?:=+|-+)$")
_NUMBER_AT_START = re.compile(r"(\d{1,9})([.)])(?=\s|$)")
_BULLET = re.compile(r"[•◦▪▫●○■□‣\u2043·►▶➢✓\u2013\u2014*-]\s+(?=\S)")
_ITEM_NUMBER = re.compile(r"\d{1,3}[.)]\s+(?=\S)")
_LETTER = re.compile(r"[^\W\d_]")

Line = Sequence[Word]


def markdown_parts(document: Document) -> Iterator[bytes]:
    """The Markdown, a page at a time; a comment that no reader shows names each page after the first."""
    usual = _usual_size(document)
    for index, page in enumerate(document.pages):
        mark = [f"<!-- page {page.number} -->"] if index else []
        yield ("\n" * bool(index) + "\n\n".join([*mark, *_blocks(page, usual)]) + "\n").encode()


def escape(line: str) -> str:
    """One line of text, so that Markdown shows it as it is."""
    line = _MARKUP.sub(r"\\\g<0>", line)
    line = _NUMBER_AT_START.sub(r"\1\\\2", line, count=1) if _NUMBER_AT_START.match(line) else line
    return f"\\{line}" if _AT_START.match(line) else line


def _blocks(page: Page, usual: float) -> Iterator[str]:
    for block in blocks_of(page):
        yield _heading(page, block, usual) or _paragraph_or_list(block)


def _heading(page: Page, block: Sequence[Line], usual: float) -> str:
    """A heading on one line, or nothing."""
    text = " ".join(_text(line) for line in block)
    if len(block) > _MOST_HEADING_LINES or len(text) > _LONGEST_HEADING:
        return ""
    if len(_LETTER.findall(text)) * 2 <= len(text):  # an amount, a rule read as a bar
        return ""
    ratio = min(_size(page, line) for line in block) / usual if usual > 0 else 1.0
    mark = next((mark for least, mark in _LEVELS if ratio >= least), "")
    return mark + _MARKUP.sub(r"\\\g<0>", text) if mark else ""


def _paragraph_or_list(block: Sequence[Line]) -> str:
    items = _items(block)
    if not items:
        return _joined(block, "")
    parts = [_joined(block[: items[0]], "")] if items[0] else []
    listed = []
    for start, stop in pairwise([*items, len(block)]):
        text = _text(block[start])
        bullet = _BULLET.match(text) or _ITEM_NUMBER.match(text)
        mark = text[: bullet.end()].split()[0] if bullet and text[0].isdigit() else "-"
        indent = " " * (len(mark) + 1)
        lines = _joined(block[start:stop], indent, skip=bullet.end() if bullet else 0)
        listed.append(f"{mark} {lines}")
    return "\n\n".join([*parts, "\n".join(listed)])


def _items(block: Sequence[Line]) -> list[int]:
    """The lines that begin an item: all with bullets, and numbers that count up, two of them at least."""
    texts = [_text(line) for line in block]
    bullets = [index for index, text in enumerate(texts) if _BULLET.match(text)]
    if bullets:
        return bullets
    numbered = [(index, int(re.split("[.)]", text)[0])) for index, text in enumerate(texts) if _ITEM_NUMBER.match(text)]
    counts_up = all(after == before + 1 for (_, before), (_, after) in pairwise(numbered))
    return [index for index, _ in numbered] if len(numbered) > 1 and counts_up else []


def _joined(lines: Sequence[Line], indent: str, skip: int = 0) -> str:
    """Lines with the breaks that were meant: two blanks at the end keep one.

    Args:
        skip: characters of the first line that are left out, a list's own mark.
    """
    right = around(word.box for line in lines for word in line).right
    written = [escape(_text(lines[0])[skip:])] + [escape(_text(line)) for line in lines[1:]]
    pieces = [written[0]]
    for (line, after), text in zip(pairwise(lines), written[1:], strict=True):
        gap = _blank(line)
        fitted = around(word.box for word in line).right + gap + after[0].box.width < right
        pieces.append(f"{'  ' if fitted else ''}\n{indent}{text}")
    return "".join(pieces)


def _blank(line: Line) -> float:
    """About the width of a blank of a line: half a letter's."""
    return 0.5 * sum(word.box.width for word in line) / max(1, sum(len(word.text) for word in line))


def _text(line: Line) -> str:
    return " ".join(word.text for word in line)


def _size(page: Page, line: Line) -> float:
    """Inches."""
    return max(word.box.height for word in line) / page.units_per_inch


def _usual_size(document: Document) -> float:
    """The height of the lines that most of the document's characters stand in, inches; 0 where there are none."""
    sizes = [
        (_size(page, line), len(_text(line))) for page in document.pages for block in blocks_of(page) for line in block
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
