"""Spans as the values that labels ask for: typed, checked, or none."""

from __future__ import annotations

from typing import Any

import pytest

from backend.text.own_labels import read_labels
from backend.text.own_values import Value, read_value
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
        pytest.param(
            {"type": "date"}, "el 12 de marzo de 2026", ("2026-03-12", "12 de marzo de 2026", True), id="date"
        ),
        pytest.param({"type": "date"}, "mañana", None, id="no-date"),
        pytest.param({"type": "money"}, "1.284,50 €", ("1284.50 EUR", "1.284,50 €", None), id="money"),
        pytest.param({"type": "tax_id"}, "A58818501", ("A58818501", "A58818501", True), id="tax-id"),
        pytest.param({"type": "tax_id"}, "A58818502", ("A58818502", "A58818502", False), id="wrong-check-digit"),
        pytest.param({"enum": ["Diésel", "Gasolina"]}, "DIESEL", ("Diésel", "DIESEL", None), id="choice"),
        pytest.param({"enum": ["Diésel", "Gasolina"]}, "motor gasolina", ("Gasolina", "motor gasolina", None), id="in"),
        pytest.param({"enum": ["Diésel", "Gasolina"]}, "eléctrico", None, id="no-choice"),
    ],
)
def test_values(asked: dict[str, Any], text: str, expected: tuple[Value, str, bool | None] | None) -> None:
    """A value, what it was read from, and whether it checks out; None for what is no such value."""
    [label] = read_labels({"x": asked})
    read = read_value(label, text, 0, len(text), find_patterns(text))

    assert expected == (None if read is None else (read.value, text[read.start : read.end], read.valid))
