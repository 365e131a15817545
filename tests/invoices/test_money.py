"""Amounts are found wherever they are printed, and arithmetic settles which is which."""

from __future__ import annotations

from decimal import Decimal

import pytest

from backend.files.visual_rows import rows_of
from backend.invoices.extract import extract_fields
from backend.invoices.money.find import Money, find_money, printed_money
from backend.tables.numbers import decimal_mark_of, numbers_in
from tests.invoices.rows import document_of_rows, money_of_pages, rows_of_text


def money_of(*texts: str) -> Money:
    """The amounts of pages of text."""
    document = document_of_rows(*texts)
    return find_money(printed_money(rows_of(document), decimal_mark_of(document), None))


def values_of(money: Money) -> dict[str, str]:
    """The values by name, amounts as plain numbers."""
    return {field.name: field.value for field in money.fields if not field.rows}


def tax_rows_of(money: Money) -> list[tuple[str, str | None, str]]:
    """Rate, base and amount of the tax rows."""
    rows = [row for field in money.fields if field.name == "TaxDetails" for row in field.rows]
    cells = [{cell.name: cell.value for cell in row.fields} for row in rows]
    return [(cell["Rate"], cell.get("Base"), cell["Amount"]) for cell in cells]


@pytest.mark.parametrize(
    ("text", "expected", "taxes", "valid"),
    [
        pytest.param(
            """
Honorarios                        1.000,00 €
IVA 21 %                            210,00 €
Retención IRPF 15 %                -150,00 €
Total honorarios                  1.060,00 €
Suplidos                             45,00 €
TOTAL A PAGAR                     1.105,00 €
""",
            {"SubTotal": "1000.00", "TotalTax": "210.00", "WithholdingAmount": "150.00", "AmountDue": "1105.00"},
            [("21", "1000.00", "210.00")], True, id="disbursements-after-withholding",
        ),
        pytest.param(
            """
Base imponible                    1.000,00 €
IVA 21 % (1.000,00)                 210,00 €
Total factura                     1.210,00 €
IRPF 15 % (1.000,00)               -150,00 €
Líquido                           1.060,00 €
Suplidos no sujetos                  45,00 €
Líquido a percibir                1.105,00 €
""",
            {
                "SubTotal": "1000.00", "TotalTax": "210.00", "InvoiceTotal": "1210.00", "WithholdingAmount": "150.00",
                "AmountDue": "1105.00",
            },
            [("21", "1000.00", "210.00")], True, id="three-figures-to-be-paid",
        ),
        pytest.param(
            """
Total honorarios                  1.000,00 €
Suplidos                             45,00 €
IVA 21 %                            210,00 €
Total minuta                      1.255,00 €
A deducir: IRPF 15 %                150,00 €
Provisión de fondos                -300,00 €
Saldo a su cargo                    805,00 €
""",
            {
                "SubTotal": "1000.00", "TotalTax": "210.00", "InvoiceTotal": "1255.00", "WithholdingAmount": "150.00",
                "AmountDue": "805.00",
            },
            [("21", "1000.00", "210.00")], True, id="advance-and-withholding-taken-off",
        ),
        pytest.param(
            """
Subtotal                1.000,00
Base imponible          1.000,00
IVA 21 %                  210,00
Importe total           1.310,00 €
""",
            {"SubTotal": "1000.00", "TotalTax": "210.00", "InvoiceTotal": "1310.00"},
            [("21", "1000.00", "210.00")], False, id="wrong-total-beside-a-subtotal",
        ),
        pytest.param(
            """
Total HT                1.000,00 €
TVA 20 %                  200,00 €
Total TTC               1.280,00 €
Net à payer             1.280,00 €
""",
            {"SubTotal": "1000.00", "TotalTax": "200.00", "InvoiceTotal": "1280.00", "AmountDue": "1280.00"},
            [("20", "1000.00", "200.00")], False, id="wrong-total-to-be-paid",
        ),
        pytest.param(
            """
Summe                   119,00 €
enthaltene MwSt. 19 %    19,00 €
Netto                   100,00 €
""",
            {"InvoiceTotal": "119.00", "TotalTax": "19.00", "SubTotal": "100.00"},
            [("19", "100.00", "19.00")], True, id="tax-included",
        ),
        pytest.param(
            """
A 19%   Brot             3,00
Summe  EUR              11,90
Bar    EUR              20,00
Rückgeld EUR             8,10
MwSt     Netto    Steuer   Brutto
A 19%    10,00    1,90     11,90
""",
            {"InvoiceTotal": "11.90", "TotalTax": "1.90"},
            [("19", "10.00", "1.90")], True, id="german-till",
        ),
        pytest.param(
            """
                                       Importe      1.000,00
                                       Dto. 5 %        50,00
                                       Base           950,00
                                       IVA 21 %       199,50
                                       Rec. 5,2 %      49,40
                                       TOTAL €      1.198,90
""",
            {"SubTotal": "950.00", "InvoiceTotal": "1198.90", "TotalTax": "248.90"},
            [("21", "950.00", "199.50"), ("5.2", "950.00", "49.40")], True, id="discount-and-surcharge",
        ),
        pytest.param(
            """
Goods total            £500.00
Carriage                £12.50
Net                    £512.50
VAT 20%                £102.50
Gross                  £615.00
""",
            {"SubTotal": "512.50", "TotalTax": "102.50", "InvoiceTotal": "615.00", "CurrencyCode": "GBP"},
            [("20", "512.50", "102.50")], True, id="net-and-gross",
        ),
        pytest.param(
            """
Base al 7 %             3.160,33 EUR
Base exenta (0 %)         149,80 EUR
Total base              3.310,13 EUR
Cuota IGIC 7 %            221,22 EUR
Total factura           3.531,35 EUR
""",
            {"SubTotal": "3310.13", "TotalTax": "221.22", "InvoiceTotal": "3531.35"},
            [("7", "3160.33", "221.22")], True, id="base-of-all-rates-beside-those-of-each",
        ),
        pytest.param(
            """
Base imponible.........................500,00 €
21% IVA................................105,00 €
TOTAL..................................605,00 €
""",
            {"SubTotal": "500.00", "TotalTax": "105.00", "InvoiceTotal": "605.00"},
            [("21", "500.00", "105.00")], True, id="leader-dots",
        ),
        pytest.param(
            """
Base imponible
500,00 €
IVA (21%)
105,00 €
TOTAL FACTURA
605,00 €
""",
            {"SubTotal": "500.00", "TotalTax": "105.00", "InvoiceTotal": "605.00"},
            [("21", "500.00", "105.00")], True, id="label-above-each-amount",
        ),
        pytest.param(
            """
Por los servicios prestados le facturamos 500,00 euros más 105,00 euros de IVA (21 %), en total 605,00 euros.
""",
            {"InvoiceTotal": "605.00", "TotalTax": "105.00"},
            [("21", "500.00", "105.00")], True, id="one-sentence",
        ),
        pytest.param(
            """
Subtotal                 $200.00
State Tax 6%              $12.00
City Tax 2%                $4.00
Total                    $216.00
""",
            {"SubTotal": "200.00", "TotalTax": "16.00", "InvoiceTotal": "216.00"},
            [("6", "200.00", "12.00"), ("2", "200.00", "4.00")], True, id="two-taxes",
        ),
        pytest.param(
            """
Net amount               1,000.00 EUR
VAT 0% (reverse charge)      0.00 EUR
Total                    1,000.00 EUR
""",
            {"SubTotal": "1000.00", "TotalTax": "0.00", "InvoiceTotal": "1000.00"},
            [("0", "1000.00", "0.00")], True, id="reverse-charge",
        ),
        pytest.param(
            """
Base imponible    2.000,00 €
IVA 21 %            420,00 €
Total factura     2.420,00 €
Vencimientos       Importe
30/04/2026         1.210,00 €
30/05/2026         1.210,00 €
""",
            {"SubTotal": "2000.00", "TotalTax": "420.00", "InvoiceTotal": "2420.00", "AmountDue": "2420.00"},
            [("21", "2000.00", "420.00")], True, id="instalments",
        ),
        pytest.param(
            """
Importe de esta factura     42,35 €
Base imponible 35,00 € IVA 21% 7,35 €
Saldo anterior              10,00 €
Total a pagar               52,35 €
""",
            {"SubTotal": "35.00", "TotalTax": "7.35", "InvoiceTotal": "42.35", "AmountDue": "52.35"},
            [("21", "35.00", "7.35")], True, id="older-balance",
        ),
        pytest.param(
            """
Canon de agua                          12,10
Cuota de servicio                       8,20
Base imponible 10 %     20,30     Cuota IVA     2,03
Exento                   5,00
Total recibo                           27,33 €
""",
            {"TotalTax": "2.03", "InvoiceTotal": "27.33", "SubTotal": "20.30"},
            [("10", "20.30", "2.03")], True, id="base-and-tax-in-one-row",
        ),
        pytest.param(
            """
Sub Total (RM)            45.23
GST 6%                     2.71
Total Incl. GST (RM)      47.94
Rounding Adj               0.01
Total Amount Payable      47.95
Cash                      50.00
Change                     2.05
""",
            {"InvoiceTotal": "47.95", "TotalTax": "2.71", "SubTotal": "45.23"},
            [("6", "45.23", "2.71")], True, id="rounded-total",
        ),
        pytest.param(
            """
Factura simplificada

% IVA     Base Imponible     Cuota IVA     % R.E.     Cuota R.E.     Total
21,00     100,00             21,00         5,20       5,20           126,20
10,00     50,00              5,00          1,40       0,70           55,70
                                           TOTAL FACTURA:            181,90 €
""",
            {"InvoiceTotal": "181.90", "TotalTax": "31.90", "SubTotal": "150.00"},
            [("21", "100.00", "21.00"), ("5.2", "100.00", "5.20"), ("10", "50.00", "5.00"), ("1.4", "50.00", "0.70")],
            True, id="rates-and-surcharges-below-headers",
        ),
        pytest.param(
            """
Minuta de honorarios 4/2026
Por la asistencia letrada prestada en el procedimiento 123/2025, mil quinientos euros (1.500,00 €).
Base imponible: 1.500,00 €. IVA 21 %: 315,00 €. IRPF 15 %: -225,00 €.
Total a pagar: 1.590,00 €
""",
            {
                "SubTotal": "1500.00", "TotalTax": "315.00", "WithholdingAmount": "225.00", "WithholdingRate": "15",
                "InvoiceTotal": "1590.00", "AmountDue": "1590.00",
            },
            [("21", "1500.00", "315.00")], True, id="in-sentences",
        ),
        pytest.param(
            """
Factura F-100

BASE                IVA 21%             IRPF 15%            TOTAL
2.000,00 €          420,00 €            300,00 €            2.120,00 €
""",
            {
                "SubTotal": "2000.00", "TotalTax": "420.00", "WithholdingAmount": "300.00", "WithholdingRate": "15",
                "InvoiceTotal": "2120.00",
            },
            [("21", "2000.00", "420.00")], True, id="rates-in-headers",
        ),
        pytest.param(
            """
Rechnung Nr. 2026-001
Pos  Bezeichnung        Menge   Einzelpreis    Gesamtpreis
1    Beratung           10      80,00 €        800,00 €

Nettobetrag                                    800,00 €
zzgl. 19 % MwSt.                               152,00 €
Gesamtbetrag                                   952,00 €
Zahlbar innerhalb von 14 Tagen
""",
            {"SubTotal": "800.00", "TotalTax": "152.00", "InvoiceTotal": "952.00", "CurrencyCode": "EUR"},
            [("19", "800.00", "152.00")], True, id="german",
        ),
        pytest.param(
            """
FACTURE N° 2026-12
Désignation         Qté     PU HT       Total HT
Conseil             2       500,00      1 000,00

Total HT                                1 000,00 €
TVA 20 %                                  200,00 €
Total TTC                               1 200,00 €
Acompte versé                             400,00 €
Net à payer                               800,00 €
""",
            {"SubTotal": "1000.00", "TotalTax": "200.00", "InvoiceTotal": "1200.00", "AmountDue": "800.00"},
            [("20", "1000.00", "200.00")], True, id="french",
        ),
        pytest.param(
            """
FATTURA n. 3 del 12/03/2026
Totale imponibile           1.000,00
IVA 22%                       220,00
Totale documento            1.220,00
Ritenuta d'acconto 20%       -200,00
Netto a pagare              1.020,00
""",
            {
                "SubTotal": "1000.00", "TotalTax": "220.00", "InvoiceTotal": "1220.00", "AmountDue": "1020.00",
                "WithholdingAmount": "200.00", "WithholdingRate": "20",
            },
            [("22", "1000.00", "220.00")], True, id="italian",
        ),
        pytest.param(
            """
Fatura FT 2026/33
Taxa        Incidência      IVA
23%         100,00          23,00
6%          50,00           3,00
Total ilíquido                       150,00
Total IVA                             26,00
Total a pagar                        176,00 €
""",
            {"SubTotal": "150.00", "TotalTax": "26.00", "InvoiceTotal": "176.00", "AmountDue": "176.00"},
            [("23", "100.00", "23.00"), ("6", "50.00", "3.00")], True, id="portuguese",
        ),
        pytest.param(
            """
FACTURA 12
Base imposable                      300,00 €
IVA 21%                              63,00 €
Import total                        363,00 €
""",
            {"SubTotal": "300.00", "TotalTax": "63.00", "InvoiceTotal": "363.00"},
            [("21", "300.00", "63.00")], True, id="catalan",
        ),
        pytest.param(
            """
Joe's Diner
1 Burger                 12.50
2 Cola                    6.00
Subtotal                 18.50
Tax                       1.62
Tip                       3.70
Total                   $23.82
Visa                    $23.82
""",
            {
                "SubTotal": "18.50", "TotalTax": "1.62", "Tip": "3.70", "InvoiceTotal": "23.82", "Total": "23.82",
                "CurrencyCode": "USD",
            },
            [], True, id="receipt-with-a-tip",
        ),
        pytest.param(
            """
Total alojamiento                     300,00
Base imponible 10%                    272,73
IVA 10%                                27,27
Tasa turística                          6,00
TOTAL FACTURA                         306,00 EUR
Pagado con tarjeta                    306,00
Pendiente                               0,00
""",
            {"SubTotal": "272.73", "TotalTax": "27.27", "InvoiceTotal": "306.00", "AmountDue": "0.00"},
            [("10", "272.73", "27.27")], True, id="tourist-tax-and-nothing-due",
        ),
        pytest.param(
            """
FACTURA RECTIFICATIVA
Base imponible        -100,00 €
IVA 21%                -21,00 €
Total a devolver      -121,00 €
""",
            {"SubTotal": "-100.00", "TotalTax": "-21.00", "InvoiceTotal": "-121.00"},
            [("21", "-100.00", "-21.00")], True, id="credit-note-with-minus-signs",
        ),
        pytest.param(
            """
Suma                              150,00
Base 21%                          100,00
IVA 21%                            21,00
Base 10%                           50,00
IVA 10%                             5,00
TOTAL FACTURA                     176,00
""",
            {"SubTotal": "150.00", "InvoiceTotal": "176.00", "TotalTax": "26.00"},
            [("21", "100.00", "21.00"), ("10", "50.00", "5.00")], True, id="bases-and-taxes-on-lines",
        ),
        pytest.param(
            """
Cuota mensual fibra                    32,23
Llamadas                                1,15
Importe total (sin IVA)                33,38
IVA (21%)                               7,01
Total a pagar                          40,39 €
Saldo anterior                          0,00
""",
            {"SubTotal": "33.38", "TotalTax": "7.01", "InvoiceTotal": "40.39", "AmountDue": "40.39"},
            [("21", "33.38", "7.01")], True, id="bill-without-vat-first",
        ),
        pytest.param(
            """
VAT Rate     Net          VAT          Gross
23%          200.00       46.00        246.00
13.5%        100.00       13.50        113.50
Total        300.00       59.50        359.50
Amount payable  €359.50
""",
            {
                "SubTotal": "300.00", "TotalTax": "59.50", "InvoiceTotal": "359.50", "AmountDue": "359.50",
                "CurrencyCode": "EUR",
            },
            [("23", "200.00", "46.00"), ("13.5", "100.00", "13.50")], True, id="total-row-of-a-table",
        ),
        pytest.param(
            """
SUBTOTAL            $450.00
DISCOUNT             -$45.00
TAX RATE               7.000%
TAX                  $28.35
SHIPPING             $15.00
TOTAL               $448.35
""",
            {
                "SubTotal": "450.00", "TotalTax": "28.35", "TotalDiscount": "45.00", "InvoiceTotal": "448.35",
                "CurrencyCode": "USD",
            },
            [("7", None, "28.35")], True, id="discount-and-shipping",
        ),
        pytest.param(
            """
BASE IMPONIBLE            CUOTA IVA              IMPORTE TOTAL
   850,00 €                 178,50 €               1.028,50 €
   TIPO 21 %
""",
            {"SubTotal": "850.00", "TotalTax": "178.50", "InvoiceTotal": "1028.50"},
            [("21", "850.00", "178.50")], True, id="boxes-and-a-rate-on-its-own",
        ),
        pytest.param(
            """
Servicios prestados 21 %                   850,00 €
Base imponible                             850,00 €
Cuota                                      178,50 €
Total                                    1.028,50 €
""",
            {"SubTotal": "850.00", "TotalTax": "178.50", "InvoiceTotal": "1028.50"},
            [("21", "850.00", "178.50")], True, id="a-rate-beside-no-amount",
        ),
        pytest.param(
            """
IMPORTE BRUTO            122.151,90 €
Desconto:                  3.664,56 €
Total sen IVE:           118.487,34 €
IVE 21.00%                24.882,34 €
Total a pagar            143.369,68 €
""",
            {"SubTotal": "118487.34", "TotalDiscount": "3664.56", "TotalTax": "24882.34", "InvoiceTotal": "143369.68"},
            [("21", "118487.34", "24882.34")], True, id="galician",
        ),
        pytest.param(
            """
IMP. BRUTO    % DTO    IMP. DTO    BASE IMP.    % IVA     CUOTA    TOTAL FACTURA
  1.248,60     5,00       62,43     1.186,17    21,00    249,10         1.435,27
""",
            {"SubTotal": "1186.17", "TotalTax": "249.10", "InvoiceTotal": "1435.27"},
            [("21", "1186.17", "249.10")], True, id="a-discount-is-no-tax-row",
        ),
        pytest.param(
            """
Base          Tipo     Cuota      Tipo     Cuota     Importe
imponible     IVA      IVA        R.E.     R.E.      total
100,00        21       21,00      5,2      5,20      126,20
""",
            {"SubTotal": "100.00", "InvoiceTotal": "126.20"},
            [("21", "100.00", "21.00"), ("5.2", "100.00", "5.20")], True, id="headers-of-two-lines",
        ),
        pytest.param(
            """
Clases de inglés, marzo                   240,00 €
Operación exenta de IVA según art. 20.Uno.9º Ley 37/1992
TOTAL                                     240,00 €
""",
            {"InvoiceTotal": "240.00"},
            [], None, id="exempt",
        ),
        pytest.param(
            """
                         Base      %      IVA
                        100,00    21     21,00
                         40,00    10      4,00
Total 165,00 €
""",
            {"InvoiceTotal": "165.00"},
            [("21", "100.00", "21.00"), ("10", "40.00", "4.00")], True, id="table-to-the-right",
        ),
        pytest.param(
            """
Base imp.                                   710,17 €
10.00% I.V.A.                                48,29 €
Cuota IVA                                     9,09 €
TOTAL FACTURA                               767,55 €
""",
            {"SubTotal": "710.17", "TotalTax": "57.38", "InvoiceTotal": "767.55"}, [], True,
            id="two-taxes-of-which-one-says-its-rate",
        ),
        pytest.param(
            """
BI                                       38.059,94 €
Cuota de IVA 10,00%                       3.805,99 €
RECARGO DE EQUIVALENCIA                     532,84 €
LÍQUIDO A PERCIBIR                       42.398,77 €
""",
            {"SubTotal": "38059.94", "TotalTax": "4338.83", "InvoiceTotal": "42398.77"}, [], True,
            id="a-surcharge-without-its-rate",
        ),
        pytest.param(
            """
PAPEL COCINA 4R            20,02
TOMATE RAMA KG              2,20
CHOCOLATE 70% 100G          2,20
TOTAL EUR                  24,42
IVA      BASE     CUOTA
21%     14,02     11,94
10%      1,89      0,19
4%       5,17      0,21
""",
            {"InvoiceTotal": "24.42"}, [("21", "14.02", "11.94"), ("10", "1.89", "0.19"), ("4", "5.17", "0.21")], False,
            id="a-tax-table-that-contradicts-the-total-is-not-explained-away",
        ),
    ],
)  # fmt: skip
def test_amounts(text: str, expected: dict[str, str], taxes: list[tuple[str, str | None, str]], valid: bool | None):
    """As on invoices, receipts and bills: each amount gets its name, tax rows are complete, sums are checked."""
    money = money_of(text)
    values = values_of(money)

    assert expected == {name: values.get(name) for name in expected}
    assert sorted(taxes) == sorted(tax_rows_of(money))
    assert valid == money.validity.totals
    assert ("WithholdingAmount" in expected) == ("WithholdingAmount" in values)


def test_a_wrong_total_is_told_with_its_difference():
    """The printed value stays; the flag is false and the equation says by how much."""
    money = money_of("""
Base imponible         100,00 €
IVA 21%                 21,00 €
TOTAL                  131,00 €
""")

    assert values_of(money)["InvoiceTotal"] == "131.00"
    assert money.validity.totals is False
    (difference,) = money.validity.differences
    assert (difference.expected, difference.printed) == ("121.00", "131.00")


def test_a_wrong_tax_is_told_although_the_sums_agree():
    """Base x rate is checked on every row."""
    money = money_of("""
Tipo    Base      Cuota
21%     100,00    22,00
10%      50,00     5,00
Base imponible total   150,00
Total IVA               27,00
Total                  177,00 €
""")

    assert money.validity.totals is False
    assert [("21", "100.00", "22.00"), ("10", "50.00", "5.00")] == tax_rows_of(money)


def test_nothing_is_made_up_where_nothing_is_printed():
    """A letter that mentions a total and an amount has no fields of money."""
    money = money_of("""
Dear Mr Smith,
Thank you for your letter of 3 March 2026. The total cost of the works was about 3,500 pounds, of which
we have paid 1,200. Please let us know the balance due by 30 April.
""")

    assert money.fields == ()
    assert money.validity.totals is None


def test_computed_sums_say_so():
    """A receipt that prints its taxes per rate only has their sums as computed values, without a place."""
    money = money_of("""
TOTAL (IVA incluido)   16,50 €
Base      IVA     Cuota
 8,26     21%      1,74
 5,91     10%      0,59
""")
    (tax,) = (field for field in money.fields if field.name == "TotalTax")

    assert (tax.value, tax.source, tax.places) == ("2.33", "computed", ())
    assert money.validity.totals is True


@pytest.mark.parametrize("decimals", [Decimal("0.01"), Decimal("0.02")])
def test_rounding_is_no_error(decimals: Decimal):
    """Sums may be off by what rounding each part makes."""
    total = f"{Decimal('121.01') + decimals:f}".replace(".", ",")
    money = money_of(f"Base imponible   100,01\nIVA 21%   21,00\nTOTAL   {total} €")

    assert money.validity.totals is True


@pytest.mark.slow
def test_a_long_document_is_read_in_linear_time():
    """Many pages of numbers and labels take no time that grows with their square."""
    page = "\n".join(f"Total {number},{number % 100:02d}   IVA 21%   Base {number}" for number in range(50))
    money = money_of(*[page] * 40)

    assert money.validity is not None


PRINTED = """
Tipo IVA      Base         Cuota
21 %          1.000,00     210,00
10 %            200,00      20,00
Base imponible           1.200,00
Total IVA                  230,00
Total factura            1.430,00 €
"""


@pytest.mark.parametrize(
    ("name", "printed", "wrong"),
    [
        pytest.param("SubTotal", "1.200,00", "1.260,00", id="base"),
        pytest.param("TotalTax", "230,00", "239,00", id="tax"),
        pytest.param("InvoiceTotal", "1.430,00", "1.340,00", id="total"),
    ],
)
def test_a_wrong_amount_stays_as_printed(name: str, printed: str, wrong: str):
    """Sums that would hold are not put in the place of what the page says."""
    right, spoiled = money_of(PRINTED), money_of(PRINTED.replace(printed, wrong))

    assert right.validity.totals is True
    assert spoiled.validity.totals is False
    expected = values_of(right) | {name: wrong.replace(".", "").replace(",", ".")}
    expected["AmountDue"] = expected["InvoiceTotal"]
    assert expected == values_of(spoiled)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param("Total   $12.00\nCalgary, Canada", "CAD", id="dollar-of-canada"),
        pytest.param("Total   $12.00\nAustin, TX 78701", "USD", id="dollar-of-the-states"),
        pytest.param("Total   12,00\nNIF B12345674", "EUR", id="spanish-tax-id"),
        pytest.param("Total   12.00\nKEDAI KOPI SDN BHD", "MYR", id="malaysian-company"),
        pytest.param("Total   12.00\nVAT Reg. No. GB 123 4567 89", "GBP", id="british-tax-id"),
        pytest.param("Total (CHF)   12.00", "CHF", id="code-in-the-label"),
        pytest.param("RUT: 78.114.430-4\nTotal $ 291.550", "CLP", id="a-chilean-number"),
        pytest.param("NIT: 900774182-8\nTotal $14.458.500", "COP", id="a-colombian-number"),
        pytest.param("Total COP $14.458.500", "COP", id="a-code-before-a-sign"),
    ],
)
def test_currency(text: str, code: str):
    """A sign, a name or the country of the document says which currency it is."""
    assert code == values_of(money_of("INVOICE\n" + text))["CurrencyCode"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("I.342,00 €", "1342.00", id="letter-for-one"),
        pytest.param("RMO.06", "0.06", id="letter-for-zero"),
        pytest.param("605, 00 €", "605.00", id="space-after-the-comma"),
        pytest.param("TOTAL.......605,00", "605.00", id="leader-dots"),
        pytest.param("(45.00)", "-45.00", id="brackets-alone-take-off"),
        pytest.param("VAT 20 (45.00)", "45.00", id="brackets-in-a-label-do-not"),
        pytest.param("CHF84,139.20 CHF- 15,225.19", "-15225.19", id="a-minus-after-its-currency"),
        pytest.param("CHF12.00 CHF84,139.20 CHF- -", "84139.20", id="the-next-ones-currency"),
        pytest.param("Total 1.605,00zł", "1605.00", id="a-currency-without-a-space"),
    ],
)
def test_numbers_as_printed_and_as_misread(text: str, value: str):
    """Amounts are read with what OCR and typesetters do to them."""
    cell = rows_of(document_of_rows(text))[0].cells[0]

    assert value == str(numbers_in(cell)[-1].value)


_HOTEL = """
Descrizione            Q.tà    Prezzo    Importo
Camera doppia             2     88,00     176,00
Cena                      2     27,50      55,00
Imposta di soggiorno      4      2,00       8,00

Aliquota         Imponibile         Imposta
10%                  210,00           21,00

Totale fattura {total} €
"""


_NOTARY = """
Concepto                                 Importe
Honorarios escritura                      512,30
Copias autorizadas                        120,20

Base imponible                            632,50
IVA 21 %                                  132,83
2. Suplidos
Papel timbrado                              9,02
Nota simple registral                      24,04
Total factura                             {total}
Retención IRPF 15 %                       -94,88
"""


@pytest.mark.parametrize(
    ("text", "total", "tax", "valid"),
    [
        (_HOTEL, "239,00", "21.00", True), (_HOTEL, "241,00", "21.00", False), (_NOTARY, "798,39", "132.83", True),
        (_NOTARY, "789,39", "132.83", False),
    ],
)  # fmt: skip
def test_what_no_tax_is_on_makes_the_total(text: str, total: str, tax: str, valid: bool):
    money = money_of_pages(text.format(total=total))
    assert money.validity.totals is valid
    assert values_of(money)["TotalTax"] == tax


_TILL = """
DESCRIZIONE            IVA      Prezzo
SMALTO BIANCO          22%       18,90
PENNELLO PIATTO        22%        6,80
TOTALE COMPLESSIVO               25,70
di cui IVA                        4,63
"""
_PRINTER = """
Descrición       Unidades    Prezo     Total liña
Carteis               300     0,68         204,00
Trípticos             300     {price}         {amount}
Deseño                  1   120,00         120,00

Base impoñible     543,00 €
IVE 21%            114,03 €
Total              657,03 €
"""


@pytest.mark.parametrize(("price", "amount", "valid"), [("0,73", "219,00", True), ("0,70", "210,00", False)])
def test_proven_lines_make_the_base(price: str, amount: str, valid: bool):
    """Where each line multiplies and nothing is taken off, a base with transposed digits is told."""
    assert money_of_pages(_PRINTER.format(price=price, amount=amount)).validity.totals is valid


def test_a_tax_within_the_total_has_the_rate_of_the_lines():
    money = money_of_pages(_TILL)
    assert (values_of(money)["TotalTax"], tax_rows_of(money)) == ("4.63", [("22", None, "4.63")])


@pytest.mark.parametrize(("tax", "total", "valid"), [("134,40", "774,40", True), ("143,40", "783,40", False)])
def test_the_printed_rate_makes_the_tax(tax: str, total: str, valid: bool):
    """Transposed digits, carried into the total: it adds up, and is wrong."""
    money = money_of(f"Base imponible      640,00 €\nIVA al 21 %         {tax} €\nTotal               {total} €\n")
    assert money.validity.totals is valid
    assert tax_rows_of(money) == [("21", "640.00", tax.replace(",", "."))]


def test_a_sum_that_is_carried_over_is_no_total():
    money = money_of(
        "Ruta de Camariñas\n"
        * 20
        + "Artigo           IVE %    Importe\nLeite            4     1.100,00\nPan              10       43,90\n"
        "                    Suma e segue     1.143,90\n",
        "Suma anterior                    1.143,90\nOvos             4       273,33\n"
        "                    Suma         1.417,23\nIVE %    Base impoñible     Cota\n4,00     479,79         19,19\n"
        "10,00    937,44         93,74\n              TOTAL FACTURA EUROS    1.530,16\n",
    )
    assert money.validity.totals is True
    assert values_of(money)["InvoiceTotal"] == "1530.16"


@pytest.mark.parametrize(
    ("over", "again"),
    [
        ("A transportar", "Transporte"),
        ("Te dragen", "Gedragen"),
        ("Siirto", "Siirto"),
        ("Suma y sigue", "Suma anterior"),
    ],
)
def test_lines_are_told_once(over: str, again: str):
    """Sums that are carried over a page are no lines, whatever they are called, nor is an annex that details one."""
    head = "Ref    Designação           Qtd    Preço      Valor\n"
    first = (
        f"Fatura FT 2026/7\n{head}A1     Parafuso               2    10,00     20,00\n"
        f"A2     Porca                  1    30,00     30,00\n\n{over}      50,00\n"
    )
    last = (
        f"{head}{again}      50,00\nA3     Anilha                 3     5,00     15,00\n\n"
        "Base     65,00\nIVA 23 %     14,95\nTotal    79,95\n"
    )
    annex = (
        f"Anexo\n{head}B1     Mola                   1    12,00     12,00\n"
        "B2     Eixo                   1     3,00      3,00\nSuma peças    15,00\n"
    )
    fields = {field.name: field for field in extract_fields(document_of_rows(first, last, annex)).fields}

    amounts = [field.value for row in fields["Items"].rows for field in row.fields if field.name == "Amount"]
    assert amounts == ["20.00", "30.00", "15.00"]
    assert fields["InvoiceTotal"].value == "79.95"


def test_a_dash_between_amounts_takes_nothing_off():
    (cell,) = rows_of_text("base 240,00 - imposto 14,40-")[0].cells
    assert [number.value for number in numbers_in(cell, ",")] == [Decimal("240.00"), Decimal("-14.40")]
