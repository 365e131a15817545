"""Days of the calendar, and how few digits say which year."""

from __future__ import annotations

from calendar import monthrange

from backend.documents.patterns.pattern import WEAK, Found

_LEAP_YEAR = 2000  # where no year is named, any 29 February may be meant
_PIVOT = 69  # of two digits, as POSIX strptime has it: 69 to 99 are 19xx


def full_year(written: str) -> int:
    """The year that two or four digits name."""
    year = int(written)
    return year if len(written) == 4 else year + (1900 if year >= _PIVOT else 2000)


def read_day(span: tuple[int, int], *, year: int | None, month: int, day: int, score: float) -> Found | None:
    """A day in ISO 8601; one that no calendar has is not valid, and what cannot be meant as a day is None."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    if day > monthrange(_LEAP_YEAR if year is None else year, month)[1]:
        return Found(*span, None, False, WEAK)
    value = f"--{month:02}-{day:02}" if year is None else f"{year:04}-{month:02}-{day:02}"
    return Found(*span, value, True, score)
