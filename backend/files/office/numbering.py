"""The marks of list items: bullets, and numbers that count by level."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

BULLET = "•"
_PLACE = re.compile(r"%(\d)")
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
          (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))  # fmt: skip
_MOST = 3999  # that Roman numerals tell


class ListLevel(NamedTuple):
    """How items of one level are marked."""

    form: str  # "bullet", "none", "decimal", "lowerLetter", "upperRoman", …
    template: str  # "%1.%2)": the numbers of the levels
    start: int = 1


class Counters:
    """Counts the items of each list.

    Args:
        shared: lists that count on from each other -> what they have in common.
        restarts: list -> level -> the number of the first item after the list has begun.
    """

    def __init__(
        self,
        lists: Mapping[str, Mapping[int, ListLevel]],
        shared: Mapping[str, str] = MappingProxyType({}),
        restarts: Mapping[str, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        self._lists, self._shared, self._restarts = lists, shared, dict(restarts)
        self._counts: dict[str, dict[int, int]] = {}

    def next(self, list_id: str, level: int) -> str:
        """The mark of the next item; empty for a list that is not known."""
        levels = self._lists.get(list_id)
        if not levels or level not in levels:
            return ""
        counts = self._counts.setdefault(self._shared.get(list_id, list_id), {})
        counts.update({place: first - 1 for place, first in self._restarts.pop(list_id, {}).items()})
        counts[level] = counts.get(level, levels[level].start - 1) + 1
        for deeper in [one for one in counts if one > level]:
            del counts[deeper]
        form, template, _ = levels[level]
        if form == "bullet":
            return BULLET
        if form == "none":
            return ""

        def numbered(match: re.Match[str]) -> str:
            place = int(match[1]) - 1
            known = levels.get(place)
            return formatted(counts.get(place, known.start if known else 1), known.form if known else "decimal")

        return _PLACE.sub(numbered, template)


def formatted(number: int, form: str) -> str:
    """A number as a list shows it."""
    if form.endswith("Letter") and number > 0:
        letter = chr(ord("a") + (number - 1) % 26) * min(1 + (number - 1) // 26, 10)
        return letter.upper() if form.startswith("upper") else letter
    if form.endswith("Roman") and 0 < number <= _MOST:
        text = ""
        for value, numeral in _ROMAN:
            text += numeral * (number // value)
            number %= value
        return text.upper() if form.startswith("upper") else text
    return f"{number:02d}" if form == "decimalZero" else str(number)
