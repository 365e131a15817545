"""Filters on attributes: what each comparison means, for values of each type, several values, and none."""

import sqlite3

import pytest

from backend.search.filters import Comparison, Compound, Dialect, compile_filter, effective, keys_of
from tests.search.samples import fits

_FILE = {
    "total": 1284.5, "vendor": "B12345678", "paid": True, "date": "2024-03-12", "person": ["Ana", "Luis"], "pages": 3,
}  # fmt: skip

MARCH = Compound("and", (Comparison("date", "gte", "2026-03-01"), Comparison("date", "lt", "2026-04-01")))


@pytest.mark.parametrize(
    ("key", "kind", "value", "expected"),
    [
        ("vendor", "eq", "B12345678", True), ("vendor", "eq", "b12345678", False), ("pages", "eq", 3.0, True),
        ("pages", "eq", "3", False), ("paid", "eq", True, True), ("paid", "eq", 1, False),
        ("pages", "eq", True, False), ("absent", "eq", "x", False), ("absent", "ne", "x", True),
        ("absent", "nin", ("x",), True), ("absent", "gt", 0, False), ("absent", "lte", 0, False),
        ("vendor", "ne", "other", True), ("vendor", "ne", "B12345678", False), ("pages", "ne", "3", True),
        ("total", "gt", 1000, True), ("total", "gt", 1284.5, False), ("total", "gte", 1284.5, True),
        ("total", "lt", 1284.5, False), ("total", "lte", 1284.5, True), ("total", "gt", "1000", False),
        ("total", "lt", "2000", False), ("paid", "gt", False, False), ("paid", "gte", 0, False),
        ("pages", "gt", True, False), ("date", "gte", "2024-03-01", True), ("date", "lt", "2024-03-12", False),
        ("date", "lt", 5, False), ("person", "eq", "Luis", True), ("person", "ne", "Luis", False),
        ("person", "ne", "Eva", True), ("person", "in", ("Eva", "Ana"), True),
        ("person", "nin", ("Eva", "Ana"), False), ("person", "gt", "Bea", True),
        ("pages", "in", ("3", True, 3), True), ("pages", "in", (), False), ("pages", "nin", (), True),
    ],
)  # fmt: skip
def test_comparison(key, kind, value, expected):
    """Types are kept apart; of several values one is enough; what is absent equals nothing."""
    assert expected is fits(Comparison(key, kind, value), _FILE)


def test_strings_are_ordered_by_code_point():
    """Capitals before small letters, accents last, and characters beyond the BMP after all."""
    assert fits(Comparison("name", "gt", "Z"), {"name": "a"})
    assert fits(Comparison("name", "gt", "z"), {"name": "á"})
    assert fits(Comparison("name", "gt", "\uffff"), {"name": "\U0001f600"})


def test_compound():
    """``and`` needs all, ``or`` one, and they may be nested."""
    paid, cheap = Comparison("paid", "eq", True), Comparison("total", "lt", 10)

    assert not fits(Compound("and", (paid, cheap)), _FILE)
    assert fits(Compound("or", (paid, cheap)), _FILE)
    assert fits(Compound("and", (Compound("or", (cheap, paid)), paid)), _FILE)
    assert ["paid", "total", "paid"] == list(keys_of(Compound("and", (paid, Compound("or", (cheap, paid))))))


_DUE_IN_MAY = {"date": ["2026-02-20", "2026-05-20"], "total": [10, 500, "x"], "n": 5}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        pytest.param(MARCH, False, id="no-value-within"),
        pytest.param(Compound("and", (Compound("and", MARCH.filters[:1]), *MARCH.filters[1:])), False, id="nested-and"),
        pytest.param(Compound("and", (Compound("or", MARCH.filters[:1]), *MARCH.filters[1:])), True, id="inner-or"),
        pytest.param(Compound("or", MARCH.filters), True, id="or"),
        pytest.param(
            Compound("and", (*MARCH.filters, Comparison("date", "gte", "2026-05-01"))), False, id="nothing-in-common"
        ),
        pytest.param(
            Compound("and", (Comparison("date", "gt", "2026-05"), Comparison("date", "lt", "2026-06"))),
            True,
            id="within",
        ),
        pytest.param(
            Compound("and", (Comparison("date", "gt", "2026-05"), Comparison("total", "lt", 100))), True, id="two-keys"
        ),
        pytest.param(
            Compound("and", (Comparison("date", "eq", "2026-02-20"), Comparison("date", "gt", "2026-03"))),
            True,
            id="eq-is-no-part-of-it",
        ),
        pytest.param(
            Compound("and", (Comparison("total", "gt", 100), Comparison("total", "gt", "a"))), False, id="of-two-types"
        ),
        pytest.param(Compound("and", (Comparison("n", "gt", 4), Comparison("n", "lt", 6))), True, id="one-value"),
        pytest.param(Compound("and", (Comparison("m", "gt", 4), Comparison("m", "lt", 6))), False, id="absent"),
    ],
)
def test_a_range_holds_for_one_value(where, expected):
    """Of a document of February that is due in May, no date is in March."""
    assert expected is fits(where, _DUE_IN_MAY)


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
