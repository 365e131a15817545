"""What an electronic invoice says goes before what was read from the page."""

from __future__ import annotations

from backend.files.einvoice.read import read_einvoice
from backend.files.einvoice.records import EInvoice
from backend.files.pages import Box, TextLocation
from backend.invoices.extract import einvoice_validity, with_einvoice
from backend.invoices.records import Field
from tests.files.einvoice.samples import CII, facturae

PLACE = TextLocation(1, Box(10, 20, 60, 32))


def _printed(name: str, value: str, text: str = "") -> Field:
    return Field(name, value, text or value, 0.8, "text", "beside its label", 3, 9, (PLACE,))


def test_the_electronic_value_wins_and_keeps_its_place() -> None:
    """An equal value keeps where it is printed; another one is replaced and stands nowhere."""
    printed = (_printed("InvoiceTotal", "1298.0", "1.298,0 €"), _printed("InvoiceDate", "2026-12-03"))

    fields = {field.name: field for field in with_einvoice(printed, read_einvoice(CII))}

    total, date = fields["InvoiceTotal"], fields["InvoiceDate"]
    assert ("1298.00", "1.298,0 €", (PLACE,), "xml") == (total.value, total.text, total.places, total.source)
    assert ("2026-03-12", "", (), "xml") == (date.value, date.text, date.places, date.source)
    assert fields["VendorTaxId"].valid
    assert 1 == len(fields["Items"].rows)


def test_series_and_number_as_printed() -> None:
    """Facturae has them apart: paper says how they are joined."""
    fields = with_einvoice((_printed("InvoiceId", "A/0017"),), read_einvoice(facturae()))

    assert ["A/0017"] == [field.value for field in fields if field.name == "InvoiceId"]


def test_a_code_says_where_it_stands() -> None:
    """A value of a QR code that is not printed alike has the code's place; what it does not say stays."""
    code = EInvoice("VERI*FACTU", {"InvoiceTotal": "258.24"}, page=1, box=(100.0, 50.0, 140.0, 90.0))

    fields = {field.name: field for field in with_einvoice((_printed("DueDate", "2026-05-05"),), code)}

    assert ("qr", (TextLocation(1, Box(100, 50, 140, 90)),)) == (
        fields["InvoiceTotal"].source,
        fields["InvoiceTotal"].places,
    )
    assert "text" == fields["DueDate"].source


def test_amounts_of_an_electronic_invoice_are_checked() -> None:
    """Base plus tax, less what is withheld or not, is the total; a difference is told with both sides."""
    right, wrong = read_einvoice(facturae(total="1112.00")), read_einvoice(facturae(total="1198.00"))

    assert einvoice_validity(with_einvoice((), right), right).totals is True
    validity = einvoice_validity(with_einvoice((), wrong), wrong)
    assert validity.totals is False
    assert ("1262.00", "1198.00") == (validity.differences[0].expected, validity.differences[0].printed)
