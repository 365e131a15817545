"""Suggests corrections of ids, dates and amounts in which OCR confused letters and digits ("O" and "0").

The text itself keeps what was read. Meant for OCR pages only: in a text layer a wrong id is a wrong id. A digit is only
exchanged for a letter or the reverse; one digit for another could as well be a typing error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from string import ascii_lowercase, ascii_uppercase

from backend.abandoned import require_wanted
from backend.text.entity_merge import Entity
from backend.text.id_formats import IdFormat, all_formats, formats_of_length
from backend.text.patterns import find_patterns

# The more common first. Lower case is read as capitals here, hence the 9 of "g" and "q" and the 6 of "b".
_DIGITS_FOR = {
    "O": "0", "Q": "09", "D": "0", "U": "0", "I": "1", "L": "1", "Z": "2", "A": "4", "S": "5", "G": "69", "B": "86",
    "T": "7",
}  # fmt: skip
_LETTERS_FOR = {
    "0": "OQD", "1": "IL", "2": "Z", "4": "A", "5": "S", "6": "GB", "7": "T", "8": "B", "9": "GQ", "O": "QD",
    "I": "LJ", "U": "V",
}  # fmt: skip
_MARKS = {"|": "I", "!": "I", "º": "O", "°": "O", "§": "S", "$": "S", "€": "E", "£": "E"}
_CAPITALS = str.maketrans(_MARKS | dict(zip(ascii_lowercase, ascii_uppercase, strict=True)))
_MAX_VARIANTS = 256
_MIN_SCORE = 0.7
_SURE_SCORE = 0.98  # where allowed characters were taken as read: two variants against a check of strength 97
_CHARACTERS_PER_CHANGE = 4  # of nine characters two may change, of an IBAN's twenty-four six
CHECKED = ("IBAN", "CCC", "NIF", "NIE", "CIF", "VAT")
FIGURES = ("DATE", "MONEY", "PERCENT")

_FIGURE_SCORE = 0.6  # confirmed by no checksum, at most by the calendar
_MAX_CHANGED_RATIO = 1 / 3
_FIGURE_DIGITS = {letter: options[0] for letter, options in _DIGITS_FOR.items() if letter not in "AUDT"}
_FIGURE = re.compile(r"(?<![^\W_])[0-9OQILZSBGoqilzsbg|!](?:[.,/' -]?[0-9OQILZSBGoqilzsbg|!])+(?![^\W_])")


@dataclass(frozen=True, slots=True)
class Change:
    """One character that OCR confused."""

    place: int  # in code points from the start of the raw text
    read: str
    meant: str


@dataclass(frozen=True, slots=True)
class Repair:
    """The correction of a raw text."""

    raw: str  # as in the text
    value: str  # the compact id; the normalised date or amount
    changes: tuple[Change, ...]
    score: float  # 0 to 1: probability that no wrong variant passes the check by chance


@dataclass(frozen=True, slots=True)
class SuggestedRepair:
    """A repair with its entity type and span."""

    type: str
    start: int
    end: int
    repair: Repair


def repair(kind: str, raw: str) -> Repair | None:
    """The only variant of a text that is a valid id, date or amount; None where there is none or more than one.

    A text that is valid already needs no repair and gives None too. Where letters and digits are both allowed, as in
    French and Maltese accounts, too many variants would pass: allowed characters are then taken as read.

    Args:
        kind: one of `CHECKED` or `FIGURES`; others give None.
    """
    return _repair_figures(kind, raw) if kind in FIGURES else _repair_id(kind, raw)


def _repair_id(kind: str, raw: str) -> Repair | None:
    """Tries all variants; if those are too many, only of the characters that the format does not allow."""
    indexes, read = _letters_and_digits(raw)
    possible = [(form, options) for form in formats_of_length(kind, len(read)) if (options := _options(form, read))]
    if _score(possible) < _MIN_SCORE:
        possible = [(form, _keep_allowed(options, read)) for form, options in possible]
        if _score(possible) < _SURE_SCORE:
            return None
    right = {value for form, options in possible for value in map("".join, product(*options)) if form.is_valid(value)}
    if len(right) != 1:
        return None
    [value] = right
    changes = tuple(
        Change(index, raw[index], meant)
        for index, meant in zip(indexes, value, strict=True)
        if raw[index].upper() != meant
    )
    if not changes or len(changes) * _CHARACTERS_PER_CHANGE > len(value):
        return None
    return Repair(raw, value, changes, round(_score(possible), 4))


def _keep_allowed(options: Sequence[str], read: str) -> list[str]:
    """The options without alternatives for characters that the format allows as they were read."""
    return [option[0] if character == option[0] else option for character, option in zip(read, options, strict=True)]


def _score(possible: Sequence[tuple[IdFormat, list[str]]]) -> float:
    """Probability that none of the variants passes by chance; 0 for more than `_MAX_VARIANTS`."""
    variants = [(prod(map(len, options)), form.strength) for form, options in possible]
    if sum(count for count, _ in variants) > _MAX_VARIANTS:
        return 0.0
    return prod((1 - 1 / strength) ** count for count, strength in variants)


def _letters_and_digits(raw: str) -> tuple[list[int], str]:
    """The indexes of an id's letters and digits, and these in capitals."""
    plain = _plain(raw)
    indexes = [index for index, character in enumerate(plain) if character.isalnum()]
    return indexes, "".join([plain[index] for index in indexes])


def _plain(raw: str) -> str:
    """The text in capitals, with marks replaced by the letter they resemble; of the same length."""
    return raw.translate(_CAPITALS)


def _options(form: IdFormat, read: str) -> list[str]:
    """The possible characters at each position; empty if the format allows none at some position.

    A character that the format allows is kept; if both letters and digits are allowed there, its look-alikes of the
    other sort are possible too.
    """
    options = []
    for character, allowed in zip(read, form.template, strict=False):
        similar = _DIGITS_FOR.get(character, "") + _LETTERS_FOR.get(character, "")
        possible = [other for other in similar if other in allowed]
        if character in allowed:
            possible = [character, *(other for other in possible if other.isdigit() != character.isdigit())]
        if not possible:
            return []
        options.append("".join(possible))
    return options


def _repair_figures(kind: str, raw: str) -> Repair | None:
    """Replace letters among digits by the most similar digits; other text, such as a currency, is kept."""
    if _value_of(kind, raw) is not None:
        return None
    figures = [index for figure in _FIGURE.finditer(raw) for index in range(*figure.span())]
    changes = []
    for index in figures:
        plain = _plain(raw[index])
        if plain in _FIGURE_DIGITS:
            changes.append(Change(index, raw[index], _FIGURE_DIGITS[plain]))
    digits = sum(raw[index].isdigit() for index in figures)
    if not changes or len(changes) > (digits + len(changes)) * _MAX_CHANGED_RATIO:
        return None
    meant = {change.place: change.meant for change in changes}
    value = _value_of(kind, "".join(meant.get(index, character) for index, character in enumerate(raw)))
    return Repair(raw, value, tuple(changes), _FIGURE_SCORE) if value is not None else None


def _value_of(kind: str, text: str) -> str | None:
    """The value of a text that is, as a whole, one entity of this type and not invalid."""
    stripped = text.strip()
    for entity in find_patterns(stripped, [kind]):
        if entity.text == stripped and entity.valid is not False:
            return entity.value
    return None


# Labels, with the digits that OCR reads for their letters; without one, nine characters are as often a part number.
_LABEL = re.compile(
    r"(?<![^\W_])(?:N\.?[I1l]\.?[FE]|C\.?[I1l]\.?F|D\.?N\.?[I1l]|V\.?A\.?T|[I1l]VA|USt|TVA)"
    r"[^\W_]{0,4}[\s.:#ºn°-]{0,6}(?:n[oº°]\.?\s?|num\.?\s?|id\.?\s?|number\s?)?[\s:]{0,3}$",
    re.IGNORECASE,
)
_LABEL_CHARACTERS = 24
_TOKEN = re.compile(r"[0-9A-Za-z|!º$€£]+")
_GROUP_GAP = re.compile(r"[ .\-/]{0,2}")
_LABELLED_LENGTHS = frozenset(range(8, 15))
_MAX_GROUPS = 12  # an IBAN of the longest country in groups of four has nine
_DIGIT = "[0-9OQILZSBGoqilzsbg|!]"  # or what may have been misread for one
_ALONE, _END = r"(?<![^\W_])", r"(?![^\W_])"
_DATE = re.compile(rf"{_ALONE}{_DIGIT}{{1,2}}([/.-]){_DIGIT}{{1,2}}\1(?:{_DIGIT}{{2}}){{1,2}}{_END}")
_AMOUNT = rf"{_DIGIT}{{1,9}}(?:[.,']{_DIGIT}{{3}}){{0,5}}[.,]{_DIGIT}{{2}}"
_MONEY = re.compile(rf"[€$£] ?{_AMOUNT}{_END}|{_ALONE}{_AMOUNT} ?(?:[€$£]|EUR|euros){_END}")


def suggest_repairs(text: str, entities: Sequence[Entity] = ()) -> list[SuggestedRepair]:
    """Repairs for an OCR text, by start: of invalid entities, and of strings that are almost an entity.

    Accounts need no label, tax numbers need theirs before them. The results do not overlap.

    Args:
        entities: those found in the text. Their spans are left alone, unless one is only part of a suggestion and has
            no valid checksum: the telephone number inside a damaged IBAN.
    """
    repairs = [
        SuggestedRepair(entity.type, entity.start, entity.end, repaired)
        for entity in entities
        if entity.valid is False and (repaired := repair(entity.type, entity.text)) is not None
    ]
    taken, joined = bytearray(len(text) + 1), bytearray(len(text) + 1)  # joined: to the character before
    for entity in entities:
        if entity.valid is True and entity.type in CHECKED:
            taken[entity.start : entity.end] = b"\1" * (entity.end - entity.start)
        joined[entity.start + 1 : entity.end] = b"\1" * (entity.end - entity.start - 1)
    for suggestion in repairs:
        taken[suggestion.start : suggestion.end] = b"\1" * (suggestion.end - suggestion.start)
    for suggestion in (*_accounts(text), *_labelled(text), *_figures(text)):
        start, end = suggestion.start, suggestion.end
        if not (any(taken[start:end]) or joined[start] or joined[end]):
            repairs.append(suggestion)
            taken[start:end] = b"\1" * (end - start)
    return sorted(repairs, key=lambda suggestion: suggestion.start)


def _accounts(text: str) -> Iterator[SuggestedRepair]:
    for start, ends in _groups(text):
        yield from _first_repair(text, start, ends, ("IBAN", "CCC"), _account_lengths(_plain(text[start : start + 2])))


@lru_cache(maxsize=4096)
def _account_lengths(head: str) -> frozenset[int]:
    """Possible lengths of accounts whose first two characters were read like this."""
    lengths = [len(form.template) for kind in ("IBAN", "CCC") for form in all_formats(kind) if _options(form, head)]
    return frozenset(lengths)


def _labelled(text: str) -> Iterator[SuggestedRepair]:
    for start, ends in _groups(text):
        if _LABEL.search(text, max(0, start - _LABEL_CHARACTERS), start):
            yield from _first_repair(text, start, ends, ("NIF", "NIE", "CIF", "VAT"), _LABELLED_LENGTHS)


def _figures(text: str) -> Iterator[SuggestedRepair]:
    for kind, pattern in (("DATE", _DATE), ("MONEY", _MONEY)):
        for match in pattern.finditer(text):
            if repaired := repair(kind, match[0]):
                yield SuggestedRepair(kind, *match.span(), repaired)


def _groups(text: str) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """For each group of letters and digits its start, and the end and total length with each group that follows."""
    spans = [token.span() for token in _TOKEN.finditer(text)]
    for index, (start, end) in enumerate(spans):
        require_wanted()  # hundreds of variants may be checked from one group: seconds for a page of look-alikes
        ends = [(end, end - start)]
        for left, right in spans[index + 1 : index + _MAX_GROUPS]:
            last, length = ends[-1]
            if not _GROUP_GAP.fullmatch(text, last, left):
                break
            ends.append((right, length + right - left))
        yield start, ends


def _first_repair(
    text: str, start: int, ends: Sequence[tuple[int, int]], kinds: Sequence[str], lengths: frozenset[int]
) -> Iterator[SuggestedRepair]:
    """The first repair of an id from ``start`` to one of the ends; at least half of it must be digits already."""
    for end, length in ends:
        if length in lengths and sum(map(str.isdigit, text[start:end])) * 2 >= length:
            for kind in kinds:
                if repaired := repair(kind, text[start:end]):
                    yield SuggestedRepair(kind, start, end, repaired)
                    return
