"""Dates and times in the words of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import zip_longest

from rapidfuzz.distance import Levenshtein

from backend.files.pages import Word
from backend.invoices.label_match import tokens_of
from backend.text.patterns.dates import LONG_MONTHS, MONTHS, DateOrder, find_dates
from backend.text.patterns.folding import fold
from backend.word_cache import word_cache

_SLIPS = str.maketrans("OoQDIl|!SZB", "00001111528")
_NUMERIC = re.compile(r"\W{0,2}[\dOoQDIl|!SZB]{1,4}([/.-])[\dOoQDIl|!SZB]{1,2}\1[\dOoQDIl|!SZB]{2,4}\W{0,2}")
_YEAR = re.compile(r"[12][\dOoQDIl|!SZB]{3}\W?")
_MIN_DIGITS = 4  # of a date whose other characters are taken for misread digits
_TWO_READINGS = re.compile(r"(\d{1,2}) ?[/-] ?(\d{1,2}) ?[/-] ?(?:\d\d){1,2}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(
    r"(?<![\d:.,])(?P<hour>[01]?\d|2[0-3])(?P<mark>[:.h])(?P<minute>[0-5]\d)(?:(?P=mark)(?P<second>[0-5]\d))?"
    r" ?(?P<half>[ap]\.?m\b)?(?![\d:/.,-]\d|\d|[%€$])",
    re.IGNORECASE,
)
_LONG_MONTH = 5  # letters of a month's name that may have one misread
_NOON = 12
_YEARS = (1970, 2100)


@dataclass(frozen=True, slots=True)
class PrintedDate:
    """A day of the calendar as printed."""

    value: str  # ISO 8601
    words: tuple[Word, ...]
    first: int  # index of its first word among the words that were searched
    ambiguous: bool  # day and month may be the other way round


@dataclass(frozen=True, slots=True)
class PrintedTime:
    """A time of day as printed."""

    value: str  # "13:36" or "13:36:05"
    words: tuple[Word, ...]


def dates_in(words: Sequence[Word], order: DateOrder, *, is_ocr: bool) -> list[PrintedDate]:
    """The whole dates in some words of a page, left to right.

    Args:
        order: of the whole document.
        is_ocr: letters in numeric dates are misread digits ("0l/O3/2026").
    """
    texts = [word.text for word in words]
    if is_ocr:
        texts = [_without_slips(text, following) for text, following in zip_longest(texts, texts[1:], fillvalue="")]
        texts = list(map(_month, texts))
    found = {first: PrintedDate(day, tuple(words[first:last]), first, False) for first, last, day in _in_words(texts)}
    if not any(character.isdecimal() for text in texts for character in text):
        return list(found.values())
    folded = fold(" ".join(texts))
    for match in find_dates(folded.text, order):
        if not match.valid or match.value is None or not _DAY.fullmatch(match.value):
            continue
        if not _YEARS[0] <= int(match.value[:4]) < _YEARS[1]:
            continue
        first, last = _words_at(texts, *folded.span(match.start, match.end))
        two = None if order.settled else _TWO_READINGS.fullmatch(folded.text[match.start : match.end])
        ambiguous = bool(two and max(int(two[1]), int(two[2])) <= 12 and int(two[1]) != int(two[2]))
        found.setdefault(first, PrintedDate(match.value, tuple(words[first:last]), first, ambiguous))
    return [found[first] for first in sorted(found)]


# Numbers up to 31 by the word for two thousand: below twenty, then with the tens ("{}" is a unit).
_WRITTEN = {
    "dosmil": (("uno/primero dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciseis "
               "diecisiete dieciocho diecinueve"), "veinte veinti{}", "treinta treintay{}"),
    "deuxmille": (("un/premier deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize "
                  "dixsept dixhuit dixneuf"), "vingt vingt{} vingtet{}", "trente trenteet{}"),
    "zweitausend": (("ein/ers zwei drei/drit vier funf sechs sieben/sieb acht/ach neun zehn elf zwolf dreizehn "
                    "vierzehn funfzehn sechzehn siebzehn achtzehn neunzehn"),
                    "zwanzig {}undzwanzig", "dreissig {}unddreissig"),
    "duemila": (("uno/primo due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici "
                "quindici sedici diciassette diciotto diciannove"), "venti venti{} vent{}", "trenta trent{}"),
    "doismil": (("um/primeiro dois tres quatro cinco seis sete oito nove dez onze doze treze catorze quinze dezasseis "
                "dezassete dezoito dezanove"), "vinte vintee{}", "trinta trintae{}"),
    "dousmil": (("un/primeiro dous tres catro cinco seis sete oito nove dez once doce trece catorce quince dezaseis "
                "dezasete dezaoito dezanove"), "vinte vintee{}", "trinta trintae{}"),
    "dosmil ": (("un/primer dos tres quatre cinc sis set vuit nou deu onze dotze tretze catorze quinze setze disset "
                "divuit dinou"), "vint vinti{}", "trenta trentai{}"),
}  # fmt: skip
_YEAR_IN_WORDS = re.compile(rf"(?:{'|'.join(map(str.strip, _WRITTEN))})(?:e|und)?(?P<rest>\w*)")
_OF = frozenset({"de", "d", "del", "di", "dell", "do"})
_DAY_WORDS, _YEAR_WORDS = 3, 8


def _numbers_in_words() -> Iterator[tuple[str, int]]:
    for below, *tens in _WRITTEN.values():
        units = [(name, number) for number, names in enumerate(below.split(), 1) for name in names.split("/")]
        yield from units
        for ten, forms in enumerate(tens, 2):
            alone, *joined = forms.split()
            yield alone, 10 * ten
            yield from ((form.format(name), 10 * ten + unit) for form in joined for name, unit in units if unit < 10)


_NUMBERS: Mapping[str, int] = dict(_numbers_in_words())


def _in_words(texts: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Dates with a day or a year in words: index of their first word, that after their last, ISO 8601."""
    plain = ["".join(tokens_of(text)) for text in texts]
    for at in (index for index, word in enumerate(plain) if word in MONTHS):
        end = next((index for index in range(at - 1, -1, -1) if plain[index] not in _OF), -1) + 1
        start = next((index for index in range(at + 1, len(plain)) if plain[index] not in _OF), len(plain))
        days = ((_number(plain[max(0, end - count) : end]), end - count) for count in range(_DAY_WORDS, 0, -1))
        years = ((_year(plain[start : start + count]), start + count) for count in range(_YEAR_WORDS, 0, -1))
        day, first = next(((day, first) for day, first in days if day and first >= 0), (0, 0))
        year, last = next(((year, last) for year, last in years if year), (0, 0))
        last = min(last, len(texts))
        if day and year and not (plain[first].isdecimal() and plain[last - 1].isdecimal()):
            try:
                yield first, last, date(year, MONTHS[plain[at]], day).isoformat()
            except ValueError:  # the 31st of June
                continue


def _number(words: Sequence[str]) -> int:
    """Up to 31, in digits or in words, ordinals too; 0 where it is none."""
    text = "".join(words)
    if text.isdecimal():
        return int(text) if len(text) <= 2 else 0
    return _NUMBERS.get(text) or _NUMBERS.get(re.sub(r"s?te[nr]?$", "", text), 0)


def _year(words: Sequence[str]) -> int:
    text = "".join(words)
    if text.isdecimal():
        return int(text) if len(text) == 4 else 0
    written = _YEAR_IN_WORDS.fullmatch(text)
    return 2000 + _number([written["rest"]]) if written else 0


def time_in(words: Sequence[Word]) -> PrintedTime | None:
    """The first time of day in some words that do not hold a date."""
    texts = [word.text for word in words]
    match = _TIME.search(" ".join(texts))
    if match is None:
        return None
    hour = int(match["hour"])
    half = (match["half"] or "").lower()[:1]
    if half == "p" and hour < _NOON:
        hour += _NOON
    elif half == "a" and hour == _NOON:
        hour = 0
    first, last = _words_at(texts, *match.span())
    second = f":{match['second']}" if match["second"] else ""
    return PrintedTime(f"{hour:02}:{match['minute']}{second}", tuple(words[first:last]))


def _without_slips(text: str, following: str) -> str:
    """A word of a date with the digits that its letters are: "0l/O3/2026", "Is" before "de marzo"."""
    if text.isdecimal():
        return text
    if len(text) <= 2 and following.lower() == "de":  # digits of a day
        day = fold(text).text.upper().translate(_SLIPS)
        return day if day.isdecimal() else text
    if not (_NUMERIC.fullmatch(text) or _YEAR.fullmatch(text)):
        return text
    return text.translate(_SLIPS) if sum(map(str.isdecimal, text)) >= min(_MIN_DIGITS, len(text) - 1) else text


@word_cache(1024)
def _month(text: str) -> str:
    """The month that a word must be, with one letter misread; else the word."""
    word = fold(text).text.lower().strip(".,")
    if word in LONG_MONTHS or len(word) < _LONG_MONTH or not word[1:].isalnum():
        return text
    near = [name for name in LONG_MONTHS if Levenshtein.distance(word, name, score_cutoff=1) == 1]
    return near[0] if near and len({LONG_MONTHS[name] for name in near}) == 1 else text


def _words_at(texts: Sequence[str], start: int, end: int) -> tuple[int, int]:
    """First and last (excluded) of the words that a span of their joined text touches."""
    first, last, offset = len(texts), 0, 0
    for index, text in enumerate(texts):
        if offset < end and start < offset + len(text):
            first, last = min(first, index), index + 1
        offset += len(text) + 1
    return first, last
