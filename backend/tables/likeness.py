"""How much text in columns looks like a table, and not like prose, a letterhead, a form or a list. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from backend.tables.cell_layout import Layout
from backend.tables.text_rows import is_figure

_FIGURES = 0.6  # of the cells of a column: one of figures
_SHORT = 30  # characters; half of the columns of a table hold texts no longer
_SHORT_WITHOUT_FIGURES = 22  # the same for all columns of a table of words
_LONGEST_NAME = 28  # characters of a column's name
_RULED_ROWS = 0.7  # rulings for each row of a table with rulings between its rows
_LEAST_ROWS, _BEGUN, _FULL = 3, 0.9, 0.75  # rows; those that fill the first column; cells that are filled
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
    filled = sum(bool(place.words) for place in layout.places)
    return 0.5 + 0.5 * filled / len(layout.places)


def _score_of_prose(layout: Layout, rulings: int, fill: float) -> float:
    """The score of long texts in cells, such as a list of risks: a short name over each column, and full rows.

    Rulings between the rows tell most, then one below the header. Without any, a column of short texts must be there
    too: prose in columns has none.
    """
    head = [place for place in layout.places if place.row == 0]
    names = [" ".join(word.word.text for word in place.words) for place in head]
    if len(names) < layout.columns or not all(_is_name(name) for name in names):
        return 0.2
    body = layout.rows - 1
    if rulings >= _RULED_ROWS * body and rulings > 1:
        return 0.8
    begun = sum(bool(place.words) for place in layout.places if place.column == 0 and place.row)
    if body < _LEAST_ROWS or begun < _BEGUN * body or fill < _FULL:
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
    for place in layout.places:
        if place.words and place.colspan == 1 and place.row >= (layout.header_rows or 0):
            columns[place.column].append(" ".join(word.word.text for word in place.words))
    return columns


def _rows_with_figures(layout: Layout) -> float:
    """The share of the rows with several cells that have a figure behind their first cell."""
    rows: dict[int, list[str]] = defaultdict(list)
    for place in sorted(layout.places, key=lambda place: place.column):
        if place.words and place.row >= (layout.header_rows or 0):
            rows[place.row].append(" ".join(word.word.text for word in place.words))
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
