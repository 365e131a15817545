"""Ids in filters: however they are written, the same one is found."""

import pytest

from backend.search.attributes import compact_id, national_id, with_id_forms
from backend.search.filters import Comparison, Compound
from tests.search.samples import fits


@pytest.mark.parametrize("written", ["B12345674", "b-12345674", "B 12.345.674", "ESB12345674", "es b12345674"])
@pytest.mark.parametrize("kept", ["B12345674", "ESB12345674"])
def test_a_tax_id_is_found_however_it_is_written(written: str, kept: str) -> None:
    """In any form, kept in any form; and what it is not is the opposite."""
    file = {"vendor_tax_id": [kept, "A58818501"]}

    assert fits(with_id_forms(Comparison("vendor_tax_id", "eq", written)), file)
    assert fits(with_id_forms(Comparison("vendor_tax_id", "in", ("X", written))), file)
    assert not fits(with_id_forms(Comparison("vendor_tax_id", "ne", written)), file)
    assert not fits(with_id_forms(Comparison("vendor_tax_id", "nin", (written,))), file)
    assert fits(with_id_forms(Compound("and", (Comparison("vendor_tax_id", "eq", written),))), file)


@pytest.mark.parametrize("key", ["nif", "vat_id", "iban", "customer_tax_id"])
def test_what_a_caller_wrote_is_found_as_written(key: str) -> None:
    """Attributes that callers set are kept as they are."""
    assert fits(with_id_forms(Comparison(key, "eq", "b-12/x")), {key: "b-12/x"})


@pytest.mark.parametrize(
    "where",
    [
        Comparison("vendor_name", "eq", "b-12345674"), Comparison("nif", "eq", 12.0), Comparison("nif", "gt", "b-1"),
        Comparison("nif", "in", ()), Comparison("nif", "eq", "x-" * 100),
    ],
)  # fmt: skip
def test_all_else_stays(where: Comparison) -> None:
    """Other attributes, other types, orders, and texts that are no ids."""
    assert where == with_id_forms(where)


def test_iban() -> None:
    """In groups of four, as it is printed."""
    where = with_id_forms(Comparison("iban", "eq", "es91 2100 0418 4502 0005 1332"))

    assert fits(where, {"iban": ["ES9121000418450200051332"]})


@pytest.mark.parametrize(
    ("vat_id", "expected"),
    [
        ("ESB12345674", "B12345674"), ("ES12345678Z", "12345678Z"), ("ESX1234567L", "X1234567L"), ("B12345674", None),
        ("DE136695976", None), ("ES9121000418450200051332", None),
    ],
)  # fmt: skip
def test_national_id(vat_id: str, expected: str | None) -> None:
    assert expected == national_id(vat_id)
    assert vat_id == compact_id(vat_id.lower())
