"""Filters as conditions in SQL over a table of attributes: a row for each value that a filter sees of a file.

The table has the columns ``file``, ``name``, and one of ``number``, ``text`` and ``flag``, the others null; the
caller's attributes stand in it, and found ones of names that the caller has not set (`effective`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backend.search.filters import ORDERS, Comparison, Filter, conjuncts
from backend.search.records import Attributes, Scalar

ATTRIBUTE_TYPES = ("numbers", "texts", "booleans")  # in the columns number, text and flag
_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database writes what differs."""

    file: str  # the column of the outer query that ``attributes.file`` refers to
    placeholder: Callable[[int], str]  # of the value with this index, from 0
    table: str = "attributes"
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


def compile_filter(where: Filter, dialect: Dialect, *, first: int = 0) -> Condition:
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

    sql = compiled(where)
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
        f"{dialect.file} {negation}IN (SELECT a.file FROM {dialect.table} a WHERE a.name = {name} AND ({match})"
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
