"""Pages built from lines of text: words on a grid, columns separated by two or more spaces."""

from __future__ import annotations

import re
from itertools import groupby

from backend.files.pages import Box, Document, Page, RawWord, make_page
from backend.files.visual_rows import PageRows, rows_of
from backend.invoices.items.find import find_items
from backend.invoices.money.find import Money, find_money, printed_money
from backend.tables.numbers import decimal_mark_of

CHARACTER, HEIGHT, PITCH = 6.0, 10.0, 15.0  # points: width of a character, height of a word, from line to line
MARGIN = 36.0
_WIDTH, _PAGE_HEIGHT = 595.0, 842.0


def page_of_rows(text: str, *, number: int = 1, source: str = "text_layer", height: float = _PAGE_HEIGHT) -> Page:
    """A page of the lines of a text; each character has its place on a grid, an empty line leaves a gap.

    Columns are blocks of their own, in reading order from left to right, as layout analysis gives them.
    """
    lines = text.strip("\n").split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    words = [
        (match.start() - indent, index, RawWord(match[0], _box(match.start() - indent, index, len(match[0])), 1.0))
        for index, line in enumerate(lines)
        for match in re.finditer(r"\S+", line)
    ]
    cells: list[list[RawWord]] = []
    for _, row in groupby(words, lambda word: word[1]):
        last = None
        for column, _, word in row:
            if last is None or column - last > 1:
                cells.append([])
            cells[-1].append(word)
            last = column + len(word.text)
    width = max([_WIDTH, *(2 * MARGIN + CHARACTER * len(line) for line in lines)])
    return make_page(
        [[cell] for cell in cells],
        number=number,
        width=width,
        height=max(height, 2 * MARGIN + PITCH * len(lines)),
        source=source,  # type: ignore[arg-type]
        why="built",
        engine="test",
    )


def document_of_rows(*texts: str) -> Document:
    """A document with a page for each text."""
    pages = tuple(page_of_rows(text, number=number) for number, text in enumerate(texts, 1))
    return Document("pdf", pages, len(pages), "0" * 64)


def rows_of_text(*texts: str) -> tuple[PageRows, ...]:
    """The rows of such a document."""
    return rows_of(document_of_rows(*texts))


def money_of_pages(*texts: str) -> Money:
    """The amounts of pages whose lines of goods are read first."""
    document = document_of_rows(*texts)
    pages, mark = rows_of(document), decimal_mark_of(document)
    return find_money(printed_money(pages, mark, find_items(pages, mark)))


def _box(column: int, row: int, length: int) -> Box:
    left, top = MARGIN + CHARACTER * column, MARGIN + PITCH * row
    return Box(left, top, left + CHARACTER * length, top + HEIGHT)
