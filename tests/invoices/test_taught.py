"""What a confirmed invoice teaches about the next one of its supplier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from backend.files.pages import Document
from backend.files.text_files import document_of_text
from backend.files.visual_rows import rows_of
from backend.invoices.records import ExtractedFields, Field, FieldRow
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


def test_a_suppliers_number_without_check_digits_goes_before_the_customers() -> None:
    """Where the only number that can be checked is the customer's, the confirmed one is still the supplier's."""

    def document(**values: str) -> Document:
        text = _INVOICE.replace("NIF {nif}", "Reg {nif}").replace("Cliente: Bodegas Valdelaparra SA\n", "")
        return document_of_text(text.format(**{**_FIRST, "nif": "1234567", **values}))

    example = _taught(document(), {"VendorTaxId": "1234567"})

    assert "1234567" == _read(document(**_NEXT), example)["VendorTaxId"].value


def test_a_tax_number_is_told_from_the_label_that_touches_it() -> None:
    """What a text layer gives as one word."""

    def document(registered: str, **values: str) -> Document:
        text = _INVOICE.replace("CIF A81927196", f"Registro {registered}")
        return document_of_text(text.format(**{**_FIRST, **values}))

    example = _taught(document("505423120"), {"CustomerTaxId": "505423120"})

    assert "213552825" == _read(document("Nº213552825", **_NEXT), example)["CustomerTaxId"].value


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


def test_a_date_in_a_form_that_nobody_knows() -> None:
    """The order of its figures is learned, whatever stands between them, and whoever reads them otherwise."""
    spaced = _taught(_document(day="12 03 2026"), {"InvoiceDate": "2026-03-12"})
    american = _taught(_document(day="03.12.2026"), {"InvoiceDate": "2026-03-12"})
    both = _taught(_document(day="02 02 2026"), {"InvoiceDate": "2026-02-02"})  # day and month may be either

    assert "2026-06-16" == _read(_document(**{**_NEXT, "day": "16 06 2026"}), both)["InvoiceDate"].value
    assert "2026-06-02" == _read(_document(**{**_NEXT, "day": "02 06 2026"}), spaced)["InvoiceDate"].value
    assert "2026-06-02" == _read(_document(**{**_NEXT, "day": "06.02.2026"}), american)["InvoiceDate"].value


def test_two_dates_of_one_day() -> None:
    """Each stands where it was read, although it was read in another order."""

    def document(**values: str) -> Document:
        text = _INVOICE.replace("Emitida: {day}", "Recogida: {due}", 1)
        return document_of_text(
            text.replace("\n                                           Recogida: {due}", "\nFecha: {day}").format(
                **{**_FIRST, **values}
            )
        )

    example = _taught(
        document(day="03/12/2026", due="03/12/2026"), {"InvoiceDate": "2026-03-12", "DueDate": "2026-03-12"}
    )

    found = _read(document(**{**_NEXT, "day": "06/02/2026", "due": "06/20/2026"}), example)
    assert ("2026-06-02", "2026-06-20") == (found["InvoiceDate"].value, found["DueDate"].value)


def test_where_a_customers_address_ends() -> None:
    """At the word behind it on the example: it may have a line more than there."""
    blocks = {
        "first": "Viviendas Roble\nPasaje Sur 4\n08020 Barcelona\nExpediente 12",
        "next": "Torres Altas\nEdificio Norte\nAvenida Mar 18\n46001 Valencia\nExpediente 15",
    }
    first, following = (
        _document(**{**values, "due": f"{values['due']}\n\nDestino\n{blocks[name]}\n"})
        for name, values in (("first", _FIRST), ("next", {**_FIRST, **_NEXT}))
    )
    example = _taught(first, {"CustomerAddress": "Pasaje Sur 4, 08020 Barcelona", "CustomerName": "Viviendas Roble"})

    found = _read(following, example)
    assert "Torres Altas" == found["CustomerName"].value
    assert "Edificio Norte, Avenida Mar 18, 46001 Valencia" == found["CustomerAddress"].value


def test_an_address_below_a_name_that_stands_twice() -> None:
    """Where the address stood below its name it does so on the next paper, wherever that block is."""
    first, following = (
        _document(**{**values, "due": f"{values['due']}\nTitular: {name}\n\n\n\n{block}\n\n"})
        for values, name, block in (
            (_FIRST, "Viviendas Roble", "Viviendas Roble\nPasaje Sur 4\n08020 Barcelona"),
            (
                {**_FIRST, **_NEXT},
                "Torres Altas",
                "\n\n\n{0}Torres Altas\n{0}Avenida Mar 18\n{0}46001 Valencia".format(" " * 30),
            ),
        )
    )
    example = _taught(first, {"CustomerAddress": "Pasaje Sur 4, 08020 Barcelona", "CustomerName": "Viviendas Roble"})

    found = _read(following, example)
    assert ("Torres Altas", "Avenida Mar 18, 46001 Valencia") == (
        found["CustomerName"].value,
        found["CustomerAddress"].value,
    )


def test_which_of_two_addresses_below_a_name_is_the_customers() -> None:
    """The one that stands more like the confirmed one, wherever the reader took the other for it."""

    def document(values: Mapping[str, str], name: str, *lines: str) -> Document:
        block = "\n".join(line.rjust(70) for line in (name, *lines))
        other = f"Cliente\n{name}\nP.º Ramos, 129, 2º B\n24963, San Sebastian\nEspaña\n"
        text = _INVOICE.replace("Cliente: Bodegas Valdelaparra SA\nCIF A81927196", f"\n\n{block}\n\n\n{other}")
        return document_of_text(text.format(**values))

    first = document(_FIRST, "Viviendas Roble", "Pasaje Sur 4", "08020 Barcelona")
    read = _by_name(fields_of(first))
    right = Field("CustomerAddress", "Pasaje Sur 4, 08020 Barcelona", "", 1.0, "text", "")
    was = replace(read["CustomerAddress"], places=read["CustomerAddress"].places[1:])
    example = remember(rows_of(first), "invoice", {**read, right.name: was}, {**read, right.name: right})
    assert example is not None

    one_line = "Avenida de la Mar Mediterranea 18, 46001 Valencia"
    following = document({**_FIRST, **_NEXT}, "Torres Altas", one_line)
    assert one_line == _read(following, example)["CustomerAddress"].value


def test_a_typed_address_is_found_in_lines_that_begin_anywhere() -> None:
    """Centred ones, for example."""
    document = _document(due=f"{_FIRST['due']}\n\n              Pasaje 4\n      Nave 12, 08020 Barcelona")

    [spot] = (
        spot
        for spot in _taught(document, {"CustomerAddress": "Pasaje 4, Nave 12, 08020 Barcelona"}).spots
        if spot.name == "CustomerAddress" and not spot.wrong
    )
    assert ("Pasaje 4 Nave 12, 08020 Barcelona", 2) == (spot.printed, spot.rows)


def test_an_amount_is_of_the_field_that_it_stands_more_like() -> None:
    """What is withheld is no discount where none is printed."""
    discounted = {
        **_WITHHELD,
        "base": "150,00 €\nMenos           3 % EUR    5,00",
        "tax": "31,50 €\nPercepcion     19 % EUR   28,50",
    }
    example = _taught(_document(**discounted), {"WithholdingAmount": "28.50", "TotalDiscount": "5.00", **_SUMS})
    held = {**_NEXT, "tax": "63,00 €\nPercepcion     19 % EUR   57,00", "total": "306,00"}

    found = _read(_document(**held), example)
    assert "57.00" == found["WithholdingAmount"].value
    assert "TotalDiscount" not in found


def test_what_is_sure_is_taught_of_papers_that_look_otherwise() -> None:
    """A value behind its words at its place, though most others stand behind new ones; nothing of a stranger's."""
    example = _taught(_document(), {"DueDate": "2026-04-11"})
    changed = _INVOICE.format(**{**_FIRST, **_NEXT, "number": "74/B"})
    words = {"Emitida: 02/06/2026": "Servicio de junio  ", "Suma 1": "Neto  ", "Cuota (21)": "Recargado "}
    for word, other in (words | {"A ingresar": "Abonar    ", "Cliente: ": "         "}).items():
        changed = changed.replace(word, other)
    moved = changed.replace("Recogida: 20/06/2026", "20/06/2026 Recogida")

    assert "2026-06-20" == _read(document_of_text(changed), example)["DueDate"].value
    assert "DueDate" not in _read(document_of_text(moved), example)


def test_a_supplier_whose_name_is_followed_by_other_words() -> None:
    """It is known by its name though the line goes on."""
    example = _taught(_document(), {"DueDate": "2026-04-11"})
    sold = _document(**{**_NEXT, "vendor": "Talleres Rovira, S.L. taller oficial", "nif": "-"})

    assert "2026-06-20" == _read(sold, example)["DueDate"].value


def test_a_supplier_without_an_address() -> None:
    """What was removed of the supplier's own is on none of its papers, wherever something like it is read."""
    example = _taught(_document(), {"VendorAddress": None})
    elsewhere = _document(**{**_NEXT, "nif": f"{_FIRST['nif']}\nAvenida Mar 18, 46001 Valencia"})

    assert "VendorAddress" in _read(elsewhere)
    assert "VendorAddress" not in _read(elsewhere, example)


_WITHHELD = {
    "base": "150,00", "tax": "31,50 €\nPercepcion                   28,50", "total": "153,00",
}  # fmt: skip


def test_a_rate_that_is_not_printed() -> None:
    """The rate of withholding is the supplier's, where it makes what is withheld; never where it does not."""
    example = _taught(_document(**_WITHHELD), {"WithholdingAmount": "28.50", "WithholdingRate": "19", **_SUMS})
    held = {**_NEXT, "tax": "63,00 €\nPercepcion                   57,00", "total": "306,00"}
    other = {**held, "tax": "63,00 €\nPercepcion                   45,00", "total": "318,00"}

    found = _read(_document(**held), example)
    assert ("57.00", "19") == (found["WithholdingAmount"].value, found["WithholdingRate"].value)
    rate = _read(_document(**other), example).get("WithholdingRate")
    assert rate is None or rate.value == "15"


def test_a_rate_of_a_base_that_is_not_printed() -> None:
    """The base is what the total makes it."""
    bare = _INVOICE.replace("Suma 1                      {base} €\n", "")
    corrected = {"WithholdingAmount": "28.50", "WithholdingRate": "19", "InvoiceTotal": "153.00", "SubTotal": None}
    example = _taught(document_of_text(bare.format(**{**_FIRST, **_WITHHELD})), corrected)
    held = {**_NEXT, "tax": "63,00 €\nPercepcion                   57,00", "total": "306,00"}

    found = _read(document_of_text(bare.format(**{**_FIRST, **held})), example)
    assert ("57.00", "19") == (found["WithholdingAmount"].value, found["WithholdingRate"].value)


def test_a_rate_of_a_base_that_is_computed() -> None:
    """It may lack what no tax is on."""
    rows = "Total sen IVE    % IVE      Importe\n{base}\nIRPF       {tax} €\nImporte total    {total} €\n"
    text = _INVOICE[: _INVOICE.index("Suma 1")] + rows
    first = {"base": "340,63 €    21,00 %    71,53 €\n30,95 €    10,00 %    3,10 €", "tax": "55,74", "total": "390,47"}
    exempt = {"base": "1.610,00 €    10,00 %    161,00 €\n295,00 €    0,00 %    0,00 €", "tax": "285,75"}
    example = _taught(document_of_text(text.format(**{**_FIRST, **first})), {"WithholdingRate": "15"})

    found = _read(document_of_text(text.format(**{**_FIRST, **_NEXT, **exempt, "total": "1.780,25"})), example)
    assert ("285.75", "15") == (found["WithholdingAmount"].value, found["WithholdingRate"].value)


_SUMS = {"SubTotal": "150.00", "TotalTax": "31.50", "InvoiceTotal": "153.00"}


def _table(name: str, *rows: Mapping[str, str]) -> Field:
    cells = (
        FieldRow(tuple(Field(column, value, "", 1.0, "text", "") for column, value in row.items())) for row in rows
    )
    return Field(name, "", "", 1.0, "text", "", rows=tuple(cells))


def _with_tables(document: Document, *tables: Field) -> SupplierExample:
    """The example of a document whose tables were corrected, as it comes out of the store."""
    read = {field.name: field for field in fields_of(document).fields}
    example = remember(rows_of(document), "invoice", read, read | {table.name: table for table in tables})
    return example_from(orjson.loads(orjson.dumps(example.as_json())))


def _rows(found: ExtractedFields, name: str) -> list[dict[str, str]]:
    return [
        {cell.name: cell.value for cell in row.fields}
        for field in found.fields
        if field.name == name
        for row in field.rows
    ]


def test_a_corrected_table_teaches_its_columns() -> None:
    """Which column is which, by their labels, wherever they stand on the next invoice."""
    lines = "Faena             Cantidad  Horas     Neto\nRevisión                12      2   150,00"
    more = "Faena    Cantidad   Horas    Neto\nPintura        14       1   50,00\nMontaje         9       5  250,00"
    first, following = _document(lines=lines), _document(**{**_NEXT, "lines": more})
    example = _with_tables(first, _table("Items", {"Description": "Revisión", "Quantity": "2", "Amount": "150.00"}))

    assert ["14", "9"] == [row["Quantity"] for row in _rows(fields_of(following), "Items")]
    found = fields_of(following, examples=[example])
    assert ["1", "5"] == [row["Quantity"] for row in _rows(found, "Items")]
    assert ["Pintura", "Montaje"] == [row["Description"] for row in _rows(found, "Items")]
    assert [] == _rows(found, "Movements")
    assert "as in 1 confirmed invoice" in [field.why for field in found.fields if field.name == "Items"]


def test_lines_that_make_the_sums_stay() -> None:
    """A column that somebody took for the amounts is not taught against the arithmetic of the next invoice."""
    lines = "Faena             Cantidad  Horas     Neto\nRevisión                12      2   150,00"
    more = "Faena             Cantidad  Horas     Neto\nPintura                 14      1   300,00"
    example = _with_tables(_document(lines=lines), _table("Items", {"Description": "Revisión", "Amount": "12"}))

    found = fields_of(_document(**{**_NEXT, "lines": more}), examples=[example])
    assert ["300.00"] == [row["Amount"] for row in _rows(found, "Items")]


def test_a_rate_of_tax_that_is_not_printed() -> None:
    """It is in the tax row, where it makes the tax of the base; or the one that does."""
    bare = {"total": "181,50", "lines": "Revisión   150,00", "tax": "31,50"}
    first = document_of_text(_INVOICE.format(**{**_FIRST, **bare}).replace("Cuota (21)", "Cuota     "))
    example = _with_tables(first, _table("TaxDetails", {"Type": "IVA", "Rate": "21", "Amount": "31.50"}))
    row = {"Type": "IVA", "Rate": "21", "Base": "300.00", "Amount": "63.00"}
    texts = [_INVOICE.format(**{**_FIRST, **_NEXT, "tax": tax, "total": total}).replace("Cuota (21)", "Cuota     ")
             for tax, total in (("63,00", "363,00"), ("30,00", "330,00"), ("44,44", "344,44"))]  # fmt: skip
    same, reduced, odd = (fields_of(document_of_text(text), examples=[example]) for text in texts)

    assert [row] == _rows(same, "TaxDetails")
    assert [row | {"Rate": "10", "Amount": "30.00"}] == _rows(reduced, "TaxDetails")
    assert [] == _rows(odd, "TaxDetails")


def test_an_example_of_an_older_release() -> None:
    """What it kept and nobody needs is left; what it did not know is absent."""
    kept = _taught(_document(), {"DueDate": "2026-04-11"}).as_json()
    old = {"kind": kept["kind"], "spots": [{**spot, "month_first": None} for spot in kept["spots"]]}
    for spot in old["spots"]:
        del spot["form"], spot["rows"], spot["below"]

    assert "2026-06-20" == _read(_document(**_NEXT), example_from(old))["DueDate"].value
