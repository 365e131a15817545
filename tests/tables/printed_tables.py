"""Pages with tables for tests: words on a grid of places, and rulings."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from backend.files.pages import Box, Document, Page, RawWord, Ruling, make_page
from backend.tables.find import find_tables
from backend.tables.records import Table

LETTER, LINE = 5.0, 12.0  # width of a letter and height of a line, points

Text = tuple[str, float, float]  # words, their left or (for figures, negative) right edge, and their top


def words_of(texts: Iterable[Text]) -> list[list[list[RawWord]]]:
    """A block for each text; a negative place is that of its right edge."""
    blocks = []
    for text, place, top in texts:
        left = place if place >= 0 else -place - LETTER * len(text)
        line = []
        for word in text.split():
            line.append(RawWord(word, Box(left, top, left + LETTER * len(word), top + LINE)))
            left += LETTER * (len(word) + 0.6)
        blocks.append([line])
    return blocks


def page_of(texts: Iterable[Text], rulings: Iterable[Sequence[float]] = (), *, number: int = 1) -> Page:
    """A page of these texts and lines."""
    return make_page(
        words_of(texts),
        number=number,
        width=595,
        height=842,
        source="text_layer",
        why="why",
        engine="pdfium",
        rulings=[Ruling(*ruling) for ruling in rulings],
    )


def rows_at(
    rows: Sequence[Sequence[str]], places: Sequence[float], *, top: float = 100, step: float = 20
) -> list[Text]:
    """The texts of a table's rows, each in its column; empty ones are left out."""
    return [
        (text, place, top + step * index)
        for index, row in enumerate(rows)
        for text, place in zip(row, places, strict=False)
        if text
    ]


def grid(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float, float, float]]:
    """The rulings around all cells, each drawn from one crossing to the next."""
    level = [(x0, y, x1, y) for y in ys for x0, x1 in pairwise(xs)]
    upright = [(x, y0, x, y1) for x in xs for y0, y1 in pairwise(ys)]
    return level + upright


def document_of(*pages: Page) -> Document:
    return Document("pdf", pages, len(pages), "0" * 64)


def tables_of(*pages: Page) -> tuple[Table, ...]:
    """The tables of a document of these pages."""
    return find_tables(document_of(*pages))


def texts_of(table: Table) -> list[list[str]]:
    """Its rows of texts, with "2x3:" before those that span two rows and three columns."""
    rows: list[list[str]] = [[] for _ in range(table.rows)]
    for cell in table.cells:
        span = f"{cell.rowspan}x{cell.colspan}:" if cell.rowspan * cell.colspan > 1 else ""
        rows[cell.row].append(span + cell.text)
    return rows
