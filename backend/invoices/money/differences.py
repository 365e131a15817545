"""Corrections by differences: of the columns "billed", "right" and "difference" the last is what is invoiced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.files.pages import Box, Word, bounding_box
from backend.files.visual_rows import PageRows, VisualRow
from backend.invoices.label_match import tokens_of
from backend.tables.numbers import Number, numbers_in

_REACH = 4.0  # line heights from one row of the table to the next
_MOST_BELOW = 14  # rows
_MOST_TABLES, _MOST_COLUMNS = 20, 8  # what is compared stays cheap whatever is on the page
_CENTS = 2  # decimals
_DIFFERENCE = frozenset((
    "diferencia", "diferencias", "difference", "differences", "differenz", "differenza", "diferenca",
))  # fmt: skip
_COMPARED = frozenset((
    "facturado", "facturada", "facturat", "correcto", "correcta", "correcte", "rectificado", "rectificada",
    "rectificat", "original", "inicial", "anterior", "nuevo", "nueva", "debido", "billed", "invoiced", "charged",
    "correct", "corrected", "revised", "right", "previous", "new", "facture", "corrige", "rectifie", "initial",
    "berechnet", "korrekt", "richtig", "korrigiert", "fatturato", "corretto", "faturado", "correto",
))  # fmt: skip

_Numbers = Sequence[tuple[VisualRow, Sequence[Number]]]  # of each row of a page, from top to bottom


def compared_words(page: PageRows, mark: str) -> frozenset[int]:
    """Where the amounts begin, in the page's text, that are only compared: they are no sums or taxes of this document.

    Args:
        mark: of `numbers.decimal_mark_of`.
    """
    marked = [(index, words) for index, row in enumerate(page.rows) if len(words := _words(row, _DIFFERENCE)) == 1]
    if not marked:
        return frozenset()
    numbers = [(row, [number for cell in row.cells for number in numbers_in(cell, mark)]) for row in page.rows]
    found: set[int] = set()
    for index, differences in marked[:_MOST_TABLES]:
        row, own = numbers[index]
        compared = _words(row, _COMPARED)
        if compared and not own:
            boxes = [page.level(word.box) for word in (*differences, *compared[:_MOST_COLUMNS])]
            found.update(number.words[0].start for number in _in_other_columns(page, boxes, numbers, index))
        elif not compared and sum(map(_is_amount, own)) > 1:
            found.update(number.words[0].start for number in _in_rows_above(page, numbers, index))
    return frozenset(found)


def _words(row: VisualRow, words: frozenset[str]) -> list[Word]:
    return [word for word in row.words if any(token in words for token in tokens_of(word.text))]


def _is_amount(number: Number) -> bool:
    return not number.percent and (number.decimals == _CENTS or number.currency is not None)


def _in_other_columns(page: PageRows, boxes: Sequence[Box], numbers: _Numbers, header: int) -> Iterator[Number]:
    """The amounts below headers that are nearer to another header than to the first one, of the difference."""
    bottom = numbers[header][0].box.bottom
    for row, own in numbers[header + 1 : header + 1 + _MOST_BELOW]:
        if row.box.top - bottom > _REACH * page.line_height:
            return
        bottom = row.box.bottom
        amounts = [number for number in own if _is_amount(number)]
        if len(amounts) > 1:
            yield from (number for number in amounts if _nearest(page, number, boxes) != 0)


def _nearest(page: PageRows, number: Number, boxes: Sequence[Box]) -> int:
    own = bounding_box(page.level(word.box) for word in number.words)
    return min(range(len(boxes)), key=lambda index: max(boxes[index].left - own.right, own.left - boxes[index].right))


def _in_rows_above(page: PageRows, numbers: _Numbers, difference: int) -> Iterator[Number]:
    """The amounts in the rows "billed" and "right" right above the row of the differences."""
    top = numbers[difference][0].box.top
    for row, own in reversed(numbers[:difference]):
        near = top - row.box.bottom <= _REACH * page.line_height
        if not near or not _words(row, _COMPARED) or sum(map(_is_amount, own)) < 2:
            return
        top = row.box.top
        yield from own
