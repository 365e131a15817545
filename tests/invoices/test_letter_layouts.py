"""Ids, dates and amounts where they are told in sentences, boxes and ruled grids instead of a form's lines."""

from __future__ import annotations

import pytest

from backend.files.pages import Document
from backend.invoices.extract import extract_fields
from tests.invoices.rows import document_of_rows, page_of_rows


def values(text: str, *, source: str = "text_layer") -> dict[str, str]:
    """The values of a page of text, by name; those of lines are their amounts."""
    document = document_of_rows(text)
    if source == "ocr":
        document = Document("png", (page_of_rows(text, source=source),), 1, "0" * 64)
    found = {field.name: field for field in extract_fields(document).fields}
    values = {name: field.value for name, field in found.items()}
    if "Items" in found:
        cells = [cell for row in found["Items"].rows for cell in row.fields]
        values["Items"] = " ".join(cell.value for cell in cells if cell.name == "Amount")
    return values


def test_letter_tells_number_day_and_deadline_in_sentences():
    """The number stands in mid-sentence, the amounts in another; lines are texts with an amount behind a colon."""
    found = values("""
        Greenhollow Carpentry, 14 Mill Lane, Leeds LS1 4AB

                                                Our ref: 4417
                                                21 January 2026
        Dear Mrs Hartley,

        Thank you for choosing us. Here is invoice 30518 for the work we finished last week.

        Oak shelf, made to measure: £320.00
        Fitting, half a day: £140.00

        Net £460.00, VAT at 20% £92.00, total £552.00.

        Please settle it by 20th February 2026 by bank transfer.
    """)
    assert (found["InvoiceId"], found["InvoiceDate"], found["DueDate"]) == ("30518", "2026-01-21", "2026-02-20")
    assert (found["SubTotal"], found["TotalTax"], found["InvoiceTotal"]) == ("460.00", "92.00", "552.00")
    assert found["Items"] == "320.00 140.00"


def test_lines_without_a_column_of_amounts():
    """A delivery is one of the lines where their sum says so, wherever its amount ends."""
    found = values("""
        Invoice
        This is invoice 77123, issued on 6 March 2026 and payable by 5 April 2026.
        Hardwood door: €480.00
        Delivery: €35.00
        Total excl. VAT €515.00
        VAT 13.5% €69.53
        Total incl. VAT €584.53
    """)
    assert found["Items"] == "480.00 35.00"


def test_spanish_letter_asks_for_payment():
    """ "Abone esta cantidad antes del" is a deadline; the day of the letter is the invoice's."""
    found = values("""
        Talleres Lumbreras, S.L.
                                           Madrid, 4 de febrero de 2026
        Estimada señora Rueda:

        Le adjuntamos la factura 2217 correspondiente a los trabajos realizados en su domicilio:

        Reparación de persiana: 85,00 €
        Desplazamiento: 25,00 €

        Suma 110,00 €
        IVA 21 % 23,10 €
        Importe total 133,10 €

        Le rogamos que abone esta cantidad antes del 6 de marzo de 2026.
    """)
    assert (found["InvoiceDate"], found["DueDate"]) == ("2026-02-04", "2026-03-06")


@pytest.mark.parametrize(
    "label",
    [
        "Pay before", "Pay bef.", "Latest payment", "Payment requested no later than", "Abonar antes del", "F. vcto.",
        "Zahlbar bis", "Zahlung spätestens am", "À régler au plus tard le", "Da pagare entro il", "Pagar abans del",
        "A pagar até",
    ],
)  # fmt: skip
def test_deadline_above_or_beside_its_day(label):
    """The label of the last day to pay, in a box over it or to its left."""
    below = f"Invoice no.   Date          {label}\n88213         09.03.2026    08.04.2026\n\nTotal   564.00 GBP"
    beside = f"Invoice no. 88213     Date 09.03.2026\n{label}   08.04.2026\n\nTotal   564.00 GBP"
    assert values(below)["DueDate"] == values(beside)["DueDate"] == "2026-04-08"


def test_deadline_in_the_line_below_its_sentence():
    """ "Payment requested on or before" goes on in the next line."""
    found = values("""
        TAX INVOICE  No 71144
        Issued 4th March 2026
        Payment requested on or before
        3rd April 2026

        Guttering repairs      £210.00
        Balance payable        £210.00
    """)
    assert found["DueDate"] == "2026-04-03"


def test_ruled_grid_with_the_rules_read_as_characters():
    """A rule beside a label is no value of it."""
    found = values(
        """
        |Invoice No|  30881  | Date |  11/02/2026 |
        |Pay before|  13/03/2026 | Order |  7715 |

        Service call        75.00
        Parts               25.00
        Subtotal           100.00
        VAT 20%             20.00
        Total              120.00 GBP
        """,
        source="ocr",
    )
    assert found["InvoiceId"] == "30881"
    assert (found["InvoiceDate"], found["DueDate"], found["PurchaseOrder"]) == ("2026-02-11", "2026-03-13", "7715")


@pytest.mark.parametrize("header", ["", "Description            Qty   Price     Amount\n"])
def test_row_of_ids_and_dates_is_no_header_of_the_lines_below(header):
    """Ids and dates right above the lines are found, and are no part of the lines."""
    found = values(
        "Invoice no. 40115      Date: 03/02/2026      Latest payment   05/03/2026\n"
        + header
        + "Window cleaning          12      8.00      96.00\n"
        "Gutter cleaning           1    104.00     104.00\n"
        "Sub-total       1\n"
        "VAT             40.00\n"
        "Total           £240.00\n"
    )
    assert (found["InvoiceId"], found["InvoiceDate"], found["DueDate"]) == ("40115", "2026-02-03", "2026-03-05")
    assert "SubTotal" not in found or found["SubTotal"] == "200.00"  # not the 1 of a broken line


def test_sort_code_is_no_date():
    """20-11-43 is a bank's branch in the United Kingdom."""
    found = values("""
        Invoice no. 40115
        Pay to sort code 20-11-43, account 11223344
        Total           £240.00
    """)
    assert "InvoiceDate" not in found


def test_month_with_a_misread_letter():
    """ "Januarv" on a scan is January; a text layer has no slips of OCR."""
    text = "Invoice no. 40115     Date: 14 Januarv 2026\n\nTotal           £240.00"
    assert values(text, source="ocr")["InvoiceDate"] == "2026-01-14"
    assert "InvoiceDate" not in values(text)


@pytest.mark.parametrize("word", ["Cad. distribución", "CAD. 12/2027", "Cad 10 m"])
def test_abbreviation_is_no_currency(word):
    """A chain or an expiry is not the Canadian dollar."""
    found = values(f"""
        Taller Ibáñez  NIF 12345678Z
        Factura nº 781     Fecha: 02/03/2026

        {word}                118,00
        Mano de obra             82,00
        Base imponible          200,00
        IVA 21%                  42,00
        Total                   242,00
    """)
    assert found["CurrencyCode"] == "EUR"


@pytest.mark.parametrize("total", ["Total CAD 242.00", "Total 242.00 CAD", "Total 242.00\nCurrency: CAD"])
def test_code_beside_an_amount_is_a_currency(total):
    """In capitals at an amount, or named as one."""
    assert values(f"Invoice no. 781     Date: 02/03/2026\n\nChain     242.00\n{total}")["CurrencyCode"] == "CAD"


def test_base_is_what_the_tax_is_on():
    """The base has a label of its own; the sum after withholding and disbursements is what is due."""
    found = values("""
        Factura: 57/2026       Emitida: 03/03/2026       Abonar antes de: 02/04/2026

        Derechos arancel                    310,00 €
        IVA (21%)                            65,10 €
        IRPF (-15%)                         -46,50 €
        Suma                                328,60 €
        Suplidos y tasas                     22,00 €
        A percibir                          350,60 €
        Provisión de fondos                -100,00 €
        Saldo a su cargo                    250,60 €
    """)
    assert (found["SubTotal"], found["TotalTax"], found["AmountDue"]) == ("310.00", "65.10", "250.60")


def test_amounts_before_vat_and_altogether():
    """Plain words beside the sums."""
    found = values("""
        Bill number  61187      Bill date  28 February 2026

        1,000 flyers          £90.00
        Design time           £60.00

        Before VAT           £150.00
        VAT                   £30.00
        Altogether           £180.00
    """)
    assert (found["SubTotal"], found["TotalTax"], found["InvoiceTotal"]) == ("150.00", "30.00", "180.00")


def test_nothing_that_is_printed_is_zero_due():
    """ "€205.26 due" and "Pay online" say what to pay; the 0.00 of a reverse charge is no rest of it."""
    found = values("""
        Invoice
        Invoice number           9C41F7A2-0013
        Date of issue            March 8, 2026

        Papertrail Labs B.V.                                       Bill to
        Keizersgracht 391-B                                        Ordesa Consulting SL
        NL VAT NL852130946B01                                      ES VAT ESB22419030

        €205.26 due March 8, 2026
        Pay online

        Description                                  Qty      Unit price    Amount
        Team plan - 14 seats                          14    €11.00      €154.00
        Remaining time on Team plan - 14 seats after 24 Feb 2026          €12.86
        OCR pages add-on, 3,200 pages                3200     €0.012      €38.40

                                                  Subtotal             €205.26
                                                  Total excluding tax  €205.26
                                                  VAT - Spain (0% on €205.26) [1]   €0.00
                                                  Total                €205.26
                                                  Amount due           €205.26

        [1] Tax to be paid on reverse charge basis

        9C41F7A2-0013 · €205.26 due March 8, 2026    Page 1 of 1
    """)
    assert found["AmountDue"] == "205.26"


def test_retention_as_a_guarantee_is_no_tax():
    """A builder's client keeps a part of the total back: it is due later, and nothing was withheld."""
    text = "FACTURA 26-C-019\nConstrucciones Soto, S.L.\nNIF B62345673\nFecha: 31-08-2026\n\n"
    text += "Concepto                      Importe\nEstructura de hormigón        35.840,00\n\n"
    text += "Base imponible                35.840,00\nIVA 10 %                       3.584,00\n"
    text += "TOTAL FACTURA                 39.424,00\nRetención en garantía 5 %     -1.792,00\n"
    found = values(text + "LÍQUIDO A ABONAR              37.632,00\n")
    assert (found["InvoiceTotal"], found["AmountDue"]) == ("39424.00", "37632.00")
    assert "WithholdingAmount" not in found
