"""Dates with the month in letters: "12 de marzo de 2024", "March 12th, 2024", "12-mar-24", "marzo de 2024"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from backend.documents.patterns.calendar_days import full_year, read_day
from backend.documents.patterns.months import FIRST_LETTERS, MONTH, MONTHS, REST, SHORT, SPANISH, WORDS
from backend.documents.patterns.pattern import AFTER_START, CLEAR, LIKELY, SURE, WEAK, Found

_GAP = r"[ ]{0,3}(?:\n[ ]{0,3})?"
_FOUR = r"(?:1[5-9]|20|21)\d\d"
# Four digits, also with the point that older Spanish letters put in ("2.024").
_YEAR = rf"(?P<year>{_FOUR}|[12]\.\d{{3}})(?!\d|[.,]\d)"
_OF_YEAR = rf"{_GAP}[,.]?{_GAP}(?:(?:de|del|of){_GAP})?(?:ano )?{_YEAR}"
_ORDINAL = r"(?:st|nd|rd|th|\.?[ºª]|er|o(?![a-z]))?"
_END_OF_WORD = r"(?![^\W\d_])"
_DAY_LED = re.compile(
    rf"[\dPpUu]{AFTER_START}(?i:(?:(?<=\d)\d?|(?<=p)rimero|(?<=u)no)(?!\d){_ORDINAL}"
    rf"(?P<gap>{_GAP}(?:(?:del mes de|de|of){_GAP})?|[ ]?[-/.][ ]?)(?P<name>{MONTH}){_END_OF_WORD}\.?"
    rf"(?:{_OF_YEAR}(?!\w)|(?P<cut>[ ]?[-/][ ]?|[. ]|(?<=[a-z]))(?P<short>\d\d|{_FOUR})(?!\w))?)"
)
_MONTH_LED = re.compile(
    rf"(?P<name>[{FIRST_LETTERS}]{AFTER_START}(?i:{REST})){_END_OF_WORD}\.?(?i:"
    rf"{_GAP}(?P<day>\d\d?)(?!\d|[./-]\d|,\d(?!\d{{3}}(?!\d))){_ORDINAL}(?![a-z])"
    rf"(?:{_GAP},?{_GAP}(?P<after_day>{_YEAR.replace('year', 'day_year')}))?"
    rf"|{_OF_YEAR}(?!\w)|[ ]?[-/][ ]?(?P<short>\d\d|{_FOUR})(?!\w|[.,/-]\w))"
)


@dataclass(frozen=True, slots=True)
class Written:
    """One written date as its words say it."""

    start: int
    end: int
    name: str  # the month, in small letters
    capital: bool  # written with one
    day: int | None
    year: int | None
    day_first: bool
    joined: bool  # something stands between day and month: "de", "of", a hyphen


def read_written(text: str) -> list[Written]:
    """Every written date, whether or not it can be meant as one; those that begin with a day come first."""
    found = [_day_led(match) for match in _DAY_LED.finditer(text)]
    taken = bytearray(len(text))
    for one in found:
        taken[one.start : one.end] = b"\1" * (one.end - one.start)
    rest = (match for match in _MONTH_LED.finditer(text) if not taken[match.start()])
    return found + [_month_led(match) for match in rest if match["name"].lower() in MONTHS]


def is_day_first(written: Written) -> bool:
    """Whether it shows that the text's writer puts days before months."""
    if written.name in SPANISH:
        return True
    return written.day_first and (written.year is not None or written.name not in SHORT)


def find_written(dates: list[Written]) -> Iterator[Found]:
    """Those of `read_written` that can be meant as dates."""
    for one in dates:
        if not _stands(one):
            continue
        month = MONTHS[one.name]
        if one.day is not None:
            score = SURE if one.year is not None else WEAK
            if found := read_day((one.start, one.end), year=one.year, month=month, day=one.day, score=score):
                yield found
        elif one.year is not None:
            score = CLEAR if one.name not in SHORT else LIKELY
            yield Found(one.start, one.end, f"{one.year:04}-{month:02}", None, score)


def _day_led(match: re.Match[str]) -> Written:
    """Two digits are a year only in "12-mar-24" and "12 mar 24", not in "12 de marzo 24 personas"."""
    name = match["name"].lower()
    digits = match["year"] or match["short"]
    loose = match["short"] and len(digits) == 2 and match["cut"].strip() == "" and name not in SHORT
    if loose or (match["short"] and match["cut"] == "." and match["gap"] != "."):
        digits = None
    end = match.end() if digits else match.end("name")
    day = re.match(r"\d+", match[0])
    return Written(
        match.start(),
        end,
        name,
        match["name"][0].isupper(),
        int(day[0]) if day else 1,
        full_year(digits.replace(".", "")) if digits else None,
        day_first=True,
        joined=bool(match["gap"].strip()),
    )


def _month_led(match: re.Match[str]) -> Written:
    digits = match["year"] or match["day_year"] or match["short"]
    return Written(
        match.start(),
        match.end(),
        match["name"].lower(),
        match["name"][0].isupper(),
        int(match["day"]) if match["day"] else None,
        full_year(digits.replace(".", "")) if digits else None,
        day_first=False,
        joined=False,
    )


def _stands(one: Written) -> bool:
    """A name of a month is one. A short form, or a word like "may", needs a day and a year, a joint, or a capital."""
    if one.name not in SHORT:
        return one.day_first or one.capital or one.year is not None or one.name in SPANISH
    if one.day is not None and one.year is not None:
        return True
    if one.day_first:
        return one.joined or (one.capital and one.name != "mar")
    if one.year is not None:
        return one.capital or one.name not in WORDS
    return one.capital and one.name not in ("mar", "set", "ago")
