"""What a document says becomes attributes: ids and dates normalised, numbers as numbers, nothing impossible."""

from typing import Any

import pytest

from backend.invoices.records import FIELD_NAMES, ExtractedFields, Field, FieldRow, Validity
from backend.search.attributes import MAX_VALUES, attribute_name, found_attributes
from backend.search.file_reading import FACT_CHARS, fact_parts
from backend.text.entity_merge import MODEL, PATTERN, Entity


def field_of(name: str, value: str, **changes: Any) -> Field:
    return Field(name, value, value, 0.9, "text", "why", **changes)


def found(*fields: Field, entities: tuple[Entity, ...] = (), **facts: Any) -> dict[str, Any]:
    known = {"document_type": None, "language": None, "pages": None, **facts}
    return found_attributes(fields=ExtractedFields(fields, Validity(), ""), entities=entities, **known)


def entity(kind: str, text: str, value: str | None = None, *, score: float = 0.9, valid: bool | None = None) -> Entity:
    return Entity(kind, text, 0, len(text), score, PATTERN if value else MODEL, value, valid)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        pytest.param(field_of("VendorTaxId", "B12345678", valid=True), {"vendor_tax_id": ("B12345678",)}, id="id"),
        pytest.param(field_of("VendorTaxId", "B12345679", valid=False), {}, id="id-that-cannot-be"),
        pytest.param(field_of("VendorTaxId", "ESB12345674", valid=True), {"vendor_tax_id": ("B12345674",)}, id="vat"),
        pytest.param(field_of("VendorTaxId", "DE136695976"), {"vendor_tax_id": ("DE136695976",)}, id="german-vat"),
        pytest.param(field_of("PeriodEnd", "--03-31"), {}, id="date-without-year"),
        pytest.param(field_of("InvoiceDate", "2026-03"), {}, id="month"),
        pytest.param(field_of("CustomerTaxId", "X1", valid=None), {"customer_tax_id": ("X1",)}, id="id-unchecked"),
        pytest.param(field_of("InvoiceTotal", "1284.50"), {"invoice_total": (1284.5,)}, id="amount"),
        pytest.param(field_of("InvoiceTotal", "-12.00"), {"invoice_total": (-12.0,)}, id="credit"),
        pytest.param(field_of("InvoiceTotal", "about 5"), {}, id="no-number"),
        pytest.param(field_of("InvoiceTotal", "NaN"), {}, id="not-a-number"),
        pytest.param(field_of("InvoiceDate", "2024-03-01"), {"invoice_date": ("2024-03-01",)}, id="date"),
        pytest.param(field_of("DueDate", "2024-04-03", ambiguous=True), {"due_date": ("2024-04-03",)}, id="ambiguous"),
        pytest.param(field_of("Items", "", rows=(FieldRow(()),)), {}, id="rows"),
        pytest.param(field_of("VendorName", "Aceros \n Sol"), {"vendor_name": ("Aceros Sol",)}, id="blanks"),
        pytest.param(field_of("IBAN", "ES91"), {"iban": ("ES91",)}, id="iban"),
    ],
)  # fmt: skip
def test_fields(field: Field, expected: dict[str, Any]) -> None:
    assert expected == found(field)


def test_names_of_attributes() -> None:
    """Each field has its own."""
    names = [attribute_name(name) for name in FIELD_NAMES]

    assert {"vendor_tax_id", "invoice_total", "iban", "currency_code", "due_date"} <= set(names)
    assert len(FIELD_NAMES) == len(set(names))


def test_entities() -> None:
    """Names as printed, numbers normalised; the most frequent first."""
    entities = (
        entity("PER", "Ana  Gil"), entity("ORG", "Otra S.L."), *[entity("ORG", "Aceros, S.A.")] * 2,
        entity("CIF", "A-58818501", "A58818501", valid=True), entity("NIF", "1", "1", valid=False),
        entity("MONEY", "1.284,50 €", "1284.50 EUR"), entity("DATE", "3/4/24"), entity("PERCENT", "21 %", "21"),
        entity("ORG", "Dudosa", score=0.3), entity("DATE", "2 de abril", "--04-02"),
    )  # fmt: skip

    expected = {
        "organization": ("Aceros, S.A.", "Otra S.L."),
        "person": ("Ana Gil",),
        "nif": ("A58818501",),
        "amount": (1284.5,),
    }
    assert expected == found(entities=entities)


def test_only_whole_dates_are_dates() -> None:
    """Others would be ordered as texts: "--03-31" before every day, "2025" before its own first."""
    dates = ("2026-02-03", "--03-31", "2025", "2026-03")

    assert {"date": ("2026-02-03",)} == found(entities=tuple(entity("DATE", date, date) for date in dates))


def test_a_spanish_vat_number_is_found_as_nif() -> None:
    """And as it is printed; a foreign one only so."""
    vat_ids = (entity("VAT", "ES B-12345674", "ESB12345674"), entity("VAT", "DE 136695976", "DE136695976"))

    assert {"vat_id": ("ESB12345674", "DE136695976"), "nif": ("B12345674",)} == found(entities=vat_ids)


def test_what_a_field_and_an_entity_say_is_one_value() -> None:
    assert {"iban": ("ES91",)} == found(field_of("IBAN", "ES91"), entities=(entity("IBAN", "ES 91", "ES91"),))


def test_values_are_bounded() -> None:
    """In number and in length."""
    names = tuple(entity("PER", f"Ana {number}") for number in range(500))

    attributes = found(entities=(*names, entity("ORG", "x" * 2000)), failed_pages=range(1, 500))

    assert MAX_VALUES == len(attributes["person"]) == len(attributes["failed_pages"])
    assert 512 == len(attributes["organization"][0])


def test_facts_of_the_document() -> None:
    attributes = found(document_type="invoice", language="es", pages=3, failed_pages=[2])

    expected = {"document_type": ("invoice",), "language": ("es",), "pages": (3.0,), "failed_pages": (2.0,)}
    assert expected == attributes


def test_the_parts_that_are_searched() -> None:
    """All of a short text; of a long one whole lines of its start and end."""
    text = "\n".join(f"línea número {number}" for number in range(5_000))

    head, tail = fact_parts(text)

    assert [] == fact_parts(" \n")
    assert ["corto"] == fact_parts("corto")
    assert text.startswith(f"{head}\n")
    assert text.endswith(f"\n{tail}")
    assert FACT_CHARS * 0.9 < len(head) + len(tail) <= FACT_CHARS
    assert [10_000, 10_000] != [len(part) for part in fact_parts("x" * 100_000)]
