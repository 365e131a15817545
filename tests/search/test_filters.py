"""Filters on attributes: their names, their rows and their size; `storage_contract` asks what they mean."""

import sqlite3

from backend.search.filters import Comparison, Compound, Dialect, compile_filter, effective, keys_of


def test_names_of_attributes():
    """Those of every comparison, with repetitions."""
    paid, cheap = Comparison("paid", "eq", True), Comparison("total", "lt", 10)

    assert ["paid", "total", "paid"] == list(keys_of(Compound("and", (paid, Compound("or", (cheap, paid))))))


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
