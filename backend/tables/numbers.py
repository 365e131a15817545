"""Numbers in the cells of a page: amounts with or without a currency, quantities, percentages."""

from __future__ import annotations

import re
from bisect import bisect_left
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import NamedTuple

from backend.files.pages import Document, Word
from backend.files.visual_rows import Cell
from backend.text.patterns.amounts import decimal_mark, parse_fraction, parse_number
from backend.text.patterns.folding import fold
from backend.text.patterns.pattern import matches
from backend.word_cache import word_cache

_CURRENCIES = {
    "€": "EUR", "EUR": "EUR", "EUROS": "EUR", "EURO": "EUR", "US$": "USD", "$": "USD", "USD": "USD", "£": "GBP",
    "GBP": "GBP", "CHF": "CHF", "RM": "MYR", "MYR": "MYR", "MXN": "MXN", "R$": "BRL", "BRL": "BRL", "¥": "JPY",
    "JPY": "JPY", "SEK": "SEK", "NOK": "NOK", "DKK": "DKK", "PLN": "PLN", "CAD": "CAD", "AUD": "AUD", "ARS": "ARS",
    "COP": "COP", "CLP": "CLP", "INR": "INR", "₹": "INR", "SGD": "SGD", "S$": "SGD", "C$": "CAD", "A$": "AUD",
    "ZŁ": "PLN", "CZK": "CZK", "HUF": "HUF", "RON": "RON", "₺": "TRY",
}  # fmt: skip
_CODE = "|".join(re.escape(code) for code in sorted(_CURRENCIES, key=len, reverse=True))
# Spaces group thousands only before exactly three digits: "1 284,50". Two numbers side by side are two words.
_DIGITS = r"(?:\d{1,3}(?:[.,' ]\d{3}){1,40}(?:[.,]\d{1,6})?|\d+(?:[.,]\d{1,6})?|[.,]\d{1,2})"
# A second currency is the next number's: "CHF84.00 CHF- 15.00".
# A minus behind a number is glued to it or ends the cell: "base 240,00 - tax 14,40" is two positive amounts.
_NUMBER = re.compile(
    rf"(?:(?<![\w.,/-])|(?<=[^\W\d_]{{3}})(?=\d\d?\s?%))(?<!\d:)(?P<open>\()?(?P<sign>[-+])?\s?(?P<before>{_CODE})?\s?(?P<inner>[-+])?\s?(?P<digits>{_DIGITS})"
    rf"(?:(?P<after>(?(before)|\s?)(?:{_CODE})|\s?%)|\s?)(?P<trailing>(?:(?<=\S)|(?=-\s?\)?$))-(?!\w))?(?P<close>\))?(?![\w/])(?![.,:]\d)(?!-(?!(?:{_CODE})\b)\w)",
    re.IGNORECASE,
)


# An amount in which OCR took digits for letters: "I.342,00", "RMO.06". The letters are read as what they are taken for.
_DIGIT_LIKE = r"[\dIlOoDSBZ|]"
_MISREAD = re.compile(
    rf"(?:(?<=RM)|(?<![\w.,]))(?=[.,IlOoDSBZ|]{{0,24}}\d){_DIGIT_LIKE}{{1,3}}(?:[.,]{_DIGIT_LIKE}{{3}}){{0,5}}[.,]{_DIGIT_LIKE}{{2}}(?![\w.,])"
)
_DIGIT = re.compile(r"\d")
_LEADERS = re.compile(r"\.{3,}|_{3,}")  # "TOTAL.......1.210,00"
_APART = re.compile(r"(?<![\d.,])(\d[\d.,]{0,12}[.,]) (\d\d)(?![\d.,])")  # "605, 00"
_MOST = Decimal(10) ** 15  # a longer number is a code; products of two are beyond what Decimal's 28 digits round
_MAX_DIGITS = 40  # with separators; the digits of a page-long "number" took minutes to reckon with
_DIGIT_OF = str.maketrans("IlOoDSBZ|", "110005821")
_KEPT = 4096  # texts of cells


class Number(NamedTuple):
    """A number as printed."""

    value: Decimal  # with its sign; a percentage as printed: 21 for "21 %"
    digits: str  # as printed, without sign and currency: "1.284,50"
    currency: str | None  # ISO 4217, where it stands beside the number
    percent: bool
    cell: Cell
    words: tuple[Word, ...]  # those it stands in

    @property
    def decimals(self) -> int:
        """Printed decimal places."""
        exponent = self.value.as_tuple().exponent
        return -exponent if isinstance(exponent, int) and exponent < 0 else 0

    @property
    def text(self) -> str:
        """As printed, with its currency."""
        return " ".join(word.text for word in self.words)


def decimal_mark_of(document: Document) -> str:
    """The decimal separator that a document uses, "." or ","; empty where its numbers do not tell."""
    return decimal_mark("\n".join(fold(page.text).text for page in document.pages))


class _Figure(NamedTuple):
    """A number in a text, as `Number` has it, with its span."""

    value: Decimal
    digits: str
    currency: str | None
    percent: bool
    start: int
    end: int


def numbers_in(cell: Cell, mark: str = "") -> list[Number]:
    """The numbers in a cell, left to right. Dates, codes and ids with other characters in them are none.

    Args:
        mark: of `decimal_mark_of`.
    """
    figures = _figures(cell.text, mark)
    if not figures:
        return []
    starts = [0, *accumulate(len(word.text) + 1 for word in cell.words)]
    return [
        Number(
            value,
            digits,
            currency,
            percent,
            cell,
            cell.words[bisect_left(starts, start + 2) - 1 : bisect_left(starts, end)],
        )
        for value, digits, currency, percent, start, end in figures
    ]


@word_cache(_KEPT)
def _figures(text: str, mark: str) -> tuple[_Figure, ...]:
    """Those in the text of a cell, which several rules ask for."""
    if not _DIGIT.search(text):
        return ()
    folded = fold(text)
    text = _with_digits(folded.text)
    found: list[_Figure] = []
    for match in matches(_NUMBER, text):
        if len(match["digits"]) > _MAX_DIGITS:
            continue
        after = (match["after"] or "").strip()
        percent = after == "%"
        try:
            value = parse_fraction(match["digits"]) if percent else parse_number(match["digits"], mark)
        except InvalidOperation:
            continue
        if value >= _MOST:
            continue
        # Brackets take off where they are the whole cell: "(45.00)", not "VAT 20 % (450.00)" or "Tax (8.25%)".
        bracketed = bool(match["open"] and match["close"]) and not percent and len(match[0]) == len(text)
        negative = bracketed or "-" in (match["sign"], match["inner"], match["trailing"])
        code = match["before"] or (None if percent else after)
        currency = _CURRENCIES[code.upper()] if code and (code.isupper() or not _is_word(code)) else None
        span = folded.span(*match.span())
        found.append(_Figure(-value if negative else value, match["digits"], currency, percent, *span))
    return tuple(found)


def _is_word(code: str) -> bool:
    """Whether a currency's code in small letters may be a word: "Cad." of a chain; "rm" and "eur" are none."""
    return len(code) == 3 and code.isalpha() and code.upper() not in ("EUR", "USD", "GBP", "CHF")


def _with_digits(text: str) -> str:
    """A text of the same length without leader dots, and with the letters in misread amounts as digits."""
    text = _LEADERS.sub(lambda match: " " * len(match[0]), text)
    text = _APART.sub(r" \1\2", text)
    return _MISREAD.sub(lambda match: match[0].translate(_DIGIT_OF), text)
