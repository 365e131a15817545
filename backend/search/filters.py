"""Filters on the attributes of files: comparisons joined by and/or, as OpenAI's vector stores take them.

An attribute the file does not have equals nothing: ``eq``, ``in`` and the orders are false, ``ne`` and ``nin`` true. A
number never equals a string, strings are ordered by code point (dates of ISO 8601 by time). Of an attribute with
several values one that fits is enough; ``ne`` and ``nin`` are the opposites of ``eq`` and ``in``. The orders of one
attribute within one ``and`` are a range (an ``and`` inside an ``and`` is part of it): one value has to meet them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from backend.search.records import Attributes, Scalar

ComparisonType = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
COMPARISONS: tuple[ComparisonType, ...] = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin")
ORDERS: frozenset[ComparisonType] = frozenset({"gt", "gte", "lt", "lte"})


@dataclass(frozen=True, slots=True)
class Comparison:
    key: str
    type: ComparisonType
    value: Scalar | tuple[Scalar, ...]  # a tuple for "in" and "nin"


@dataclass(frozen=True, slots=True)
class Compound:
    type: Literal["and", "or"]
    filters: tuple[Filter, ...]  # at least one


Filter = Comparison | Compound


def effective_attributes(
    attributes: Attributes, found: Mapping[str, Sequence[Scalar]]
) -> dict[str, Scalar | Sequence[Scalar]]:
    """What filters look at: what was found in the document, and in its place what the caller has set."""
    return {**found, **attributes}


def matches(where: Filter, attributes: Mapping[str, Scalar | Sequence[Scalar]]) -> bool:
    """Whether a file with these attributes fits. The storages compile filters to SQL that means the same."""
    if isinstance(where, Compound):
        if where.type == "or":
            return any(matches(part, attributes) for part in where.filters)
        ranges, others = conjuncts(where)
        return all(_is_any_within(bounds, attributes) for bounds in ranges) and all(
            matches(part, attributes) for part in others
        )
    if where.type in ORDERS:
        return _is_any_within((where,), attributes)
    is_equal = any(_equals_any(value, where.value) for value in _values(attributes.get(where.key, ())))
    return is_equal == (where.type in {"eq", "in"})


def conjuncts(where: Compound) -> tuple[list[tuple[Comparison, ...]], list[Filter]]:
    """What an ``and`` joins: its ranges, each the orders of one attribute, and all else, with no ``and`` among it."""
    ranges: dict[str, list[Comparison]] = {}
    others: list[Filter] = []
    for part in _flat(where):
        if isinstance(part, Comparison) and part.type in ORDERS:
            ranges.setdefault(part.key, []).append(part)
        else:
            others.append(part)
    return [tuple(bounds) for bounds in ranges.values()], others


def keys_of(where: Filter) -> Iterator[str]:
    """The names of the attributes that a filter compares, with repetitions."""
    if isinstance(where, Comparison):
        yield where.key
    else:
        for part in where.filters:
            yield from keys_of(part)


def _flat(where: Compound) -> Iterator[Filter]:
    for part in where.filters:
        if isinstance(part, Compound) and part.type == "and":
            yield from _flat(part)
        else:
            yield part


def _is_any_within(bounds: Sequence[Comparison], attributes: Mapping[str, Scalar | Sequence[Scalar]]) -> bool:
    """Whether one of the values of an attribute meets all its orders."""
    values = _values(attributes.get(bounds[0].key, ()))
    return any(all(_is_ordered(value, bound.type, bound.value) for bound in bounds) for value in values)


def _values(value: Scalar | Sequence[Scalar]) -> Sequence[Scalar]:
    return (value,) if isinstance(value, str | bool | int | float) else value


def _equals_any(value: Scalar, wanted: Scalar | tuple[Scalar, ...]) -> bool:
    return any(_kind(value) is _kind(item) and value == item for item in _values(wanted))


def _is_ordered(value: Scalar, order: ComparisonType, bound: Scalar | tuple[Scalar, ...]) -> bool:
    """Numbers with numbers, strings with strings; booleans have no order."""
    if isinstance(value, str) and isinstance(bound, str):
        return _SIGNS[order]((value > bound) - (value < bound))
    if _kind(value) is float and not isinstance(bound, tuple) and _kind(bound) is float:
        return _SIGNS[order]((value > bound) - (value < bound))  # type: ignore[operator]  # numbers both
    return False


def _kind(value: Scalar) -> type:
    """Booleans are no numbers here, and integers are numbers like others."""
    return str if isinstance(value, str) else bool if isinstance(value, bool) else float


_SIGNS: Mapping[str, Callable[[int], bool]] = {
    "gt": lambda sign: sign > 0,
    "gte": lambda sign: sign >= 0,
    "lt": lambda sign: sign < 0,
    "lte": lambda sign: sign <= 0,
}
