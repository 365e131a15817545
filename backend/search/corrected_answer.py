"""A stored document's answer with the corrections of people in place of what was read. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from backend.invoices.corrections import AMOUNTS, LIST_COLUMNS, FieldValues, check_digits, recheck
from backend.reasons import because, reasons_in
from backend.search.records import DocumentChange, DocumentQuery, DocumentValues, StoredDocument, WireFields
from backend.text.patterns.pattern import compact, plain_tax_id

_VALIDITY = {"VendorTaxId": "vendor_tax_id", "CustomerTaxId": "customer_tax_id", "IBAN": "iban"}


def corrected_answer(stored: StoredDocument) -> dict[str, Any]:
    """The answer of POST /v1/documents as it is now, without the pages; each document with who confirmed it when."""
    documents = [_corrected(*part) for part in stored.parts]
    first = documents[0]
    return {
        **stored.answer,
        "fields": first["fields"],
        "fields_why": first["fields_why"],
        "fields_reasons": first["fields_reasons"],
        "valid": first["valid"],
        "documents": documents,
    }


def _corrected(read: Mapping[str, Any], changes: Sequence[DocumentChange]) -> dict[str, Any]:
    fields = dict(read["fields"])
    kind = read["kind"]
    for change in changes:
        for name, value in change.fields.items():
            if name == KIND:
                kind = value
            elif value is None:
                fields.pop(name, None)
            else:
                fields[name] = _field(name, value, change, read["fields"].get(name))
    last = changes[-1] if changes and changes[-1].action == "confirm" else None
    changed = frozenset(name for change in changes for name in change.fields)
    return {
        **read,
        "kind": kind,
        "fields": fields,
        "fields_reasons": reasons_in(read["fields_why"]),
        "valid": _validity(read, fields, changed),
        "confirmed": last is not None,
        "confirmed_by": None if last is None else last.by,
        "confirmed_at": None if last is None else last.at_s,
    }


KIND = "kind"  # is corrected as a field is


def _field(name: str, value: Any, change: DocumentChange, read: Mapping[str, Any] | None) -> dict[str, Any]:
    why = because("corrected", by=change.by)
    if name in LIST_COLUMNS:
        rows = [{column: _value(column, cell, why, None) for column, cell in row.items()} for row in value]
        return {
            "value": rows,
            "score": 1.0,
            "source": "person",
            "why": why,
            "reasons": reasons_in(why),
            "corrected": _corrected_by(change, None),
        }
    before = None if read is None else read["value"]
    return {**_value(name, value, why, read), "corrected": _corrected_by(change, before)}


def _value(name: str, value: Mapping[str, Any], why: str, read: Mapping[str, Any] | None) -> dict[str, Any]:
    """A corrected value; without a place of its own it stands where the one stood that was read."""
    source = value if value.get("boxes") else (read or {})
    return {
        "value": value["value"],
        "text": "" if read is None else read["text"],
        "score": 1.0,
        "page": source.get("page"),
        "boxes": source.get("boxes", []),
        "start": source.get("start"),
        "end": source.get("end"),
        "source": "person",
        "why": why,
        "reasons": reasons_in(why),
        "valid": check_digits(name, value["value"]),
        "repair": None,
        "ambiguous": False,
    }


def _corrected_by(change: DocumentChange, before: str | None) -> dict[str, Any]:
    return {"by": change.by, "at": change.at_s, "read": before}


def _validity(read: Mapping[str, Any], fields: WireFields, changed: frozenset[str]) -> dict[str, Any]:
    valid = dict(read["valid"])
    for name in _VALIDITY.keys() & changed:
        valid[name] = fields[name]["valid"] if name in fields else None
    if changed & AMOUNTS:
        checked = recheck(field_values(read["fields"]), valid["totals"], field_values(fields), changed)
        valid["totals"] = checked.totals
        valid["differences"] = [
            {"equation": wrong.equation, "expected": wrong.expected, "printed": wrong.printed}
            for wrong in checked.differences
        ]
    return valid


def field_values(fields: WireFields) -> FieldValues:
    """The bare values of a document's fields."""
    lists = {name: _rows(fields[name]["value"]) for name in LIST_COLUMNS.keys() & fields.keys()}
    return FieldValues({name: field["value"] for name, field in fields.items() if name not in LIST_COLUMNS}, lists)


def _rows(rows: Sequence[WireFields]) -> list[dict[str, str]]:
    return [{column: cell["value"] for column, cell in row.items()} for row in rows]


def values_of(answer: Mapping[str, Any]) -> tuple[DocumentValues, ...]:
    """What filters, sorting and duplicates look at, of each document of an answer."""
    return tuple(_values_of(document) for document in answer["documents"])


def _values_of(document: Mapping[str, Any]) -> DocumentValues:
    fields = document["fields"]

    def first(*names: str) -> str | None:
        return next((str(fields[name]["value"]) for name in names if name in fields), None)

    supplier, number = first("VendorName", "MerchantName", "AccountHolder"), first("InvoiceId", "AccountNumber")
    tax_id = first("VendorTaxId")
    return DocumentValues(
        kind=document["kind"],
        supplier=None if supplier is None else supplier.casefold(),
        supplier_tax_id=None if tax_id is None else plain_tax_id(tax_id),
        number=None if number is None else compact(number),
        date=first("InvoiceDate", "TransactionDate", "PeriodEnd"),
        due_date=first("DueDate"),
        base=_amount(first("SubTotal")),
        total=_amount(first("InvoiceTotal", "Total", "ClosingBalance")),
    )


def compared(query: DocumentQuery) -> list[tuple[str, str, Any]]:
    """The conditions of a query on `DocumentValues`: name, sign, and what it is compared with."""
    tax_id = None if query.supplier_tax_id is None else plain_tax_id(query.supplier_tax_id)
    conditions = [
        ("kind", "=", query.kind), ("supplier_tax_id", "=", tax_id),
        ("number", "=", None if query.number is None else compact(query.number)),
        ("date", ">=", query.date_from), ("date", "<=", query.date_to),
        ("due_date", ">=", query.due_from), ("due_date", "<=", query.due_to),
        ("total", ">=", None if query.total_from is None else float(query.total_from)),
        ("total", "<=", None if query.total_to is None else float(query.total_to)),
    ]  # fmt: skip
    return [condition for condition in conditions if condition[2] is not None]


_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {"=": operator.eq, ">=": operator.ge, "<=": operator.le}


def fits(query: DocumentQuery, values: DocumentValues) -> bool:
    """Whether one document of a file is what a query asks for, its state and id aside; as storages look for it."""
    if query.supplier is not None:
        is_part = query.supplier.casefold() in (values.supplier or "")
        if not is_part and plain_tax_id(query.supplier) != values.supplier_tax_id:
            return False
    pairs = [(getattr(values, name), sign, wanted) for name, sign, wanted in compared(query)]
    return all(value is not None and _SIGNS[sign](value, wanted) for value, sign, wanted in pairs)


def _amount(text: str | None) -> float | None:
    return None if text is None else float(Decimal(text))


def iso_time(at_s: float) -> str:
    """A point in time for a person to read."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
