"""Electronic invoices are read by local names; hostile ones are refused."""

import re

import pytest

from backend.errors import UnreadableFile
from backend.files.einvoice.read import read_einvoice
from tests.files.einvoice.samples import CII, UBL, facturae

BOMB = b"""<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><Facturae>&b;</Facturae>"""
EXTERNAL = b"""<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><Invoice><ID>&f;</ID></Invoice>"""


def test_a_cross_industry_invoice() -> None:
    """Parties with their VAT ids, dates, sums, the account, taxes and lines."""
    invoice = read_einvoice(CII)

    assert "Factur-X/ZUGFeRD (CII)" == invoice.format
    expected = {
        "VendorName": "Aceros del Norte, S.L.",
        "VendorAddress": "Gran Vía 1, 48001 Bilbao",
        "VendorTaxId": "ESA58818501",
        "CustomerName": "Panadería Núñez",
        "InvoiceId": "2026/017",
        "InvoiceDate": "2026-03-12",
        "DueDate": "2026-04-11",
        "CurrencyCode": "EUR",
        "IBAN": "ES9121000418450200051332",
        "SubTotal": "1180.00",
        "TotalTax": "118.00",
        "InvoiceTotal": "1298.00",
        "AmountDue": "1298.00",
    }
    assert expected == invoice.values
    assert ({"Type": "VAT", "Rate": "10", "Base": "1180.00", "Amount": "118.00"},) == invoice.taxes
    [line] = invoice.items
    assert ("Harina", "H-1", "40", "29.50", "10", "1180.00") == tuple(
        line[name] for name in ("Description", "ProductCode", "Quantity", "UnitPrice", "TaxRate", "Amount")
    )


def test_a_credit_note_in_ubl() -> None:
    """A root of its own, the invoice that it corrects, a date with a zone."""
    invoice = read_einvoice(UBL)

    assert ("UBL", "CN-7", "INV-3", "2026-03-12") == (
        invoice.format,
        *(invoice.values[name] for name in ("InvoiceId", "RectifiedInvoiceId", "InvoiceDate")),
    )
    assert ("Acme Ltd", "IE6388047V", "Main Street 5, D02 Dublin") == tuple(
        invoice.values[name] for name in ("VendorName", "VendorTaxId", "VendorAddress")
    )
    assert ("Bolt", "2", "5.00", "10.00") == tuple(
        invoice.items[0][name] for name in ("Description", "Quantity", "UnitPrice", "Amount")
    )


@pytest.mark.parametrize(("quantity", "amount", "lines"), [("0.00", "0.00", 0), ("2", "0.00", 1), ("0", "10.00", 1)])
def test_a_line_of_nothing_for_nothing_is_a_note(quantity: str, amount: str, lines: int) -> None:
    """Programs write headings and remarks as lines; what is given away has a quantity."""
    data = UBL.replace(b'unitCode="C62">2<', f'unitCode="C62">{quantity}<'.encode())
    data = data.replace(b"LineExtensionAmount>10.00<", f"LineExtensionAmount>{amount}<".encode())

    assert len(read_einvoice(data).items) == lines


@pytest.mark.parametrize("written", ["utf-8", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("declared", ["UTF-16", "utf-16LE", "UTF-8"])
def test_an_invoice_in_utf_16(written: str, declared: str) -> None:
    """With a mark and without, and declared by programs of .NET whatever they write."""
    text = CII.decode().replace('encoding="UTF-8"', f'encoding="{declared}"')

    assert "Panadería Núñez" == read_einvoice(text.encode(written)).values["CustomerName"]


@pytest.mark.parametrize("codec", ["windows-1252", "iso-8859-15", "euc_jp", "gb18030"])
def test_an_invoice_in_an_encoding_of_texts(codec: str) -> None:
    """As its declaration says."""
    text = CII.decode().replace('encoding="UTF-8"', f'encoding="{codec}"').replace("\u00fa\u00f1", "\u00fc")

    assert read_einvoice(text.encode(codec, "xmlcharrefreplace")).values["CustomerName"].endswith("N\u00fcez")


@pytest.mark.parametrize("codec", ["punycode", "idna", "rot13", "undefined", "unicode_escape", "hex", "zlib", "none"])
def test_no_other_codec_reads_an_invoice(codec: str) -> None:
    """Python has codecs that are no text; the file is refused by the name of its own."""
    with pytest.raises(UnreadableFile, match=f"declares the encoding '{codec}'"):
        read_einvoice(UBL.replace(b'"1.0"', f'"1.0" encoding="{codec}"'.encode()))


def test_facturae_of_a_person() -> None:
    """Names of a person, withholding, the equivalence surcharge as a tax of its own, series and number joined."""
    invoice = read_einvoice(facturae())

    values = {name: invoice.values[name] for name in ("VendorName", "VendorAddress", "CustomerName", "InvoiceId")}
    assert {
        "VendorName": "Javier Molina Bermejo",
        "VendorAddress": "Calle Mayor 1, 28001 Madrid",
        "CustomerName": "Ayuntamiento de Ávila",
        "InvoiceId": "A-0017",
    } == values
    assert ("15.00", "150.00", "52.00") == tuple(
        invoice.values[name] for name in ("WithholdingRate", "WithholdingAmount", "EquivalenceSurcharge")
    )
    assert ["IVA", "RE"] == [tax["Type"] for tax in invoice.taxes]
    assert "Asesoría" == invoice.items[0]["Description"]


def test_the_first_of_several_invoices() -> None:
    """A file of several is read as its first, which says how many others there are."""
    assert 2 == read_einvoice(facturae(invoices=3)).others


@pytest.mark.parametrize(
    ("data", "told"),
    [
        pytest.param(BOMB, "entities", id="bomb"),
        pytest.param(EXTERNAL, "entities", id="external-entity"),
        pytest.param(b"<Invoice><ID>1</ID>", "not well-formed", id="cut-off"),
        pytest.param(b"<Facturae" + b"><a" * 5000 + b">" + b"</a>" * 5000 + b"</Facturae>", "nested", id="deep"),
        pytest.param(b"<html><body/></html>", "<html>, which is no invoice", id="other-xml"),
        pytest.param(b"<Invoice/>", "without a number and a total", id="empty-invoice"),
    ],
)
def test_what_is_refused(data: bytes, told: str) -> None:
    """The reason is said; nothing is resolved, expanded or guessed."""
    with pytest.raises(UnreadableFile, match=told):
        read_einvoice(data)


@pytest.mark.parametrize("written", [b"1e999999999", b"1E5", b"NaN", b"Infinity", b"1_0", "\u0661".encode(), b"9" * 16])
def test_numbers_that_xml_does_not_have(written: bytes) -> None:
    """Only plain decimals are amounts: an exponent of nine digits would be written out with a gigabyte of zeros."""
    invoice = read_einvoice(CII.replace(b"1298.00", written))

    assert "InvoiceTotal" not in invoice.values


def test_values_are_printable_and_bounded() -> None:
    """Whatever a text holds, the value is one line of characters that every format can write, and no page."""
    hostile = "<ram:Name>A\u0085\u0086B\n" + "x" * 1_000_000 + "</ram:Name>"
    invoice = read_einvoice(re.sub(rb"<ram:Name>[^<]*</ram:Name>", hostile.encode(), CII))

    assert invoice.values["VendorName"].startswith("A B x")
    assert len(invoice.values["VendorName"]) <= 2000
