"""Dates, numeric and written, Spanish and English.

``value`` is ISO 8601: "2024-03-12", "2024-03" where no day is named, "--03-12" (XML Schema's gMonthDay) where no year
is, "2024" for a year that is called one. A day that no calendar has ("31/02/2024") is a date that is not ``valid``.

03/04/2024 is the third of April, unless the text itself writes its months first: that is decided once for the whole
text, by `writes_month_first`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from backend.documents.patterns.calendar_days import full_year, read_day
from backend.documents.patterns.pattern import CLEAR, END, LIKELY, SURE, WEAK, Found, Kind, has_before
from backend.documents.patterns.written_dates import Written, find_written, is_day_first, read_written

_NUMERIC = re.compile(
    r"\d(?<!\w.)(?:\d{3}(?P<iso>[-/.])\d\d?(?P=iso)\d\d?"
    r"|\d? ?(?P<sep>[-/.]) ?\d\d? ?(?P=sep) ?(?:(?:1[5-9]|20|21)\d\d|\d\d)"
    r"|\d?(?P<bar>/)(?:19|20)\d\d)(?!\d)"
)
_DIGITS = re.compile(r"\d+")
_CLOCK = re.compile(r"T\d\d")
_VERSION = re.compile(
    r"\b(?:v|ver|version|release|rev|build|ip|firmware|seccion|section|apartado|clausula|clause)\W{0,3}$", re.IGNORECASE
)
# "Avenida 17 de Junio", "Hospital 12 de Octubre"
_PLACE = re.compile(
    r"\b(?:avenida|avda?\.?|av\.|calle|c/|plaza|paseo|hospital|colegio|instituto|estadio|glorieta|barrio"
    r"|street)\s?(?:del? )?$",
    re.IGNORECASE,
)
# "Ley 5/2019", "RD 3/2020", "expediente 12/2024"
_LAW = re.compile(
    r"\b(?:ley|decreto(?:-ley)?|rd|rdl|lo|orden|directiva|reglamento|circular|sentencia|expediente|exp|n\.?[ºo]|num|law|act|no)"
    r"\W{0,3}$",
    re.IGNORECASE,
)
_LABELLED_YEAR = re.compile(
    rf"[aefyAEFY](?<!\w.)(?i:(?<=a)no|(?<=e)jercicio|(?<=f)iscal|(?<=f)y|(?<=y)ear)(?i: fiscal| year)?\s{{0,2}}"
    rf"(?P<year>(?:1[5-9]|20|21)\d\d){END}"
)


def _find_dates(text: str) -> Iterator[Found]:
    numeric = [match for match in _NUMERIC.finditer(text) if not _is_part(match)]
    written = read_written(text)
    month_first = bool(numeric) and writes_month_first(numeric, written)
    for match in numeric:
        if found := _read_numeric(match, month_first=month_first):
            yield found
    yield from find_written([one for one in written if one.year is not None or not has_before(text, one.start, _PLACE)])
    for match in _LABELLED_YEAR.finditer(text):
        yield Found(*match.span("year"), match["year"], None, WEAK)


def writes_month_first(numeric: Sequence[re.Match[str]], written: Sequence[Written]) -> bool:
    """Whether a text's ambiguous numeric dates are read month first.

    They are where some date can only be month first (03/25/2024) or a written one is ("March 25, 2024"), and none is
    the other way round (25/03/2024, "25 March", "25 de marzo").
    """
    pairs = [_numbers(match)[:2] for match in numeric if match["sep"] in ("/", "-")]
    if any(a > 12 >= b for a, b in pairs) or any(is_day_first(one) for one in written):
        return False
    return any(b > 12 >= a for a, b in pairs) or any(
        one.day is not None and one.year is not None and not one.day_first for one in written
    )


def _numbers(match: re.Match[str]) -> list[int]:
    return [int(digits) for digits in _DIGITS.findall(match[0])]


def _is_part(match: re.Match[str]) -> bool:
    """Whether it is a piece of something longer: a version, an address, an order number, a chain of fractions.

    "01/01/2024-31/12/2024" is two dates: another mark than its own may join a date to digits, but not to letters.
    """
    text, (start, end) = match.string, match.span()
    mark = match["iso"] or match["sep"] or match["bar"]
    before, after = text[max(0, start - 2) : start], text[end : end + 3]
    if before[-1:] == mark or before[-1:] == "$":
        return True
    if before[-1:] in ("-", "/", ".") and (before[0].isalpha() or (mark == "-" and before[0].isdecimal())):
        return True
    if after[:1] == mark and after[1:2].isalnum():
        return True
    if after[:1].isalnum() or after[:1] == "_":
        return not (match["iso"] and _CLOCK.match(after))
    return has_before(text, start, _VERSION, 14)


def _read_numeric(match: re.Match[str], *, month_first: bool) -> Found | None:
    numbers = _numbers(match)
    if match["iso"]:
        year, month, day = numbers
        return read_day(match.span(), year=year, month=month, day=day, score=SURE) if 1500 <= year < 2200 else None
    if match["bar"]:
        if has_before(match.string, match.start(), _LAW, 16):
            return None
        month, year = numbers
        return Found(*match.span(), f"{year}-{month:02}", None, WEAK) if 1 <= month <= 12 else None
    first, second, _ = numbers
    written_year = _DIGITS.findall(match[0])[-1]
    if len(written_year) == 2 and (match["sep"] == "." or " " in match[0]) and len(match[0]) != len("12.03.24"):
        return None  # "1.2.34" is a section or a version
    swapped = match["sep"] != "." and (second > 12 or (month_first and first <= 12))
    day, month = (second, first) if swapped else (first, second)
    certain = len(written_year) == 4 and (first > 12 or second > 12)
    score = SURE if certain else CLEAR if len(written_year) == 4 else LIKELY
    return read_day(match.span(), year=full_year(written_year), month=month, day=day, score=score)


KINDS = (Kind("DATE", _find_dates),)
