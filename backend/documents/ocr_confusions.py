"""What an id, a date or an amount must have been, where OCR read letters for digits or digits for letters.

Only offered: the text keeps what was read. Only for pages read by OCR: in a text layer a wrong id is a wrong id. Only
letters and digits are exchanged, for a digit read as another digit cannot be told from one that was typed wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from string import ascii_lowercase, ascii_uppercase

from backend.documents.entities import Entity
from backend.documents.id_forms import Form, all_forms, forms
from backend.documents.patterns import find_patterns

# The more usual first. Small letters are read as capitals here, hence the 9 of "g" and "q" and the 6 of "b".
_DIGITS_FOR = {
    "O": "0",
    "Q": "09",
    "D": "0",
    "U": "0",
    "I": "1",
    "L": "1",
    "Z": "2",
    "A": "4",
    "S": "5",
    "G": "69",
    "B": "86",
    "T": "7",
}
_LETTERS_FOR = {
    "0": "OQD",
    "1": "IL",
    "2": "Z",
    "4": "A",
    "5": "S",
    "6": "GB",
    "7": "T",
    "8": "B",
    "9": "GQ",
    "O": "QD",
    "I": "LJ",
    "U": "V",
}
_MARKS = {"|": "I", "!": "I", "º": "O", "°": "O", "§": "S", "$": "S", "€": "E", "£": "E"}
_CAPITALS = str.maketrans(_MARKS | dict(zip(ascii_lowercase, ascii_uppercase, strict=True)))
_MOST_READINGS = 256
_LEAST_SCORE = 0.7
_SURE_SCORE = 0.98  # where a letter or digit that is allowed was not doubted: two tries at a check of 97
_PLACES_A_CHANGE = 4  # of nine characters two may change, of an IBAN's twenty-four six
CHECKED = ("IBAN", "CCC", "NIF", "NIE", "CIF", "VAT")
FIGURES = ("DATE", "MONEY", "PERCENT")

_FIGURE_SCORE = 0.6  # no checksum confirms them: a calendar at most
_MOST_FIGURES_CHANGED = 1 / 3
_FIGURE_DIGITS = {letter: options[0] for letter, options in _DIGITS_FOR.items() if letter not in "AUDT"}
_FIGURE = re.compile(r"(?<![^\W_])[0-9OQILZSBGoqilzsbg|!](?:[.,/' -]?[0-9OQILZSBGoqilzsbg|!])+(?![^\W_])")


@dataclass(frozen=True, slots=True)
class Change:
    """One character that was taken for another."""

    place: int  # code points from the start of the raw text
    read: str
    meant: str


@dataclass(frozen=True, slots=True)
class Repair:
    """What a raw text must have been."""

    raw: str  # as it stands in the text
    value: str  # the compact id; a date's or an amount's normal form
    changes: tuple[Change, ...]
    score: float  # 0 to 1: how unlikely it is that a wrong reading passes the check by chance


@dataclass(frozen=True, slots=True)
class Offer:
    """A repair and where it belongs."""

    type: str
    start: int
    end: int
    repair: Repair


def repair(kind: str, raw: str) -> Repair | None:
    """The one reading of a text that makes it a right id, date or amount; None where there is none, or more than one.

    What is right as it stands needs no repair, and gets None as well. Where letters and digits are both allowed, as in
    French and Maltese accounts, too many readings would pass: what can be as it was read is then taken as read.

    Args:
        kind: one of `CHECKED` or `FIGURES`; any other gives None.
    """
    return _repair_figures(kind, raw) if kind in FIGURES else _repair_id(kind, raw)


def _repair_id(kind: str, raw: str) -> Repair | None:
    """First with every doubt looked at; where that is too much, with what cannot be as it was read alone."""
    places, read = _letters_and_digits(raw)
    possible = [(form, options) for form in forms(kind, len(read)) if (options := _options(form, read))]
    if _score(possible) < _LEAST_SCORE:
        possible = [
            (form, [one[0] if was == one[0] else one for was, one in zip(read, options, strict=True)])
            for form, options in possible
        ]
        if _score(possible) < _SURE_SCORE:
            return None
    right = {value for form, options in possible for value in map("".join, product(*options)) if form.is_right(value)}
    if len(right) != 1:
        return None
    [value] = right
    changes = tuple(
        Change(place, raw[place], meant)
        for place, meant in zip(places, value, strict=True)
        if raw[place].upper() != meant
    )
    if not changes or len(changes) * _PLACES_A_CHANGE > len(value):
        return None
    return Repair(raw, value, changes, round(_score(possible), 4))


def _score(possible: Sequence[tuple[Form, list[str]]]) -> float:
    """How unlikely it is that one of these readings passes by chance; 0 for more than `_MOST_READINGS`."""
    readings = [(prod(map(len, options)), form.strength) for form, options in possible]
    if sum(count for count, _ in readings) > _MOST_READINGS:
        return 0.0
    return prod((1 - 1 / strength) ** count for count, strength in readings)


def _letters_and_digits(raw: str) -> tuple[list[int], str]:
    """An id without its groups, in capitals, and where each character of it stands."""
    plain = _plain(raw)
    places = [place for place, character in enumerate(plain) if character.isalnum()]
    return places, "".join([plain[place] for place in places])


def _plain(raw: str) -> str:
    """Capitals, and the letter that a mark was; a character for each of the raw text."""
    return raw.translate(_CAPITALS)


def _options(form: Form, read: str) -> list[str]:
    """What each place may have been; nothing where a place can have been nothing that the form allows.

    A character that the form allows stays, unless letters and digits are both allowed there: then its look-alike of the
    other kind may have been meant.
    """
    options = []
    for character, allowed in zip(read, form.template, strict=False):
        alike = [one for one in _DIGITS_FOR.get(character, "") + _LETTERS_FOR.get(character, "") if one in allowed]
        if character in allowed:
            alike = [character, *(one for one in alike if one.isdigit() != character.isdigit())]
        meant = "".join(alike)
        if not meant:
            return []
        options.append(meant)
    return options


def _repair_figures(kind: str, raw: str) -> Repair | None:
    """Letters among digits become the digits they look most like; the rest of the text, a currency, stays."""
    if _value_of(kind, raw) is not None:
        return None
    figures = [place for figure in _FIGURE.finditer(raw) for place in range(*figure.span())]
    changes = []
    for place in figures:
        plain = _plain(raw[place])
        if plain in _FIGURE_DIGITS:
            changes.append(Change(place, raw[place], _FIGURE_DIGITS[plain]))
    digits = sum(raw[place].isdigit() for place in figures)
    if not changes or len(changes) > (digits + len(changes)) * _MOST_FIGURES_CHANGED:
        return None
    meant = {change.place: change.meant for change in changes}
    value = _value_of(kind, "".join(meant.get(place, character) for place, character in enumerate(raw)))
    return Repair(raw, value, tuple(changes), _FIGURE_SCORE) if value is not None else None


def _value_of(kind: str, text: str) -> str | None:
    """The value of a text that is one entity of this kind from end to end, and not one that cannot be."""
    stripped = text.strip()
    for entity in find_patterns(stripped, [kind]):
        if entity.text == stripped and entity.valid is not False:
            return entity.value
    return None


# A label with the letters that OCR takes for digits; nine characters alone are as often a part number.
_LABEL = re.compile(
    r"(?<![^\W_])(?:N\.?[I1l]\.?[FE]|C\.?[I1l]\.?F|D\.?N\.?[I1l]|V\.?A\.?T|[I1l]VA|USt|TVA)"
    r"[^\W_]{0,4}[\s.:#ºn°-]{0,6}(?:n[oº°]\.?\s?|num\.?\s?|id\.?\s?|number\s?)?[\s:]{0,3}$",
    re.IGNORECASE,
)
_LABEL_CHARACTERS = 24
_TOKEN = re.compile(r"[0-9A-Za-z|!º$€£]+")
_GROUP_GAP = re.compile(r"[ .\-/]{0,2}")
_LABELLED_LENGTHS = frozenset(range(8, 15))
_MOST_GROUPS = 12  # an IBAN of the longest country in groups of four has nine
_DIGIT = "[0-9OQILZSBGoqilzsbg|!]"  # or what may have been one
_ALONE, _END = r"(?<![^\W_])", r"(?![^\W_])"
_DATE = re.compile(rf"{_ALONE}{_DIGIT}{{1,2}}([/.-]){_DIGIT}{{1,2}}\1(?:{_DIGIT}{{2}}){{1,2}}{_END}")
_AMOUNT = rf"{_DIGIT}{{1,9}}(?:[.,']{_DIGIT}{{3}}){{0,5}}[.,]{_DIGIT}{{2}}"
_MONEY = re.compile(rf"[€$£] ?{_AMOUNT}{_END}|{_ALONE}{_AMOUNT} ?(?:[€$£]|EUR|euros){_END}")


def offers(text: str, entities: Sequence[Entity] = ()) -> list[Offer]:
    """Repairs for a text that OCR read, by place: for entities that are not right, and for what is nearly one.

    Accounts stand for themselves; tax numbers need their label before them. Offers do not overlap.

    Args:
        entities: those that were found. What one of them covers is left alone, unless it is only a part of an offer's
            and has no checksum that is right: the telephone number inside a damaged IBAN.
    """
    found = [
        Offer(one.type, one.start, one.end, better)
        for one in entities
        if one.valid is False and (better := repair(one.type, one.text)) is not None
    ]
    taken, joined = bytearray(len(text) + 1), bytearray(len(text) + 1)  # joined: to the character before
    for one in entities:
        if one.valid is True and one.type in CHECKED:
            taken[one.start : one.end] = b"\1" * (one.end - one.start)
        joined[one.start + 1 : one.end] = b"\1" * (one.end - one.start - 1)
    for mended in found:
        taken[mended.start : mended.end] = b"\1" * (mended.end - mended.start)
    for offer in (*_accounts(text), *_labelled(text), *_figures(text)):
        if not (any(taken[offer.start : offer.end]) or joined[offer.start] or joined[offer.end]):
            found.append(offer)
            taken[offer.start : offer.end] = b"\1" * (offer.end - offer.start)
    return sorted(found, key=lambda one: one.start)


def _accounts(text: str) -> Iterator[Offer]:
    for start, ends in _groups(text):
        yield from _first_repair(text, start, ends, ("IBAN", "CCC"), _account_lengths(_plain(text[start : start + 2])))


@lru_cache(maxsize=4096)
def _account_lengths(head: str) -> frozenset[int]:
    """How long the accounts are that may begin with two characters read so."""
    lengths = [len(form.template) for kind in ("IBAN", "CCC") for form in all_forms(kind) if _options(form, head)]
    return frozenset(lengths)


def _labelled(text: str) -> Iterator[Offer]:
    for start, ends in _groups(text):
        if _LABEL.search(text, max(0, start - _LABEL_CHARACTERS), start):
            yield from _first_repair(text, start, ends, ("NIF", "NIE", "CIF", "VAT"), _LABELLED_LENGTHS)


def _figures(text: str) -> Iterator[Offer]:
    for kind, pattern in (("DATE", _DATE), ("MONEY", _MONEY)):
        for match in pattern.finditer(text):
            if mended := repair(kind, match[0]):
                yield Offer(kind, *match.span(), mended)


def _groups(text: str) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Where each group of letters and digits starts; where it and those joined to it end, and how long all are."""
    spans = [token.span() for token in _TOKEN.finditer(text)]
    for index, (start, end) in enumerate(spans):
        ends = [(end, end - start)]
        for left, right in spans[index + 1 : index + _MOST_GROUPS]:
            last, length = ends[-1]
            if not _GROUP_GAP.fullmatch(text, last, left):
                break
            ends.append((right, length + right - left))
        yield start, ends


def _first_repair(
    text: str, start: int, ends: Sequence[tuple[int, int]], kinds: Sequence[str], lengths: frozenset[int]
) -> Iterator[Offer]:
    """What is nearly an id from here to one of these ends; at least half of it must be digits already."""
    for end, length in ends:
        if length in lengths and sum(map(str.isdigit, text[start:end])) * 2 >= length:
            for kind in kinds:
                if better := repair(kind, text[start:end]):
                    yield Offer(kind, start, end, better)
                    return
