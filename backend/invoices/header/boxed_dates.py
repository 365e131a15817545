"""Dates in three boxes of a form: day, month and year, each behind or below its heading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice, pairwise

from backend.files.pages import Word
from backend.files.visual_rows import PageRows
from backend.text.patterns.dates import LONG_MONTHS
from backend.text.patterns.folding import fold

_DAY, _MONTH, _YEAR = "day", "month", "year"
_HEADINGS = {
    **dict.fromkeys(("dia", "day", "tag", "jour", "giorno", "dd", "d"), _DAY),
    **dict.fromkeys(("mes", "month", "monat", "mois", "mese", "mm", "m"), _MONTH),
    **dict.fromkeys(("ano", "any", "year", "jahr", "annee", "anno", "aa", "aaaa", "yy", "yyyy", "jjjj", "a"), _YEAR),
}
_ROWS_BELOW = 2
_MOST_WORDS = 60  # of a row; more are no form
_MOST_DATES = 4  # of a page
_YEARS = range(1970, 2100)
_SHORT_YEARS = 100


@dataclass(frozen=True, slots=True)
class BoxedDate:
    """A day of the calendar in three boxes."""

    value: str  # ISO 8601
    words: tuple[Word, ...]  # of the three, left to right
    heading: Word  # the first of the headings
    heading_row: int  # index of the row of the headings
    row: int  # index of the row of the values


def boxed_dates(page: PageRows) -> Iterator[BoxedDate]:
    """The first dates of a page whose day, month and year stand behind, or below, headings that say so."""
    return islice(_boxed_dates(page), _MOST_DATES)


def _boxed_dates(page: PageRows) -> Iterator[BoxedDate]:
    for row in page.rows:
        words = [word for word in row.words[: _MOST_WORDS + 1] if any(map(str.isalnum, word.text))]
        if not 3 <= len(words) <= _MOST_WORDS:
            continue
        kinds = [_HEADINGS.get(_plain(word), "") for word in words]
        for first in range(len(words) - 2):
            for step, rows in ((2, (row,)), (1, page.rows[row.index + 1 : row.index + 1 + _ROWS_BELOW])):
                indexes = range(first, min(len(words), first + 3 * step), step)
                if {kinds[index] for index in indexes} != {_DAY, _MONTH, _YEAR}:
                    continue
                for other in rows:
                    headings = [words[index] for index in indexes]
                    values = words[first + 1 : first + 6 : 2] if step == 2 else _below(headings, other.words)
                    value = _value([kinds[index] for index in indexes], values)
                    if value is not None:
                        yield BoxedDate(value, tuple(values), headings[0], row.index, other.index)
                        break


def _below(headings: Sequence[Word], words: Sequence[Word]) -> list[Word]:
    """The words whose middles are nearest to those of the headings; empty where one has none near it."""
    middles = [_middle(word) for word in headings]
    reach = max(second - first for first, second in pairwise(middles)) / 2
    numbers = [word for word in words[:_MOST_WORDS] if any(map(str.isalnum, word.text))]
    nearest = [min(numbers, key=lambda word: abs(_middle(word) - middle), default=None) for middle in middles]
    found = [
        word
        for word, middle in zip(nearest, middles, strict=True)
        if word is not None and abs(_middle(word) - middle) <= reach
    ]
    return found if len({word.start for word in found}) == len(headings) else []


def _value(kinds: Sequence[str], words: Sequence[Word]) -> str | None:
    """The day of the calendar that the words say, ISO 8601; None where they are none."""
    if len(words) != len(kinds):
        return None
    texts = dict(zip(kinds, map(_plain, words), strict=True))
    month = texts[_MONTH] if texts[_MONTH].isdecimal() else str(LONG_MONTHS.get(texts[_MONTH], ""))
    if not all(text.isdecimal() and len(text) <= 4 for text in (texts[_DAY], month, texts[_YEAR])):
        return None
    year = int(texts[_YEAR])
    if year < _SHORT_YEARS and len(texts[_YEAR]) == 2:
        year += 2000
    try:
        return date(year, int(month), int(texts[_DAY])).isoformat() if year in _YEARS else None
    except ValueError:
        return None


def _plain(word: Word) -> str:
    return fold(word.text).text.lower().strip(" :./-|")


def _middle(word: Word) -> float:
    return (word.box.left + word.box.right) / 2
