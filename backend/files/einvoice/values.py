"""Normalises the values of electronic invoices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from decimal import Decimal

from backend.files.pages import printable_line

_DIGITS_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)")
_ISO_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_MOST_CHARS = 2_000  # of a value: a description or a note may be long, but is no page
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]{0,10})?|\.[0-9]{1,10})")  # xs:decimal; it has no exponents


def iso_date(text: str) -> str:
    """A date of XML ("20260312", "2026-03-12+01:00") as ISO 8601; empty where it is none."""
    match = _DIGITS_DATE.fullmatch(text[:8]) or _ISO_DATE.match(text)
    if match is None:
        return ""
    try:
        return date(*map(int, match.groups())).isoformat()
    except ValueError:
        return ""


def decimal_text(text: str) -> str:
    """A number of XML as a plain decimal; empty where it is none: "1e999999999" would have a gigabyte of zeros."""
    text = text.strip()
    return f"{Decimal(text):f}" if _DECIMAL.fullmatch(text) else ""


def sum_of(numbers: Iterable[str]) -> str:
    """The sum of decimals; empty for none."""
    parts = [Decimal(number) for number in numbers if number]
    return f"{sum(parts):f}" if parts else ""


def compact_id(text: str) -> str:
    """An id without separators, in capitals: "ES B-12345678" as "ESB12345678"."""
    return re.sub(r"[^0-9A-Za-z]", "", text).upper()[:_MOST_CHARS]


def one_line(*parts: str) -> str:
    """Parts of a name or an address joined with commas, without empty ones and repetitions."""
    return ", ".join(dict.fromkeys(part.strip() for part in parts if part.strip()))[:_MOST_CHARS]


def known(values: dict[str, str]) -> dict[str, str]:
    """The values that are there, each on one line and such that every format can hold it."""
    printable = {name: printable_line(value)[:_MOST_CHARS] for name, value in values.items()}
    return {name: value for name, value in printable.items() if value}
