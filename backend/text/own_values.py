"""Reads what stands in a span as the value that a label asks for: numbers, dates, ids, choices; or as none."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from backend.abandoned import require_wanted
from backend.text.entity_merge import Entity
from backend.text.own_labels import BOOLEAN, INTEGER, NUMBER, PATTERN_KINDS, OwnLabel, plain_of
from backend.text.patterns.amounts import NUMBER as DIGITS
from backend.text.patterns.amounts import NUMBER_OF_CODE, parse_number
from backend.text.sentences import trimmed
from backend.text.written_numbers import LANGUAGES, cardinals

Value = str | float | int | bool
_NUMBER = re.compile(rf"-?(?:{DIGITS}|{NUMBER_OF_CODE})")
_YES = frozenset({"si", "yes", "sim", "oui", "true", "verdadero", "cierto", "x", "☒", "☑", "✓", "✔", "y", "s"})
_NO = frozenset({"no", "non", "nao", "false", "falso", "☐", "✗", "✘", "n", "none", "ninguno", "ninguna"})
_TICKED, _UNTICKED = "☒☑✓✔■", "☐□○"
BOXES = frozenset(_TICKED + _UNTICKED)
_BOX = re.compile(rf"(?P<ticked>[{_TICKED}]|[\[(]\s?[xX✓✔]\s?[\])])|[{_UNTICKED}]|[\[(]\s{{0,3}}[\])]")
_PHONE = re.compile(r"(?<![\w.,/])[+(]?\d(?:[ ()./\n-]{0,2}\d){6,14}(?!\w|[.,]\d)")
_SEVERAL = re.compile(r"[;,\n•·|]+|(?<=\s)(?:y|e|and|et|&)(?=\s)")
_ARTICLE = re.compile(
    r"(?:[Dd]on|[Dd]oña|D\.|D\.ª|Mr\.?|Mrs\.?|Ms\.?|Sr\.?|Sra\.?|señora?|el|la|los|las|un|una|unos|unas|the|an?|os?|uma?|le|les|une?|des)\s+"
)
_NO_NUMBERS = frozenset({"DATE", "PHONE", "IBAN", "CCC", "EMAIL", "URL"})
_ISO = len("2026-03-12")
_LONGEST = 500  # characters of what a pattern finds
_WORD = re.compile(r"\w")
_EDGES = ' \n\t,;:()[]«»“”"'


@dataclass(frozen=True, slots=True)
class ReadValue:
    """A value with its own place, which may be shorter or longer than the span that it was found by."""

    value: Value
    start: int
    end: int
    valid: bool | None = None  # by check digits or the calendar


def read_value(label: OwnLabel, text: str, start: int, end: int, patterns: Sequence[Entity]) -> ReadValue | None:
    """The value of ``text[start:end]``. Args: patterns, what patterns found in the whole text, by start."""
    if label.kind in PATTERN_KINDS:
        found = _by_pattern(PATTERN_KINDS[label.kind], start, end, patterns)
        return _phone(text, start, end) if found is None and label.kind == "phone" else found
    if label.kind in (NUMBER, INTEGER):
        return _number(text, start, end, whole=label.kind == INTEGER)
    ticked = _ticked(text, start, end)
    start, end = trimmed(text, start, end, _EDGES)
    words = " ".join(text[start:end].split())
    if not words:
        return None
    if label.kind == BOOLEAN:
        plain = plain_of(re.split(r"[,.;(]", text[slice(*ticked)] if ticked else words, maxsplit=1)[0])
        return ReadValue(plain in _YES, *(ticked or (start, end))) if plain in _YES | _NO else None
    if ticked is not None:
        start, end = ticked
        words = " ".join(text[start:end].split())
    if label.choices:
        chosen = _choice(words, label.plain_choices)
        return None if chosen is None else ReadValue(chosen, start, end)
    return ReadValue(words, start, end)


def places_of(label: OwnLabel, text: str, patterns: Sequence[Entity]) -> list[tuple[int, int]] | None:
    """Where a text has values of the label's kind; None for kinds that any words may have."""
    if label.kind == "phone":
        found = [(one.start, one.end) for one in patterns if one.type == "PHONE"]
        return sorted({*found, *(match.span() for match in _PHONE.finditer(text))})
    if label.kind in PATTERN_KINDS:
        return [(one.start, one.end) for one in patterns if one.type in PATTERN_KINDS[label.kind]]
    if label.kind not in (NUMBER, INTEGER):
        return None
    taken = bytearray(len(text))
    for one in patterns:
        if one.type in _NO_NUMBERS and len(one.value or "") != len("2026"):
            _take(taken, one.start, one.end)
    found = [match.span() for match in _NUMBER.finditer(text)]
    found += [(start, end) for language in sorted(LANGUAGES) for start, end, _ in cardinals(text, language)]
    return [(start, end) for start, end in found if taken.find(1, start, end) < 0]


def read_values(
    label: OwnLabel, text: str, spans: Sequence[tuple[int, int]], patterns: Sequence[Entity]
) -> list[ReadValue]:
    """The values of a list in spans of the text, each taken apart at its commas, line breaks and "and"s."""
    values: list[ReadValue] = []
    taken = bytearray(len(text))
    for start, end in spans:
        for first, last in _items(text, start, end):
            value = read_value(label, text, first, last, patterns)
            value = None if value is None else without_article(value, text)
            if value is not None and taken.find(1, value.start, value.end) < 0:
                values.append(value)
                _take(taken, value.start, value.end)
    return values


def _take(taken: bytearray, start: int, end: int) -> None:
    """Mark the characters of a span."""
    taken[start:end] = b"\x01" * (end - start)


def without_article(value: ReadValue, text: str) -> ReadValue:
    """A text of a sentence as it stands in a form: "a burst pipe" -> "burst pipe"."""
    article = _ARTICLE.match(text, value.start, value.end)
    if article is None or not isinstance(value.value, str) or article.end() >= value.end:
        return value
    words = " ".join(text[article.end() : value.end].split())
    return ReadValue(words, article.end(), value.end, value.valid)


def _by_pattern(types: Sequence[str], start: int, end: int, patterns: Sequence[Entity]) -> ReadValue | None:
    def shared(entity: Entity) -> int:
        return min(end, entity.end) - max(start, entity.start)

    first, last = (bisect_left(patterns, at, key=lambda entity: entity.start) for at in (start - _LONGEST, end))
    touched = [entity for entity in patterns[first:last] if entity.type in types and shared(entity) > 0]
    if not touched:
        return None
    best = max(touched, key=shared)
    value = best.value or best.text
    if value.startswith("--"):
        value = _with_year(value, best.start, patterns)
    return ReadValue(value, best.start, best.end, best.valid)


def _with_year(value: str, start: int, patterns: Sequence[Entity]) -> str:
    """A day without a year in that which puts it nearest to the full date before it, or to the first one."""
    full = [one for one in patterns if one.type == "DATE" and one.valid is not False and len(one.value or "") == _ISO]
    if not full:
        return value
    said = date.fromisoformat(next((one for one in reversed(full) if one.start < start), full[0]).value or "")
    days = []
    for year in (said.year - 1, said.year, said.year + 1):
        try:
            days.append(date.fromisoformat(f"{year}{value[1:]}"))
        except ValueError:  # 29 February
            continue
    return min(days, key=lambda day: abs(day - said)).isoformat() if days else value


def _phone(text: str, start: int, end: int) -> ReadValue | None:
    """Seven to fifteen digits in groups, of any country."""
    match = _PHONE.search(text, start, end)
    return None if match is None else ReadValue(" ".join(match.group().split()), *match.span())


def _ticked(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Where the one option with a ticked box stands: "☐ yes ☒ no", "yes [ ] no [x]"; None without such boxes."""
    boxes = list(_BOX.finditer(text, start, end))
    if sum(bool(box["ticked"]) for box in boxes) != 1:
        return None
    borders = [start, *(at for box in boxes for at in box.span()), end]
    lead = [(borders[at], borders[at + 1]) for at in range(2, len(borders), 2)]
    trail = [(borders[at], borders[at + 1]) for at in range(0, len(borders) - 2, 2)]
    options = lead if text[slice(*lead[-1])].strip() else trail
    first, last = options[next(index for index, box in enumerate(boxes) if box["ticked"])]
    first, last = trimmed(text, first, last, _EDGES)
    return (first, last) if first < last else None


def _items(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start
    for mark in _SEVERAL.finditer(text, start, end):
        between_digits = text[mark.start() - 1 : mark.start()].isdigit() and text[mark.end() : mark.end() + 1].isdigit()
        if between_digits and mark.group() == ",":
            continue
        yield at, mark.start()
        at = mark.end()
    yield at, end


def _number(text: str, start: int, end: int, *, whole: bool) -> ReadValue | None:
    match = _NUMBER.search(text, start, end)
    if match is None:
        return _number_in_words(text, start, end)
    digits = match.group()
    number: Decimal = parse_number(digits.lstrip("-")) * (-1 if digits.startswith("-") else 1)
    if number == number.to_integral_value():
        return ReadValue(int(number), match.start(), match.end())
    return None if whole else ReadValue(float(number), match.start(), match.end())


def _number_in_words(text: str, start: int, end: int) -> ReadValue | None:
    for language in sorted(LANGUAGES):
        for first, last, number in cardinals(text[start:end], language):
            return ReadValue(number, start + first, start + last)
    return None


def _choice(words: str, choices: Mapping[str, str]) -> str | None:
    require_wanted()
    said = plain_of(words)
    if said in choices:
        return choices[said]
    inside = [choice for plain, choice in choices.items() if _has_words(said, plain)]
    return inside[0] if len(inside) == 1 else None


def _has_words(text: str, words: str) -> bool:
    """Whether words stand in a text, not as a part of longer ones."""
    at = text.find(words)
    while at >= 0:
        before, behind = text[at - 1 : at], text[at + len(words) : at + len(words) + 1]
        if not (_WORD.match(before) or _WORD.match(behind)):
            return True
        at = text.find(words, at + 1)
    return False
