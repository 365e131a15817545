"""Filters on the attributes of files: comparisons joined by and/or, as OpenAI's vector stores take them.

An attribute the file does not have equals nothing: ``eq``, ``in`` and the orders are false, ``ne`` and ``nin`` true. A
number never equals a string, strings are ordered by code point (dates of ISO 8601 by time). Of an attribute with
several values one that fits is enough; ``ne`` and ``nin`` are the opposites of ``eq`` and ``in``. The orders of one
attribute within one ``and`` are a range (an ``and`` inside an ``and`` is part of it): one value has to meet them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

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


def conjuncts(filters: Compound) -> tuple[list[tuple[Comparison, ...]], list[Filter]]:
    """What an ``and`` joins: its ranges, each the orders of one attribute, and all else, with no ``and`` among it."""
    ranges: dict[str, list[Comparison]] = {}
    others: list[Filter] = []
    for part in _flat(filters):
        if isinstance(part, Comparison) and part.type in ORDERS:
            ranges.setdefault(part.key, []).append(part)
        else:
            others.append(part)
    return [tuple(bounds) for bounds in ranges.values()], others


def keys_of(filters: Filter) -> Iterator[str]:
    """The names of the attributes that a filter compares, with repetitions."""
    if isinstance(filters, Comparison):
        yield filters.key
    else:
        for part in filters.filters:
            yield from keys_of(part)


def _flat(filters: Compound) -> Iterator[Filter]:
    for part in filters.filters:
        if isinstance(part, Compound) and part.type == "and":
            yield from _flat(part)
        else:
            yield part


ATTRIBUTE_TYPES = ("numbers", "texts", "booleans")  # in the columns number, text and flag
_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database writes what differs."""

    file: str  # the column of the outer query that ``attributes.file`` refers to
    placeholder: Callable[[int], str]  # of the value with this index, from 0
    collation: str = ""  # behind a text that is compared, to order by code point
    scope: str = ""  # a further condition on the rows ``a`` of the table, such as " AND a.store = ?1"


@dataclass(frozen=True, slots=True)
class Condition:
    sql: str
    values: tuple[Scalar, ...]  # of the placeholders, in order


class AttributeRow(NamedTuple):
    """One value of an attribute, in the column of its type."""

    name: str
    number: float | None = None
    text: str | None = None
    flag: bool | None = None


def effective(attributes: Attributes, found: Mapping[str, Sequence[Scalar]]) -> Iterator[AttributeRow]:
    """The rows of a file, repeated values once."""
    for name, value in attributes.items():
        yield _row(name, value)
    for name, values in found.items():
        if name not in attributes:
            yield from dict.fromkeys(_row(name, value) for value in values)


def compile_filter(filters: Filter, dialect: Dialect, *, first: int = 0) -> Condition:
    """A condition that is true for the files that the filter lets through, never null.

    Args:
        first: the index of its first placeholder.
    """
    values: list[Scalar] = []

    def placeholder(value: Scalar) -> str:
        values.append(value)
        return dialect.placeholder(first + len(values) - 1)

    def compiled(part: Filter) -> str:
        if isinstance(part, Comparison):
            ranged = part.type in ORDERS
            return _range((part,), dialect, placeholder) if ranged else _comparison(part, dialect, placeholder)
        if part.type == "or":
            return "(" + " OR ".join(map(compiled, part.filters)) + ")"
        ranges, others = conjuncts(part)
        conditions = [_range(bounds, dialect, placeholder) for bounds in ranges]
        return "(" + " AND ".join([*conditions, *map(compiled, others)]) + ")"

    sql = compiled(filters)
    return Condition(sql, tuple(values))


def _row(name: str, value: Scalar) -> AttributeRow:
    if isinstance(value, bool):
        return AttributeRow(name, flag=value)
    if isinstance(value, str):
        return AttributeRow(name, text=value)
    return AttributeRow(name, number=float(value))


def _range(bounds: Sequence[Comparison], dialect: Dialect, placeholder: Callable[[Scalar], str]) -> str:
    """Orders of one attribute that one row has to meet."""
    limits: list[tuple[str, Scalar]] = []
    for bound in bounds:
        if isinstance(bound.value, bool | tuple):
            return "1 = 0"  # flags have no order
        limits.append((f"{_column(bound.value, dialect)} {_OPERATORS[bound.type]}", _typed(bound.value)))
    name = placeholder(bounds[0].key)
    return _has_row(name, " AND ".join(f"{left} {placeholder(limit)}" for left, limit in limits), dialect)


def _comparison(comparison: Comparison, dialect: Dialect, placeholder: Callable[[Scalar], str]) -> str:
    wanted = comparison.value if isinstance(comparison.value, tuple) else (comparison.value,)
    name = placeholder(comparison.key)
    match = _equal_to_any(wanted, dialect, placeholder)
    return _has_row(name, match, dialect, negation="NOT " if comparison.type in {"ne", "nin"} else "")


def _has_row(name: str, match: str, dialect: Dialect, *, negation: str = "") -> str:
    return (
        f"{dialect.file} {negation}IN (SELECT a.file FROM attributes a WHERE a.name = {name} AND ({match})"
        f"{dialect.scope})"
    )


def _equal_to_any(wanted: Sequence[Scalar], dialect: Dialect, placeholder: Callable[[Scalar], str]) -> str:
    """One list for each type: a chain of thousands of ORs would be deeper than databases parse."""
    columns: dict[str, list[Scalar]] = {}
    for value in wanted:
        columns.setdefault(_column(value, dialect), []).append(_typed(value))
    lists = (f"{column} IN ({', '.join(map(placeholder, values))})" for column, values in columns.items())
    return " OR ".join(lists) or "1 = 0"


def _column(value: Scalar, dialect: Dialect) -> str:
    if isinstance(value, bool):
        return "a.flag"
    return f"a.text{dialect.collation}" if isinstance(value, str) else "a.number"


def _typed(value: Scalar) -> Scalar:
    return value if isinstance(value, str | bool) else float(value)
