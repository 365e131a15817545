"""Documents as the wire answers them, for books."""

from typing import Any

from backend.books.ledger import BookedFile, LedgerRow, ledger_rows

UNCHECKED = {"VendorTaxId": None, "CustomerTaxId": None, "IBAN": None, "differences": []}
VAT_21, VAT_10 = ("IVA", "21", "200.00", "42.00"), ("IVA", "10", "300.00", "30.00")


def field(value: str) -> dict[str, Any]:
    return {"value": value, "text": value, "score": 1.0, "page": 1, "boxes": []}


def rows_of(names: tuple[str, ...], *rows: tuple[str, ...]) -> dict[str, Any]:
    return {"value": [{name: field(value) for name, value in zip(names, row, strict=True) if value} for row in rows]}


def document(
    kind: str | None = "invoice",
    *,
    confirmed: bool = False,
    totals: bool | None = True,
    pages: tuple[int, ...] = (1,),
    **fields: Any,
) -> dict[str, Any]:
    """A document of these fields: texts, or lists as `rows_of` makes them."""
    wire = {name: field(value) if isinstance(value, str) else value for name, value in fields.items()}
    return {
        "pages": list(pages),
        "kind": kind,
        "fields": wire,
        "valid": {**UNCHECKED, "totals": totals},
        "confirmed": confirmed,
    }


def taxes(*rows: tuple[str, ...]) -> dict[str, Any]:
    return rows_of(("Type", "Rate", "Base", "Amount"), *rows)


def invoice(number: str = "2026/017", total: str = "497.00", **fields: Any) -> dict[str, Any]:
    """An invoice of two rates, with withholding and two lines."""
    known = {
        "VendorName": "Aceros del Norte, S.L.", "VendorTaxId": "A58818501", "InvoiceDate": "2026-03-12",
        "DueDate": "2026-04-12", "SubTotal": "500.00", "TotalTax": "72.00", "WithholdingRate": "15",
        "WithholdingAmount": "75.00", "AmountDue": total, "CurrencyCode": "EUR", "TaxDetails": taxes(VAT_21, VAT_10),
        "Items": rows_of(
            ("Description", "ProductCode", "Quantity", "UnitPrice", "TaxRate", "Amount"),
            ("Tornillo M8", "0017", "10", "20.00", "21", "200.00"),
            ("=HYPERLINK()", "0018", "2.5", "120.00", "10", "300.00"),
        ),
    }  # fmt: skip
    return document(**{**known, "InvoiceId": number, "InvoiceTotal": total, **fields})


def statement(**fields: Any) -> dict[str, Any]:
    """A bank statement of two movements."""
    names = ("Date", "ValueDate", "Description", "Amount", "Balance")
    bill = ("2026-03-02", "2026-03-02", "Recibo luz", "-100.00", "900.00")
    movements = (bill, ("2026-03-05", "2026-03-06", "+ abono", "300.00", "1200.00"))
    known = {
        "IBAN": "ES9121000418450200051332", "AccountHolder": "Bodegas Sol", "CurrencyCode": "EUR",
        "Movements": rows_of(names, *movements),
    }  # fmt: skip
    return document("bank_statement", totals=None, **{**known, **fields})


def booked(*documents: dict[str, Any], file_id: str = "file-1", name: str = "factura.pdf") -> BookedFile:
    return BookedFile(file_id, name, documents)


def ledger_of(*documents: dict[str, Any]) -> list[LedgerRow]:
    return list(ledger_rows(booked(*documents)))
