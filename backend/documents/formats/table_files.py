"""Lines of goods, fields and tables as CSV and as an Excel workbook.

CSV is for programs: RFC 4180 with commas, UTF-8 without a mark, decimals with a point. The workbook is for people. Both
come from foreign documents, so nothing in them may run: text that a spreadsheet would take for a formula stays text.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import xlsxwriter
from xlsxwriter.format import Format
from xlsxwriter.worksheet import Worksheet

from backend.books.exports import harmless, write_text
from backend.documents.formats.page_flow import grid_of
from backend.files.pages import Document
from backend.invoices.records import Field
from backend.invoices.structure import fields_of, tables_of
from backend.tables.records import Table, TableCell

_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,10})?")  # what a spreadsheet holds exactly: 15 digits
_WIDEST = 60  # characters of a column
_CREATED = datetime(1980, 1, 1, tzinfo=UTC)  # the same document gives the same bytes

Rows = list[list[str]]


def stream_csv(document: Document) -> Iterator[bytes]:
    """Lists of fields (lines of goods, taxes, movements), then each table; an empty line between."""
    lists = [_rows_of_list(field) for field in _lists(fields_of(document).fields)]
    for index, rows in enumerate([*lists, *map(_rows_of_table, tables_of(document))]):
        target = io.StringIO()
        csv.writer(target, quoting=csv.QUOTE_ALL).writerows([[harmless(text) for text in row] for row in rows])
        yield ("\r\n" * bool(index) + target.getvalue()).encode("utf-8", "replace")


def stream_workbook(document: Document) -> Iterator[bytes]:
    """A sheet for each list of fields, one for the fields, one for each table."""
    target = io.BytesIO()
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(target, options) as book:
        book.set_properties({"created": _CREATED})
        bold, wrapped = book.add_format({"bold": True}), book.add_format({"text_wrap": True})
        fields = fields_of(document).fields
        for field in _lists(fields):
            _write_rows(book.add_worksheet(field.name), _rows_of_list(field), bold)
        single = [field for field in fields if not field.rows]
        rows = [["Field", "Value", "Printed", "Why"], *([one.name, one.value, one.text, one.why] for one in single)]
        _write_rows(book.add_worksheet("Fields"), rows, bold)
        for index, table in enumerate(tables_of(document), 1):
            _write_table(book.add_worksheet(f"Table {index}"), table, bold, wrapped)
    yield target.getvalue()


def _lists(fields: Sequence[Field]) -> list[Field]:
    """The fields that are lists, the lines of goods first."""
    return sorted((field for field in fields if field.rows), key=lambda field: field.name != "Items")


def _rows_of_list(field: Field) -> Rows:
    columns = list(dict.fromkeys(one.name for row in field.rows for one in row.fields))
    rows = (row.values for row in field.rows)
    return [columns, *([values.get(column, "") for column in columns] for values in rows)]


def _rows_of_table(table: Table) -> Rows:
    return grid_of(table, _value)


def _value(cell: TableCell) -> str:
    return cell.text if cell.value is None else cell.value


def _write_rows(sheet: Worksheet, rows: Rows, bold: Format) -> None:
    for row, values in enumerate(rows):
        for column, text in enumerate(values):
            _write(sheet, row, column, text, bold if row == 0 else None)
    _fit(sheet, rows)
    sheet.freeze_panes(1, 0)


def _write_table(sheet: Worksheet, table: Table, bold: Format, wrapped: Format) -> None:
    for cell in table.cells:
        style = bold if cell.header else wrapped if len(cell.text) > _WIDEST else None
        if cell.rowspan > 1 or cell.colspan > 1:
            last = (cell.row + cell.rowspan - 1, cell.column + cell.colspan - 1)
            sheet.merge_range(cell.row, cell.column, *last, "", style)
        _write(sheet, cell.row, cell.column, _value(cell), style)
    _fit(sheet, _rows_of_table(table))


def _write(sheet: Worksheet, row: int, column: int, text: str, style: Format | None) -> None:
    if _NUMBER.fullmatch(text) and not (text.startswith("0") and text.isdigit() and len(text) > 1):  # 0017 is a code
        sheet.write_number(row, column, float(text), style)
    else:
        write_text(sheet, row, column, text, style)


def _fit(sheet: Worksheet, rows: Rows) -> None:
    for column in range(len(rows[0]) if rows else 0):
        widest = max(len(row[column]) for row in rows)
        sheet.set_column(column, column, min(_WIDEST, widest + 2))
