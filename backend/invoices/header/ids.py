"""Reads a document's number from the words that print it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from backend.files.pages import Word

_MARK = re.compile(
    r"(?:n|no|nr|num|núm|nro|número|numero|number|nummer|n\.?o|id|:|#|-|\N{EN DASH}|=|\.|º|°|№|\()[.:ºª°#]*",
    re.IGNORECASE,
)
_MAX_MARKS = 3
_DAY_OR_COUNT = 3  # digits
_ID = re.compile(r"[#(\[]?(?P<id>[A-Za-z0-9Ñ][\w/.\-\N{EN DASH}_·:]{0,39}?)[)\]]?[.,;:]*")
_PREFIX = re.compile(r"[A-ZÑ]{1,6}[-/.]?")
_DATE = re.compile(r"\d{1,2}([/.-])\d{1,2}\1(?:\d{4}|\d\d)|(?:19|20)\d\d-\d\d-\d\d")
_AMOUNT = re.compile(r"\d{1,3}(?:[.,]\d{3}){0,8}[.,]\d\d|\d{1,24}[.,]\d\d")
_TIME = re.compile(r"\d{1,2}:\d\d(?::\d\d)?")
_SEPARATOR = re.compile(r"[/\-\N{EN DASH}]")
_UNIT_AFTER_NUMBER = re.compile(
    r"(?:€|\$|£|%|eur|euros?|días|dias|days|unidades|uds?|kg|pages?|páginas)\.?", re.IGNORECASE
)
_MONTH_NAME = re.compile(
    r"(?:ene|jan|feb|f[eé]v|mar|m[aä]r|abr|apr|avr|may|mai|jun|jul|ago|aug|ao[uû]|sep|set|oct|okt|out|ott|nov|dic|dec|dez|d[eé]c)\w{0,7}\.?",
    re.IGNORECASE,
)
_MISREAD = str.maketrans("OoIl|", "00111")
_DIGIT_RUN = re.compile(r"(?<![A-Za-z0-9|])[\dOoIl|]{3,}(?![A-Za-z0-9|])")


class PrintedId(NamedTuple):
    """A document's number as printed."""

    value: str
    rest: tuple[Word, ...]  # the words behind it


def id_in(words: Sequence[Word], *, is_ocr: bool) -> PrintedId | None:
    """The number at the beginning of some words; None where they begin with something else.

    Args:
        is_ocr: letters like O and I among digits are misread ("A-740II" is A-74011).
    """
    first = 0
    while first < min(_MAX_MARKS, len(words)) and _MARK.fullmatch(words[first].text):
        first += 1
    last = _length(words[first : first + 4])
    if last == 0:
        return None
    chosen = words[first : first + last]
    value = _joined([word.text for word in chosen])
    if value.isdecimal() and len(value) <= _DAY_OR_COUNT and _counts(words[first + last :]):
        return None
    if is_ocr:
        value = _DIGIT_RUN.sub(_read_digits, value)
    return PrintedId(value, tuple(words[first + last :]))


def _counts(rest: Sequence[Word]) -> bool:
    """Whether a number before these words is an amount, a quantity or the day of a date: "12 de marzo", "3 días"."""
    texts = [word.text for word in rest[:2] if word.text.lower() != "de"]
    return bool(texts and (_UNIT_AFTER_NUMBER.fullmatch(texts[0]) or _MONTH_NAME.fullmatch(texts[0])))


def _length(words: Sequence[Word]) -> int:
    """How many of the first words are the number; 0 where they are none."""
    if not words:
        return 0
    texts = [word.text for word in words]
    head = texts[0].rstrip(",;:.")
    if _is_number(texts[0]):
        if len(texts) > 2 and texts[1] in ("/", "-", "\N{EN DASH}") and _is_number(texts[2]):
            return 3
        if (
            len(texts) > 1
            and _is_number(texts[1])
            and (_SEPARATOR.match(texts[0][-1]) or _SEPARATOR.match(texts[1][0]))
        ):
            return 2
        return 1
    if len(texts) > 1 and _PREFIX.fullmatch(head) and texts[0] == head:
        if _is_number(texts[1]):
            return 2
        if len(texts) > 2 and texts[1] in ("/", "-", "\N{EN DASH}") and _is_number(texts[2]):
            return 3
    return 0


def _is_number(text: str) -> bool:
    match = _ID.fullmatch(text)
    if match is None or not any(map(str.isdecimal, text)):
        return False
    core = match["id"]
    return not (_DATE.fullmatch(core) or _AMOUNT.fullmatch(core) or _TIME.fullmatch(core))


def _joined(texts: Sequence[str]) -> str:
    """Joined as printed: a separator between blanks stands without them, other words with one blank."""
    value = " ".join(texts)
    value = re.sub(r" ?([/\N{EN DASH}-]) ?", r"\1", value) if len(texts) > 1 else value
    return value.strip("#()[].,;: ").rstrip("/-\N{EN DASH}_")


def _read_digits(match: re.Match[str]) -> str:
    read = match[0]
    return read.translate(_MISREAD) if sum(map(str.isdecimal, read)) * 2 > len(read) else read
