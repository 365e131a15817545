"""What the network adds to the rules, and what it must not overrule."""

from __future__ import annotations

import pytest

from backend.files.text_files import document_of_text
from backend.files.visual_rows import rows_of
from backend.invoices import extract
from backend.invoices.extract import extract_fields
from backend.invoices.learned.arbiter import WHY, arbitrated, seated_by_withholding
from backend.invoices.learned.read import Guess
from backend.invoices.records import Field

SERIES = """Lumen & Partners
14 Harbour Road, Leeds LS1 4AB

For: Quarry Lane Bakery
9 Mill Street, York YO1 7AA

Ref FS K/839        Issued 12 March 2026

Consulting, March            1,000.00
VAT 20 %                       200.00
Total                        1,200.00
"""
SPACED = """FACTURA
Talleres Ibarra
C/ Mayor 3, 28001 Madrid
NIF B29338878
Emitida para Bodegas Roncal
N.º 2019 P 8371      Fecha 12/03/2026
Revisión   1.000,00
Base 1.000,00
IVA 21 % 210,00
A pagar 1.210,00
"""
NARROW = """Supplier                       Customer                       Invoice number SB-ES-2026-
Jon Ander Goikoetxea           Brightsea Parcels Ltd          00482
Calle Bidebarrieta 14          Unit 6, Grand Canal Docks      Tax point 28 Feb 2026
48005 Bilbao                   Dublin 2, Ireland              Statement week 09

Service                                 Units      Rate          Net
Completed drops                           212      2.15       455.80
Net total                                                     455.80
VAT                                                             0.00
Invoice total                                                 455.80
"""
ORDER = """Norwind Tools Ltd
12 Mill Lane, Leeds LS1 4AB

ORDER CONFIRMATION RC-2703

Invoice to: Quarry Bakery Ltd     Invoice date: 22/09/2026
9 Station Road, York YO1 7AA      Delivery by 30/09/2026

Item               Quantity   Price    Amount
Wireless mouse     3          10.00    30.00
Garden chair       2          50.00    100.00

Net       130.00
VAT 20 %   26.00
Total     156.00
"""
TILL = """FRUTAS PEPE
2 MANZANAS   2,40
1 PERA   1,10
SUMA   3,50
TARJETA   3,50
"""
SENTENCES = """Limpiezas Orilla Clara, S.L.                       Cliente
C/ Libertad, 30, 33206 Gijón                       Academia Faro, S.L.
B33409186                                          Muelle, 4, 33212 Gijón

Factura 25/00061, de 31 de enero de 2025

Servicio de limpieza de oficinas, enero 2025

Cristales de la fachada (trimestral)

La base imponible es de 606,00 euros, a la que corresponde un IVA (21 %) de 127,26 euros, resultando un
total de 733,26 euros, que se cargará el día 10/02/2025 en su cuenta.
"""


TOTALS_ABOVE = """Factura F26/118
Talleres Ibarra, S.L.
C/ Mayor 3, 28001 Madrid
NIF B29338878

Cliente: Bodegas Roncal, S.A.
Fecha 12/03/2026

Base      IVA      Cuota     Total factura
430,00    21 %     90,30     520,30

Cant.   Descripción               Importe
2       Silla de roble            180,00
1       Mesa plegable             250,00

Gracias por su confianza
"""
SUBTOTAL_BETWEEN = """Factura F26/118
Talleres Ibarra, S.L.
C/ Mayor 3, 28001 Madrid
NIF B29338878

Cliente: Bodegas Roncal, S.A.
Fecha 12/03/2026

A12  Silla de roble   2   90,00   180,00
B07  Mesa plegable    1   250,00  250,00

Total bruto   430,00
C03  Portes  1  30,00  30,00

Base 460,00
IVA 21 %  96,60
Total factura 556,60
"""


@pytest.mark.parametrize(
    ("text", "amounts", "by_rules"),
    [
        pytest.param(TOTALS_ABOVE, ["180.00", "250.00"], [], id="totals-above-the-lines"),
        pytest.param(
            SUBTOTAL_BETWEEN, ["180.00", "250.00", "30.00"], ["180.00", "250.00"], id="a-subtotal-between-lines"
        ),
    ],
)
def test_lines_whose_sum_is_printed(
    text: str, amounts: list[str], by_rules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that rules lose or cut short are the network's: their sum stands on the page."""

    def read() -> list[str]:
        fields = {field.name: field for field in extract_fields(document_of_text(text)).fields}
        rows = fields["Items"].rows if "Items" in fields else ()
        return [cell.value for row in rows for cell in row.fields if cell.name == "Amount"]

    assert amounts == read()
    monkeypatch.setattr(extract, "bundled_network", lambda: None)
    assert by_rules == read()


RATE_LEFT_OUT = """Rechnung Nr. 2026-118
Bäckerei Nied GmbH
Ringstr. 135, 40570 Düsseldorf
USt-ID DE353100531

An: Technik Söhne KG
Datum 12.03.2026

Brot und Kuchen          1.778,37
Kaffeemaschine             638,82

Zwischensumme   2.417,19 €
MwSt.             121,38 €
UST 7 %           124,49 €
Zu zahlen:      2.663,06 €
"""


def test_rows_of_taxes_that_make_the_base() -> None:
    """A rate that is not printed follows from what the other rows leave of the base."""
    fields = {field.name: field for field in extract_fields(document_of_text(RATE_LEFT_OUT)).fields}

    rows = [{cell.name: cell.value for cell in row.fields} for row in fields["TaxDetails"].rows]
    assert [("19", "121.38"), ("7", "124.49")] == [(row["Rate"], row["Amount"]) for row in rows]
    assert "base x rate = amount" == fields["TaxDetails"].rows[0].fields[1].why


@pytest.mark.parametrize(
    ("text", "kind", "without"), [(SENTENCES, "invoice", "invoice"), (TILL, "receipt", None), (ORDER, None, "invoice")]
)
def test_a_page_that_looks_like_a_kind(
    text: str, kind: str | None, without: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receipt with few labels is one, and an order with the labels of an invoice is none."""
    document = document_of_text(text)

    assert kind == extract_fields(document).kind
    monkeypatch.setattr(extract, "bundled_network", lambda: None)
    assert without == extract_fields(document).kind


@pytest.mark.parametrize(("text", "number"), [(SERIES, "FS K/839"), (SPACED, "2019 P 8371")])
def test_a_number_that_rules_cut_or_miss_is_read_whole(text: str, number: str) -> None:
    """A series apart from its number, and one in groups, are read by the network."""
    fields = {field.name: field for field in extract_fields(document_of_text(text)).fields}

    assert number == fields["InvoiceId"].value
    assert fields["InvoiceId"].why == WHY
    assert text[fields["InvoiceId"].start : fields["InvoiceId"].end] == number


def test_a_number_goes_on_below_a_dash() -> None:
    """In a narrow column it is broken as words are."""
    fields = {field.name: field for field in extract_fields(document_of_text(NARROW)).fields}

    assert "SB-ES-2026-00482" == fields["InvoiceId"].value
    assert 2 == len(fields["InvoiceId"].places)


def test_rules_read_alone_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the network cannot be loaded, fields are still read, and the answer says which are not."""
    with_network = extract_fields(document_of_text(ORDER))
    monkeypatch.setattr(extract, "bundled_network", lambda: None)

    extracted = extract_fields(document_of_text(ORDER))

    fields = {field.name: field.value for field in extracted.fields}
    assert "InvoiceId" not in fields
    assert "InvoiceId, PurchaseOrder and RectifiedInvoiceId were not looked for" in extracted.why
    assert "not looked for" not in with_network.why
    assert {"InvoiceDate": "2026-09-22", "InvoiceTotal": "156.00"}.items() <= fields.items()


def _guess(name: str, value: str, score: float, *, valid: bool | None = None) -> Guess:
    page = rows_of(document_of_text("some words of a page"))[0]
    return Guess(name, value, score, page.page.words[:1], page, valid)


@pytest.mark.parametrize(
    ("name", "score", "valid", "fills"),
    [
        pytest.param("CustomerAddress", 0.8, None, True, id="an-address"),
        pytest.param("CustomerAddress", 0.7, None, False, id="an-unlikely-address"),
        pytest.param("RectifiedInvoiceId", 0.8, None, True, id="another-number"),
        pytest.param("VendorTaxId", 0.8, True, True, id="a-valid-tax-number"),
        pytest.param("VendorTaxId", 0.8, False, False, id="a-wrong-tax-number"),
    ],
)
def test_what_rules_found_nowhere(name: str, score: float, *, valid: bool | None, fills: bool) -> None:
    """A likely value is better than none; over one of the rules it must be sure."""
    assert fills == (name in arbitrated({}, {name: [_guess(name, "B1", score, valid=valid)]}, "invoice"))


@pytest.mark.parametrize(
    ("rule", "guess", "kind", "expected"),
    [
        pytest.param(("VendorName", "Acme", 0.7, None), ("Apex", 0.97, None), "invoice", "Apex", id="sure"),
        pytest.param(("VendorName", "Acme", 0.7, None), ("Apex", 0.9, None), "invoice", "Acme", id="not-sure"),
        pytest.param(("VendorName", "Acme", 0.99, None), ("Apex", 0.97, None), "invoice", "Acme", id="rules-are-sure"),
        pytest.param(("VendorName", "Acme", 0.7, None), ("Apex", 0.97, None), "receipt", "Acme", id="receipt"),
        pytest.param(("VendorTaxId", "B1", 0.7, True), ("B2", 0.97, False), "invoice", "B1", id="valid-by-rules"),
        pytest.param(("VendorTaxId", "B1", 0.98, False), ("B2", 0.97, True), "invoice", "B2", id="valid-by-network"),
        pytest.param(("VendorAddress", "C/ Mayor 3, Madrid", 0.9, None), ("C/ Mayor 3", 0.97, None), "invoice",
                     "C/ Mayor 3, Madrid", id="part-of-an-address"),
        pytest.param(("IBAN", "ES1", 0.6, False), ("ES2", 0.97, False), "invoice", "ES1", id="another-wrong-account"),
        pytest.param(None, ("2026-08-01", 0.97, True), "invoice", "2026-08-01", id="fills-a-due-date"),
        pytest.param(("InvoiceId", "839", 0.9, None), ("K/839", 0.92, None), "invoice", "K/839", id="a-number"),
        pytest.param(("VendorName", "Acme S.L.", 0.85, None), ("Acme Billing", 0.98, None), "invoice", "Acme S.L.",
                     id="no-name-without-a-legal-form-over-one-with-it"),
        pytest.param(("VendorName", "Wan Hardware Ltd", 0.85, None), ("Hardware Ltd", 0.98, None), "invoice",
                     "Wan Hardware Ltd", id="part-of-a-name"),
        pytest.param(("VendorName", "Farmácia, Lda", 0.85, None), ("Moreira - Farmácia, Lda", 0.85, None), "invoice",
                     "Moreira - Farmácia, Lda", id="the-whole-of-a-name"),
    ],
)  # fmt: skip
def test_who_wins(
    rule: tuple[str, str, float, bool | None] | None,
    guess: tuple[str, float, bool | None],
    kind: str,
    expected: str | None,
) -> None:
    """A sure network overrules unsure rules, never a valid id, a whole address or what stands on a receipt."""
    name = rule[0] if rule else "DueDate"
    rules = {name: Field(name, rule[1], rule[1], rule[2], "text", "a rule", valid=rule[3])} if rule else {}
    value, score, valid = guess

    fields = arbitrated(rules, {name: [_guess(name, value, score, valid=valid)]}, kind)

    assert expected == (fields[name].value if name in fields else None)


@pytest.mark.parametrize(
    ("due", "kind", "expected"),
    [("2026-07-31", "invoice", None), ("2026-08-01", "invoice", "2026-08-01"), ("2026-08-01", "receipt", None)],
)
def test_nothing_is_due_before_it_is_billed(due: str, kind: str, expected: str | None) -> None:
    """A sure date before the invoice's is another one: of a stay, of a repair; a receipt's is when it was paid."""
    rules = {"InvoiceDate": Field("InvoiceDate", "2026-08-01", "", 0.9, "text", "behind its label")}

    fields = arbitrated(rules, {"DueDate": [_guess("DueDate", due, 0.97, valid=True)]}, kind)

    assert expected == (fields["DueDate"].value if "DueDate" in fields else None)


@pytest.mark.parametrize(
    ("value", "kind", "is_read"),
    [("FT 2024A/1883", "invoice", True), ("FT 2024A/1883", "receipt", False), ("987-654-3210", "invoice", False)],
)
def test_an_invoice_has_a_number(value: str, kind: str, is_read: bool) -> None:
    """Where rules found none, a likely one is better than none; receipts often have none, and telephones are none."""
    fields = arbitrated({}, {"InvoiceId": [_guess("InvoiceId", value, 0.8)]}, kind)

    assert is_read is ("InvoiceId" in fields)


def test_of_two_sure_numbers_the_valid_one() -> None:
    """The number of a local tax office stands beside the one for VAT."""
    rules = {"VendorTaxId": Field("VendorTaxId", "ESA47008313", "", 0.8, "text", "the customer's", valid=True)}
    options = [_guess("VendorTaxId", "31157041182", 0.981), _guess("VendorTaxId", "DE811744029", 0.978, valid=True)]

    assert "DE811744029" == arbitrated(rules, {"VendorTaxId": options}, "invoice")["VendorTaxId"].value


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"VendorTaxId": ("B46153755", 0.96)}, {"VendorTaxId": "B46153755", "CustomerTaxId": "B29338878"}),
        ({"VendorTaxId": ("B46153755", 0.6)}, {"CustomerTaxId": "B29338878"}),
        ({}, {"CustomerTaxId": "B29338878"}),
    ],
    ids=["another-is-read", "another-is-unsure", "none"],
)
def test_nobody_bills_himself(options: dict[str, tuple[str, float]], expected: dict[str, str]) -> None:
    """One number for both parties is one party's: the other has what the network reads, or none."""
    rules = {
        "VendorTaxId": Field("VendorTaxId", "B-29338878", "", 0.95, "text", "in a block of the vendor", valid=True),
        "CustomerTaxId": Field("CustomerTaxId", "B29338878", "", 0.99, "text", "behind its label", valid=True),
    }
    learned = {name: [_guess(name, value, score)] for name, (value, score) in options.items()}

    assert expected == {name: field.value for name, field in arbitrated(rules, learned, "invoice").items()}


def test_a_network_in_two_minds() -> None:
    """Of several names that it is sure of it does not tell the seller's: the rules do."""
    rules = {"VendorName": Field("VendorName", "Norte Energía, S.A.", "", 0.85, "text", "at the foot")}
    options = [_guess("VendorName", "Redes del Sur, S.L.", 0.972), _guess("VendorName", "Norte Energía, S.A.", 0.967)]

    assert arbitrated(rules, {"VendorName": options}, "invoice")["VendorName"].value == "Norte Energía, S.A."
    assert arbitrated(rules, {"VendorName": options[:1]}, "invoice")["VendorName"].value == "Redes del Sur, S.L."


@pytest.mark.parametrize("score", [0.81, 0.99])
def test_a_credit_note_is_younger_than_its_invoice(score: float) -> None:
    """Of two dates of which the network is sure the later one is the document's, whatever labels say."""
    rules = {"InvoiceDate": Field("InvoiceDate", "2026-06-22", "", score, "text", "beside its label")}
    options = [_guess("InvoiceDate", day, 0.96, valid=True) for day in ("2026-06-22", "2026-07-10")]

    assert arbitrated(rules, {"InvoiceDate": options}, "credit_note")["InvoiceDate"].value == "2026-07-10"


def test_a_name_in_a_logo_and_whole_is_told_once() -> None:
    text = SERIES.replace("Lumen & Partners", "Lumen Partners\nLumen & Partners Ltd", 1)
    fields = {field.name: field.value for field in extract_fields(document_of_text(text)).fields}

    assert fields["VendorName"] == "Lumen & Partners Ltd"


def test_agreement_is_sure() -> None:
    """A value that both read alike keeps the rules' reason, and is as sure as such values are."""
    rules = {"VendorName": Field("VendorName", "Acme", "Acme", 0.7, "text", "the most prominent name")}

    field = arbitrated(rules, {"VendorName": [_guess("VendorName", "Acme", 0.6)]}, "invoice")["VendorName"]

    assert (field.score, field.why) == (0.99, "the most prominent name")


def test_a_label_tells_seller_from_buyer() -> None:
    """Where the network takes the buyer for the seller, and a label says who is who, nothing of either is overruled."""
    rules = {
        "VendorName": Field("VendorName", "Nordwerk GmbH", "", 0.95, "text", "beside the label of the seller"),
        "CustomerName": Field("CustomerName", "Clínica Sanz SLP", "", 0.7, "text", "below the vendor"),
        "VendorTaxId": Field("VendorTaxId", "B46153755", "", 0.9, "text", "in the block of the vendor"),
    }
    learned = {
        "VendorName": [_guess("VendorName", "Clínica Sanz SLP", 0.98)],
        "VendorTaxId": [_guess("VendorTaxId", "B29338878", 0.98)],
    }

    fields = arbitrated(rules, learned, "invoice")

    assert {name: field.value for name, field in rules.items()} == {name: field.value for name, field in fields.items()}


@pytest.mark.parametrize(
    ("rules", "learned", "seats"),
    [
        pytest.param("SB", "BS", "BS", id="the-other-way-round"),
        pytest.param("SB", "B?", "SB", id="one-alone"),
        pytest.param("S-", "B-", "BS", id="another-sells"),
        pytest.param("S-", "S-", "S-", id="as-the-rules"),
    ],
)
def test_who_sells_where_no_label_tells(rules: str, learned: str, seats: str) -> None:
    """Parties change places as a whole: each has its name and its number, of the seller and of the buyer."""
    names = {"S": ("Nordwerk GmbH", "B46153755"), "B": ("Clínica Sanz SLP", "B29338878"), "?": ("Sanz", "B1")}

    def values(who: str) -> dict[str, str]:
        seated = zip(("Vendor", "Customer"), who, strict=True)
        parts = ("Name", "TaxId")
        return {f"{role}{part}": names[one][i] for role, one in seated if one != "-" for i, part in enumerate(parts)}

    printed = {name: Field(name, value, "", 0.85, "text", "a rule") for name, value in values(rules).items()}
    sure = 0.97 if "-" in rules else 0.85
    read = {name: [_guess(name, value, sure)] for name, value in values(learned).items()}

    fields = arbitrated(printed, read, "invoice")

    assert values(seats) == {name: field.value for name, field in fields.items()}


@pytest.mark.parametrize(
    ("rate", "numbers", "moves"),
    [
        pytest.param("15", ("B85331700", "33287415K"), True, id="a-person-sells"),
        pytest.param("19", ("B85331700", "33287415K"), False, id="a-company-lets-an-office"),
        pytest.param("15", ("33287415K", "B85331700"), False, id="as-read"),
        pytest.param("15", ("B85331700", "B29338878"), False, id="two-companies"),
    ],
)
def test_persons_withhold_no_income_tax_from_companies(rate: str, numbers: tuple[str, str], *, moves: bool) -> None:
    """Of an illustrator and her publisher, whose name stood above hers, the publisher was read as the seller."""
    values = {"VendorName": "A", "CustomerName": "B", "VendorTaxId": numbers[0], "CustomerTaxId": numbers[1]}
    read = {name: Field(name, value, "", 0.9, "text", "") for name, value in values.items()}
    withheld = Field("WithholdingRate", rate, "", 0.9, "text", "")

    fields = seated_by_withholding({**read, "WithholdingRate": withheld})

    seller, buyer = ("B", "A") if moves else ("A", "B")
    assert (seller, buyer, *(numbers[::-1] if moves else numbers), rate) == tuple(
        fields[name].value for name in (*values, "WithholdingRate")
    )
    assert all(name == field.name for name, field in fields.items())


@pytest.mark.parametrize(
    ("printed", "value"),
    [("VATESB12345674", "ESB12345674"), ("NIFB12345674", "B12345674"), ("BTWNL123456789B01", "NL123456789B01")],
)
def test_a_tax_id_that_its_label_is_glued_to(printed: str, value: str) -> None:
    """Papers and OCR leave out the blank: the label is no part of the number."""
    text = SERIES.replace("\n\nFor", f"\n{printed}\n\nFor", 1)
    fields = {field.name: field.value for field in extract_fields(document_of_text(text)).fields}

    assert value == fields["VendorTaxId"]
