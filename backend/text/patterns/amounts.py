"""Written numbers (both separators, scale words, small numbers in words), amounts of money and percentages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache

from backend.text.patterns.pattern import CLEAR, LIKELY, WEAK, Pattern, PatternMatch, has_before, matches
from backend.text.written_numbers import LANGUAGES, NUMBER_WORDS, cardinals

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
