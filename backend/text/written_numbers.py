"""Numbers as they are written: "mil doscientos con cincuenta euros" becomes "1.200,50 €" (es, en). Pure.

Known as inverse text normalisation. Cardinals, decimals, amounts, percentages, dates, times of day, years, telephone
numbers, and ids that are read digit by digit. What is no number, or no clear one, stays as it was heard: a lone number
below ten ("dos o tres", "one of us"), "mil" and "a hundred" by themselves, "treinta y pico", numbers side by side that
make no whole. Each token is looked at a bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from backend.files.speech_records import Segment, SpokenWord

_TOKEN = re.compile(r"\S+")
_NBSP = "\u00a0"  # between a number and its sign: a word of a transcript has no space within
_LONGEST_WORD = 24  # characters of a number word; longer ones are none
_LONGEST_DIGITS = 15
_LONE = 10  # from which a number without a unit is written in digits
_GROUPED_DIGITS = 5  # from which a number that is no amount gets separators: years have none
_SHORTEST_RUN = 4  # digits one after the other that are a number; counting aloud is none up to
_COUNTING = 6
_MAX_PARTS = 5  # after slashes and dashes
_LONGEST_RUN = 30  # which an account number has 24 of
_PHONE_DIGITS, _PHONE_STARTS = 9, "6789"  # of Spain
_NIF = "TRWAGMYFPDXBNJZSQVHLCKE"
_UNACCENTED = str.maketrans("áéíóúü", "aeiouu")


def _numbered(words: str, first: int = 0, step: int = 1) -> dict[str, int]:
    """Words in a row, numbered; ``a/b`` are two for one number."""
    rows = enumerate(words.split())
    return {word: first + step * index for index, spellings in rows for word in spellings.split("/")}


@dataclass(frozen=True, slots=True)
class _Language:
    """The number words of a language, without accents."""

    units: Mapping[str, int]  # 1 to 9
    teens: Mapping[str, int]  # all others that are one word below the tens that take a unit
    tens: Mapping[str, int]
    link: str  # between tens and a unit
    hundreds: Mapping[str, int]
    hundred: str  # that multiplies what stands before it
    thousand: str
    millions: frozenset[str]
    and_: str  # after hundreds and thousands
    zero: frozenset[str]
    points: Mapping[str, str]  # a decimal separator as it is said: as it is written
    months: frozenset[str]
    percents: tuple[tuple[str, ...], ...]
    cents: frozenset[str]
    currencies: Mapping[str, str]
    slashes: Mapping[str, str]
    vague: frozenset[str]  # after "y"
    doubles: frozenset[str]
    letters: Mapping[str, str]  # names of letters that are no other word
    group: str  # separators
    decimal: str
    ordinals: Mapping[str, int]


_ES = _Language(
    units=_numbered("un/uno/una dos tres cuatro cinco seis siete ocho nueve", 1),
    teens=_numbered("diez once doce trece catorce quince dieciseis diecisiete dieciocho diecinueve veinte "
                    "veintiun/veintiuno/veintiuna veintidos veintitres veinticuatro veinticinco veintiseis veintisiete "
                    "veintiocho veintinueve", 10),
    tens=_numbered("treinta cuarenta cincuenta sesenta setenta ochenta noventa", 30, 10),
    link="y",
    hundreds=_numbered("cien/ciento doscientos/doscientas trescientos/trescientas cuatrocientos/cuatrocientas "
                       "quinientos/quinientas seiscientos/seiscientas setecientos/setecientas ochocientos/ochocientas "
                       "novecientos/novecientas", 100, 100),
    hundred="", thousand="mil", millions=frozenset({"millon", "millones"}), and_="",
    zero=frozenset({"cero"}), points={"coma": ",", "punto": "."},
    months=frozenset(_numbered("enero febrero marzo abril mayo junio julio agosto septiembre/setiembre octubre "
                               "noviembre diciembre")),
    percents=(("por", "ciento"), ("por", "cien"), ("por", "100")),
    cents=frozenset({"centimo", "centimos"}),
    currencies={"euro": "€", "euros": "€", "dolar": "$", "dolares": "$"},
    slashes={"barra": "/", "guion": "-"},
    vague=frozenset({"pico", "tantos", "tantas", "algo"}),
    doubles=frozenset({"doble"}),
    letters={name: "BCFGHJKLMNPQRVXZ"[index] for name, index in _numbered(
        "be ce efe ge hache jota ka ele eme ene pe cu erre uve/ve equis zeta/ceta").items()},
    group=".", decimal=",", ordinals={"primero": 1},
)  # fmt: skip
_EN = _Language(
    units=_numbered("one two three four five six seven eight nine", 1),
    teens=_numbered("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen", 10),
    tens=_numbered("twenty thirty forty/fourty fifty sixty seventy eighty ninety", 20, 10),
    link="", hundreds={}, hundred="hundred", thousand="thousand", millions=frozenset({"million"}), and_="and",
    zero=frozenset({"zero", "oh", "o"}), points={"point": "."},
    months=frozenset(_numbered("january february march april may june july august september october november "
                               "december")),
    percents=(("percent",), ("per", "cent")),
    cents=frozenset({"cent", "cents"}),
    currencies={"euro": "€", "euros": "€", "dollar": "$", "dollars": "$"},
    slashes={"slash": "/", "dash": "-", "hyphen": "-"},
    vague=frozenset({"something", "odd"}),
    doubles=frozenset({"double"}),
    letters={},
    group=",", decimal=".",
    ordinals=_numbered("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
                       "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth", 1)
    | {"thirtieth": 30},
)  # fmt: skip
_LANGUAGES: Mapping[str, _Language] = {"es": _ES, "en": _EN}
LANGUAGES = frozenset(_LANGUAGES)  # ISO 639-1; whose numbers are known
NUMBER_WORDS = frozenset(  # without accents, in any of them
    word
    for language in _LANGUAGES.values()
    for words in (language.units, language.teens, language.tens, language.hundreds, language.millions)
    for word in (*words, language.hundred, language.thousand)
    if word
)


class Rewriting(NamedTuple):
    """Tokens from ``start`` up to ``end`` are written as one."""

    start: int
    end: int
    text: str


def with_written_numbers(
    segment: Segment, language: str | None = None, *, before: str = "", goes_on: bool = False
) -> Segment:
    """A segment with its numbers as they are written; a number's word lasts from its first word to its last.

    A number at a border that no punctuation tells may be half of one ("mil novecientos | treinta y cuatro"): it stays.

    Args:
        language: that the text is written in, where it is not the one that is spoken.
        before: the text of the segment before it, as it was heard.
        goes_on: another segment follows, or may.
    """
    code = language or segment.language
    if code not in LANGUAGES:
        return segment

    def changes(tokens: Sequence[str]) -> list[Rewriting]:
        first = 1 if before[-1:].isalnum() else 0
        last = len(tokens) - (goes_on and segment.text[-1:].isalnum())
        return [each for each in rewritings(tokens, code) if each.start >= first and each.end <= last]

    tokens, spoken = segment.text.split(), [word.text for word in segment.words]
    text = " ".join(_replaced(tokens, changes(tokens)))
    return replace(segment, text=text, words=tuple(_joined(segment.words, changes(spoken))))


def _replaced(tokens: Sequence[str], changes: Sequence[Rewriting]) -> Iterator[str]:
    at = 0
    for start, end, text in changes:
        yield from tokens[at:start]
        yield text
        at = end
    yield from tokens[at:]


def _joined(words: Sequence[SpokenWord], changes: Sequence[Rewriting]) -> Iterator[SpokenWord]:
    at = 0
    for start, end, text in changes:
        yield from words[at:start]
        parts = words[start:end]
        least = min(word.confidence for word in parts)  # the number is as sure as its least sure word
        yield parts[0]._replace(text=text, end_s=parts[-1].end_s, confidence=least)
        at = end
    yield from words[at:]


def rewritings(tokens: Sequence[str], language: str) -> list[Rewriting]:
    """Which tokens of a text are written otherwise, in order, none overlapping another.

    Args:
        tokens: of the text, with their punctuation.
        language: one of `LANGUAGES`.
    """
    reader = _Reader(_LANGUAGES[language], _atoms(tokens, _LANGUAGES[language]))
    return [
        Rewriting(first.token, last.token + 1, first.before + text + last.after)
        for first, last, text in reader.read()
        if text.replace(_NBSP, " ") != " ".join(tokens[first.token : last.token + 1]).strip(_PUNCTUATION)
    ]


def cardinals(text: str, language: str) -> Iterator[tuple[int, int, int]]:
    """Whole numbers in words: where each begins and ends, and its value; "a" and "un" by themselves are articles."""
    known, tokens = _LANGUAGES[language], list(_TOKEN.finditer(text))
    atoms = _atoms([token.group() for token in tokens], known)
    reader, at = _Reader(known, atoms), 0
    while at < len(atoms):
        number = reader.cardinal(at) if atoms[at].opens else None
        is_article = number is not None and number.end == at + 1 and atoms[at].word in {"un", "una"}
        if number is None or number.was_written or is_article:
            at += 1
            continue
        first, last = atoms[at], atoms[number.end - 1]
        start = tokens[first.token].start() + len(first.before)
        yield start, tokens[last.token].end() - len(last.after), number.value
        at = number.end


class _Atom(NamedTuple):
    """A word of a token; of most it is the only one, "forty-two" has two."""

    word: str  # in small letters, without accents
    raw: str  # with neither
    token: int  # index
    before: str  # punctuation
    after: str
    opens: bool  # the first of its token
    closes: bool  # the last


def _atoms(tokens: Sequence[str], language: _Language) -> list[_Atom]:
    atoms: list[_Atom] = []
    for index, token in enumerate(tokens):
        if len(token) > _LONGEST_WORD:
            atoms.append(_Atom("", "", index, "", "", opens=True, closes=True))
            continue
        raw = token.strip(_PUNCTUATION)
        start = token.find(raw)
        before, after = (token[:start], token[start + len(raw) :]) if raw else (token, "")
        parts = raw.split("-")
        words = [part.lower().translate(_UNACCENTED) for part in parts]
        if len(parts) > 1 and not all(_is_number_word(word, language) for word in words):
            parts, words = [raw], [raw.lower().translate(_UNACCENTED)]
        last = len(parts) - 1
        atoms += [
            _Atom(word, part, index, before, after, opens=at == 0, closes=at == last)
            for at, (word, part) in enumerate(zip(words, parts, strict=True))
        ]
    return atoms


_PUNCTUATION = ".,;:!?¿¡\"'«»“”\u2018\u2019()[]…-\u2013—"
_NOTHING = _Atom("", "", -1, "", "", opens=True, closes=True)


def _is_number_word(word: str, language: _Language) -> bool:
    known = (language.units, language.teens, language.tens, language.hundreds, language.zero, language.ordinals)
    return any(word in words for words in known) or word in {language.hundred, language.thousand}


class _Number(NamedTuple):
    """A number that begins at some atom."""

    whole: str  # digits
    end: int  # atoms up to it
    decimals: str = ""
    point: str = ""  # as it is written between them; empty: the language's
    was_written: bool = False  # all of it came in digits

    @property
    def value(self) -> int:
        return int(self.whole)


_Found = tuple[int, str]  # end of an expression in atoms, and how it is written


@dataclass(frozen=True, slots=True)
class _Reader:
    language: _Language
    atoms: Sequence[_Atom]

    def read(self) -> Iterator[tuple[_Atom, _Atom, str]]:
        at = 0
        while at < len(self.atoms):
            found = self._expression(at) if self.atoms[at].opens else None
            if found is None:
                at = max(at + 1, self._unclear_until(at))
                continue
            end, text = found
            if self.atoms[end - 1].closes:
                yield self.atoms[at], self.atoms[end - 1], text
            at = end

    def _atom(self, at: int) -> _Atom:
        return self.atoms[at] if 0 <= at < len(self.atoms) else _NOTHING

    def _word(self, at: int) -> str:
        return self._atom(at).word

    def _follows(self, at: int) -> bool:
        """Whether no punctuation parts an atom from the one before it."""
        one, before = self._atom(at), self._atom(at - 1)
        return not one.opens or not (before.after or one.before)

    def _next(self, at: int) -> str:
        """The word at a place, if it goes on with what is before it."""
        return self._word(at) if self._follows(at) else ""

    def _expression(self, at: int) -> _Found | None:
        return (
            self._spelt(at)
            or self._phone(at)
            or self._date(at)
            or self._time(at)
            or self._year(at)
            or self._amount(at)
            or self._lone(at)
        )

    def _unclear_until(self, at: int) -> int:
        """The end of numbers side by side that make no whole, all of which stay as they are."""
        end, number = at, self._number(at)
        while number is not None:
            end = number.end
            number = self._number(end) if self._follows(end) else None
        return end

    # Numbers.

    def _number(self, at: int) -> _Number | None:
        """A cardinal, in words or in digits, with its decimals."""
        found = self.cardinal(at)
        if found is None:
            return None
        point = self.language.points.get(self._next(found.end), "")
        if not point or found.decimals:
            return found
        decimals = self._decimals(found.end + 1)
        if decimals is None:
            return found
        return _Number(found.whole, decimals[0], decimals[1], "" if point == self.language.decimal else point)

    def _decimals(self, at: int) -> tuple[int, str] | None:
        if not self._next(at):
            return None
        end, digits = self._digits(at)
        if len(digits) > 1:
            return end, digits
        zeros = digits if digits == "0" else ""
        found = self.cardinal(at + len(zeros)) if self._follows(at + len(zeros)) else None
        if found is not None and len(found.whole) <= 2 and not found.decimals:  # "catorce" is 14
            return found.end, zeros + found.whole
        return (end, digits) if digits else None

    def cardinal(self, at: int) -> _Number | None:
        """A whole number; one in digits may have decimals."""
        atom, known = self._atom(at), self.language
        if atom.word in known.zero and len(atom.word) > 2:  # "o" and "oh" are zeros in a row alone
            return _Number("0", at + 1)
        written = _written(atom.word, known)
        if written is not None and (written[1] or self._next(at + 1) not in {known.thousand, *known.millions}):
            return _Number(written[0], at + 1, written[1], was_written=True)
        total, end = 0, at
        if (part := self._thousands(at)) is not None:
            total, end = part
            if self._next(end) in known.millions:
                total, end = total * 1_000_000, end + 1
                rest = self._thousands(end) if self._next(end) else None
                total, end = (total + rest[0], rest[1]) if rest is not None else (total, end)
        return _Number(str(total), end) if end > at else None

    def _thousands(self, at: int) -> tuple[int, int] | None:
        known = self.language
        if self._word(at) == known.thousand and not known.hundred:  # "mil"
            count, end = 1, at
        elif (part := self._below_thousand(at)) is None:
            return None
        else:
            count, end = part
            if self._next(end) != known.thousand:
                return part
        total, end = count * 1000, end + 1
        after = end + 1 if known.and_ and self._next(end) == known.and_ else end
        rest = self._below_thousand(after) if self._next(after) and not self._is_digits(after) else None
        if rest is None or (after > end and rest[0] >= 100):  # "a thousand and two hundred" is two
            return total, end
        return total + rest[0], rest[1]

    def _below_thousand(self, at: int) -> tuple[int, int] | None:
        known, word = self.language, self._word(at)
        if self._is_digits(at):
            return (int(word), at + 1) if len(word) <= 3 else None  # "3 mil"
        if word in known.hundreds:
            total, end = known.hundreds[word], at + 1
            if word == "cien":
                return total, end
            rest = self._below_hundred(end) if self._follows(end) else None
            return (total + rest[0], rest[1]) if rest is not None else None if word == "ciento" else (total, end)
        is_article = known.hundred and word == "a" and self._next(at + 1) in {known.hundred, known.thousand}
        part = (1, at + 1) if is_article else self._below_hundred(at)
        if part is None or not known.hundred or self._next(part[1]) != known.hundred:
            return part
        total, end = part[0] * 100, part[1] + 1
        after = end + 1 if self._next(end) == known.and_ else end
        rest = self._below_hundred(after) if self._next(after) else None
        return (total + rest[0], rest[1]) if rest is not None else (total, end)

    def _below_hundred(self, at: int) -> tuple[int, int] | None:
        known, word = self.language, self._word(at)
        for words in (known.units, known.teens):
            if word in words:
                return words[word], at + 1
        if word not in known.tens:
            return None
        total, end = known.tens[word], at + 1
        after = end + 1 if known.link and self._next(end) == known.link else end
        if (known.link and after == end) or not self._follows(after) or self._word(after) not in known.units:
            return total, end
        return total + known.units[self._word(after)], after + 1

    def _is_digits(self, at: int) -> bool:
        word = self._word(at)
        return word.isascii() and word.isdigit()

    # Expressions.

    def _digits(self, at: int, *, through_commas: bool = False) -> tuple[int, str]:
        """Digits that are said one by one, up to where."""
        known, digits, end = self.language, list[str](), at
        while len(digits) <= _LONGEST_RUN and (end == at or self._goes_on(end, through_commas=through_commas)):
            doubled = self._word(end) in known.doubles and bool(digits)
            word = self._word(end + doubled)
            is_zero = word in known.zero and (bool(digits) or len(word) > len("oh"))  # "oh, one more"
            digit = str(known.units[word]) if word in known.units else "0" if is_zero else ""
            if not digit or word in {"un", "una"}:
                break
            digits.append(digit * (1 + doubled))
            end += 1 + doubled
        return end, "".join(digits)

    def _goes_on(self, at: int, *, through_commas: bool) -> bool:
        return self._follows(at) or (through_commas and self._atom(at - 1).after == "," and not self._atom(at).before)

    def _spelt(self, at: int) -> _Found | None:
        """A number that is read digit by digit, with the letter before it or the check letter after it."""
        letter = self._letter(at)
        start = at + bool(letter)
        if letter and not self._goes_on(start, through_commas=True):
            return None
        end, digits = self._digits(start, through_commas=True)
        counting = "1234567890"[: len(digits)]
        if not _SHORTEST_RUN <= len(digits) <= _LONGEST_RUN or (digits == counting and len(digits) <= _COUNTING):
            return None
        if self._goes_on(end, through_commas=True) and self._number(end) is not None:
            return None  # "four five six seventy": not one by one
        last = self._letter(end) if self._goes_on(end, through_commas=True) else ""
        if last and len(digits) == len("12345678") and _NIF[int(digits) % len(_NIF)] == last:
            return end + 1, letter + digits + last
        return self._slashed(end, letter + digits) or (end, letter + digits)

    def _letter(self, at: int) -> str:
        """A letter that is spelt: by a name that is no other word, or alone and large within a sentence."""
        atom = self._atom(at)
        if atom.word in self.language.letters:
            return self.language.letters[atom.word]
        is_letter = len(atom.raw) == 1 and atom.raw.isalpha() and atom.raw.isupper()
        return atom.raw if is_letter and atom.raw.isascii() and self._is_inside(at) and atom.raw != "I" else ""

    def _is_inside(self, at: int) -> bool:
        """Whether a sentence goes on here, in which only names are written large."""
        before = self._atom(at - 1)
        return at > 0 and not before.after.endswith((".", "!", "?", ":")) and not self._atom(at).before

    def _phone(self, at: int) -> _Found | None:
        """Nine digits of Spain in groups: "seiscientos doce, treinta y cuatro, …"."""
        if self.language.group != ".":
            return None
        digits, end, said = "", at, False
        while len(digits) < _PHONE_DIGITS and (end == at or self._goes_on(end, through_commas=True)):
            found = self.cardinal(end)
            if found is None or found.decimals or len(found.whole) > 3:  # digits of a group
                return None
            digits, end, said = digits + found.whole, found.end, said or not found.was_written
        goes_on = self._goes_on(end, through_commas=False) and self.cardinal(end) is not None
        if len(digits) != _PHONE_DIGITS or digits[0] not in _PHONE_STARTS or not said or goes_on:
            return None
        return end, digits

    def _date(self, at: int) -> _Found | None:
        """The day before its month or after it; a year is a number of its own."""
        known, number = self.language, self._day(at)
        if number is None:
            return None
        day, end, is_ordinal = number
        suffix = _suffix(day) if is_ordinal and known is _EN else ""
        is_before = self._next(end) in {"de", "of"} and self._is_month(end + 1)
        is_after = known is _EN and self._is_month(at - 1) and self._follows(at) and self._year(at) is None
        return (end, f"{day}{suffix}") if is_before or is_after else None

    def _day(self, at: int) -> tuple[int, int, bool] | None:
        """1 to 31, where it ends, and whether it is an ordinal."""
        known, word = self.language, self._word(at)
        if word in known.ordinals:
            return known.ordinals[word], at + 1, True
        if word in known.tens and self._next(at + 1) in known.ordinals:
            day = known.tens[word] + known.ordinals[self._word(at + 1)]
            return (day, at + 2, True) if day <= 31 else None
        found = self.cardinal(at)
        if found is None or found.was_written or found.decimals or not 1 <= found.value <= 31:
            return None
        return found.value, found.end, False

    def _is_month(self, at: int) -> bool:
        atom = self._atom(at)
        return atom.word in self.language.months and (self.language is _ES or atom.raw[:1].isupper())

    def _time(self, at: int) -> _Found | None:
        """Hours and minutes: "las cinco y media", "at ten thirty"."""
        hour = self.cardinal(at)
        if hour is None or hour.was_written or hour.decimals or hour.value > 24:  # hours
            return None
        minutes = self._minutes(at, hour)
        if minutes is None:
            return None
        past, end = minutes
        whole = hour.value * 60 + past
        return end, f"{whole // 60}:{whole % 60:02d}"

    def _minutes(self, at: int, hour: _Number) -> tuple[int, int] | None:
        """Minutes past the hour, negative before it, and where they end."""
        link, end = self._next(hour.end), hour.end
        if self.language is _EN:
            is_said = self._word(at - 1) in _AT and self._follows(at)
            found = self._two_digits(end)
            if found is None or hour.value > 12:  # half a day
                return None
            return found if is_said or self._next(found[1]) in _HALVES_OF_DAY else None
        if self._word(at - 1) not in {"la", "las"} or not self._follows(at):
            return None
        if link not in {"y", "menos"}:
            return self._two_digits(end)
        sign, word = (1 if link == "y" else -1), self._next(end + 1)
        if word == "cuarto" or (word == "media" and sign > 0):
            return (15 if word == "cuarto" else 30) * sign, end + 2
        past = self.cardinal(end + 1) if word else None
        if past is None or past.was_written or past.decimals or not 1 <= past.value <= 59:
            return None
        return past.value * sign, past.end

    def _two_digits(self, at: int) -> tuple[int, int] | None:
        """10 to 99, or a zero and a digit, in words."""
        if not self._next(at):
            return None
        zero = self._word(at) in self.language.zero
        found = self._below_hundred(at + zero) if self._follows(at + zero) else None
        if found is None or (found[0] > 9) == zero or self._is_digits(at):  # one digit
            return None
        return found

    def _year(self, at: int) -> _Found | None:
        """English years in pairs: "nineteen eighty-four"."""
        century = self._below_hundred(at) if self.language is _EN else None
        if century is None or not 13 <= century[0] <= 20:  # below, and 21, rather other things
            return None
        rest = self._two_digits(century[1])
        if rest is None or (self._next(rest[1]) and self._number(rest[1]) is not None):
            return None
        return rest[1], f"{century[0]}{rest[0]:02d}"

    def _amount(self, at: int) -> _Found | None:
        """A number with its currency, or per cent."""
        known, number = self.language, self._number(at)
        if number is None:
            return None
        for words in known.percents:
            if all(self._next(number.end + index) == word for index, word in enumerate(words)):
                space = _NBSP if known is _ES else ""
                return number.end + len(words), f"{self._text(number)}{space}%"
        end, cents = number.end, number.decimals
        if self._next(end) == "con" and not cents and (found := self._cents(end + 1)) is not None:
            if self._next(found[0]) in known.currencies:  # "mil con cincuenta euros"
                return found[0] + 1, self._money(number.whole, found[1], self._word(found[0]))
            return None
        currency = self._next(end)
        if currency not in known.currencies or self._is_range(at, number):
            return None
        end += 1
        if not cents and (found := self._cents_after(end)) is not None:
            end, cents = found
        is_article = number.whole == "1" and not cents and not number.was_written
        return None if is_article else (end, self._money(number.whole, cents, currency))

    def _cents(self, at: int) -> tuple[int, str] | None:
        found = self.cardinal(at) if self._next(at) else None
        if found is None or found.decimals or not 1 <= found.value <= 99:  # cents
            return None
        return found.end, f"{found.value:02d}"

    def _cents_after(self, at: int) -> tuple[int, str] | None:
        """Cents after the currency: "con cincuenta", "y cincuenta céntimos", "and fifty cents"."""
        word = self._next(at)
        found = self._cents(at + (word in {"con", "y", "and"}))
        if found is None:
            return None
        end, cents = found
        is_named = self._next(end) in self.language.cents
        return (end + is_named, cents) if is_named or word == "con" else None

    def _money(self, whole: str, cents: str, currency: str) -> str:
        known, sign = self.language, self.language.currencies[currency]
        text = _grouped(whole, known.group, 4) + (f"{known.decimal}{cents:0<2}" if cents else "")
        return f"{text}{_NBSP}{sign}" if known is _ES else f"{sign}{text}"

    def _lone(self, at: int) -> _Found | None:
        """A number by itself, where it is a clear one."""
        known, number = self.language, self._number(at)
        if number is None:
            return None
        end = number.end
        if not number.decimals and (found := self._slashed(end, number.whole)):
            return found
        is_idiom = end == at + 1 and (self._word(at) == known.thousand or self._is_decade(at, number))
        is_name = self._is_inside(at) and not self._atom(at).raw.islower()  # "Treinta Años", "la ONCE"
        is_article = self._word(at) in {"a", "un"} and end == at + 2
        is_vague = self._next(end) in known.vague or (self._next(end) == "y" and self._next(end + 1) in known.vague)
        is_side_by_side = bool(self._next(end)) and self._number(end) is not None
        is_written = self._is_digits(at)  # "30 to 50 thousand"
        if is_written or self._is_range(at, number) or is_idiom or is_name or is_article or is_vague or is_side_by_side:
            return None
        return (end, self._text(number)) if number.decimals or number.value >= _LONE else None

    def _is_decade(self, at: int, number: _Number) -> bool:
        """Of "los años setenta"."""
        return self._word(at - 1) in {"años", "los"} and 20 <= number.value <= 90 and number.value % 10 == 0

    def _is_range(self, at: int, number: _Number) -> bool:
        """Whether thousands may be those of a number before it, too: "entre treinta y cincuenta mil"."""
        is_linked = self._word(at - 1) in {"a", "y", "o", "to", "and", "or"} and self._follows(at)
        return is_linked and number.value % 1000 == 0 and number.value > 0 and self.cardinal(at - 2) is not None

    def _text(self, number: _Number) -> str:
        known = self.language
        point = number.point or known.decimal
        millions, rest = divmod(number.value, 1_000_000)
        if millions and not rest and not number.was_written:
            return f"{_grouped(str(millions), known.group, _GROUPED_DIGITS)}{_NBSP}{self._word(number.end - 1)}"
        whole = _grouped(number.whole, known.group, _GROUPED_DIGITS)
        return f"{whole}{point}{number.decimals}" if number.decimals else whole

    def _slashed(self, end: int, text: str) -> _Found | None:
        """Numbers with a slash or a dash that is said between them."""
        whole = text
        for _ in range(_MAX_PARTS):
            sign = self.language.slashes.get(self._next(end), "")
            part = self.cardinal(end + 1) if sign and self._next(end + 1) else None
            if part is None or part.decimals:
                break
            whole, end = f"{whole}{sign}{part.whole}", part.end
        return (end, whole) if whole != text else None


_AT = frozenset({"at", "by", "until", "till", "before", "after", "around"})
_HALVES_OF_DAY = frozenset({"am", "pm", "a.m", "p.m"})


def _written(word: str, language: _Language) -> tuple[str, str] | None:
    """The digits and the decimals of a number that is in digits already."""
    if not word[:1].isdigit() or len(word) > _LONGEST_DIGITS or not word.isascii():
        return None
    whole, _, decimals = word.partition(language.decimal)
    first, *groups = whole.split(language.group)
    is_grouped = not groups or (1 <= len(first) <= 3 and all(len(group) == 3 for group in groups))
    digits = "".join((first, *groups))
    if not is_grouped or not digits.isdigit() or (decimals and not decimals.isdigit()):
        return None
    return digits, decimals


def _grouped(digits: str, separator: str, least: int) -> str:
    return f"{int(digits):,}".replace(",", separator) if len(digits) >= least else digits


def _suffix(day: int) -> str:
    return "th" if day in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
