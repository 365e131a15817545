"""Headers that list numbers: inputs that were cut, pages that failed. Short, however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_LIST_CHARS = 512  # nginx takes 4 KB of an answer's headers, all of them together; balancers less
_REST = "..."


def index_ranges(numbers: Sequence[int]) -> str:
    """The numbers as ranges, "0-4,7"; a list longer than 512 characters ends early, with "..."."""
    return _shortened(_ranges(numbers))


def index_headers(name: str, numbers: Sequence[int]) -> dict[str, str]:
    """The header ``name`` with the numbers, and ``name``-Count with how many they are; none where there are none.

    Args:
        numbers: ascending, each once. Neighbours become a range: "0-4,7,9-10". A list longer than 512 characters ends
            early, with "...": the count is of all.
    """
    if not numbers:
        return {}
    return {name: index_ranges(numbers), f"{name}-Count": str(len(numbers))}


def described(name: str, what: str) -> Mapping[str, Any]:
    """What OpenAPI says of the two headers. ``what`` are the numbers, such as "inputs that were cut"."""
    numbers = f"Numbers of {what}, as ranges such as 0-4,7; over {_LIST_CHARS} characters it ends early, with `...`."
    return {
        name: {"description": f"{numbers} Absent without any.", "schema": {"type": "string"}, "example": "0-4,7"},
        f"{name}-Count": {"description": f"How many {what} there are.", "schema": {"type": "integer", "minimum": 1}},
    }


def _ranges(numbers: Iterable[int]) -> list[str]:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] + 1 == number:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in spans]


def _shortened(ranges: Sequence[str]) -> str:
    whole = ",".join(ranges)
    if len(whole) <= _LIST_CHARS:
        return whole
    kept = whole[: _LIST_CHARS - len(_REST)].rpartition(",")[0]  # without the last, which may be half of a number
    return f"{kept},{_REST}"
