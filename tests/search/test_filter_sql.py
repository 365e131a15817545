"""Filters as SQL: what the databases see. That they answer alike is in storage_contract."""

from __future__ import annotations

import sqlite3

from backend.search.filters import Comparison, Compound, Dialect, compile_filter, effective


def test_values_are_bound_in_the_order_of_their_placeholders():
    """With the placeholders, the collation and the scope of the dialect; no value is part of the text."""
    dialect = Dialect("f.key", lambda index: f"${index + 1}", collation=' COLLATE "C"', scope=" AND a.store = $1")
    where = Compound("or", (Comparison("a'", "gt", "x"), Comparison("b", "nin", (1, "y", True))))
    condition = compile_filter(where, dialect, first=1)

    assert ("a'", "x", "b", 1.0, "y", True) == condition.values
    assert (
        '(f.key IN (SELECT a.file FROM attributes a WHERE a.name = $2 AND (a.text COLLATE "C" > $3) AND a.store = $1)'
        " OR f.key NOT IN (SELECT a.file FROM attributes a WHERE a.name = $4 AND "
        '(a.number IN ($5) OR a.text COLLATE "C" IN ($6) OR a.flag IN ($7)) AND a.store = $1))'
    ) == condition.sql


def test_a_range_is_one_row():
    """Bounds of one attribute, wherever they stand in an ``and``, ask one row; those of another its own."""
    where = Compound(
        "and",
        (Comparison("n", "gte", 1), Compound("and", (Comparison("m", "gt", "x"), Comparison("n", "lt", 2)))),
    )
    condition = compile_filter(where, Dialect("f", lambda _: "?"))

    assert ("n", 1.0, 2.0, "m", "x") == condition.values
    assert (
        "(f IN (SELECT a.file FROM attributes a WHERE a.name = ? AND (a.number >= ? AND a.number < ?))"
        " AND f IN (SELECT a.file FROM attributes a WHERE a.name = ? AND (a.text > ?)))"
    ) == condition.sql


def test_deep_and_long_filters_are_parsed():
    """A list of thousands of values, and as many comparisons as a search may have, are no too deep expressions."""
    dialect = Dialect("file", lambda index: f"?{index + 1}")
    where = Compound("and", tuple(Comparison("a", "in", tuple(map(str, range(300)))) for _ in range(100)))
    condition = compile_filter(where, dialect)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE attributes (file, name, number, text, flag)")

    assert [] == connection.execute(f"SELECT 1 FROM attributes WHERE {condition.sql}", condition.values).fetchall()
    connection.close()


def test_effective_attributes():
    """The caller's hide found ones of their name; a value that was found twice is one."""
    rows = list(effective({"a": 1, "b": True}, {"a": ["hidden"], "c": ["x", "x", 2.0]}))

    assert [("a", 1.0, None, None), ("b", None, None, True), ("c", None, "x", None), ("c", 2.0, None, None)] == rows
