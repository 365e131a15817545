"""What the cells of a table are worth: numbers as decimals, dates as ISO 8601. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from backend.files.pages import Box, Document, Word
from backend.files.visual_rows import Cell
from backend.tables.numbers import decimal_mark_of, numbers_in
from backend.text.patterns import find_patterns
from backend.text.patterns.numbers import format_decimal

_MOST_WORDS = 4  # of a number or a date: "- 1 284,50 €", "12 de marzo de 2026" has more and is found by its span
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
        if date is not None or len(words) > _MOST_WORDS:
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
