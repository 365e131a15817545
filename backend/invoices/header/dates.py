"""Dates and times in the words of a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rapidfuzz.distance import Levenshtein

from backend.files.pages import Word
from backend.text.patterns.date_order import DateOrder
from backend.text.patterns.dates import LONG_MONTHS, find_dates
from backend.text.patterns.folding import fold
from backend.word_cache import word_cache

_SLIPS = str.maketrans("OoQDIl|!SZB", "00001111528")
_NUMERIC = re.compile(r"\W{0,2}[\dOoQDIl|!SZB]{1,4}([/.-])[\dOoQDIl|!SZB]{1,2}\1[\dOoQDIl|!SZB]{2,4}\W{0,2}")
_YEAR = re.compile(r"[12][\dOoQDIl|!SZB]{3}\W?")
_MIN_DIGITS = 4  # of a date whose other characters are taken for misread digits
_TWO_READINGS = re.compile(r"(\d{1,2}) ?[/-] ?(\d{1,2}) ?[/-] ?(?:\d\d){1,2}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(
    r"(?<![\d:.,])(?P<hour>[01]?\d|2[0-3])(?P<mark>[:.h])(?P<minute>[0-5]\d)(?:(?P=mark)(?P<second>[0-5]\d))?"
    r" ?(?P<half>[ap]\.?m\b)?(?![\d:/.,-]\d|\d|[%€$])",
    re.IGNORECASE,
)
_LONG_MONTH = 5  # letters of a month's name that may have one misread
_NOON = 12
_YEARS = (1970, 2100)


@dataclass(frozen=True, slots=True)
class PrintedDate:
    """A day of the calendar as printed."""

    value: str  # ISO 8601
    words: tuple[Word, ...]
    first: int  # index of its first word among the words that were searched
    ambiguous: bool  # day and month may be the other way round


@dataclass(frozen=True, slots=True)
class PrintedTime:
    """A time of day as printed."""

    value: str  # "13:36" or "13:36:05"
    words: tuple[Word, ...]


def dates_in(words: Sequence[Word], order: DateOrder, *, is_ocr: bool) -> list[PrintedDate]:
    """The whole dates in some words of a page, left to right.

    Args:
        order: of the whole document.
        is_ocr: letters in numeric dates are misread digits ("0l/O3/2026").
    """
    texts = [word.text for word in words]
    if is_ocr:
        texts = [_without_slips(text, following) for text, following in zip_longest(texts, texts[1:], fillvalue="")]
        texts = [_month(text) if _is_beside_number(texts, index) else text for index, text in enumerate(texts)]
    if not any(character.isdecimal() for text in texts for character in text):
        return []
    folded = fold(" ".join(texts))
    found: dict[int, PrintedDate] = {}
    for match in find_dates(folded.text, order):
        if not match.valid or match.value is None or not _DAY.fullmatch(match.value):
            continue
        if not _YEARS[0] <= int(match.value[:4]) < _YEARS[1]:
            continue
        first, last = _words_at(texts, *folded.span(match.start, match.end))
        two = None if order.settled else _TWO_READINGS.fullmatch(folded.text[match.start : match.end])
        ambiguous = bool(two and max(int(two[1]), int(two[2])) <= 12 and int(two[1]) != int(two[2]))
        found.setdefault(first, PrintedDate(match.value, tuple(words[first:last]), first, ambiguous))
    return [found[first] for first in sorted(found)]


def time_in(words: Sequence[Word]) -> PrintedTime | None:
    """The first time of day in some words that do not hold a date."""
    texts = [word.text for word in words]
    match = _TIME.search(" ".join(texts))
    if match is None:
        return None
    hour = int(match["hour"])
    half = (match["half"] or "").lower()[:1]
    if half == "p" and hour < _NOON:
        hour += _NOON
    elif half == "a" and hour == _NOON:
        hour = 0
    first, last = _words_at(texts, *match.span())
    second = f":{match['second']}" if match["second"] else ""
    return PrintedTime(f"{hour:02}:{match['minute']}{second}", tuple(words[first:last]))


def _without_slips(text: str, following: str) -> str:
    """A word of a date with the digits that its letters are: "0l/O3/2026", "Is" before "de marzo"."""
    if text.isdecimal():
        return text
    if len(text) <= 2 and following.lower() == "de":  # digits of a day
        day = fold(text).text.upper().translate(_SLIPS)
        return day if day.isdecimal() else text
    if not (_NUMERIC.fullmatch(text) or _YEAR.fullmatch(text)):
        return text
    return text.translate(_SLIPS) if sum(map(str.isdecimal, text)) >= min(_MIN_DIGITS, len(text) - 1) else text


def _is_beside_number(texts: Sequence[str], index: int) -> bool:
    """Whether a day or a year stands close to a word, as beside a month."""
    near = texts[max(0, index - 2) : index + 3]
    return len(texts[index]) >= _LONG_MONTH and any(text[:1].isdecimal() for text in near)


@word_cache(1024)
def _month(text: str) -> str:
    """The month that a word must be, with one letter misread; else the word."""
    word = fold(text).text.lower().strip(".,")
    if word in LONG_MONTHS or len(word) < _LONG_MONTH or not word[1:].isalnum():
        return text
    near = [name for name in LONG_MONTHS if Levenshtein.distance(word, name, score_cutoff=1) == 1]
    return near[0] if near and len({LONG_MONTHS[name] for name in near}) == 1 else text


def _words_at(texts: Sequence[str], start: int, end: int) -> tuple[int, int]:
    """First and last (excluded) of the words that a span of their joined text touches."""
    first, last, offset = len(texts), 0, 0
    for index, text in enumerate(texts):
        if offset < end and start < offset + len(text):
            first, last = min(first, index), index + 1
        offset += len(text) + 1
    return first, last
