"""The tables that books are exported as: their columns, their rows, and what both are called in a language."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from backend.books.ledger import (
    STATEMENT,
    BookedFile,
    DocumentRef,
    LedgerRow,
    MissingNumbers,
    TaxLine,
    list_of,
    missing_numbers,
    number_of,
    sums_of,
    supplier_key,
    value_of,
)
from backend.files.page_ranges import written_ranges
from backend.text.patterns.pattern import plain_tax_id

Locale = Literal["es", "en"]
ViewName = Literal["ledger", "lines", "suppliers", "movements"]
Kind = Literal["text", "date", "amount", "number", "code", "tax", "tax_id"]  # code: a word of ours, by its key
Cell = str | Decimal | None
_NIF_CHARS = 9
Row = Sequence[Cell]


@dataclass(frozen=True, slots=True)
class View:
    """One table: a sheet of a workbook, or a file of its own."""

    name: ViewName
    columns: tuple[tuple[str, Kind], ...]  # a column's key in JSON and in HEADERS


_OF_FILE: tuple[tuple[str, Kind], ...] = (("file", "text"), ("pages", "text"), ("document_id", "text"))
LEDGER = View(
    "ledger",
    (
        ("state", "code"), ("date", "date"), ("number", "text"), ("tax_id", "tax_id"), ("supplier", "text"),
        ("tax_type", "tax"), ("base", "amount"), ("tax_rate", "number"), ("tax_amount", "amount"),
        ("surcharge_rate", "number"), ("surcharge", "amount"), ("withholding_rate", "number"),
        ("withholding", "amount"), ("total", "amount"), ("currency", "text"), ("due_date", "date"),
        ("amount_due", "amount"), ("totals", "code"), ("duplicate_of", "text"), ("kind", "code"),
        ("customer", "text"), ("customer_tax_id", "tax_id"), *_OF_FILE,
    ),
)  # fmt: skip
LINES = View(
    "lines",
    (
        ("date", "date"), ("number", "text"), ("tax_id", "tax_id"), ("supplier", "text"), ("line", "number"),
        ("product_code", "text"), ("description", "text"), ("quantity", "number"), ("unit", "text"),
        ("unit_price", "number"), ("discount", "number"), ("tax_rate", "number"), ("amount", "amount"),
        ("currency", "text"), *_OF_FILE,
    ),
)  # fmt: skip
SUPPLIERS = View(
    "suppliers",
    (
        ("supplier", "text"), ("tax_id", "tax_id"), ("documents", "number"), ("base", "amount"), ("tax", "amount"),
        ("withholding", "amount"), ("total", "amount"), ("amount_due", "amount"), ("currency", "text"),
        ("first_date", "date"), ("last_date", "date"), ("missing_numbers", "text"),
    ),
)  # fmt: skip
MOVEMENTS = View(
    "movements",
    (
        ("account", "text"), ("holder", "text"), ("date", "date"), ("value_date", "date"), ("description", "text"),
        ("amount", "amount"), ("balance", "amount"), ("currency", "text"), *_OF_FILE,
    ),
)  # fmt: skip
VIEWS: Mapping[ViewName, View] = {view.name: view for view in (LEDGER, LINES, SUPPLIERS, MOVEMENTS)}

# Those of the ledger as the Spanish tax agency's "libro registro de facturas recibidas" has them.
HEADERS: Mapping[Locale, Mapping[str, str]] = {
    "es": {
        "ledger": "Facturas recibidas", "lines": "Líneas", "suppliers": "Por proveedor", "movements": "Movimientos",
        "state": "Estado", "date": "Fecha", "number": "Serie-Número", "tax_id": "NIF", "supplier": "Proveedor",
        "tax_type": "Impuesto", "base": "Base imponible", "tax_rate": "Tipo de IVA", "tax_amount": "Cuota de IVA",
        "surcharge_rate": "Tipo de recargo eq.", "surcharge": "Cuota de recargo eq.",
        "withholding_rate": "Tipo de retención", "withholding": "Retención", "total": "Total factura",
        "currency": "Moneda", "due_date": "Vencimiento", "amount_due": "A pagar", "totals": "Comprobación",
        "duplicate_of": "Duplicada de", "kind": "Clase", "customer": "Cliente", "customer_tax_id": "NIF del cliente",
        "file": "Archivo", "pages": "Páginas", "document_id": "Documento", "line": "Línea", "product_code": "Código",
        "description": "Concepto", "quantity": "Cantidad", "unit": "Unidad", "unit_price": "Precio",
        "discount": "Descuento", "amount": "Importe", "documents": "Facturas", "tax": "Impuestos",
        "first_date": "Primera", "last_date": "Última", "missing_numbers": "Números que faltan",
        "account": "Cuenta", "holder": "Titular", "value_date": "Fecha valor", "balance": "Saldo",
        "to_review": "Por revisar", "confirmed": "Confirmada", "agree": "Cuadra", "differ": "No cuadra",
        "invoice": "Factura", "credit_note": "Factura rectificativa", "receipt": "Ticket",
    },
    "en": {
        "ledger": "Invoices received", "lines": "Lines", "suppliers": "By supplier", "movements": "Movements",
        "state": "State", "date": "Date", "number": "Number", "tax_id": "Tax ID", "supplier": "Supplier",
        "tax_type": "Tax", "base": "Taxable base", "tax_rate": "Tax rate", "tax_amount": "Tax amount",
        "surcharge_rate": "Surcharge rate", "surcharge": "Surcharge", "withholding_rate": "Withholding rate",
        "withholding": "Withholding", "total": "Total", "currency": "Currency", "due_date": "Due date",
        "amount_due": "Amount due", "totals": "Check", "duplicate_of": "Duplicate of", "kind": "Kind",
        "customer": "Customer", "customer_tax_id": "Customer tax ID", "file": "File", "pages": "Pages",
        "document_id": "Document", "line": "Line", "product_code": "Code", "description": "Description",
        "quantity": "Quantity", "unit": "Unit", "unit_price": "Unit price", "discount": "Discount", "amount": "Amount",
        "documents": "Documents", "tax": "Taxes", "first_date": "First", "last_date": "Last",
        "missing_numbers": "Missing numbers", "account": "Account", "holder": "Holder", "value_date": "Value date",
        "balance": "Balance", "to_review": "To review", "confirmed": "Confirmed", "agree": "Adds up",
        "differ": "Does not add up", "invoice": "Invoice", "credit_note": "Credit note", "receipt": "Receipt",
    },
}  # fmt: skip


def worded(kind: Kind, text: str, locale: Locale) -> str:
    """A text of a table as people of a locale write it, such as "IVA" where an electronic invoice says VAT."""
    if kind == "code":
        return HEADERS[locale].get(text, text)
    if locale == "es" and kind == "tax":
        return "IVA" if text.upper() == "VAT" else text
    if locale == "es" and kind == "tax_id" and len(plain := plain_tax_id(text)) == _NIF_CHARS:
        return plain
    return text


def ledger_cells(row: LedgerRow) -> Iterator[Row]:
    """A row for each rate of tax; what is of the whole document stands in the first alone, so that columns add up."""
    for index, tax in enumerate(row.taxes or (TaxLine(None, None, None, None),)):
        of_whole: Row = (row.withholding_rate, row.withholding, row.total)
        due: Cell = row.amount_due
        if index:
            of_whole, due = (None, None, None), None
        yield (
            row.state, row.date, row.number, row.tax_id, row.supplier,
            tax.type, tax.base, tax.rate, tax.amount, tax.surcharge_rate, tax.surcharge,
            *of_whole, row.currency, row.due_date, due, _totals(row), _source_name(row.duplicate_of), row.kind,
            row.customer, row.customer_tax_id, *_of_file(row.source),
        )  # fmt: skip


def _totals(row: LedgerRow) -> str | None:
    return None if row.totals_agree is None else "agree" if row.totals_agree else "differ"


def _source_name(source: DocumentRef | None) -> str | None:
    return (
        None if source is None else f"{source.filename} ({_ranges(source.pages)})" if source.pages else source.filename
    )


def _of_file(source: DocumentRef) -> Row:
    return source.filename, _ranges(source.pages), source.document_id


def _ranges(pages: Sequence[int]) -> str:
    return ", ".join(written_ranges(pages))


_LINE_FIELDS = ("Quantity", "Unit", "UnitPrice", "Discount", "TaxRate", "Amount")


def line_cells(row: LedgerRow, document: Mapping[str, Any]) -> Iterator[Row]:
    """The lines of goods of one document."""
    for number, line in enumerate(list_of(document["fields"], "Items"), 1):
        yield (
            row.date, row.number, row.tax_id, row.supplier, Decimal(number),
            value_of(line, "ProductCode"), value_of(line, "Description"),
            *(_number_or_text(value_of(line, name)) for name in _LINE_FIELDS),
            row.currency, *_of_file(row.source),
        )  # fmt: skip


def movement_cells(row: LedgerRow, document: Mapping[str, Any]) -> Iterator[Row]:
    """The movements of one bank statement."""
    fields = document["fields"]
    account, holder = value_of(fields, "IBAN", "AccountNumber"), value_of(fields, "AccountHolder")
    for movement in list_of(fields, "Movements"):
        yield (
            account, holder, value_of(movement, "Date"), value_of(movement, "ValueDate"),
            value_of(movement, "Description"), _number_or_text(value_of(movement, "Amount")),
            _number_or_text(value_of(movement, "Balance")),
            row.currency, *_of_file(row.source),
        )  # fmt: skip


def _number_or_text(value: str | None) -> Cell:
    number = number_of(value)
    return value if number is None else number


def supplier_cells(rows: Sequence[LedgerRow]) -> Iterator[Row]:
    """A row for each supplier and currency, by name, with the numbers that its series leave out."""
    by_supplier: dict[tuple[str, str], list[LedgerRow]] = defaultdict(list)
    for row in rows:
        if row.is_bookable:
            by_supplier[supplier_key(row) or "", row.currency or ""].append(row)
    for own in sorted(by_supplier.values(), key=lambda own: (own[0].supplier or "", own[0].currency or "")):
        yield _supplier_cells(own, missing_numbers(own))


def _supplier_cells(rows: Sequence[LedgerRow], missing: Sequence[MissingNumbers]) -> Row:
    sums, dates = sums_of(rows), sorted(row.date for row in rows if row.date is not None)
    amounts = [sums.amounts[name] for name in ("base", "tax", "withholding", "total", "amount_due")]
    first, last = (dates[0], dates[-1]) if dates else (None, None)
    absent = ", ".join(number for run in missing for number in run.missing) or None
    return (rows[0].supplier, rows[0].tax_id, Decimal(len(rows)), *amounts, sums.currency, first, last, absent)


def streamed_cells(view: View, file: BookedFile, rows: Sequence[LedgerRow]) -> Iterator[Row]:
    """Rows of lines or movements of one file, whose documents ``rows`` are of."""
    for row in rows:
        document = file.documents[row.source.index]
        if view is MOVEMENTS and row.kind == STATEMENT:
            yield from movement_cells(row, document)
        elif view is LINES and row.is_bookable:
            yield from line_cells(row, document)
