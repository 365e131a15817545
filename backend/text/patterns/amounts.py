"""Amounts of money with their currency, and percentages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from backend.text.patterns.numbers import (
    NUMBER,
    NUMBER_OF_CODE,
    SCALE,
    WORD,
    decimal_mark,
    format_decimal,
    format_scaled,
    parse_fraction,
    parse_scaled,
)
from backend.text.patterns.pattern import CLEAR, LIKELY, WEAK, Pattern, PatternMatch, has_before, matches
from backend.text.written_numbers import LANGUAGES, NUMBER_WORDS, cardinals

# Spelling -> ISO 4217 code; "" where the word is used for several currencies ("pesos"). The first match counts.
_CURRENCIES: tuple[tuple[str, str], ...] = (
    (r"€|&euro;|eur(?:os?)?", "EUR"),
    (r"u\.?s\.? ?\$|\$ ?u\.?s\.?d?|usd", "USD"),
    (r"dolares canadienses|canadian dollars?|c\$|cad", "CAD"),
    (r"dolares australianos|australian dollars?|a\$|aud", "AUD"),
    (r"pesos mexicanos|mexican pesos|mx\$|mxn", "MXN"),
    (r"pesos argentinos|ar\$|ars", "ARS"),
    (r"pesos colombianos|cop", "COP"),
    (r"pesos chilenos|clp", "CLP"),
    (r"r\$|brl", "BRL"),
    (r"hk\$|hkd", "HKD"),
    (r"\$|(?:u\.?s\.? )?dollars?|dolar(?:es)?(?: estadounidenses)?", "USD"),
    (r"£|&pound;|gbp|pounds? sterling|libras? esterlinas?|pounds?|libras?", "GBP"),
    (r"swiss francs?|francos? suizos?|chf|sfr\.?", "CHF"),
    (r"¥|jpy|yen(?:es)?", "JPY"),
    (r"rmb|cny|yuan(?:es)?", "CNY"),
    (r"₹|inr|rs\.?|rupees?|rupias?", "INR"),
    (r"pesetas?|ptas?\.?|pts\.?", "ESP"),
    (r"sek|swedish kron(?:a|or)|coronas suecas", "SEK"),
    (r"nok|norwegian kroner?|coronas noruegas", "NOK"),
    (r"dkk|danish kroner?|coronas danesas", "DKK"),
    (r"pln|zlotys?", "PLN"),
    (r"pesos?|francos?|francs|coronas?|bolivares|lempiras", ""),
)
_COMPILED = [(re.compile(spelling, re.IGNORECASE), code) for spelling, code in _CURRENCIES]
# Also weights and crowns: "25 de peso", "5 pounds of apples", "3 coronas".
_AMBIGUOUS = re.compile(r"pounds?|libras?|coronas?|peso|franco", re.IGNORECASE)

_NAMED = "|".join(spelling for spelling, _ in _CURRENCIES)  # after a number, case-insensitive
_PREFIX = (  # before a number: symbols, and codes in capitals only, as "all" and "cop" are words
    r"(?:U\.?S\.? ?\$|MX\$|AR\$|HK\$|[CAR]\$|\$|€|£|¥|₹|&euro;|&pound;"
    r"|EUR|USD|GBP|CHF|JPY|MXN|ARS|COP|CLP|BRL|CAD|AUD|INR|CNY|RMB|HKD|SEK|NOK|DKK|PLN|Rs\.?|eur|usd|gbp)"
)
# A lower-case text that names a currency in words contains one of these.
_STEM = re.compile(r"eur|€|\$|dol|pound|libra|peset|pts|pta|yen|yuan|peso|franc|rup|kron|coron")

_SPACE = r"(?:&nbsp;|[ ]{0,2})"
_BREAK = r"[ ]{0,2}(?:\n[ ]{0,2})?"  # an amount in words may continue on the next line
_NUMBER = re.compile(rf"{NUMBER_OF_CODE}|\.(?<![\w.,'].)\d{{1,4}}(?![\w.,])")
_BEFORE = re.compile(rf"(?:(?<![\w)$€£¥])(?P<sign>-))?(?P<currency>(?<![\w$€£¥]){_PREFIX}){_SPACE}(?P<inner>-)?$")
_BEFORE_ENDS = frozenset(" -$€£¥₹;.RDPFYNSLKsrdp")  # the last letters of codes, and what may follow them
_SCALE_AFTER = re.compile(rf"{_BREAK}(?P<scale>{SCALE})(?![a-z])", re.IGNORECASE)
_CODE_AFTER = re.compile(rf"{_SPACE}(?P<currency>USD|EUR|GBP|MXN|CAD|AUD|ARS|COP|CLP)(?!\w)")
_AFTER = re.compile(
    rf"(?=\s{{0,4}}[^\W\d_]|\s{{0,4}}[€$£¥₹&]){_SPACE}(?:{_BREAK}(?P<scale>{SCALE})(?![a-z])|(?P<short>[mk])(?=eur|€))?"
    rf"(?:{_BREAK}de(?![a-z]))?{_BREAK}(?P<currency>{_NAMED})(?![^\W\d_]|(?<=[€$£¥₹])\d)",
    re.IGNORECASE,
)
_WORDS = re.compile(
    rf"(?<![^\W_])(?:(?P<word>{WORD})(?=\s)(?:{_BREAK}(?P<scale>{SCALE})(?![a-z]))?|(?P<thousand>mil))(?=\s)"
    rf"(?:{_BREAK}de(?![a-z]))?{_BREAK}(?P<currency>{_NAMED})(?![^\W\d_])",
    re.IGNORECASE,
)
_SURE_AMOUNT = 100  # from which pounds and crowns in words are money
# Number words together: "seiscientos ochenta euros", "two thousand and fifty pounds", "veinticinco por ciento".
_NUMBER_WORD = rf"(?:{'|'.join(sorted(NUMBER_WORDS, key=len, reverse=True))})(?![a-z])"
_CHAIN = (
    rf"(?<![^\W_])(?P<words>{_NUMBER_WORD}(?:(?:{_BREAK}|-)(?:(?:y|and){_BREAK})?(?<![a-z]){_NUMBER_WORD}){{0,11}}+)"
)
_CHAIN_OF_MONEY = re.compile(
    rf"{_CHAIN}(?:{_BREAK}de(?![a-z]))?{_BREAK}(?<![a-z])(?P<currency>{_NAMED})(?![^\W\d_])", re.IGNORECASE
)
_CHAIN_PERCENT = re.compile(rf"{_CHAIN}{_BREAK}(?<![a-z])(?:por ciento|per ?cent)(?!\w)", re.IGNORECASE)
_TOTAL = re.compile(
    r"(?:[:=(|\n]|^|\b(?:de|por|a|total|importe|saldo|of|for|amount|sum|suma|neto|iva))[ ]*$", re.IGNORECASE
)
_COUNT_AND_PRICE = re.compile(r"\d{1,3} \d{3}[.,]\d\d$")

_PERCENT = re.compile(rf"(?P<number>{NUMBER}){_BREAK}(?:%|(?i:por cien(?:to)?|por 100|per ?cent|pct)(?!\w))(?![\w%])")
_WORD_PERCENT = re.compile(rf"(?<![^\W_])(?P<word>{WORD})[ ]{_BREAK}(?:por ciento|per ?cent)(?!\w)", re.IGNORECASE)
_SIGN = re.compile(r"(?<![\w)%])[-+]$")


@lru_cache(maxsize=256)
def _code_of(spelling: str) -> str:
    """The ISO 4217 code of a match of `_NAMED` or `_PREFIX`; empty where the word names several currencies."""
    return next(code for regex, code in _COMPILED if regex.fullmatch(spelling))


def _is_ambiguous(spelling: str) -> bool:
    """Whether the word often means something other than money."""
    return _AMBIGUOUS.fullmatch(spelling) is not None


def _find_money(text: str) -> Iterator[PatternMatch]:
    """Numbers with a currency on either side; each currency belongs to the first number it matches with."""
    end, taken = 0, bytearray(len(text))
    mark = decimal_mark(text)
    for match in matches(_NUMBER, text):
        if match.start() < end:
            continue
        if amount := _parse_prefixed(match, end, mark) or _parse_suffixed(match, mark):
            end = amount.end
            taken[amount.start : end] = b"\1" * (end - amount.start)
            yield amount
    lowered = text.lower()
    if _STEM.search(lowered):
        for match in matches(_CHAIN_OF_MONEY, text):
            number = None if taken[match.start()] else _whole(match["words"])
            if number is None or not (code := _code_of(match["currency"])):
                continue
            if not _is_ambiguous(match["currency"]) or number >= _SURE_AMOUNT:
                taken[slice(*match.span())] = b"\1" * len(match[0])
                yield PatternMatch(*match.span(), f"{number} {code}", None, _score(match["currency"]))
        words = (match for match in matches(_WORDS, text) if not taken[match.start()])  # not the "mil" of "12 mil"
        yield from (amount for match in words if (amount := _parse_words(match)))


def _whole(words: str) -> int | None:
    """What number words say together, in Spanish or English; None where they make no number."""
    for language in sorted(LANGUAGES):
        for start, end, number in cardinals(words, language):
            if (start, end) == (0, len(words)):
                return number
    return None


def _parse_prefixed(number: re.Match[str], previous_end: int, mark: str) -> PatternMatch | None:
    """A currency, then the number; the currency must begin after the end of the previous amount."""
    text = number.string
    if number.start() == 0 or text[number.start() - 1] not in _BEFORE_ENDS:
        return None
    first = max(previous_end, number.start() - 10)
    before = _BEFORE.search(text, first, number.start())
    if before is None:
        return None
    scale = _SCALE_AFTER.match(text, number.end())
    end = scale.end() if scale else number.end()
    code = _CODE_AFTER.match(text, end)
    minus = bool(before["sign"] or before["inner"])
    value = _value(number[0], scale and scale["scale"], _code_of((code or before)["currency"]), minus=minus, mark=mark)
    return PatternMatch(before.start(), code.end() if code else end, value, None, CLEAR)


def _parse_suffixed(number: re.Match[str], mark: str) -> PatternMatch | None:
    text = number.string
    after = _AFTER.match(text, number.end())
    if after is None or number[0].startswith(".") or text[max(0, number.start() - 1) : number.start()].isalpha():
        return None
    start, digits = number.start(), number[0]
    if _COUNT_AND_PRICE.match(digits) and not has_before(text, start, _TOTAL, 20):
        # An invoice line: in "Tornillos 2 150,00 €" 2 is a quantity. After "total:" it would be one number.
        shift = digits.index(" ") + 1
        start, digits = start + shift, digits[shift:]
    minus = _SIGN.search(text, max(0, start - 2), start)
    is_negative = minus is not None and minus[0] == "-"
    value = _value(digits, after["scale"] or after["short"], _code_of(after["currency"]), minus=is_negative, mark=mark)
    return PatternMatch(start - is_negative, after.end(), value, None, _score(after["currency"]))


def _parse_words(match: re.Match[str]) -> PatternMatch | None:
    word, scale = ("un", "mil") if match["thousand"] else (match["word"], match["scale"])
    value = _value(word, scale, _code_of(match["currency"]))
    if _is_ambiguous(match["currency"]) and not scale:
        return None  # "un peso de 50 kg", "five pounds of apples"
    return PatternMatch(*match.span(), value, None, _score(match["currency"]))


def _score(currency: str) -> float:
    if _is_ambiguous(currency):
        return WEAK
    return CLEAR if _code_of(currency) else LIKELY


def _value(digits: str, scale: str | None, code: str, *, minus: bool = False, mark: str = "") -> str | None:
    if not code:
        return None
    number = parse_scaled(digits, scale, mark)
    return f"{'-' if minus else ''}{format_scaled(number) if scale else format_decimal(number)} {code}"


def _find_percents(text: str) -> Iterator[PatternMatch]:
    for match in matches(_PERCENT, text):
        sign = _SIGN.search(text, max(0, match.start() - 2), match.start())
        value = format_decimal(parse_fraction(match["number"]))
        yield PatternMatch(match.start() - bool(sign), match.end(), f"-{value}" if sign and sign[0] == "-" else value)
    lowered = text.lower()
    if "ciento" in lowered or "cent" in lowered:
        chains = [(match, number) for match in matches(_CHAIN_PERCENT, text) if (number := _whole(match["words"]))]
        yield from (PatternMatch(*match.span(), str(number)) for match, number in chains)
        ends = {match.end() for match, _ in chains}
        for match in matches(_WORD_PERCENT, text):
            if match.end() in ends:
                continue
            yield PatternMatch(*match.span(), format_decimal(parse_scaled(match["word"], None)))


PATTERNS = (Pattern("MONEY", _find_money, needs_digit=False), Pattern("PERCENT", _find_percents, needs_digit=False))
