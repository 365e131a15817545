"""Names, addresses and tax numbers: what counts for them, their places, and pages made to mislead or to take long."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from backend.files.visual_rows import PageRows, rows_of
from backend.invoices.parties.find import find_parties
from backend.invoices.records import Field
from tests.invoices.rows import document_of_rows, rows_of_text

GOODS = """
Descripción            Cantidad    Precio    Importe
Mesa de roble          2           150,00    300,00
Silla                  4           50,00     200,00
Total                                        500,00
"""


def found(text: str, kind: str | None = None) -> dict[str, Field]:
    return {field.name: field for field in find_parties(rows_of_text(text), kind)}


def read_by_ocr(text: str) -> tuple[PageRows, ...]:
    document = document_of_rows(text)
    return rows_of(replace(document, pages=tuple(replace(page, source="ocr") for page in document.pages)))


def test_a_receipt_names_its_merchant() -> None:
    """MerchantName is the vendor's name, on receipts only."""
    text = "BAR LA ESQUINA\nC/ Real 3\n28001 Madrid\n\nCaña      1,50\nTapa      2,50\nTotal     4,00"
    assert found(text, "receipt")["MerchantName"].value == "BAR LA ESQUINA"
    assert "MerchantName" not in found(text, "invoice")


def test_a_bank_statement_has_no_parties() -> None:
    """The holder of an account is no customer."""
    assert not found("Banco Sol, S.A.\nCalle Mayor 1\n28001 Madrid", "bank_statement")


def test_fields_say_where_they_are_printed() -> None:
    """An address has a place for each of its lines; its span begins at its first word."""
    text = "Muebles Ortega, S.L.\nC/ Industria, 45\n08025 Barcelona\nNIF B62345678\n" + GOODS
    pages = rows_of_text(text)
    address = next(field for field in find_parties(pages) if field.name == "VendorAddress")
    assert len(address.places) == 2
    assert address.start is not None
    assert pages[0].page.text[address.start :].startswith("C/ Industria")


@pytest.mark.parametrize(
    ("printed", "value", "valid"),
    [
        ("CIF: B62345673", "B62345673", True),
        ("C.I.F. B-62.345.673", "B62345673", True),
        ("NIF: B 62345673", "B62345673", True),
        ("N.I.F.: B62345678", "B62345678", False),
        ("DNI 12345678-Z", "12345678Z", True),
        ("VAT Reg. No. GB 980 7806 84", "GB980780684", True),
        ("VAT No: 980 7806 84", "980780684", True),
        ("USt-IdNr. DE136695976", "DE136695976", True),
        ("EIN 56-1234567", "561234567", None),
        ("(GST ID No :000306020352)", "000306020352", None),
        ("P.IVA 00743110157", "00743110157", True),
        ("NIPC: 501442600", "501442600", True),
        ("NIF B62345673 Tel. 93 456 78 90", "B62345673", True),
        ("btw-id NL002884173B01", "NL002884173B01", True),
        ("CHE-112.844.703", "CHE112844703", None),
        ("OHX1502118T6", "OHX1502118T6", None),
        ("RFC emisor RTE080930HN1", "RTE080930HN1", None),
    ],
)
def test_tax_numbers_are_values_without_separators(printed: str, value: str, valid: bool | None) -> None:
    """As printed, with what their check digits say."""
    field = found(f"Muebles Ortega, S.L.\nC/ Industria, 45\n08025 Barcelona\n{printed}\n" + GOODS)["VendorTaxId"]
    assert (field.value, field.valid) == (value, valid)


@pytest.mark.parametrize("line", ["IVA 21 % 1234.56 5678.90", "VAT @ 20% 12.345,00", "TVA 12/03/2026", "NIF"])
def test_amounts_and_dates_are_no_tax_numbers(line: str) -> None:
    """A label of a tax with figures behind it is a line of totals."""
    assert "VendorTaxId" not in found(f"Muebles Ortega, S.L.\nC/ Industria, 45\n08025 Barcelona\n{line}\n" + GOODS)


def test_a_misread_tax_number_keeps_its_value_and_offers_a_repair() -> None:
    """Only on pages that were read by OCR: in a text layer a wrong number is wrong."""
    text = "Muebles Ortega, S.L.\nC/ Industria, 45\n08025 Barcelona\nCIF: B6234S673\n" + GOODS
    read = {field.name: field for field in find_parties(read_by_ocr(text))}["VendorTaxId"]
    assert (read.value, read.valid, read.repair) == ("B6234S673", False, "B62345673")
    assert found(text)["VendorTaxId"].repair is None


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("MPH BOOKSTORES\nSDN BHD", "MPH BOOKSTORES SDN BHD"),
        ("Suministros Industriales y\nNavales del Sur, S.L.", "Suministros Industriales y Navales del Sur, S.L."),
        ("Suministros Alborada,\nS.L.", "Suministros Alborada, S.L."),
        ("GARDENIA BAKERIES (KL) SDN BHD (139386 X)", "GARDENIA BAKERIES (KL) SDN BHD"),
        ("KIKU JAPANESE RESTAURANT\nTK DIVISION KITCHEN SDN BHD", "TK DIVISION KITCHEN SDN BHD"),
        ("Amazon Web Services Invoice", "Amazon Web Services"),
        ("PANIAGUA SANCHEZ JOSE ANTONIO", "PANIAGUA SANCHEZ JOSE ANTONIO"),
        ("Ecosway.com Sdn Bhd", "Ecosway.com Sdn Bhd"),
        ("Mesa Valley Electric Co-op", "Mesa Valley Electric Co-op"),
    ],
)
def test_a_name_is_whole_and_nothing_more(lines: str, name: str) -> None:
    """Names broken over lines are joined; numbers of registers and titles are no part of them."""
    assert found(f"{lines}\nCalle Mayor, 3\n28013 Madrid\n" + GOODS)["VendorName"].value == name


def test_a_form_of_address_is_no_part_of_a_name() -> None:
    """ "Frau" and "D." say who is written to."""
    text = "Muebles Ortega, S.L.\nNIF B62345673\n\nCliente:\nD. Antonio López García\nC/ Sol 3\n28001 Madrid\n" + GOODS
    assert found(text)["CustomerName"].value == "Antonio López García"
    text = text.replace("D. Antonio López García", "Spett.le Sartoria Bruni, S.L.")
    assert found(text)["CustomerName"].value == "Sartoria Bruni, S.L."


def test_goods_are_not_delivered_to_the_customer_of_another_name() -> None:
    """The customer is the one who is billed, wherever the goods go."""
    text = "Acme Tools Ltd\n1 High Street\nLeeds LS1 4AB\n\nShip to             Bill to\n"
    text += "Depot 7             Oak Homes Ltd\n9 Dock Road         3 Park Lane\nHull HU1 2AA        York YO1 7HH\n"
    assert found(text + GOODS)["CustomerName"].value == "Oak Homes Ltd"


def test_invoice_no_is_not_invoice_to() -> None:
    """Labels that differ in a short word are told apart."""
    text = "Acme Tools Ltd\n1 High Street\nLeeds LS1 4AB\n\nInvoice No\nINV-1\n" + GOODS
    assert set(found(text)) == {"VendorName", "VendorAddress"}


def test_goods_recipient_is_not_the_seller() -> None:
    """SAP's forms tell two recipients and nothing of the seller at the head."""
    text = "Destinatario de la mercancía      Destinatario de la factura\nObra Hotel Marazul                "
    text += "Instalaciones Soto, S.L.\nCtra. de Cádiz km 168             C/ Herman Hesse 31\n"
    fields = found(text + "29680 Estepona                    29004 Málaga\n\n" + GOODS)
    assert (fields["CustomerName"].value, fields["CustomerAddress"].value) == (
        "Instalaciones Soto, S.L.",
        "C/ Herman Hesse 31, 29004 Málaga",
    )
    assert "VendorAddress" not in fields


def test_a_department_is_not_the_customer() -> None:
    """It stands below the company's name, or above it."""
    text = "Loomstack, Inc.\n9 Mission Road\nLeeds LS1 4AB\n\nBill to\nDept. of Operations\nBrightacre Dairy Co-op\n"
    assert found(text + "88 Feed Mill Road\nYork YO1 7HH\n" + GOODS)["CustomerName"].value == "Brightacre Dairy Co-op"


def test_the_number_of_a_customer_is_not_the_customer() -> None:
    """What follows "Kunden-Nr." is a number, or the next label; the window below the sender's line names who buys."""
    text = "Elektro Horst GmbH · Lindenweg 9 · 49525 Lengerich\nMarta Krause\nBahnhofstr. 12\n49477 Ibbenbüren\n\n"
    fields = found(text + "Kunden-Nr.      Leistungszeitraum\n20418           Mai 2026\n" + GOODS)
    assert fields["CustomerName"].value == "Marta Krause"
    assert fields["CustomerAddress"].value == "Bahnhofstr. 12, 49477 Ibbenbüren"


def test_the_window_below_a_brand_and_its_address_is_of_the_buyer() -> None:
    """A company with its tax number there is not the seller, who is told whole at the foot."""
    text = "RTN · C/ Lermandabide 18 · 01015 Vitoria-Gasteiz\nEnvasados Soto, S.L.U.\nBarrio La Quintana, s/n\n"
    text += "39311 Cartes\nNIF: B39481270\n\n"
    foot = "\nRodamientos del Norte, S.A.   R.M. de Álava, T. 812, F. 44, H. VI-3390\nC.I.F. A-01033463"
    fields = found(text + GOODS + foot)
    assert fields["CustomerName"].value == "Envasados Soto, S.L.U."
    assert fields["CustomerAddress"].value == "Barrio La Quintana, s/n, 39311 Cartes"
    assert fields["VendorTaxId"].value == "A01033463"


def test_the_address_of_the_contract_is_the_windows() -> None:
    """Where the row of the contract names the customer alone."""
    text = "ROSA CERVELLÓ TOUS\nC/ NAU 8, 3º 2ª\n43204 REUS\n\nTitular: Rosa Cervelló Tous   NIF: 39871245D\n" + GOODS
    assert found(text)["CustomerAddress"].value == "C/ NAU 8, 3º 2ª, 43204 REUS"


@pytest.mark.parametrize(
    ("lines", "name", "address"),
    [
        ("Murtagh Fuel Ltd\nDublin Road, Mullingar, Co. Westmeath N91 X2F4", "Murtagh Fuel Ltd",
         "Dublin Road, Mullingar, Co. Westmeath N91 X2F4"),
        ("Rowntree Limited\nMeadow Lane Industrial Estate\nLong Eaton NG10 2FE", "Rowntree Limited",
         "Meadow Lane Industrial Estate, Long Eaton NG10 2FE"),
        ("Desmond O'Brien & Co.\nKilmacsimon Quay\nBandon\nCo. Cork\nP72 NX80", "Desmond O'Brien & Co.",
         "Kilmacsimon Quay, Bandon, Co. Cork, P72 NX80"),
        ("Garnier & Fils\nSARL PLOMBERIE GARNIER & FILS\n14 rue Haute\n64100 BAYONNE", "SARL PLOMBERIE GARNIER & FILS",
         "14 rue Haute, 64100 BAYONNE"),
        ("Lumbrera Hogar S.L.\nCalle Espina 17\nNumancia de la Sagra, Toledo, 45230\nES", "Lumbrera Hogar S.L.",
         "Calle Espina 17, Numancia de la Sagra, Toledo, 45230, ES"),
    ],
)  # fmt: skip
def test_an_address_has_all_its_lines(lines: str, name: str, address: str) -> None:
    """A county, an estate, a town before its postcode, the code of a country."""
    fields = found(f"{lines}\nVAT GB 980 7806 84\n" + GOODS)
    assert (fields["VendorName"].value, fields["VendorAddress"].value) == (name, address)


def test_two_parties_of_one_name_are_two() -> None:
    """A firm may bill its own subsidiary: their tax numbers differ."""
    text = "Fruites Vall SL\nRambla Nova, 50\n25003 Lleida\nNIF B62345673\n\nClient\nFruites Vall SL\nRambla Vella, 5\n"
    fields = found(text + "08201 Sabadell\nNIF B08123457\n" + GOODS)
    assert fields["VendorTaxId"].value == "B62345673"
    assert fields["CustomerTaxId"].value == "B08123457"


def test_nothing_is_made_of_an_empty_document() -> None:
    """No pages and empty pages have no parties."""
    assert find_parties(()) == ()
    assert find_parties(rows_of_text("")) == ()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\n".join(f"Calle {n} · 28{n:03d} Madrid" for n in range(900)), id="addresses"),
        pytest.param("\n".join("NIF " * 12 for _ in range(700)), id="labels"),
        pytest.param("\n".join("A1 " * 14 for _ in range(700)), id="codes"),
        pytest.param("\n".join("S.A. de C.V. y Cía., " * 6 for _ in range(300)), id="legal-forms"),
        pytest.param("x" * 20_000, id="one-word"),
        pytest.param("1 " * 9_000, id="digits-on-one-line"),
        pytest.param("- " * 9_000, id="dashes-on-one-line"),
    ],
)
def test_hostile_pages_take_linear_time(text: str) -> None:
    """Ten thousand words on a page take a second, not minutes."""
    pages = rows_of_text(text)
    start = time.process_time()
    find_parties(pages)
    assert time.process_time() - start < 5.0
