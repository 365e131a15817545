"""Dates, numeric and written, in Spanish, English, Catalan, French, German, Italian and Portuguese.

``value`` is ISO 8601: "2024-03-12", "2024-03" without a day, "--03-12" (XML Schema's gMonthDay) without a year, "2024"
for a labelled year. A day that does not exist ("31/02/2024") is a date with ``valid`` False.

03/04/2024 is the third of April, unless the text writes months first, which `order_of` decides once for the whole text:
evidence is counted once each of its other dates, currencies, tax numbers, phone prefixes, states with ZIP codes, words.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backend.text.patterns.pattern import (
    AFTER_START,
    CLEAR,
    END,
    LIKELY,
    SURE,
    WEAK,
    Pattern,
    PatternMatch,
    has_before,
    matches,
)
from backend.text.written_numbers import cardinals

_SAMPLE = 20_000  # characters at each end; letterhead and footer tell the country


class DateOrder(NamedTuple):
    """How a text writes numeric dates."""

    month_first: bool
    settled: bool  # False: nothing or too little tells; day first is then the guess of all the world but one country


class Points(NamedTuple):
    """Evidence for each order."""

    day_first: int
    month_first: int

    def order(self) -> DateOrder:
        """The order with more points; settled with two more."""
        month_first = self.month_first > self.day_first
        return DateOrder(month_first, abs(self.month_first - self.day_first) >= _ENOUGH)


_ENOUGH = 2
_STATES = (
    "AL|AK|AZ|AR|CA|CO|CT|FL|GA|HI|ID|IL|IN|IA|KS|KY|LA|ME|MD|MA|MI|MN|MS|MO|MT|NE|NV|NH|NJ|NM|NY|NC|ND|OH|OK|OR"
    "|PA|RI|SC|SD|TN|TX|UT|VT|VA|WA|WV|WI|WY|DC"  # without Delaware: "DE 12345" is in Germany
)
_MONTH_FIRST = (
    (2, re.compile(rf"(?<![^\W_])(?:{_STATES})\.?,? {{1,2}}\d{{5}}(?:-\d{{4}})?(?!\w)")),
    (1, re.compile(r"\(\d{3}\)[ -]{0,2}\d{3}[-. ]\d{4}(?!\d)|(?<![\d-])\d{3}-\d{3}-\d{4}(?!\d)|\+1[ .(-]{1,2}\d{3}")),
    (1, re.compile(r"(?<![A-Z])(?:US ?)?\$ ?\d|\bUSD\b")),
    (1, re.compile(r"\b(?:sales tax|zip code|EIN|LLC|USA|U\.S\.A|United States|checks? payable)\b", re.IGNORECASE)),
)
_DAY_FIRST = (
    (2, re.compile(r"€|£|\bEUR(?:O?S?)\b|\bGBP\b|\bCHF\b|\bRM ?\d|\bMYR\b|\beuros?\b")),
    (
        2,
        re.compile(
            r"(?<![^\W_])(?:[NC]\.? ?I\.? ?F\b|N\.?I\.?E\b|DNI|NIPC|I\.?V\.?A\b|IGIC|V\.?A\.?T\b|GST|MwSt|USt|TVA|SIRET"
            r"|SIREN|ABN|CUIT|RFC|GSTIN|Umsatzsteuer|BTW)(?![^\W_])",
            re.IGNORECASE,
        ),
    ),
    (2, re.compile(r"(?<!\w)(?:\+|00)(?:3[0-9]|4[0-9]|6[0-9]|5[1-9]|9[1-9])[ .(-]{0,2}\d")),
    (2, re.compile(r"(?<![^\W_])[A-Z]{2}\d\d(?: ?[A-Z0-9]{4}){3}")),  # the head of an IBAN; the United States have none
    (1, re.compile(r"(?<![^\W_])[A-Z]{1,2}\d[A-Z\d]? \d[A-Z]{2}(?![^\W_])")),  # a British postcode
    (1, re.compile(r"\b(?:Ltd|plc|England|Wales|Scotland|Ireland|United Kingdom|Sdn|Bhd|GmbH)\b", re.IGNORECASE)),
)
_FOREIGN = re.compile(
    r"(?<![^\W_])(?:fecha|factura|importe|vencimiento|cliente|precio|cantidad|calle|telefono|cuenta|pedido|pagina|para"
    r"|datum|rechnung|betrag|menge|strasse|und|der|facture|montant|quantite|rue|les|des|fattura|importo|della|fatura"
    r"|valor|rua|quantidade|quantitat|preu|carrer|data|numero|por|una|segun|desde|hasta)(?![^\W_])",
    re.IGNORECASE,
)
_FOREIGN_WORDS = 3  # that make a text another language than English; "para", "des", "data" stand in English texts too
_MAX_WORDS = 200  # that are looked at


def country_points(text: str) -> Points:
    """Evidence of the country in a folded text, head and tail of it."""
    sample = text if len(text) <= 2 * _SAMPLE else text[:_SAMPLE] + "\n" + text[-_SAMPLE:]
    day_first = sum(points for points, regex in _DAY_FIRST if regex.search(sample))
    month_first = sum(points for points, regex in _MONTH_FIRST if regex.search(sample))
    words = {match[0].lower() for match, _ in zip(_FOREIGN.finditer(sample), range(_MAX_WORDS), strict=False)}
    return Points(day_first + (2 if len(words) >= _FOREIGN_WORDS else min(1, len(words))), month_first)


_NUMERIC = re.compile(
    r"\d(?<!\w.)(?:\d{3}(?P<iso>[-/.])\d\d?(?P=iso)\d\d?"
    r"|\d? ?(?P<sep>[-/.]) ?\d\d? ?(?P=sep) ?(?:(?:1[5-9]|20|21)\d\d|\d\d)"
    r"|\d?(?P<bar>/)(?:19|20)\d\d)(?!\d)"
)
_DIGITS = re.compile(r"\d+")
_CLOCK = re.compile(r"T\d\d")
_VERSION = re.compile(
    r"\b(?:v|ver|version|release|rev|build|ip|firmware|seccion|section|apartado|clausula|clause)\W{0,3}$", re.IGNORECASE
)
# "Avenida 17 de Junio", "Hospital 12 de Octubre"
_STREET_NAME = re.compile(
    r"\b(?:avenida|avda?\.?|av\.|calle|c/|plaza|paseo|hospital|colegio|instituto|estadio|glorieta|barrio"
    r"|street)\s?(?:del? )?$",
    re.IGNORECASE,
)
# "Ley 5/2019", "RD 3/2020", "expediente 12/2024"
_LAW = re.compile(
    r"\b(?:ley|decreto(?:-ley)?|rd|rdl|lo|orden|directiva|reglamento|circular|sentencia|expediente|exp|n\.?[ºo]|num|law|act|no)"
    r"\W{0,3}$",
    re.IGNORECASE,
)
_LABELLED_YEAR = re.compile(
    rf"[aefyAEFY](?<!\w.)(?i:(?<=a)no|(?<=e)jercicio|(?<=f)iscal|(?<=f)y|(?<=y)ear)(?i: fiscal| year)?\s{{0,2}}"
    rf"(?P<year>(?:1[5-9]|20|21)\d\d){END}"
)

_LEAP_YEAR = 2000  # allows 29 February where no year is given
_PIVOT = 69  # two-digit years as in POSIX strptime: 69 to 99 are 19xx

_MONTH_NAMES = (
    "enero ene january jan", "febrero feb february", "marzo mar march", "abril abr april apr", "mayo may",
    "junio jun june", "julio jul july", "agosto ago august aug", "septiembre setiembre sept sep set september",
    "octubre oct october", "noviembre nov november", "diciembre dic december dec",
)  # fmt: skip
# Catalan, French, Galician, German, Italian, Portuguese; without accents, as folded. Left out are abbreviations that
# are words ("out", "gen", "mag").
_FOREIGN_NAMES = (
    "gener janvier janv januar janner gennaio janeiro xaneiro xan",
    "febrer fevrier fevr fev februar febbraio fevereiro febreiro",
    "marc mars marz maerz marco",
    "avril avr aprile",
    "maig mai maggio maio",
    "juny juin juni giugno junho xuno xun giu",
    "juliol juillet juil juli luglio julho xullo xul lug",
    "agost aout",
    "setembre septembre settembre setembro",
    "octubre octobre oktober okt ottobre ott outubro",
    "novembre november novembro",
    "desembre decembre dezember dez dicembre dezembro decembro",
)
MONTHS = {
    name: number
    for months in (_FOREIGN_NAMES, _MONTH_NAMES)
    for number, names in enumerate(months, 1)
    for name in names.split()
}
LONG_MONTHS: Mapping[str, int] = {name: number for name, number in MONTHS.items() if len(name) > 4}
_ENGLISH = {
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
}  # fmt: skip
# Languages that write the day first, by a name that is no abbreviation.
_DAY_FIRST_NAMES = {name for name in MONTHS if len(name) > 4} - _ENGLISH | {"mayo", "mars", "marz", "marc", "aout"}
# Abbreviations, and "march", also a verb: they need more context than a full name.
_SHORT = frozenset(name for name in MONTHS if len(name) <= 4) - {"july", "june", "mayo", "aout"} | {"march", "marco"}
# Also verbs, the sea, "long ago", names of people and a planet.
_WORDS = frozenset({"may", "mar", "set", "march", "ago", "marc", "mars", "mai", "juli", "marco"})


def _alternatives(names: set[str]) -> str:
    return "|".join(sorted(names, key=len, reverse=True))


_MONTH = _alternatives(set(MONTHS))
_FIRST_LETTERS = "".join(sorted({letter for name in MONTHS for letter in (name[0], name[0].upper())}))
# The rest after the first letter; not every pair of both is a month.
_WITHOUT_FIRST = _alternatives({name[1:] for name in MONTHS})

_GAP = r"[ ]{0,3}(?:\n[ ]{0,3})?"
_FOUR = r"(?:1[5-9]|20|21)\d\d"
# Four digits, also with the point of older Spanish letters ("2.024").
_YEAR = rf"(?P<year>{_FOUR}|[12]\.\d{{3}})(?!\d|[.,]\d)"
_OF_YEAR = rf"{_GAP}[,.]?{_GAP}(?:(?:de|del|of){_GAP})?(?:ano )?{_YEAR}"
_ORDINAL = r"(?:st|nd|rd|th|\.?[ºª]|er|o(?![a-z]))?"
_END_OF_WORD = r"(?![^\W\d_])"
_DAY_LED = re.compile(
    rf"[\dPpUu]{AFTER_START}(?i:(?:(?<=\d)\d?|(?<=p)rimero|(?<=u)no)(?!\d){_ORDINAL}"
    rf"(?P<gap>{_GAP}(?:(?:del mes de|de|of){_GAP}|d')?|[ ]?[-/.·][ ]?)(?P<name>{_MONTH}){_END_OF_WORD}\.?"
    rf"(?:{_OF_YEAR}(?!\w)|(?P<cut>[ ]?[-/·][ ]?|[. ]|(?<=[a-z]))(?P<short>\d\d|{_FOUR})(?!\w))?)"
)
_MONTH_LED = re.compile(
    rf"(?P<name>[{_FIRST_LETTERS}]{AFTER_START}(?i:{_WITHOUT_FIRST})){_END_OF_WORD}\.?(?i:"
    rf"{_GAP}(?P<day>\d\d?)(?!\d|[./-]\d|,\d(?!\d{{3}}(?!\d))){_ORDINAL}(?![a-z])"
    rf"(?:{_GAP},?{_GAP}(?P<after_day>{_YEAR.replace('year', 'day_year')}))?"
    rf"|{_OF_YEAR}(?!\w)|[ ]?[-/][ ]?(?P<short>\d\d|{_FOUR})(?!\w|[.,/-]\w))"
)
# "a diecinueve de septiembre de dos mil veinticuatro", as deeds and contracts have it
_SPANISH_WORD = r"[a-z]{2,15}"
_IN_WORDS = re.compile(
    rf"(?<![a-z])(?P<day>{_SPANISH_WORD}(?:{_GAP}y{_GAP}(?:un|uno))?){_GAP}(?:dias{_GAP})?de{_GAP}"
    rf"(?P<name>{'|'.join(name for names in _MONTH_NAMES for name in names.split() if len(name) > 3)}){_GAP}"
    rf"del?{_GAP}(?:ano{_GAP})?(?P<year>(?:dos{_GAP})?mil(?:{_GAP}{_SPANISH_WORD}){{1,5}})(?![a-z])",
    re.IGNORECASE,
)


def order_of(text: str) -> DateOrder:
    """Whether the numeric dates of a folded text have the day or the month first."""
    return _order(text, [match for match in matches(_NUMERIC, text) if not _is_fragment(match)], _parse_written(text))


def find_dates(text: str, order: DateOrder | None = None) -> Iterator[PatternMatch]:
    """The dates in a folded text.

    Args:
        order: of `order_of` for the whole document that the text is a part of; None: this text alone decides.
    """
    numeric = [match for match in matches(_NUMERIC, text) if not _is_fragment(match)]
    written = _parse_written(text)
    month_first = (order or _order(text, numeric, written)).month_first
    for match in numeric:
        if parsed := _parse_numeric(match, month_first=month_first):
            yield parsed
    yield from _find_written(
        [date for date in written if date.year is not None or not has_before(text, date.start, _STREET_NAME)]
    )
    yield from filter(None, map(_parse_in_words, matches(_IN_WORDS, text)))
    for match in matches(_LABELLED_YEAR, text):
        yield PatternMatch(*match.span("year"), match["year"], None, WEAK)


def _order(text: str, numeric: Sequence[re.Match[str]], written: Sequence[_WrittenDate]) -> DateOrder:
    """By the dates that have one reading only, and by the country, which is looked for where a date has two."""
    dates = _date_points(numeric, written)
    if not any(_has_two_readings(match) for match in numeric):
        return dates.order()
    country = country_points(text)
    return Points(dates.day_first + country.day_first, dates.month_first + country.month_first).order()


def _has_two_readings(match: re.Match[str]) -> bool:
    first, second = _numbers(match)[:2]
    return match["sep"] in ("/", "-") and first <= 12 and second <= 12 and first != second


def _date_points(numeric: Sequence[re.Match[str]], written: Sequence[_WrittenDate]) -> Points:
    """A date with the day first counts more than one with the month first: product codes look like the latter too."""
    day_first = month_first = 0
    for match in numeric:
        if match["sep"] is None:
            continue
        first, second = _numbers(match)[:2]
        has_century = len(_DIGITS.findall(match[0])[-1]) == 4
        if match["sep"] == ".":
            day_first = max(day_first, 2 if has_century and second <= 12 else 0)
        elif 12 < first <= 31 and 1 <= second <= 12:
            day_first = max(day_first, 4 if has_century else 2)
        elif 12 < second <= 31 and 1 <= first <= 12:
            month_first = max(month_first, 3 if has_century else 2 if match["sep"] == "/" else 1)
    if any(_is_day_first(date) for date in written):
        day_first = max(day_first, 3)
    if any(date.day is not None and date.year is not None and not date.day_first for date in written):
        month_first = max(month_first, 2)
    return Points(day_first, month_first)


def _numbers(match: re.Match[str]) -> list[int]:
    return [int(digits) for digits in _DIGITS.findall(match[0])]


def _is_fragment(match: re.Match[str]) -> bool:
    """Whether a match is part of something longer: a version, an IP address, an order number, a chain of fractions.

    "01/01/2024-31/12/2024" is two dates: a separator other than its own may follow, before digits but not letters.
    """
    text, (start, end) = match.string, match.span()
    mark = match["iso"] or match["sep"] or match["bar"]
    before, after = text[max(0, start - 2) : start], text[end : end + 3]
    if before[-1:] == mark or before[-1:] == "$":
        return True
    if before[-1:] in ("-", "/", ".") and (before[0].isalpha() or (mark == "-" and before[0].isdecimal())):
        return True
    if after[:1] == mark and after[1:2].isalnum():
        return True
    if after[:1].isalnum() or after[:1] == "_":
        return not (match["iso"] and _CLOCK.match(after))
    return has_before(text, start, _VERSION, 14)


def _parse_numeric(match: re.Match[str], *, month_first: bool) -> PatternMatch | None:
    numbers = _numbers(match)
    if match["iso"]:
        year, month, day = numbers
        return _parse_day(match.span(), year=year, month=month, day=day, score=SURE) if 1500 <= year < 2200 else None
    if match["bar"]:
        if has_before(match.string, match.start(), _LAW, 16):
            return None
        month, year = numbers
        return PatternMatch(*match.span(), f"{year}-{month:02}", None, WEAK) if 1 <= month <= 12 else None
    first, second, _ = numbers
    written_year = _DIGITS.findall(match[0])[-1]
    if len(written_year) == 2 and (match["sep"] == "." or " " in match[0]) and len(match[0]) != len("12.03.24"):
        return None  # "1.2.34" is a section or a version
    swapped = match["sep"] != "." and (second > 12 or (month_first and first <= 12))
    day, month = (second, first) if swapped else (first, second)
    certain = len(written_year) == 4 and (first > 12 or second > 12)
    score = SURE if certain else CLEAR if len(written_year) == 4 else LIKELY
    return _parse_day(match.span(), year=_full_year(written_year), month=month, day=day, score=score)


@dataclass(frozen=True, slots=True)
class _WrittenDate:
    """One date with the month in letters, as parsed: it may not be a valid date."""

    start: int
    end: int
    name: str  # the month, in small letters
    is_capitalized: bool  # the month
    day: int | None
    year: int | None
    day_first: bool
    is_joined: bool  # "de", "of" or a hyphen stands between day and month


def _parse_written(text: str) -> list[_WrittenDate]:
    """Every match of a date with its month in letters, plausible or not; those that begin with a day come first."""
    dates = [_day_led(match) for match in matches(_DAY_LED, text)]
    taken = bytearray(len(text))
    for date in dates:
        taken[date.start : date.end] = b"\1" * (date.end - date.start)
    others = (match for match in matches(_MONTH_LED, text) if not taken[match.start()])
    return dates + [_month_led(match) for match in others if match["name"].lower() in MONTHS]


def _is_day_first(written: _WrittenDate) -> bool:
    """Whether the date shows that its author writes days before months."""
    if written.name in _DAY_FIRST_NAMES:
        return written.day_first or written.day is None
    return written.day_first and (written.year is not None or written.name not in _SHORT)


def _find_written(dates: list[_WrittenDate]) -> Iterator[PatternMatch]:
    """The plausible ones of the dates from `_parse_written`."""
    for date in dates:
        if not _is_plausible(date):
            continue
        month = MONTHS[date.name]
        if date.day is not None:
            score = SURE if date.year is not None else WEAK
            if parsed := _parse_day((date.start, date.end), year=date.year, month=month, day=date.day, score=score):
                yield parsed
        elif date.year is not None:
            score = CLEAR if date.name not in _SHORT else LIKELY
            yield PatternMatch(date.start, date.end, f"{date.year:04}-{month:02}", None, score)


def _parse_in_words(match: re.Match[str]) -> PatternMatch | None:
    day, year = (list(cardinals(match[part], "es")) for part in ("day", "year"))
    is_first = match["day"].lower() in ("primero", "uno")
    if not year or year[0][0] != 0 or not (is_first or (day and day[0][:2] == (0, len(match["day"])))):
        return None
    span = match.start(), match.start("year") + year[0][1]
    month = MONTHS[match["name"].lower()]
    return _parse_day(span, year=year[0][2], month=month, day=1 if is_first else day[0][2], score=SURE)


def _day_led(match: re.Match[str]) -> _WrittenDate:
    """A date that begins with its day. In "12 de marzo 24 personas" 24 is no year, in "12-mar-24" it is."""
    name = match["name"].lower()
    digits = match["year"] or match["short"]
    loose = match["short"] and len(digits) == 2 and match["cut"].strip() == "" and name not in _SHORT
    if loose or (match["short"] and match["cut"] == "." and match["gap"] != "."):
        digits = None
    end = match.end() if digits else match.end("name")
    day = re.match(r"\d+", match[0])
    return _WrittenDate(
        match.start(),
        end,
        name,
        match["name"][0].isupper(),
        int(day[0]) if day else 1,
        _full_year(digits.replace(".", "")) if digits else None,
        day_first=True,
        is_joined=bool(match["gap"].strip()),
    )


def _month_led(match: re.Match[str]) -> _WrittenDate:
    digits = match["year"] or match["day_year"] or match["short"]
    return _WrittenDate(
        match.start(),
        match.end(),
        match["name"].lower(),
        match["name"][0].isupper(),
        int(match["day"]) if match["day"] else None,
        _full_year(digits.replace(".", "")) if digits else None,
        day_first=False,
        is_joined=False,
    )


def _is_plausible(date: _WrittenDate) -> bool:
    """Whether a match is a date. Abbreviations and words like "may" need day and year, a joiner, or a capital."""
    if date.name not in _SHORT:
        return date.day_first or date.is_capitalized or date.year is not None or date.name in _DAY_FIRST_NAMES
    if date.day is not None and date.year is not None:
        return True
    if date.day_first:
        return date.is_joined or (date.is_capitalized and date.name not in ("mar", "marc", "mars", "marco"))
    if date.year is not None:
        return date.is_capitalized or date.name not in _WORDS
    return date.is_capitalized and date.name not in _WORDS - {"may", "march"}


def _full_year(digits: str) -> int:
    """The year of two or four digits."""
    year = int(digits)
    return year if len(digits) == 4 else year + (1900 if year >= _PIVOT else 2000)


def _parse_day(span: tuple[int, int], *, year: int | None, month: int, day: int, score: float) -> PatternMatch | None:
    """A day in ISO 8601; not ``valid`` if it does not exist, None if month or day are out of range."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    if day > monthrange(_LEAP_YEAR if year is None else year, month)[1]:
        return PatternMatch(*span, None, False, WEAK)
    value = f"--{month:02}-{day:02}" if year is None else f"{year:04}-{month:02}-{day:02}"
    return PatternMatch(*span, value, True, score)


PATTERNS = (Pattern("DATE", find_dates, needs_digit=False),)
