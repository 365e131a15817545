"""Answers about the fields and tables of documents."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from pydantic import Field as Described
from typing_extensions import TypedDict

from backend.documents.formats.plain_json import sides
from backend.files.pages import Box
from backend.invoices.records import ExtractedFields, Field, FieldRow, Validity
from backend.tables.records import Table, TableCell

Sides = tuple[float, float, float, float]
_LISTS = ("Items", "TaxDetails", "Movements")


class FieldValueAnswer(TypedDict):
    """One value and where it stands."""

    value: Annotated[str, Described(description="ISO 8601 date, decimal, id without separators, or text.")]
    text: Annotated[str, Described(description="As printed; empty where it is not.")]
    score: float
    page: Annotated[int | None, Described(description="Number of the page; null for a text, or what is not printed.")]
    boxes: Annotated[list[Sides], Described(description="One for each printed line, in page units.")]
    start: Annotated[int | None, Described(description="Code points of the document's `text`.")]
    end: int | None
    source: Literal["text", "xml", "qr", "computed"]
    why: Annotated[str, Described(description="By what it was found.")]
    valid: Annotated[bool | None, Described(description="By check digits or the calendar; null where neither applies.")]
    repair: Annotated[str | None, Described(description="The likely value of an id whose check digits fail; an offer.")]
    ambiguous: Annotated[bool, Described(description="Day and month of this date cannot be told apart.")]


class FieldListAnswer(TypedDict):
    """A list of goods, rates of tax or movements: each a value by name."""

    value: list[dict[str, FieldValueAnswer]]
    score: float
    source: Literal["text", "xml", "qr", "computed"]
    why: str


class DifferenceAnswer(TypedDict):
    """An equation that does not hold."""

    equation: str
    expected: Annotated[str, Described(description="What its parts give, decimal.")]
    printed: str


class ValidityAnswer(TypedDict):
    """What could be checked; null where a part for it is missing."""

    totals: bool | None
    VendorTaxId: bool | None
    CustomerTaxId: bool | None
    IBAN: bool | None
    differences: list[DifferenceAnswer]


FieldsAnswer = dict[str, FieldValueAnswer | FieldListAnswer]


class TableCellAnswer(TypedDict):
    """One cell."""

    row: int
    column: int
    rowspan: int
    colspan: int
    text: str
    value: Annotated[str | None, Described(description="Of a number or a date: decimal or ISO 8601.")]
    header: bool
    page: int
    boxes: list[Sides]
    start: int | None
    end: int | None


class TableAnswer(TypedDict):
    """One table; one that goes on over several pages is joined, its header given once."""

    page: Annotated[int, Described(description="The first of its pages.")]
    pages: list[int]
    boxes: Annotated[list[Sides], Described(description="Its outline on each of its pages, in page units.")]
    rows: int
    columns: int
    source: Literal["ruled", "half_ruled", "borderless"]
    score: float
    cells: list[TableCellAnswer]


def fields_answer(extracted: ExtractedFields | None) -> FieldsAnswer:
    """The fields by name; empty where none were found."""
    return {} if extracted is None else {field.name: _field_answer(field) for field in extracted.fields}


def validity_answer(validity: Validity) -> ValidityAnswer:
    return {
        "totals": validity.totals,
        "VendorTaxId": validity.vendor_tax_id,
        "CustomerTaxId": validity.customer_tax_id,
        "IBAN": validity.iban,
        "differences": [
            {"equation": difference.equation, "expected": difference.expected, "printed": difference.printed}
            for difference in validity.differences
        ],
    }


def table_answer(table: Table) -> TableAnswer:
    return {
        "page": table.pages[0],
        "pages": list(table.pages),
        "boxes": _boxes(table.boxes),
        "rows": table.rows,
        "columns": table.columns,
        "source": table.source,
        "score": table.score,
        "cells": [_cell_answer(cell) for cell in table.cells],
    }


def _field_answer(field: Field) -> FieldValueAnswer | FieldListAnswer:
    if field.name in _LISTS:
        rows = [_row_answer(row) for row in field.rows]
        return {"value": rows, "score": field.score, "source": field.source, "why": field.why}
    return _value_answer(field)


def _row_answer(row: FieldRow) -> dict[str, FieldValueAnswer]:
    return {field.name: _value_answer(field) for field in row.fields}


def _value_answer(field: Field) -> FieldValueAnswer:
    return {
        "value": field.value,
        "text": field.text,
        "score": field.score,
        "page": field.places[0].page if field.places else None,
        "boxes": _boxes(tuple(place.box for place in field.places)),
        "start": field.start,
        "end": field.end,
        "source": field.source,
        "why": field.why,
        "valid": field.valid,
        "repair": field.repair,
        "ambiguous": field.ambiguous,
    }


def _cell_answer(cell: TableCell) -> TableCellAnswer:
    return {
        "row": cell.row,
        "column": cell.column,
        "rowspan": cell.rowspan,
        "colspan": cell.colspan,
        "text": cell.text,
        "value": cell.value,
        "header": cell.header,
        "page": cell.page,
        "boxes": _boxes(cell.boxes),
        "start": cell.start,
        "end": cell.end,
    }


def _boxes(boxes: tuple[Box, ...]) -> list[Sides]:
    return [cast("Sides", tuple(sides(box))) for box in boxes]


FIELD_EXAMPLE: FieldValueAnswer = {
    "value": "1284.50",
    "text": "1.284,50 €",
    "score": 0.97,
    "page": 1,
    "boxes": [(430.2, 610.5, 492.8, 622.1)],
    "start": 190,
    "end": 200,
    "source": "text",
    "why": "right of 'Total factura'; base + tax agree with it",
    "valid": None,
    "repair": None,
    "ambiguous": False,
}
VALIDITY_EXAMPLE: ValidityAnswer = {
    "totals": True,
    "VendorTaxId": True,
    "CustomerTaxId": None,
    "IBAN": None,
    "differences": [],
}
TABLE_EXAMPLE: TableAnswer = {
    "page": 1,
    "pages": [1],
    "boxes": [(56.7, 180.0, 538.6, 420.0)],
    "rows": 1,
    "columns": 1,
    "source": "ruled",
    "score": 0.98,
    "cells": [
        {
            "row": 0,
            "column": 0,
            "rowspan": 1,
            "colspan": 1,
            "text": "1.284,50 €",
            "value": "1284.50",
            "header": False,
            "page": 1,
            "boxes": [(430.2, 310.5, 492.8, 322.1)],
            "start": 90,
            "end": 100,
        }
    ],
}
