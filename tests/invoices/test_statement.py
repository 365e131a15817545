"""Bank statements: account, period, balances and movements with their signs."""

from __future__ import annotations

import pytest

from backend.invoices.records import Field
from backend.invoices.statement import find_statement
from tests.invoices.rows import rows_of_text

SPANISH = """
Extracto de cuenta                      Titular: María López Ruiz
IBAN ES91 2100 0418 4502 0005 1332      Periodo: 01/12/2025 a 31/01/2026

Fecha    F. valor   Concepto                 Cargo       Abono      Saldo
Saldo anterior                                                      1.000,00
20/12    20/12      Recibo luz               100,00                 900,00
                    Contrato 4471
05/01    05/01      Nómina empresa                       500,25     1.400,25
Saldo final                                                         1.400,25
"""


def fields(*texts: str, mark: str = ",") -> dict[str, Field]:
    return {field.name: field for field in find_statement(rows_of_text(*texts), mark)}


def lines(found: dict[str, Field]) -> list[dict[str, str]]:
    return [{cell.name: cell.value for cell in row.fields} for row in found["Movements"].rows]


def test_a_spanish_statement():
    """Debits are negative, short dates get the period's years, a description may go on in the next row."""
    found = fields(SPANISH)

    assert {
        "AccountNumber": "ES9121000418450200051332", "AccountHolder": "María López Ruiz", "PeriodStart": "2025-12-01",
        "PeriodEnd": "2026-01-31", "OpeningBalance": "1000.00", "ClosingBalance": "1400.25", "Movements": "",
    } == {name: field.value for name, field in found.items()}  # fmt: skip
    assert [
        {"Date": "2025-12-20", "ValueDate": "2025-12-20", "Description": "Recibo luz Contrato 4471",
         "Amount": "-100.00", "Balance": "900.00"},
        {"Date": "2026-01-05", "ValueDate": "2026-01-05", "Description": "Nómina empresa", "Amount": "500.25",
         "Balance": "1400.25"},
    ] == lines(found)  # fmt: skip
    assert found["Movements"].valid is True


def test_a_wrong_balance_is_called_wrong():
    """The amount and the balance before do not make the balance."""
    found = fields(SPANISH.replace("     1.400,25\nSaldo", "     1.500,25\nSaldo"))

    assert found["Movements"].valid is False
    assert [True, False] == [row.fields[-1].valid for row in found["Movements"].rows]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            """
            Date          Description         Paid out    Paid in     Balance
            Balance brought forward                                   100.00
            3 Mar 2026    CARD PAYMENT        40.00                   60.00
            5 Mar 2026    SALARY                          200.00      260.00
            """,
            id="columns",
        ),
        pytest.param(
            """
            Date          Description         Amount      Balance
            Opening balance                               100.00
            03/03/2026    CARD PAYMENT        -40.00      60.00
            05/03/2026    SALARY              200.00      260.00
            """,
            id="printed-sign",
        ),
        pytest.param(
            """
            Date          Description         Amount      Balance
            Opening balance                               100.00
            03/03/2026    CARD PAYMENT        40.00       60.00
            05/03/2026    SALARY              200.00      260.00
            """,
            id="no-sign",
        ),
    ],
)
def test_signs_of_amounts(text):
    """By the column, as printed, or as the balance says."""
    found = fields(text, mark=".")

    assert [("2026-03-03", "-40.00"), ("2026-03-05", "200.00")] == [(r["Date"], r["Amount"]) for r in lines(found)]
    assert ("100.00", "260.00") == (found["OpeningBalance"].value, found["ClosingBalance"].value)


def test_the_newest_may_stand_first():
    """Then the balances run upwards."""
    found = fields(
        """
        Fecha         Concepto            Importe     Saldo
        05/03/2026    Nómina              200,00      260,00
        03/03/2026    Compra              40,00       60,00
        01/03/2026    Bizum               10,00       100,00
        """
    )

    assert ["200.00", "-40.00", "10.00"] == [row["Amount"] for row in lines(found)]
    assert "ClosingBalance" not in found


def test_movements_go_on_over_pages():
    """A page without a header has the columns of the one before."""
    first = "Fecha         Concepto            Importe     Saldo\n05/03/2026    Nómina              200,00      260,00"
    second = "06/03/2026    Compra              -60,00      200,00"

    assert ["200.00", "-60.00"] == [row["Amount"] for row in lines(fields(first, second))]


def test_a_summary_without_movements():
    """A statement's title with both balances is enough."""
    found = fields(
        """
        Your consolidated statement
        Account number   009070568735
        Your previous balance as of 03/02/2022       $17,037.94
        Your new balance as of 06/17/2022            $15,619.65
        """,
        mark=".",
    )

    assert {"AccountNumber": "009070568735", "OpeningBalance": "17037.94", "ClosingBalance": "15619.65"} == {
        name: field.value for name, field in found.items()
    }


@pytest.mark.parametrize(
    "text",
    [
        "FACTURA\nFecha       Concepto      Importe\n01/03/2026  Reparación    120,00\nTotal  120,00",
        "Estimado cliente: le informamos de que su cuenta tiene un saldo de 100,00 €.",
        "Extracto de la novela: el 3 de marzo de 2026 salió de casa.",
    ],
)
def test_other_documents_are_no_statements(text):
    """Invoices and letters have no movements of an account."""
    assert () == find_statement(rows_of_text(text), ",")
