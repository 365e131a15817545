"""Finds the tables of a document: drawn ones, then those with level rulings only, then aligned columns. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from statistics import median

from backend.abandoned import require_wanted
from backend.files.pages import Box, Document, Grid, GridCell, Page, Word, bounding_box, printed_rows
from backend.files.visual_rows import Cell, page_rows
from backend.tables.aligned import Stretch, lines_of, stretches
from backend.tables.aligned_layout import aligned_layout, header_rows, parts_of
from backend.tables.level_page import LevelPage, level_page
from backend.tables.numbers import decimal_mark_of, numbers_in
from backend.tables.records import CellSpan, Layout, Table, TableCell, TableSource, by_lines, with_empty_cells
from backend.tables.ruled import PageWords, ruled_areas, ruled_layout
from backend.tables.text_rows import is_figure
from backend.text.patterns import find_patterns
from backend.text.patterns.amounts import format_decimal

_MAX_WORDS = 4  # of a number or a date: "- 1 284,50 €", "12 de marzo de 2026" has more and is found by its span
_NO_BOX = Box(0.0, 0.0, 0.0, 0.0)


class CellValues:
    """The values of cells of one document: its own numbers tell the decimal separator and the order of dates."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def value(self, words: Sequence[Word], start: int, end: int) -> str | None:
        """The value of a cell that is one number, amount or date; None for any other text.

        Args:
            words: of the cell, as they are read.
            start: of the first word in the document's text.
            end: of the last one.
        """
        if not any(character.isdigit() for word in words for character in word.text):
            return None
        date = self._dates.get((start, end))
        if date is not None or len(words) > _MAX_WORDS:
            return date
        found = numbers_in(Cell(0, tuple(words), _NO_BOX, 0), self._mark)
        is_whole = len(found) == 1 and len(found[0].words) == len(words)
        return format_decimal(found[0].value) if is_whole else None

    @cached_property
    def _mark(self) -> str:
        return decimal_mark_of(self._document)

    @cached_property
    def _dates(self) -> dict[tuple[int, int], str]:
        found = find_patterns(self._document.text, {"DATE"})
        return {
            (date.start, date.end): date.value for date in found if date.value is not None and date.valid is not False
        }


def build_table(layout: Layout, page: LevelPage, values: CellValues, source: TableSource, score: float) -> Table:
    """The table of a layout on a page."""
    headers = header_rows(layout)
    spans = sorted(layout.cells, key=lambda cell: (cell.row, cell.column))
    cells = tuple(_cell(span, page, values, is_header=span.row < headers) for span in spans)
    return Table(
        pages=(page.page.number,),
        boxes=(bounding_box(box for cell in cells for box in cell.boxes),),
        rows=layout.rows,
        columns=layout.columns,
        cells=cells,
        source=source,
        score=score,
    )


def _cell(span: CellSpan, page: LevelPage, values: CellValues, *, is_header: bool) -> TableCell:
    if not span.words:
        return TableCell(span.row, span.column, "", span.rowspan, span.colspan, is_header, page=page.page.number)
    lines = [[placed.word for placed in line] for line in by_lines(span.words)]
    return _filled_cell(span, lines, page.page, page.start, values, is_header=is_header)


def _filled_cell(
    place: CellSpan | GridCell,
    lines: Sequence[Sequence[Word]],
    page: Page,
    page_start: int,
    values: CellValues,
    *,
    is_header: bool,
) -> TableCell:
    words = [word for line in lines for word in line]
    start, end = page_start + min(word.start for word in words), page_start + max(word.end for word in words)
    return TableCell(
        row=place.row,
        column=place.column,
        text=" ".join(word.text for word in words),
        rowspan=place.rowspan,
        colspan=place.colspan,
        header=is_header,
        value=values.value(words, start, end),
        page=page.number,
        boxes=tuple(bounding_box(word.box for word in line) for line in lines),
        start=start,
        end=end,
    )


_MAX_ASIDE = 0.04  # of the page's width: how far the edges of two pieces may be apart
# Of the page's height: where a piece without a header ends, and where the next begins.
_ENDS_BELOW, _BEGINS_ABOVE = 0.6, 0.35


def join_pages(tables: Sequence[Table], document: Document) -> list[Table]:
    """The tables with those that continue the last one of the page before joined to it, its repeated header once."""
    pages = {page.number: page for page in document.pages}
    joined: list[Table] = []
    for index, table in enumerate(tables):
        is_first = index == 0 or tables[index - 1].pages[-1] != table.pages[0]
        if table.source != "file" and is_first and joined and _continues(joined[-1], table, pages):
            joined[-1] = _joined(joined[-1], table)
        else:
            joined.append(table)
    return joined


def _continues(upper: Table, lower: Table, pages: dict[int, Page]) -> bool:
    """Whether a page's first table is the rest of the last one on the page before."""
    if lower.pages[0] != upper.pages[-1] + 1 or lower.columns != upper.columns:
        return False
    before, after = pages[upper.pages[-1]], pages[lower.pages[0]]
    end, start = upper.boxes[-1], lower.boxes[0]
    aside = max(abs(end.left - start.left), abs(end.right - start.right))
    if aside > _MAX_ASIDE * max(before.width, after.width):
        return False
    header = _header(upper)
    if header and header == _header(lower):
        return True
    is_broken = end.bottom > _ENDS_BELOW * before.height and start.top < _BEGINS_ABOVE * after.height
    return is_broken and not (_header(lower) and _has_figures(lower))


def _joined(upper: Table, lower: Table) -> Table:
    repeated = _header_rows(lower) if _header(upper) == _header(lower) else 0
    offset = upper.rows - repeated
    body = (
        replace(cell, row=cell.row + offset, header=False) for cell in lower.cells if cell.row >= repeated
    )  # fmt: skip
    return replace(
        upper,
        pages=upper.pages + lower.pages,
        boxes=upper.boxes + lower.boxes,
        rows=upper.rows + lower.rows - repeated,
        cells=upper.cells + tuple(body),
        score=min(upper.score, lower.score),
    )


def _header(table: Table) -> list[tuple[int, int, str]]:
    """Positions and texts of its header cells."""
    return [(cell.row, cell.column, cell.text) for cell in table.cells if cell.header and cell.text]


def _header_rows(table: Table) -> int:
    return max((cell.row + cell.rowspan for cell in table.cells if cell.header), default=0)


def _has_figures(table: Table) -> bool:
    """Whether values stand below its header, which then names columns: a table of its own."""
    return any(_is_value(cell) for cell in table.cells)


def _is_value(cell: TableCell) -> bool:
    return not cell.header and cell.value is not None


_FIGURES = 0.6  # of the cells of a column: one of figures
_SHORT = 30  # characters; half of the columns of a table hold texts no longer
_SHORT_WITHOUT_FIGURES = 22  # the same for all columns of a table of words
_LONGEST_NAME = 28  # characters of a column's name
_RULED_ROWS = 0.7  # rulings for each row of a table with rulings between its rows
_MIN_ROWS, _BEGUN, _FULL = 3, 0.9, 0.75  # rows; those that fill the first column; cells that are filled
_SHORTEST = 14  # characters; half of the texts of one column are no longer
_LONGEST_ADDRESS = 12  # lines
_TOWN = re.compile(
    r"^(?:[A-Z]{1,2}-)?\d{4,5} [^\W\d_]{3}|\d{4}-\d{3} [^\W\d_]|\b[A-Z]{2} \d{5}(?:-\d{4})?$"
    r"|\b[A-Z]{1,2}\d[A-Z\d]? \d[A-Z]{2}$|[·,] \d{5} [^\W\d_]{3}"
)  # "28013 Madrid", "1200-109 Lisboa", "Austin, TX 78701", "Leeds LS2 8JT"
_LABELS = 0.15  # of the cells that end with a colon: a form has more


def table_score(layout: Layout, rulings: int) -> float:
    """How much a layout looks like a table, 0 to 1; below a half it is none.

    Args:
        rulings: level ones across it.
    """
    ruled = rulings >= 2
    if layout.rows < (2 if ruled else 3) or layout.columns < 2:
        return 0.0
    columns = _texts_by_column(layout)
    if _has_address(columns):
        return 0.0
    if layout.columns == 2:
        return _score_of_pair(columns[0], columns[1], ruled=ruled)
    texts = [text for column in columns for text in column]
    body_rows = layout.rows - (layout.header_rows or 0)
    fill = len(texts) / max(1, layout.columns * body_rows)
    lengths = [median(map(len, column)) if column else 0 for column in columns]
    short = sum(length <= _SHORT for length in lengths)
    labels = sum(text.endswith(":") for text in texts)
    if fill < 0.4 or short == 0 or (labels > _LABELS * len(texts) and not ruled):
        return 0.0
    if short < 0.5 * layout.columns:
        return _score_of_prose(layout, rulings, fill)
    numeric = sum(sum(map(is_figure, column)) >= _FIGURES * len(column) for column in columns if len(column) > 1)
    if numeric and (ruled or (_rows_with_figures(layout) >= _FIGURES and _is_regular(layout, numeric))):
        return 0.9
    if max(lengths) > (40 if ruled else _SHORT_WITHOUT_FIGURES):
        return _score_of_prose(layout, rulings, fill)
    return 0.7 if fill >= (0.6 if ruled else 0.8) and layout.rows >= (2 if ruled else 5) else 0.2


def grid_score(layout: Layout) -> float:
    """How much a drawn grid looks like a table, 0 to 1: the fuller the more, and no form of labels and values."""
    columns = _texts_by_column(layout)
    if layout.columns == 2 and _is_form(columns[0], columns[1]):
        return 0.2
    filled = sum(bool(cell.words) for cell in layout.cells)
    return 0.5 + 0.5 * filled / len(layout.cells)


def _score_of_prose(layout: Layout, rulings: int, fill: float) -> float:
    """The score of long texts in cells, such as a list of risks: a short name over each column, and full rows.

    Rulings between the rows tell most, then one below the header. Without any, a column of short texts must be there
    too: prose in columns has none.
    """
    head = [cell for cell in layout.cells if cell.row == 0]
    names = [" ".join(word.word.text for word in cell.words) for cell in head]
    if len(names) < layout.columns or not all(_is_name(name) for name in names):
        return 0.2
    body = layout.rows - 1
    if rulings >= _RULED_ROWS * body and rulings > 1:
        return 0.8
    begun = sum(bool(cell.words) for cell in layout.cells if cell.column == 0 and cell.row)
    if body < _MIN_ROWS or begun < _BEGUN * body or fill < _FULL:
        return 0.2
    texts = _texts_by_column(layout)
    shortest = min(median(map(len, column)) if column else 0 for column in texts)
    if rulings:
        return 0.7
    return 0.6 if 0 < shortest <= _SHORTEST else 0.2


def _is_name(text: str) -> bool:
    """Whether a text may name a column: short, no figure, no label, no end of a sentence."""
    return 0 < len(text) <= _LONGEST_NAME and not is_figure(text) and text[-1] not in ":.;,"


def _has_address(columns: Sequence[Sequence[str]]) -> bool:
    """Whether an address stands in a column: the parties above an invoice, beside its number and date.

    A list of customers has one in each row. Names of goods that begin with a code have their figures to the right.
    """
    for index, column in enumerate(columns):
        towns = sum(_TOWN.search(text) is not None for text in column)
        if not 0 < towns <= max(1, 0.5 * len(column)) or len(column) > _LONGEST_ADDRESS:
            continue
        if not any(sum(map(is_figure, other)) > _FIGURES * len(other) for other in columns[index + 1 :]):
            return True
    return False


def _is_form(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two columns are labels with a colon and their values, not most of them figures."""
    labels = sum(text.rstrip().endswith(":") for text in first)
    return labels >= 0.4 * len(first) > 0 and sum(map(is_figure, second)) < _FIGURES * len(second)


def _texts_by_column(layout: Layout) -> list[list[str]]:
    """The texts below the header, of cells in one column."""
    columns: list[list[str]] = [[] for _ in range(layout.columns)]
    for cell in layout.cells:
        if cell.words and cell.colspan == 1 and cell.row >= (layout.header_rows or 0):
            columns[cell.column].append(" ".join(word.word.text for word in cell.words))
    return columns


def _rows_with_figures(layout: Layout) -> float:
    """The share of the rows with several cells that have a figure behind their first cell."""
    rows: dict[int, list[str]] = defaultdict(list)
    for cell in sorted(layout.cells, key=lambda cell: cell.column):
        if cell.words and cell.row >= (layout.header_rows or 0):
            rows[cell.row].append(" ".join(word.word.text for word in cell.words))
    several = [texts for texts in rows.values() if len(texts) > 1]
    return sum(any(map(is_figure, texts[1:])) for texts in several) / max(1, len(several))


def _is_regular(layout: Layout, numeric: int) -> bool:
    """Whether a small layout has more of a table than labels beside their values: a header, columns of figures."""
    return bool(layout.header_rows) or numeric > 1 or layout.rows >= 5


def _score_of_pair(first: Sequence[str], second: Sequence[str], *, ruled: bool) -> float:
    """The score of two columns: labels and figures; no form, list or table of contents."""
    if min(len(first), len(second)) < (2 if ruled else 3):
        return 0.0
    if _is_form(first, second) or (
        not ruled and sum(text.rstrip().endswith(":") for text in first) >= 0.4 * len(first)
    ):
        return 0.0
    if any("...." in text or ". . ." in text for text in (*first, *second)):
        return 0.0
    pages = [int(text) for text in second if text.isdecimal() and len(text) < 5]
    if len(pages) == len(second) and all(a <= b for a, b in pairwise(pages)) and len(pages) > 3:
        return 0.0
    figures = [sum(map(is_figure, texts)) / len(texts) for texts in (first, second)]
    if figures[1] >= 0.7 and figures[0] < 0.5:
        return 0.8 if len(second) > 3 or ruled else 0.4
    return 0.6 if ruled and max(map(len, (*first, *second))) <= 60 else 0.0


_MIN_SCORE = 0.5
_LOW, _HIGH, _ASIDE = 0.7, 0.2, 0.04  # of the page: where a table breaks off, goes on, and how far aside
_MAX_REST_PLACES = 10  # for each cell with words; ten columns have no more, and answers write them all out


def find_tables(document: Document) -> tuple[Table, ...]:
    """The tables of a document in the order of its pages, from top to bottom; one over several pages is one."""
    values = CellValues(document)
    tables: list[Table] = []
    for page, start in zip(document.pages, document.page_starts, strict=True):
        require_wanted()
        if page.grids is None:
            tables += _tables_of(level_page(page_rows(page, start)), values, tables[-1] if tables else None)
        else:
            tables += [table for grid in page.grids if (table := _table_of_file(grid, page, start, values)).cells]
    return tuple(join_pages(tables, document))


def _table_of_file(grid: Grid, page: Page, start: int, values: CellValues) -> Table:
    """A table as the file has it; without the cells whose words were cut off the page."""
    cells = []
    for cell in grid.cells:
        words = page.words[cell.first : cell.past]
        if len(words) == cell.past - cell.first > 0:
            is_header = cell.row < grid.header_rows
            cells.append(_filled_cell(cell, list(printed_rows(words)), page, start, values, is_header=is_header))
    outline = (bounding_box(box for cell in cells for box in cell.boxes),) if cells else ()
    rows = max((cell.row + cell.rowspan for cell in cells), default=0)  # fewer where the page was cut
    return Table((page.number,), outline, rows, grid.columns, tuple(cells), "file", 1.0)


def _tables_of(page: LevelPage, values: CellValues, last: Table | None) -> list[Table]:
    """The tables of a page, from top to bottom.

    Args:
        last: the last table of the pages before.
    """
    words = PageWords(page.lines)
    taken: set[int] = set()  # ids of the words of tables
    tables: list[Table] = []
    for area in ruled_areas(page, words):
        layout = ruled_layout(area, words.within(area), page.unit)
        if layout is not None and (score := grid_score(layout)) >= _MIN_SCORE:
            tables.append(build_table(layout, page, values, "ruled", score))
            taken |= {id(word) for word in layout.words}
    found = stretches(lines_of(page, taken), page.levels, page.unit)
    for stretch in (part for whole in found for part in parts_of(whole, page.levels, page.unit)):
        require_wanted()
        layout = aligned_layout(stretch, page.levels, page.unit)
        score = table_score(layout, len(stretch.rulings))
        if score < _MIN_SCORE and not _is_rest(layout, stretch, page, last):
            continue
        source: TableSource = "half_ruled" if len(stretch.rulings) > 1 else "borderless"
        tables.append(build_table(with_empty_cells(layout), page, values, source, max(score, _MIN_SCORE)))
    return sorted(tables, key=lambda table: (table.boxes[0].top, table.boxes[0].left))


def _is_rest(layout: Layout, stretch: Stretch, page: LevelPage, last: Table | None) -> bool:
    """Whether a few rows at the top of a page are the rest of the table at the end of the page before."""
    if last is None or last.pages[-1] != page.page.number - 1 or layout.columns != last.columns:
        return False
    height, width = page.page.height, page.page.width
    if layout.rows * layout.columns > _MAX_REST_PLACES * len(layout.cells):
        return False
    is_broken = last.boxes[-1].bottom > _LOW * height and stretch.lines[0].top < _HIGH * height
    return is_broken and abs(last.boxes[-1].right - stretch.right) < _ASIDE * width
