"""Finds the tables of a document: drawn ones, then those with level rulings only, then aligned columns. Pure."""

from __future__ import annotations

from backend.files.pages import Document
from backend.files.visual_rows import rows_of
from backend.tables.aligned import Stretch, lines_of, stretches
from backend.tables.aligned_layout import aligned_layout
from backend.tables.build import build_table
from backend.tables.cell_layout import Layout
from backend.tables.cell_values import CellValues
from backend.tables.join import join_pages
from backend.tables.level_page import LevelPage, level_page
from backend.tables.likeness import grid_score, table_score
from backend.tables.records import Table, TableSource
from backend.tables.ruled import ruled_areas, ruled_layout, words_within
from backend.tables.side_by_side import parts_of

_LEAST_SCORE = 0.5
_LOW, _HIGH, _ASIDE = 0.7, 0.2, 0.04  # of the page: where a table breaks off, goes on, and how far aside


def find_tables(document: Document) -> tuple[Table, ...]:
    """The tables of a document in the order of its pages, from top to bottom; one over several pages is one."""
    values = CellValues(document)
    tables: list[Table] = []
    for rows in rows_of(document):
        tables += _tables_of(level_page(rows), values, tables[-1] if tables else None)
    return tuple(join_pages(tables, document))


def _tables_of(page: LevelPage, values: CellValues, last: Table | None) -> list[Table]:
    """The tables of a page, from top to bottom.

    Args:
        last: the last table of the pages before.
    """
    words = [word for line in page.lines for word in line]
    taken: set[int] = set()  # ids of the words of tables
    tables: list[Table] = []
    for area in ruled_areas(page):
        layout = ruled_layout(area, words_within(area, words), page.unit)
        if layout is not None and (score := grid_score(layout)) >= _LEAST_SCORE:
            tables.append(build_table(layout, page, values, "ruled", score))
            taken |= {id(word) for word in layout.words}
    found = stretches(lines_of(page, taken), page.levels, page.unit)
    for stretch in (part for whole in found for part in parts_of(whole, page.levels, page.unit)):
        layout = aligned_layout(stretch, page.levels, page.unit)
        score = table_score(layout, len(stretch.rulings))
        if score < _LEAST_SCORE and not _is_rest(layout, stretch, page, last):
            continue
        source: TableSource = "half_ruled" if len(stretch.rulings) > 1 else "borderless"
        tables.append(build_table(layout, page, values, source, max(score, _LEAST_SCORE)))
    return sorted(tables, key=lambda table: (table.boxes[0].top, table.boxes[0].left))


def _is_rest(layout: Layout, stretch: Stretch, page: LevelPage, last: Table | None) -> bool:
    """Whether a few rows at the top of a page are the rest of the table at the end of the page before."""
    if last is None or last.pages[-1] != page.page.number - 1 or layout.columns != last.columns:
        return False
    height, width = page.page.height, page.page.width
    is_broken = last.boxes[-1].bottom > _LOW * height and stretch.lines[0].top < _HIGH * height
    return is_broken and abs(last.boxes[-1].right - stretch.right) < _ASIDE * width
