"""The shapes of ids: every right number has one, and the checks are those of python-stdnum."""

from __future__ import annotations

import pytest
from stdnum import iban
from stdnum.eu import vat
from stdnum.gb import vat as gb_vat

from backend.documents.id_forms import all_forms, forms

# Numbers that are right, from the doctests of python-stdnum and the registries' own examples.
RIGHT = [
    ("NIF", "71234567W"),
    ("NIF", "K0867756N"),
    ("NIE", "X2482300W"),
    ("CIF", "B64717838"),
    ("CIF", "J99216582"),
    ("CCC", "01820600090201550234"),
    ("IBAN", "ES7921000813610123456789"),
    ("IBAN", "GB29NWBK60161331926819"),
    ("IBAN", "FR1420041010050500013M02606"),
    ("IBAN", "NO9386011117947"),
    ("VAT", "ESB58378431"),
    ("VAT", "DE136695976"),
    ("VAT", "FR40303265045"),
    ("VAT", "NL123456782B90"),
    ("VAT", "IE6433435F"),
    ("VAT", "GB980780684"),
    ("VAT", "ATU13585627"),
    ("VAT", "CY10259033P"),
]


@pytest.mark.parametrize(("kind", "value"), RIGHT)
def test_a_right_number_has_a_form_that_says_so(kind, value):
    """Its characters are allowed in their places, and its check passes; with one digit changed it fails."""
    fitting = [
        form
        for form in forms(kind, len(value))
        if all(character in allowed for character, allowed in zip(value, form.template, strict=True))
    ]

    assert any(form.is_right(value) for form in fitting)
    place = max(index for index, character in enumerate(value) if character.isdigit() and index < len(value) - 1)
    wrong = value[:place] + str((int(value[place]) + 1) % 10) + value[place + 1 :]
    assert not any(form.is_right(wrong) for form in fitting)


def test_forms_are_by_length():
    assert () == forms("IBAN", 3)
    assert () == forms("MONEY", 9)
    assert {24} == {len(form.template) for form in all_forms("IBAN") if form.template[:2] == ("E", "S")}
    assert {9} == {len(form.template) for form in forms("NIF", 9)}


def test_every_country_is_there():
    """The whole registry of IBANs that python-stdnum carries, and the VAT numbers of the Union but Romania's."""
    countries = {"".join(form.template[:2]) for form in all_forms("IBAN")}

    assert {"ES", "DE", "FR", "GB", "PT", "IT", "NO", "MT"} <= countries
    assert len(countries) > 70
    prefixes = {"".join(form.template[:2]) for form in all_forms("VAT")}
    assert {code.upper() for code in vat.MEMBER_STATES} - {"GR", "RO"} <= prefixes


def test_checks_are_not_lax():
    """Each form's own check refuses what stdnum refuses."""
    assert not iban.is_valid("ES0021000813610123456789")
    assert not any(form.is_right("ES0021000813610123456789") for form in forms("IBAN", 24))
    assert gb_vat.is_valid("980780684")
    assert not any(form.is_right("GB980780685") for form in forms("VAT", 11))
