"""Amounts of money with their currency, and percentages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backend.documents.patterns.currencies import NAMED, PREFIX, STEMS, code_of, is_doubtful
from backend.documents.patterns.numbers import (
    NUMBER,
    NUMBER_OF_CODE,
    SCALE,
    WORD,
    decimal_mark,
    plain,
    plain_scaled,
    read_fraction,
    read_scaled,
)
from backend.documents.patterns.pattern import CLEAR, LIKELY, WEAK, Found, Kind, has_before

_SPACE = r"(?:&nbsp;|[ ]{0,2})"
_BREAK = r"[ ]{0,2}(?:\n[ ]{0,2})?"  # an amount in words may go on in the next line
_NUMBER = re.compile(rf"{NUMBER_OF_CODE}|\.(?<![\w.,'].)\d{{1,4}}(?![\w.,])")
_BEFORE = re.compile(rf"(?:(?<![\w)$€£¥])(?P<sign>-))?(?P<currency>(?<![\w$€£¥]){PREFIX}){_SPACE}(?P<inner>-)?$")
_BEFORE_ENDS = frozenset(" -$€£¥₹;.RDPFYNSLKsrdp")  # the last letters of codes, and what may follow them
_SCALE_AFTER = re.compile(rf"{_BREAK}(?P<scale>{SCALE})(?![a-z])", re.IGNORECASE)
_CODE_AFTER = re.compile(rf"{_SPACE}(?P<currency>USD|EUR|GBP|MXN|CAD|AUD|ARS|COP|CLP)(?!\w)")
_AFTER = re.compile(
    rf"(?=\s{{0,4}}[^\W\d_]|\s{{0,4}}[€$£¥₹&]){_SPACE}(?:{_BREAK}(?P<scale>{SCALE})(?![a-z])|(?P<short>[mk])(?=eur|€))?"
    rf"(?:{_BREAK}de(?![a-z]))?{_BREAK}(?P<currency>{NAMED})(?![^\W\d_]|(?<=[€$£¥₹])\d)",
    re.IGNORECASE,
)
_WORDS = re.compile(
    rf"(?<![^\W_])(?:(?P<word>{WORD})(?=\s)(?:{_BREAK}(?P<scale>{SCALE})(?![a-z]))?|(?P<thousand>mil))(?=\s)"
    rf"(?:{_BREAK}de(?![a-z]))?{_BREAK}(?P<currency>{NAMED})(?![^\W\d_])",
    re.IGNORECASE,
)
_TOTAL = re.compile(
    r"(?:[:=(|\n]|^|\b(?:de|por|a|total|importe|saldo|of|for|amount|sum|suma|neto|iva))[ ]*$", re.IGNORECASE
)
_COUNT_AND_PRICE = re.compile(r"\d{1,3} \d{3}[.,]\d\d$")

_PERCENT = re.compile(
    rf"(?P<number>{NUMBER}){_BREAK}(?:%|(?i:por cien(?:to)?|por 100|per ?cent|pct)(?!\w))(?![\w%])",
)
_WORD_PERCENT = re.compile(rf"(?<![^\W_])(?P<word>{WORD})[ ]{_BREAK}(?:por ciento|per ?cent)(?!\w)", re.IGNORECASE)
_SIGN = re.compile(r"(?<![\w)%])[-+]$")


def _find_money(text: str) -> Iterator[Found]:
    """Numbers with a currency on either side; a currency belongs to the number it was first read with."""
    end, taken = 0, bytearray(len(text))
    mark = decimal_mark(text)
    for match in _NUMBER.finditer(text):
        if match.start() < end:
            continue
        if found := _read_prefixed(match, end, mark) or _read_suffixed(match, mark):
            end = found.end
            taken[found.start : end] = b"\1" * (end - found.start)
            yield found
    lowered = text.lower()
    if any(stem in lowered for stem in STEMS):
        words = (match for match in _WORDS.finditer(text) if not taken[match.start()])  # not the "mil" of "12 mil"
        yield from (found for match in words if (found := _read_words(match)))


def _read_prefixed(number: re.Match[str], taken: int, mark: str) -> Found | None:
    """A currency, then the number; it begins after what an amount before it has taken."""
    text = number.string
    if number.start() == 0 or text[number.start() - 1] not in _BEFORE_ENDS:
        return None
    first = max(taken, number.start() - 10)
    before = _BEFORE.search(text, first, number.start())
    if before is None:
        return None
    scale = _SCALE_AFTER.match(text, number.end())
    end = scale.end() if scale else number.end()
    code = _CODE_AFTER.match(text, end)
    minus = bool(before["sign"] or before["inner"])
    value = _value(number[0], scale and scale["scale"], code_of((code or before)["currency"]), minus=minus, mark=mark)
    return Found(before.start(), code.end() if code else end, value, None, CLEAR)


def _read_suffixed(number: re.Match[str], mark: str) -> Found | None:
    text = number.string
    after = _AFTER.match(text, number.end())
    if after is None or number[0].startswith(".") or text[max(0, number.start() - 1) : number.start()].isalpha():
        return None
    start, digits = number.start(), number[0]
    if _COUNT_AND_PRICE.match(digits) and not has_before(text, start, _TOTAL, 20):
        # A line of an invoice: "Tornillos 2 150,00 €" is two at 150. After "total:" it is one number.
        shift = digits.index(" ") + 1
        start, digits = start + shift, digits[shift:]
    minus = _SIGN.search(text, max(0, start - 2), start)
    is_negative = minus is not None and minus[0] == "-"
    value = _value(digits, after["scale"] or after["short"], code_of(after["currency"]), minus=is_negative, mark=mark)
    return Found(start - is_negative, after.end(), value, None, _score(after["currency"]))


def _read_words(match: re.Match[str]) -> Found | None:
    word, scale = ("un", "mil") if match["thousand"] else (match["word"], match["scale"])
    value = _value(word, scale, code_of(match["currency"]))
    if is_doubtful(match["currency"]) and not scale:
        return None  # "un peso de 50 kg", "five pounds of apples"
    return Found(*match.span(), value, None, _score(match["currency"]))


def _score(currency: str) -> float:
    if is_doubtful(currency):
        return WEAK
    return CLEAR if code_of(currency) else LIKELY


def _value(digits: str, scale: str | None, code: str, *, minus: bool = False, mark: str = "") -> str | None:
    if not code:
        return None
    number = read_scaled(digits, scale, mark)
    return f"{'-' if minus else ''}{plain_scaled(number) if scale else plain(number)} {code}"


def _find_percents(text: str) -> Iterator[Found]:
    for match in _PERCENT.finditer(text):
        sign = _SIGN.search(text, max(0, match.start() - 2), match.start())
        value = plain(read_fraction(match["number"]))
        yield Found(match.start() - bool(sign), match.end(), f"-{value}" if sign and sign[0] == "-" else value)
    lowered = text.lower()
    if "ciento" in lowered or "cent" in lowered:
        for match in _WORD_PERCENT.finditer(text):
            yield Found(*match.span(), plain(read_scaled(match["word"], None)))


KINDS = (Kind("MONEY", _find_money, needs_digit=False), Kind("PERCENT", _find_percents, needs_digit=False))
