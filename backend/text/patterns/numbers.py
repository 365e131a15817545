"""Parses written numbers, Spanish and English: both separators, scale words ("million"), small numbers in words."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal

from backend.text.patterns.pattern import matches

# Digits with a thousands separator and the other one for decimals, or plain; not a piece of a longer number.
# Repetitions are bounded (10^18 is more than any amount) and atomic (no backtracking), so that a megabyte of digits is
# scanned in linear time.
_MORE_DIGITS = (
    r"(?>"
    r"\d{0,2}(?:(?:[.' ]\d{3}){1,5}(?!\d)(?:,\d{1,4})?|(?:[,' ]\d{3}){1,5}(?!\d)(?:\.\d{1,4})?)(?!\d|[.,]\d)"
    r"|\d{0,14}(?:[.,]\d{1,6})?(?!\d|[.,]\d))"
)
NUMBER = rf"\d(?<![\w.,'].){_MORE_DIGITS}"
NUMBER_OF_CODE = rf"\d(?<![\d.,'].){_MORE_DIGITS}"  # letters may precede it directly: "EUR2.30"
_TWO_DECIMALS = re.compile(r"\d([.,])(?<!\d[.,]\d.)(?<!\d[.,]\d\d.)\d\d(?!\d|[.,]\d|[ ]?[ap]\.?m|[ ]?h)")
_UNITS = {
    "un": 1, "una": 1, "uno": 1, "dos": 2, "tres": 3, "cuatro": 4, "cinco": 5, "seis": 6, "siete": 7, "ocho": 8,
    "nueve": 9, "diez": 10, "once": 11, "doce": 12, "trece": 13, "catorce": 14, "quince": 15, "veinte": 20,
    "treinta": 30, "cuarenta": 40, "cincuenta": 50, "sesenta": 60, "setenta": 70, "ochenta": 80, "noventa": 90,
    "cien": 100, "doscientos": 200, "trescientos": 300, "quinientos": 500,
    "a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50,
    "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
WORD = rf"(?:{'|'.join(sorted(_UNITS, key=len, reverse=True))})"
# Longest first. A billion is 10^9 in English; "billon" is 10^12 in Spanish.
_SCALES = {
    "mil millones": 10**9, "miles de millones": 10**9, "millones": 10**6, "millon": 10**6, "mill.": 10**6,
    "billones": 10**12, "billon": 10**12, "mil": 10**3, "hundred thousand": 10**5, "hundred million": 10**8,
    "thousand": 10**3, "hundred": 100, "million": 10**6, "billion": 10**9, "trillion": 10**12, "crore": 10**7,
    "lakh": 10**5, "mm": 10**6, "mn": 10**6, "bn": 10**9, "m": 10**6, "k": 10**3,
}  # fmt: skip
SCALE = rf"(?:{'|'.join(re.escape(name) for name in _SCALES)})"
_ENGLISH_SCALES = frozenset({"thousand", "million", "billion", "trillion", "crore", "lakh", "mn", "bn"})


def decimal_mark(text: str) -> str:
    """The decimal separator of a text, point or comma, from its unambiguous numbers; empty if they do not tell.

    "1.284" alone may be 1284 or a decimal fraction: the text's other numbers ("99,90") tell which.
    """
    marks = Counter(match[1] for match in matches(_TWO_DECIMALS, text))
    if marks["."] == marks[","]:
        return ""
    return "." if marks["."] > marks[","] else ","


def parse_number(digits: str, mark: str = "") -> Decimal:
    """The value of digits with separators.

    Of two different separators the last is the decimal one; a repeated one groups thousands. A single one before
    exactly three digits groups thousands too ("1.284", "1,284"), unless it follows a lone zero, or is the text's own
    decimal ``mark`` and the last digit is not 0 ("1,289", not "1,250").
    """
    digits = digits.replace(" ", "").replace("'", "")
    marks = [mark for mark in ".," if mark in digits]
    if len(marks) == 2:
        decimal = max(marks, key=digits.rindex)
    elif (
        marks
        and digits.count(marks[0]) == 1
        and ((marks[0] == mark and digits[-1] != "0") or not re.fullmatch(r"[1-9]\d{0,2}[.,]\d{3}", digits))
    ):
        decimal = marks[0]
    else:
        decimal = ""
    return _decimal(digits, decimal)


def parse_fraction(digits: str) -> Decimal:
    """Like `parse_number`, but a single separator is always the decimal one: "3.125 %" is a rate."""
    marks = [mark for mark in ".," if mark in digits]
    if len(marks) == 1 and digits.count(marks[0]) == 1:
        return _decimal(digits.replace(" ", "").replace("'", ""), marks[0])
    return parse_number(digits)


def parse_scaled(digits: str, scale: str | None, mark: str = "") -> Decimal:
    """Digits or a number word, times a scale word ("3.5 million", "1.181 millones", "mil").

    Before an English scale word a point is decimal: "$2.125 million", but "1.181 millones de euros".
    """
    name = " ".join(scale.lower().split()) if scale else ""
    factor = _SCALES.get(name, 1)
    word = _UNITS.get(digits.lower())
    if word is not None:
        return Decimal(word * factor)
    if name in _ENGLISH_SCALES and "," not in digits:
        return parse_fraction(digits) * factor
    return parse_number(digits, "" if name and "." in digits else mark) * factor


def format_decimal(number: Decimal) -> str:
    """Format without an exponent, keeping the decimal places as written ("1284.50")."""
    if number == number.to_integral_value() and number.as_tuple().exponent not in (-1, -2):
        return f"{number.to_integral_value():f}"
    return f"{number:f}"


def format_scaled(number: Decimal) -> str:
    """Format a scaled number without trailing decimal zeros ("3500000")."""
    return f"{number.to_integral_value():f}" if number == number.to_integral_value() else f"{number.normalize():f}"


def _decimal(digits: str, mark: str) -> Decimal:
    if not mark:
        return Decimal(digits.replace(".", "").replace(",", ""))
    integer, _, fraction = digits.rpartition(mark)
    return Decimal(f"{integer.replace('.', '').replace(',', '') or '0'}.{fraction}")
