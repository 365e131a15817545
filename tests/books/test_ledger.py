"""Ledger rows, duplicates, missing numbers and sums."""

from decimal import Decimal

import pytest

from backend.books.ledger import TaxLine, ledger_rows, mark_duplicates, missing_numbers, sums_by_currency
from tests.books.booked import booked, document, invoice, ledger_of, statement, taxes


def test_a_row_of_an_invoice() -> None:
    """Amounts are decimals, taxes lines by rate; what the document does not say is None."""
    [row] = ledger_rows(booked(invoice(), file_id="file-7", name="a.pdf"))

    assert ("file-7", 0, "a.pdf", (1,)) == (
        row.source.document_id,
        row.source.index,
        row.source.filename,
        row.source.pages,
    )
    assert ("to_review", "invoice", "2026-03-12", "2026-04-12") == (row.state, row.kind, row.date, row.due_date)
    assert ("2026/017", "Aceros del Norte, S.L.", "A58818501") == (row.number, row.supplier, row.tax_id)
    assert (Decimal(500), Decimal(72), Decimal(75), Decimal(497)) == (row.base, row.tax, row.withholding, row.total)
    assert row.taxes == (
        TaxLine("IVA", Decimal(21), Decimal(200), Decimal(42)),
        TaxLine("IVA", Decimal(10), Decimal(300), Decimal(30)),
    )
    assert row.customer is None
    assert row.totals_agree is True


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param(
            document("receipt", MerchantName="Bar Sol", TransactionDate="2026-01-02", Total="12.10"),
            ("Bar Sol", "2026-01-02", Decimal("12.10")),
            id="a-receipt",
        ),
        pytest.param(statement(PeriodEnd="2026-03-31"), ("Bodegas Sol", "2026-03-31", None), id="a-statement"),
    ],
)
def test_others_have_their_own_names(other: dict[str, object], expected: tuple[object, ...]) -> None:
    """What a till calls merchant, transaction and total, and a bank holder and period, is supplier, date and total."""
    [row] = ledger_of(other)

    assert expected == (row.supplier, row.date, row.total)


def test_what_is_confirmed_is_told_by_document() -> None:
    """Of two documents of a file one may be confirmed."""
    assert ["confirmed", "to_review"] == [row.state for row in ledger_of(invoice(confirmed=True), invoice())]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"SubTotal": "100.00", "TotalTax": "26.20", "EquivalenceSurcharge": "5.20"},
            [TaxLine(None, None, Decimal(100), Decimal(21), None, Decimal("5.2"))],
            id="no-rates-told",
        ),
        pytest.param(
            {"SubTotal": "100.00", "TaxDetails": taxes(("IVA", "21", "", "21.00"))},
            [TaxLine("IVA", Decimal(21), Decimal(100), Decimal(21))],
            id="the-only-rate-has-the-whole-base",
        ),
        pytest.param(
            {
                "TaxDetails": taxes(
                    ("IVA", "21", "100.00", "21.00"), ("IVA", "10", "50.00", "5.00"),
                    ("RE", "1.4", "50.00", "0.70"), ("RE", "5.2", "100.00", "5.20"),
                )
            },
            [
                TaxLine("IVA", Decimal(21), Decimal(100), Decimal(21), Decimal("5.2"), Decimal("5.2")),
                TaxLine("IVA", Decimal(10), Decimal(50), Decimal(5), Decimal("1.4"), Decimal("0.7")),
            ],
            id="surcharges-beside-the-tax-on-their-base",
        ),
        pytest.param(
            {
                "TaxDetails": taxes(
                    ("IVA", "21", "100.00", "21.00"), ("IVA", "10", "50.00", "5.00"), ("RE", "1.4", "9.00", "0.13")
                )
            },
            [
                TaxLine("IVA", Decimal(21), Decimal(100), Decimal(21)),
                TaxLine("IVA", Decimal(10), Decimal(50), Decimal(5)),
                TaxLine(None, None, None, None, Decimal("1.4"), Decimal("0.13")),
            ],
            id="a-surcharge-of-no-known-base-is-alone",
        ),
        pytest.param({"InvoiceTotal": "5.00"}, [], id="no-tax-at-all"),
    ],
)  # fmt: skip
def test_taxes_by_rate(fields: dict[str, object], expected: list[TaxLine]) -> None:
    """A line for each rate, as the book of VAT has them."""
    [row] = ledger_of(document(**fields))

    assert expected == list(row.taxes)


def test_values_that_are_no_amounts() -> None:
    """A person may have written anything; it costs the document its amount, and the ledger nothing."""
    [row] = ledger_of(invoice(InvoiceTotal="mil euros", SubTotal="1e9", AmountDue="9" * 40, TotalTax="NaN"))

    assert [None] * 4 == [row.total, row.base, row.amount_due, row.tax]


@pytest.mark.parametrize(
    ("other", "is_duplicate"),
    [
        pytest.param({}, True, id="equal"),
        pytest.param({"InvoiceId": "2026-017"}, True, id="number-printed-otherwise"),
        pytest.param({"VendorTaxId": "ES-A58818501"}, True, id="vat-number-of-the-same-nif"),
        pytest.param({"VendorName": "ACEROS"}, True, id="name-read-otherwise"),
        pytest.param({"InvoiceTotal": "497.0"}, True, id="the-same-amount"),
        pytest.param({"InvoiceTotal": "498.00"}, False, id="another-total"),
        pytest.param({"InvoiceId": "2026/018"}, False, id="another-number"),
        pytest.param({"VendorTaxId": "B12345674"}, False, id="another-supplier"),
        pytest.param({"CurrencyCode": "USD"}, False, id="another-currency"),
    ],
)
def test_duplicates(other: dict[str, str], is_duplicate: bool) -> None:
    """Supplier, number and total; the first of them is told by the others, and both are marked."""
    first, third, second = mark_duplicates(ledger_of(invoice(), invoice("X-1"), invoice(**other)))

    assert (first.duplicates, second.duplicates) == ((1, 1) if is_duplicate else (0, 0))
    assert (None, first.source if is_duplicate else None) == (first.duplicate_of, second.duplicate_of)
    assert 0 == third.duplicates


def test_documents_without_number_or_supplier_are_no_duplicates() -> None:
    """Two receipts of the same amount from the same bar are two coffees."""
    rows = ledger_of(*[document("receipt", MerchantName="Bar Sol", Total="1.50")] * 2)

    assert [0, 0] == [row.duplicates for row in mark_duplicates(rows)]


@pytest.mark.parametrize(
    ("numbers", "missing"),
    [
        pytest.param(["2026/007", "2026/008", "2026/010", "2026/011"], ["2026/009"], id="one"),
        pytest.param(["F-99", "F-101", "F-98", "F-97"], ["F-100"], id="in-any-order"),
        pytest.param(["098", "099", "101", "102"], ["100"], id="wider-than-its-zeros"),
        pytest.param(["A-1/2026", "A-2/2026", "A-4/2026", "A-5/2026"], ["A-3/2026"], id="a-year-does-not-count"),
        pytest.param(["7", "8", "9", "3001", "3002", "3004", "3005"], ["3003"], id="runs-far-apart"),
        pytest.param(["1", "3"], [], id="two-are-no-series"),
        pytest.param(["1", "9", "17", "25"], [], id="most-are-somebody-else's"),
        pytest.param(["A/1", "B/2", "A/3", "C/4"], [], id="series-apart"),
        pytest.param(["uno", "dos", "9" * 40], [], id="nothing-that-counts"),
    ],
)
def test_missing_numbers(numbers: list[str], missing: list[str]) -> None:
    """What a series leaves out, where it is one."""
    found = missing_numbers(ledger_of(*(invoice(number) for number in numbers)))

    assert missing == [number for run in found for number in run.missing]


def test_missing_numbers_of_each_supplier() -> None:
    """Numbers of another supplier fill no gap."""
    other = {"VendorTaxId": "B12345674", "VendorName": "Otra, S.L."}
    rows = ledger_of(
        *(invoice(f"{number}") for number in (1, 2, 4, 5)), *(invoice(f"{number}", **other) for number in (3, 4, 5))
    )

    [run] = missing_numbers(rows)
    assert ("A58818501", "1", "5", ("3",)) == (run.tax_id, run.first, run.last, run.missing)


def test_sums_by_currency() -> None:
    """Each currency for itself, with its taxes by rate; statements are no invoices."""
    dollars = document(CurrencyCode="USD", InvoiceId="7", InvoiceTotal="0.30", SubTotal="0.10")
    euros, us = sums_by_currency(ledger_of(invoice(), dollars, statement(InvoiceTotal="9.00"), invoice("2", "0.10")))

    assert ("EUR", 2, Decimal("497.10"), Decimal(144)) == (
        euros.currency,
        euros.documents,
        euros.amounts["total"],
        euros.amounts["tax"],
    )
    assert [("IVA", 10, 600, 60), ("IVA", 21, 400, 84)] == [
        (one.type, one.rate, one.base, one.amount) for one in euros.taxes
    ]
    assert ("USD", Decimal("0.30"), 0) == (us.currency, us.amounts["total"], us.amounts["withholding"])
