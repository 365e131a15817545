"""Tables of sums of rarer kinds: corrections by differences, surcharges, exempt sums."""

from __future__ import annotations

import pytest

from backend.invoices.money.find import Money
from tests.invoices.rows import money_of_pages


def sums_of(money: Money) -> tuple[str | None, str | None, str | None]:
    """Base, tax and total."""
    values = {field.name: field.value for field in money.fields}
    return values.get("SubTotal"), values.get("TotalTax"), values.get("InvoiceTotal")


def taxes_of(money: Money) -> list[tuple[str, ...]]:
    """The cells of the tax rows."""
    return [
        tuple(cell.value for cell in row.fields)
        for field in money.fields
        if field.name == "TaxDetails"
        for row in field.rows
    ]


@pytest.mark.parametrize(
    "heads",
    [
        pytest.param("Base Imp.        % I.V.A.     Cuota I.V.A.  % R.E.    Cuota R.E.", id="labels-of-their-own"),
        pytest.param("Base             % I.V.A.     Cuota         % R.E.    Cuota", id="one-label-twice"),
    ],
)
def test_rates_with_decimals_and_a_surcharge_below_a_cent(heads: str):
    """A row of "0,87  4,00  0,03  0,50  0,00" is a tax and its surcharge, not goods."""
    money = money_of_pages(f"""
Artículo                      Cant.    Precio     Importe
Aceite de oliva                2       100,00      200,00
Pan                            4         0,50        2,00
Chicle                         1         0,87        0,87

{heads}
200,00           21,00         42,00         5,20      10,40
2,00             10,00          0,20         1,40       0,03
0,87              4,00          0,03         0,50       0,00

TOTAL FACTURA                                   255,53 €
""")

    assert sums_of(money) == ("202.87", "52.66", "255.53")
    assert money.validity.totals is True
    assert taxes_of(money) == [
        ("IVA", "21", "200.00", "42.00"),
        ("RE", "5.2", "200.00", "10.40"),
        ("IVA", "10", "2.00", "0.20"),
        ("RE", "1.4", "2.00", "0.03"),
        ("IVA", "4", "0.87", "0.03"),
        ("RE", "0.5", "0.87", "0.00"),
    ]


def test_a_base_is_no_rate_where_headers_say_so():
    """Of "10,00  2,00  0,20" below headers the rate is 10: 2 % of 10 is as much."""
    money = money_of_pages("""
% I.V.A.      Base Imp.      Cuota I.V.A.
21,00         200,00          42,00
10,00           2,00           0,20

TOTAL FACTURA                 244,20 €
""")

    assert taxes_of(money) == [("IVA", "21", "200.00", "42.00"), ("IVA", "10", "2.00", "0.20")]


def test_a_subtotal_of_the_tax_is_the_tax():
    """Below "Subtotal (excl. VAT)" and "VAT subtotal" stand the base and the tax."""
    money = money_of_pages("""
VAT rate          Subtotal (excl. VAT)          VAT subtotal
20%                             500.00                100.00
Total                           500.00                100.00
Total incl. VAT                                      £600.00
""")

    assert sums_of(money) == ("500.00", "100.00", "600.00")
    assert taxes_of(money) == [("VAT", "20", "500.00", "100.00")]


@pytest.mark.parametrize(
    "sums",
    [
        pytest.param("Total      500 €\n{}", id="below-the-total"),
        pytest.param("Total HT   500,00 €\n{}\nNet à payer   500,00 €", id="between-sums"),
    ],
)
@pytest.mark.parametrize(
    "sentence",
    [
        pytest.param("TVA non applicable, art. 293 B du CGI", id="article"),
        pytest.param("Exonération de TVA, article 293 B du CGI", id="exemption"),
        pytest.param("Private tuition is exempt from VAT (Group 6, Schedule 9, VATA 1994).", id="schedule"),
        pytest.param("IVA exento, artículo 20 de la Ley 37", id="law"),
        pytest.param("MwSt     § 19 UStG", id="paragraph"),
    ],
)
def test_an_article_of_law_is_no_amount(sums: str, sentence: str):
    """The number of an article beside the word for a tax is not the tax, nor is the sum below such a sentence."""
    assert sums_of(money_of_pages("FACTURE\n" + sums.format(sentence)))[1] is None


@pytest.mark.parametrize("tax", ["Impuestos (exento)", "Impuesto (operación exenta)", "IVA"])
def test_the_sum_above_a_tax_of_nothing_is_the_base(tax: str):
    """Three sums of an exempt invoice are base, tax and total, however little the first label says."""
    money = money_of_pages(f"FACTURA\nImporte   200,00 €\n{tax}   0,00 €\nTotal   200,00 €")

    assert sums_of(money) == ("200.00", "0.00", "200.00")
    assert money.validity.totals is True


@pytest.mark.parametrize(("total", "valid"), [("500,00", True), ("550,00", False)])
def test_a_lone_total_is_checked_by_the_lines(total: str, valid: bool):
    """Without base and tax the lines tell whether the total is right."""
    money = money_of_pages(f"""
Concepto                 Cant.    Precio     Importe
Clase de piano             2       100,00      200,00
Clase de canto             4        75,00      300,00

Operación exenta de IVA
TOTAL                                          {total} €
""")

    assert (f"{total.replace(',', '.')}", valid) == (sums_of(money)[2], money.validity.totals)


def test_a_surcharge_may_be_left_empty():
    """A rate without a surcharge leaves the others theirs."""
    money = money_of_pages("""
FACTURA 14
Bases         % I.V.A.     I.V.A.        % R.E.    R.E.
200,00        21,00        42,00         5,20      10,40
2,00          10,00         0,20         1,40       0,03
0,87           4,00         0,03

TOTAL                                   255,53 €
""")

    assert sums_of(money) == ("202.87", "52.66", "255.53")
    assert [tax[:2] for tax in taxes_of(money)] == [
        ("IVA", "21"), ("RE", "5.2"), ("IVA", "10"), ("RE", "1.4"), ("IVA", "4"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sums", "taxes"),
    [
        pytest.param(
            """
Concepto                 Facturado      Correcto     Diferencia
Base imponible            1.000,00        900,00        -100,00
IVA 21 %                    210,00        189,00         -21,00
Total                     1.210,00      1.089,00        -121,00

Importe a devolver                                      -121,00 €
""",
            ("-100.00", "-21.00", "-121.00"),
            [("IVA", "21", "-100.00", "-21.00")],
            id="less",
        ),
        pytest.param(
            """
                        Importe facturado   Importe correcto     Diferencia
Base imponible            1.000,00 €        1.250,00 €        250,00 €
Cuota IVA (21%)             210,00 €          262,50 €         52,50 €
Total factura             1.210,00 €        1.512,50 €        302,50 €

A pagar                                      302,50 €
""",
            ("250.00", "52.50", "302.50"),
            [("IVA", "21", "250.00", "52.50")],
            id="more",
        ),
        pytest.param(
            """
                     Difference      Invoiced       Correct
Net amount              -100.00        500.00        400.00
VAT 20%                  -20.00        100.00         80.00
Total                   -120.00        600.00        480.00
""",
            ("-100.00", "-20.00", "-120.00"),
            [("VAT", "20", "-100.00", "-20.00")],
            id="difference-first",
        ),
    ],
)
def test_a_correction_invoices_the_difference(text: str, sums: tuple[str, str, str], taxes: list[tuple[str, ...]]):
    """What was billed and what would have been right are only compared."""
    money = money_of_pages(text)

    assert (sums, taxes, True) == (sums_of(money), taxes_of(money), money.validity.totals)
