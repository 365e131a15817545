"""Formats of ids: every valid number has one, with the checks of python-stdnum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stdnum import iban
from stdnum.es import ccc
from stdnum.eu import vat
from stdnum.gb import vat as gb_vat

from backend.text.id_formats import all_formats, formats_of_length

# Valid numbers, from the doctests of python-stdnum and the examples of the registries.
VALID = [
    ("NIF", "71234567W"), ("NIF", "K0867756N"), ("NIE", "X2482300W"), ("CIF", "B64717838"), ("CIF", "J99216582"),
    ("CCC", "01820600090201550234"), ("IBAN", "ES7921000813610123456789"), ("IBAN", "GB29NWBK60161331926819"),
    ("IBAN", "FR1420041010050500013M02606"), ("IBAN", "NO9386011117947"), ("VAT", "ESB58378431"),
    ("VAT", "DE136695976"), ("VAT", "FR40303265045"), ("VAT", "NL123456782B90"), ("VAT", "IE6433435F"),
    ("VAT", "GB980780684"), ("VAT", "ATU13585627"), ("VAT", "CY10259033P"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), VALID)
def test_a_valid_number_has_a_format_that_accepts_it(kind, value):
    """Its characters are allowed at their positions and its check passes; with one digit changed it fails."""
    matching = [
        form
        for form in formats_of_length(kind, len(value))
        if all(character in allowed for character, allowed in zip(value, form.template, strict=True))
    ]

    assert any(form.is_valid(value) for form in matching)
    last = max(index for index, character in enumerate(value) if character.isdigit() and index < len(value) - 1)
    wrong = value[:last] + str((int(value[last]) + 1) % 10) + value[last + 1 :]
    assert not any(form.is_valid(wrong) for form in matching)


@given(st.text("0123456789", min_size=20, max_size=20))
def test_a_spanish_account_is_checked_as_stdnum_does(account):
    [form] = all_formats("CCC")
    body = account[:8] + ccc.calc_check_digits(account) + account[10:]

    assert ccc.is_valid(account) == form.is_valid(account)
    assert form.is_valid(body)


def test_forms_are_by_length():
    assert () == formats_of_length("IBAN", 3)
    assert () == formats_of_length("MONEY", 9)
    assert {24} == {len(form.template) for form in all_formats("IBAN") if form.template[:2] == ("E", "S")}
    assert {9} == {len(form.template) for form in formats_of_length("NIF", 9)}


def test_every_country_is_there():
    """All IBAN countries of python-stdnum, and the VAT numbers of the EU except Romania's."""
    countries = {"".join(form.template[:2]) for form in all_formats("IBAN")}

    assert {"ES", "DE", "FR", "GB", "PT", "IT", "NO", "MT"} <= countries
    assert len(countries) > 70
    prefixes = {"".join(form.template[:2]) for form in all_formats("VAT")}
    assert {code.upper() for code in vat.MEMBER_STATES} - {"GR", "RO"} <= prefixes


def test_checks_are_not_lax():
    """Each format rejects what stdnum rejects."""
    assert not iban.is_valid("ES0021000813610123456789")
    assert not any(form.is_valid("ES0021000813610123456789") for form in formats_of_length("IBAN", 24))
    assert gb_vat.is_valid("980780684")
    assert not any(form.is_valid("GB980780685") for form in formats_of_length("VAT", 11))
