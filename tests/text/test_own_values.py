"""Spans as the values that labels ask for: typed, checked, or none."""

from typing import Any

import pytest

from backend.text import own_labels
from backend.text.own_labels import plain_of, read_labels
from backend.text.own_values import Value, read_value, read_values
from backend.text.patterns import find_patterns


@pytest.mark.parametrize(
    ("asked", "text", "expected"),
    [
        pytest.param({}, " 1234 BCD,", ("1234 BCD", "1234 BCD", None), id="text-without-its-edges"),
        pytest.param({"type": "number"}, "87.500 km", (87500, "87.500", None), id="thousands"),
        pytest.param({"type": "number"}, "12,5 kg", (12.5, "12,5", None), id="decimals"),
        pytest.param({"type": "number"}, "-3", (-3, "-3", None), id="below-zero"),
        pytest.param({"type": "integer"}, "12,5 kg", None, id="no-whole-number"),
        pytest.param({"type": "number"}, "ninguno", None, id="no-number"),
        pytest.param({"type": "boolean"}, "Sí", (True, "Sí", None), id="yes"),
        pytest.param({"type": "boolean"}, "quizá", None, id="neither"),
        pytest.param({"type": "boolean"}, "☐ sí ☒ no", (False, "no", None), id="the-ticked-box-leads"),
        pytest.param({"type": "boolean"}, "yes [x] no [ ]", (True, "yes", None), id="the-ticked-box-follows"),
        pytest.param({}, "( ) soltera (x) casada", ("casada", "casada", None), id="the-ticked-option"),
        pytest.param({"type": "boolean"}, "☒ sí ☒ no", None, id="two-boxes-ticked"),
        pytest.param({"type": "integer"}, "un plazo de doce meses", (12, "doce", None), id="number-in-words"),
        pytest.param({"type": "integer"}, "twenty-five days", (25, "twenty-five", None), id="english-words"),
        pytest.param({"type": "phone"}, "0191 496\n9999", ("0191 496 9999", "0191 496\n9999", None), id="any-phone"),
        pytest.param({"type": "phone"}, "1.250", None, id="no-phone"),
        pytest.param(
            {"type": "date"}, "el 12 de marzo de 2026", ("2026-03-12", "12 de marzo de 2026", True), id="date"
        ),
        pytest.param({"type": "date"}, "mañana", None, id="no-date"),
        pytest.param({"type": "date"}, "5 October", ("--10-05", "5 October", True), id="no-year-anywhere"),
        pytest.param({"type": "money"}, "1.284,50 €", ("1284.50 EUR", "1.284,50 €", None), id="money"),
        pytest.param({"type": "tax_id"}, "A58818501", ("A58818501", "A58818501", True), id="tax-id"),
        pytest.param({"type": "tax_id"}, "A58818502", ("A58818502", "A58818502", False), id="wrong-check-digit"),
        pytest.param({"enum": ["Diésel", "Gasolina"]}, "DIESEL", ("Diésel", "DIESEL", None), id="choice"),
        pytest.param({"enum": ["Diésel", "Gasolina"]}, "motor gasolina", ("Gasolina", "motor gasolina", None), id="in"),
        pytest.param({"enum": ["Diésel", "Gasolina"]}, "eléctrico", None, id="no-choice"),
        pytest.param({"enum": ["no", "leído"]}, "no leído", None, id="two-choices-in-it"),
        pytest.param({"enum": ["no", "sí"]}, "nono, no.", ("no", "nono, no.", None), id="a-choice-as-its-last-word"),
    ],
)
def test_values(asked: dict[str, Any], text: str, expected: tuple[Value, str, bool | None] | None) -> None:
    """A value, what it was read from, and whether it checks out; None for what is no such value."""
    [label] = read_labels({"x": asked})
    read = read_value(label, text, 0, len(text), find_patterns(text))

    assert expected == (None if read is None else (read.value, text[read.start : read.end], read.valid))


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        pytest.param("2 September 2024: it broke on 28 August", "28 August", "2024-08-28", id="before"),
        pytest.param("12 January 2025: it broke on 28 December", "28 December", "2024-12-28", id="the-year-before"),
        pytest.param("We meet on 3 January, it is 20 December 2024", "3 January", "2025-01-03", id="the-year-after"),
    ],
)
def test_days_without_a_year(text: str, asked: str, expected: str) -> None:
    """A day without a year is in the one that puts it nearest to the text's full date."""
    [label] = read_labels({"x": {"type": "date"}})
    at = text.index(asked)
    read = read_value(label, text, at, at + len(asked), find_patterns(text))

    assert expected == read.value


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        pytest.param("string", "the oak floor and the bookcase", ["oak floor", "bookcase"], id="two"),
        pytest.param("string", "filtro; tubo, gas y 2 kg de sal", ["filtro", "tubo", "gas", "2 kg de sal"], id="marks"),
        pytest.param("number", "2,5 y 3,75", [2.5, 3.75], id="decimal-commas"),
        pytest.param("date", "1/2/2026, sin fecha", ["2026-02-01"], id="one-of-another-kind"),
    ],
)  # fmt: skip
def test_lists(kind: str, text: str, expected: list[Value]) -> None:
    """A list is taken apart at its marks and "and"s; what is of another kind is left out."""
    [label] = read_labels({"x": {"type": "list", "items": {"type": kind}}})

    assert expected == [one.value for one in read_values(label, text, [(0, len(text))], find_patterns(text))]


def test_choices_are_made_plain_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each name of a page all of a thousand were, and a pattern was made of each: a page took minutes."""
    plain: list[str] = []
    monkeypatch.setattr(own_labels, "plain_of", lambda text: plain.append(text) or plain_of(text))
    [label] = read_labels({"x": {"enum": ["Diésel", "Gasolina"]}})

    assert [None, None] == [read_value(label, text, 0, len(text), ()) for text in ("eléctrico", "de gas")]
    assert 2 == len(plain)
