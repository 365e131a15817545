"""Numbers in headers and queries."""

import math

import pytest

from backend.api.request_fields import number_of


@pytest.mark.parametrize(("text", "expected"), [(".5", 0.5), ("1e-3", 0.001), ("+2", 2.0)])
def test_numbers(text, expected):
    assert expected == number_of(text)


@pytest.mark.parametrize("text", ["", "nan", "Infinity", "1_0", " 1", "\u0661\u0660", "0x10", "1e", "-", "1" * 41])
def test_what_is_no_number(text):
    """Also what Python's float() would read."""
    assert math.isnan(number_of(text))
