"""Numbers of documents in the words of a page: "FV-2026/0123", "A 1234", "Serie A Nº 12"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from backend.files.pages import Word
from backend.text.id_formats import formats_of_length

_MARK = re.compile(
    r"(?:n|no|nr|num|núm|nro|número|numero|number|nummer|n\.?o|id|:|#|-|\N{EN DASH}|=|\.|º|°|№|\()[.:ºª°#]*",
    re.IGNORECASE,
)
_MOST_MARKS = 3
_DAY_OR_COUNT = 3  # digits
_ID = re.compile(r"[#(\[]?(?P<id>[A-Za-z0-9Ñ][\w/.\-\N{EN DASH}_·:]{0,39}?)[)\]]?[.,;:]*")
_PREFIX = re.compile(r"[A-ZÑ]{1,6}[-/.]?")
_DATE = re.compile(r"\d{1,2}([/.-])\d{1,2}\1(?:\d{4}|\d\d)|(?:19|20)\d\d-\d\d-\d\d")
_AMOUNT = re.compile(r"\d{1,3}(?:[.,]\d{3})*[.,]\d\d|\d+[.,]\d\d")
_TIME = re.compile(r"\d{1,2}:\d\d(?::\d\d)?")
_SEPARATOR = re.compile(r"[/\-\N{EN DASH}]")
_AFTER_NUMBER = re.compile(r"(?:€|\$|£|%|eur|euros?|días|dias|days|unidades|uds?|kg|pages?|páginas)\.?", re.IGNORECASE)
_MONTH = re.compile(
    r"(?:ene|jan|feb|f[eé]v|mar|m[aä]r|abr|apr|avr|may|mai|jun|jul|ago|aug|ao[uû]|sep|set|oct|okt|out|ott|nov|dic|dec|dez|d[eé]c)\w{0,7}\.?",
    re.IGNORECASE,
)
_MISREAD = str.maketrans("OoIl|", "00111")
_DIGIT_RUN = re.compile(r"(?<![A-Za-z0-9|])[\dOoIl|]{3,}(?![A-Za-z0-9|])")
_TAX_IDS = ("NIF", "NIE", "CIF", "VAT", "IBAN")
_PROSE = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class PrintedId:
    """A document's number as printed."""

    value: str
    words: tuple[Word, ...]
    rest: tuple[Word, ...]  # the words behind it

    @property
    def is_alone(self) -> bool:
        """Whether no other words than a date's follow."""
        head = self.rest[0].text.strip(".,;:").lower() if self.rest else ""
        return not self.rest or head in _CONNECTORS or bool(_DATE.match(head)) or not any(map(str.isalnum, head))


_CONNECTORS = {"de", "del", "vom", "du", "of", "dated", "fecha", "date", "le", "em", "en", "issued"}


def id_in(words: Sequence[Word], *, is_ocr: bool) -> PrintedId | None:
    """The number at the beginning of some words; None where they begin with something else.

    Args:
        is_ocr: letters like O and I among digits are misread ("A-740II" is A-74011).
    """
    first = 0
    while first < min(_MOST_MARKS, len(words)) and _MARK.fullmatch(words[first].text):
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
    return PrintedId(value, tuple(chosen), tuple(words[first + last :]))


def _counts(rest: Sequence[Word]) -> bool:
    """Whether a number before these words is an amount, a quantity or the day of a date: "12 de marzo", "3 días"."""
    texts = [word.text for word in rest[:2] if word.text.lower() != "de"]
    return bool(texts and (_AFTER_NUMBER.fullmatch(texts[0]) or _MONTH.fullmatch(texts[0])))


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


def is_tax_id(value: str) -> bool:
    """Whether it is a valid tax number or account: no document's number."""
    bare = "".join(filter(str.isalnum, value)).upper()
    return any(form.is_valid(bare) for kind in _TAX_IDS for form in formats_of_length(kind, len(bare)))


def is_short(value: str) -> bool:
    """Fewer than three characters, or a year: as often a page, a quantity or a part of a date."""
    return len(value) < 3 or is_year(value)


def is_year(value: str) -> bool:
    """Whether it may be a year of our time."""
    return bool(re.fullmatch(r"(?:19|20)\d\d", value))
