"""Repairs of ids that OCR misread, and above all what is left alone."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stdnum import iban
from stdnum.es import ccc, cif, nie, nif
from stdnum.iso7064 import mod_97_10

from backend.abandoned import Abandoned
from backend.errors import CallerGone
from backend.invoices.ocr_confusions import (
    _DIGITS_FOR,
    _LETTERS_FOR,
    CHECKED,
    FIGURES,
    Change,
    SuggestedRepair,
    repair,
    suggest_repairs,
)
from backend.text.entity_merge import PATTERN, Entity
from backend.text.patterns import find_patterns

NIF_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
# Misreadings of each character: the inverse of the tables.
MISREAD = {digit: [letter for letter, digits in _DIGITS_FOR.items() if digit in digits] for digit in "0123456789"} | {
    letter: [wrong for wrong, right in _LETTERS_FOR.items() if letter in right and wrong.isdigit()]
    for letter in "ABDGILOQSTZ"
}


@st.composite
def nifs(draw) -> tuple[str, str]:
    digits = draw(st.integers(0, 99_999_999))
    return "NIF", f"{digits:08d}{NIF_LETTERS[digits % 23]}"


@st.composite
def nies(draw) -> tuple[str, str]:
    first, digits = draw(st.integers(0, 2)), draw(st.integers(0, 9_999_999))
    return "NIE", f"{'XYZ'[first]}{digits:07d}{NIF_LETTERS[(first * 10_000_000 + digits) % 23]}"


@st.composite
def cifs(draw) -> tuple[str, str]:
    kind, digits = draw(st.sampled_from("ABCDEFGHJNPQRSUVW")), draw(st.integers(100_000, 9_999_999))
    ends = [end for end in cif.calc_check_digits(f"{kind}{digits:07d}") if cif.is_valid(f"{kind}{digits:07d}{end}")]
    return "CIF", f"{kind}{digits:07d}{draw(st.sampled_from(ends))}"


@st.composite
def accounts(draw) -> tuple[str, str]:
    bank, number = draw(st.integers(1, 99_999_999)), draw(st.integers(1, 9_999_999_999))
    head, tail = f"{bank:08d}", f"{number:010d}"
    return "CCC", head + ccc.calc_check_digits(f"{head}00{tail}") + tail


@st.composite
def ibans(draw) -> tuple[str, str]:
    country = draw(st.sampled_from(["ES", "DE", "PT", "GB", "FR"]))
    match country:
        case "ES":
            body = draw(accounts())[1]
        case "GB":
            body = (
                draw(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=4, max_size=4))
                + f"{draw(st.integers(0, 10**14 - 1)):014d}"
            )
        case _:
            length = {"DE": 18, "PT": 21, "FR": 23}[country]
            body = f"{draw(st.integers(0, 10**length - 1)):0{length}d}"
    check = mod_97_10.calc_check_digits(body + country)
    return "IBAN", country + check + body


IDS = st.one_of(nifs(), nies(), cifs(), accounts(), ibans()).filter(
    lambda sample: {"NIF": nif, "NIE": nie, "CIF": cif, "CCC": ccc, "IBAN": iban}[sample[0]].is_valid(sample[1])
)


def damage(data: st.DataObject, kind: str, value: str, most: int) -> str:
    """The value with one to ``most`` characters misread; not at positions where letters and digits are allowed."""
    mixed = range(14, 25) if kind == "IBAN" and value.startswith("FR") else ()
    places = [place for place, character in enumerate(value) if MISREAD.get(character) and place not in mixed]
    chosen = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=most, unique=True)) if places else []
    read = list(value)
    for place in chosen:
        read[place] = data.draw(st.sampled_from(MISREAD[value[place]]))
    return "".join(read)


@given(IDS, st.data())
def test_a_damaged_id_comes_back_or_nothing_does(sample, data):
    """Up to two misread characters are repaired, or left alone if several variants pass; never to another id."""
    kind, value = sample
    raw = damage(data, kind, value, 2)
    found = repair(kind, raw)

    assert found is None or found.value == value
    if found is not None:
        mended = list(raw)
        for change in found.changes:
            assert mended[change.place] == change.read != change.meant
            mended[change.place] = change.meant
        assert "".join(mended) == value
        assert found.raw == raw


@given(nifs(), st.integers(0, 7))
def test_unambiguous_misreadings_of_a_nif_are_repaired(sample, place):
    """A digit read as a letter is always repaired if only one digit looks like that letter."""
    kind, value = sample
    letter = {"0": "O", "1": "l", "5": "S", "2": "Z"}.get(value[place])
    raw = value[:place] + (letter or value[place]) + value[place + 1 :]
    found = repair(kind, raw)

    assert (found and found.value) == (value if letter else None)


@given(IDS)
def test_a_valid_id_needs_no_repair(sample):
    kind, value = sample

    assert repair(kind, value) is None
    assert repair(kind, value.lower()) is None


@given(IDS, st.data())
def test_a_digit_read_as_a_digit_is_not_guessed(sample, data):
    """A wrong digit gives no hint of the right one: nothing is suggested where letters are not allowed."""
    kind, value = sample
    template_digits = [place for place, character in enumerate(value) if character.isdigit()]
    place = data.draw(st.sampled_from(template_digits))
    raw = value[:place] + str((int(value[place]) + data.draw(st.integers(1, 9))) % 10) + value[place + 1 :]

    found = repair(kind, raw)
    assert found is None or any(change.read.isdigit() != change.meant.isdigit() for change in found.changes)


@given(st.text(max_size=40), st.sampled_from([*CHECKED, *FIGURES, "PHONE"]))
def test_any_text_is_answered(text, kind):
    """Any text gets None or a repair with changes and a score within 0 and 1."""
    found = repair(kind, text)

    assert found is None or (found.raw == text and found.changes and 0 < found.score <= 1)


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        pytest.param("IBAN", "ES79 21O0 0813 61O1 2345 67B9", "ES7921000813610123456789", id="iban-in-groups"),
        pytest.param("IBAN", "E579 2100 0813 6101 2345 6789", "ES7921000813610123456789", id="country-read-as-digit"),
        pytest.param("IBAN", "€S79 2100 0813 6101 2345 6789", "ES7921000813610123456789", id="country-read-as-sign"),
        pytest.param("NIF", "7l234567-W", "71234567W", id="small-l"),
        pytest.param("NIF", "7|234567 W", "71234567W", id="bar"),
        pytest.param("CIF", "86471783B", "B64717838", id="both-ends-swapped"),
        pytest.param("IBAN", "FR14 2OO4 1010 0505 0001 3M02 606", "FR1420041010050500013M02606", id="digits-of-france"),
        pytest.param("IBAN", "FR14 2004 1010 0505 0001 3MO2 606", None, id="either-may-stand-there"),
        pytest.param("VAT", "DEI36695976", "DE136695976", id="vat"),
        pytest.param("VAT", "ESB647I7838", "ESB64717838", id="spanish-vat"),
        pytest.param("CCC", "0182 O600 09 0201550234", "01820600090201550234", id="ccc"),
        pytest.param("DATE", "12/O3/2O24", "2024-03-12", id="date"),
        pytest.param("DATE", "3O/02/2024", None, id="a-day-no-calendar-has"),
        pytest.param("MONEY", "1.2B4,5O €", "1284.50 EUR", id="amount"),
        pytest.param("MONEY", "EUR 1.OOO,OO", None, id="more-letters-than-digits"),
        pytest.param("NIF", "712345672", None, id="no-letter-fits"),
        pytest.param("NIF", "OIZASGBT", None, id="nothing-but-letters"),
        pytest.param("NIF", "B64717838", None, id="right-in-another-kind"),
    ],
)
def test_repairs(kind, raw, expected):
    """The value is compact."""
    found = repair(kind, raw)

    assert expected == (found and found.value)


TEXT = (
    "Transferencia a ES79 21O0 0813 61O1 2345 6789, CIF: B647I7838\nDNI 7l234567-W. N1F 7123456TW\n"
    "Ref. B647I7838 total 1O,00 € el 12/O3/2O24"
)


def test_suggestions_in_a_text():
    """Accounts, labelled tax numbers, dates and amounts are found in a text; a reference without a label is not."""
    found = suggest_repairs(TEXT, find_patterns(TEXT))

    assert [
        ("IBAN", "ES79 21O0 0813 61O1 2345 6789", "ES7921000813610123456789"),
        ("CIF", "B647I7838", "B64717838"),
        ("NIF", "7l234567-W", "71234567W"),
        ("NIF", "7123456TW", "71234567W"),
        ("MONEY", "1O,00 €", "10.00 EUR"),
        ("DATE", "12/O3/2O24", "2024-03-12"),
    ] == [(suggestion.type, TEXT[suggestion.start : suggestion.end], suggestion.repair.value) for suggestion in found]
    assert all(suggestion.repair.raw == TEXT[suggestion.start : suggestion.end] for suggestion in found)


def test_an_invalid_entity_is_repaired():
    """An entity with a wrong checksum is repaired, even without a label."""
    text = "Pagar a B-6471783B hoy"
    wrong = Entity("CIF", "B-6471783B", 8, 18, 0.5, PATTERN, "B6471783B", valid=False)

    assert [] == suggest_repairs(text)
    assert [SuggestedRepair("CIF", 8, 18, repair("CIF", "B-6471783B"))] == suggest_repairs(text, [wrong])
    assert (Change(9, "B", "8"),) == suggest_repairs(text, [wrong])[0].repair.changes


def test_a_part_of_a_damaged_account_does_not_hide_it():
    """A telephone number inside is ignored; one that extends beyond its end blocks the suggestion."""
    text = "ES79 21O0 0813 61O1 2345 6789 90"
    inside, over = (Entity("PHONE", text[a:b], a, b, 0.5, PATTERN) for a, b in ((20, 29), (20, 32)))

    assert [29] == [suggestion.end for suggestion in suggest_repairs(text, [inside])]
    assert [] == suggest_repairs(text, [over])


def test_valid_ids_are_not_covered():
    """No suggestion overlaps an id with a right checksum, or partly overlaps another entity."""
    text = "IBAN ES79 2100 0813 6101 2345 6789"

    assert [] == suggest_repairs(text, find_patterns(text))
    assert [] == suggest_repairs("Nada que ver aquí: 12 de marzo, 300 euros", [])


@given(st.text("OIlSB08 152ES79/.,€NIF:|-\n", max_size=200))
def test_suggestions_never_overlap(text):
    found = suggest_repairs(text, find_patterns(text))

    assert all(before.end <= after.start for before, after in pairwise(found))
    assert all(text[suggestion.start : suggestion.end] == suggestion.repair.raw for suggestion in found)


def test_it_ends_once_nobody_waits():
    """A page of look-alikes takes seconds: each group may be one of hundreds of accounts."""
    gone = Abandoned()
    gone.set()

    with pytest.raises(CallerGone):
        gone.run(partial(suggest_repairs, "8lG-9" * 100))


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece", ["ES79 21O0 0813 61O1 2345 6788 ", "1,", "8OSB8OSBO ", "NIF B ", "CIF: B647I7839 ", "O"]
)
def test_hostile_text_is_read_in_linear_time(piece):
    """A second or two each; a quadratic algorithm would run into the timeout. Nothing in them can be repaired."""
    assert [] == suggest_repairs(piece * (60_000 // len(piece)))
