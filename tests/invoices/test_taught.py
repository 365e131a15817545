"""What a confirmed invoice teaches about the next one of its supplier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from backend.files.pages import Document
from backend.files.text_files import document_of_text
from backend.files.visual_rows import rows_of
from backend.invoices.records import ExtractedFields, Field
from backend.invoices.structure import fields_of
from backend.invoices.taught.apply import keys_on
from backend.invoices.taught.examples import SupplierExample, example_from, remember

_INVOICE = """{vendor:<42} FACTURA
NIF {nif:<38} Ref. documento: TR-{number}
C/ Mayor 3, 08001 Barcelona                Emitida: {day}
                                           Recogida: {due}

Cliente: Bodegas Valdelaparra SA
CIF A81927196

Concepto                                   Importe
{lines}
Suma 1                      {base} €
Cuota (21)                  {tax} €
A ingresar                  {total} €
"""
_FIRST = {
    "vendor": "Talleres Rovira, S.L.", "nif": "B12345674", "number": "00231", "day": "12/03/2026", "due": "11/04/2026",
    "lines": "Revisión                                   150,00", "base": "150,00", "tax": "31,50", "total": "181,50",
}  # fmt: skip
_NEXT = {
    "number": "00274", "day": "02/06/2026", "due": "20/06/2026", "base": "300,00", "tax": "63,00", "total": "363,00",
    "lines": "\n".join(f"Pieza {index}                                    100,00" for index in range(3)),
}  # fmt: skip


def _document(**values: str) -> Document:
    return document_of_text(_INVOICE.format(**{**_FIRST, **values}))


def _taught(
    document: Document, right: Mapping[str, str | None], examples: Sequence[SupplierExample] = (), **more: Any
) -> SupplierExample:
    """The example of a document that was confirmed with corrections, as it comes out of the store."""
    read = {field.name: field for field in fields_of(document, examples=examples).fields if not field.rows}
    corrected = {name: Field(name, value, "", 1.0, "text", "", **more) for name, value in right.items() if value}
    confirmed = {name: field for name, field in read.items() if name not in right} | corrected
    example = remember(rows_of(document), "invoice", read, confirmed)
    assert example is not None
    return example_from(orjson.loads(orjson.dumps(example.as_json())))


def _read(document: Document, *examples: SupplierExample) -> dict[str, Field]:
    return _by_name(fields_of(document, examples=examples))


def _by_name(found: ExtractedFields) -> dict[str, Field]:
    return {field.name: field for field in found.fields if not field.rows}


def test_one_correction_is_enough() -> None:
    """A value behind a word that nobody knew is found on the next invoice, with its reason; all else is as it was."""
    example = _taught(_document(), {"DueDate": "2026-04-11"})
    alone, taught = _read(_document(**_NEXT)), _read(_document(**_NEXT), example)

    assert "DueDate" not in alone
    assert ("2026-06-20", "as in 1 confirmed invoice") == (taught["DueDate"].value, taught["DueDate"].why)
    assert taught["DueDate"].places
    assert {name: field.value for name, field in alone.items()} == {
        name: field.value for name, field in taught.items() if name != "DueDate"
    }
    assert taught["InvoiceId"].why.endswith("; as in 1 confirmed invoice")


def test_what_was_taught_goes_on_being_taught() -> None:
    """An invoice that was right because of an example is one more, and the reason counts them."""
    first = _taught(_document(), {"DueDate": "2026-04-11"})
    second = _taught(_document(**_NEXT), {}, [first])
    third = _document(**{**_NEXT, "number": "00301", "due": "30/06/2026"})

    assert "as in 2 confirmed invoices" == _read(third, second, first)["DueDate"].why
    assert "2026-06-30" == _read(third, second)["DueDate"].value


def test_the_latest_of_two_that_disagree_wins() -> None:
    """What somebody corrected later is what is meant."""
    older = _taught(_document(), {"InvoiceDate": "2026-04-11"})
    later = _taught(_document(number="00240"), {"InvoiceDate": "2026-03-12"})

    assert "2026-06-20" == _read(_document(**_NEXT), older)["InvoiceDate"].value
    assert "2026-06-02" == _read(_document(**_NEXT), later, older)["InvoiceDate"].value


def test_another_supplier_is_read_as_ever() -> None:
    """The same words on another's invoice mean nothing."""
    other = _document(**_NEXT, vendor="Hierros Sala, S.A.", nif="A58818501")

    assert _read(other) == _read(other, _taught(_document(), {"DueDate": "2026-04-11"}))


def test_what_was_removed_is_not_read_there_again() -> None:
    """A field that the invoice does not have, whatever stands at that place."""
    example = _taught(_document(), {"InvoiceId": None})

    assert "InvoiceId" in _read(_document(**_NEXT))
    assert "InvoiceId" not in _read(_document(**_NEXT), example)


def test_never_against_arithmetic() -> None:
    """Amounts that add up stay, although somebody confirmed another as the total."""
    example = _taught(_document(), {"InvoiceTotal": "150.00", "AmountDue": "150.00"})
    found = fields_of(_document(**_NEXT), examples=[example])

    assert found.validity.totals is True
    assert "363.00" == _by_name(found)["InvoiceTotal"].value


def test_never_against_check_digits() -> None:
    """A tax number that somebody wrote with wrong check digits is not taught; its supplier is still known by name."""
    example = _taught(_document(), {"VendorTaxId": "B12345670", "DueDate": "2026-04-11"}, valid=False)
    kept = _taught(_document(), {"VendorTaxId": "B12345670"}, valid=False)

    assert not [spot for spot in example.spots if spot.name == "VendorTaxId"]
    assert "B12345674" == _read(_document(**_NEXT), kept)["VendorTaxId"].value


def test_known_names_and_numbers_repair_misread_ones() -> None:
    """By the one the supplier is known, and the other is what it is known to be."""
    example = _taught(_document(), {})

    number = _read(_document(**_NEXT, nif="B12345614"), example)["VendorTaxId"]
    name = _read(_document(**_NEXT, vendor="Tallercs Rov1ra, S.L."), example)["VendorName"]

    assert ("B12345674", True, "as in 1 confirmed invoice") == (number.value, number.valid, number.why)
    assert "Talleres Rovira, S.L." == name.value


def test_a_page_of_very_many_words() -> None:
    """Thousands of words, most of them numbers, cost a bounded search, and the keys are few."""
    example = _taught(_document(), {"DueDate": "2026-04-11"})
    long = _document(**{**_NEXT, "lines": "\n".join("Pieza 1 20,00 400,00 8.000,00 10.000,00" for _ in range(800))})

    assert len(long.pages[0].words) > 4_000
    assert len(keys_on(rows_of(long))) <= 2_000
    assert "2026-06-20" == _read(long, example)["DueDate"].value


def test_an_example_is_small() -> None:
    """What is kept of a document is some kilobytes, whatever somebody wrote."""
    document = _document()
    example = _taught(document, {"VendorAddress": "x" * 10_000, "PurchaseOrder": "y" * 5_000})

    assert len(orjson.dumps(example.as_json())) < 10_000
    assert replace(example, spots=()).keys() == ()
