"""Writes the books of many documents as an Excel workbook, as CSV or as JSON, in memory that does not grow with lines.

Values come from foreign documents, so nothing in them may run: text that a spreadsheet would take for a formula stays
text. Rows of a workbook go to temporary files; of a document only its ledger row is kept.
"""

from __future__ import annotations

import csv
import io
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import BinaryIO, Literal, Protocol, Self

import orjson
import xlsxwriter
from xlsxwriter.format import Format
from xlsxwriter.worksheet import Worksheet

from backend.books.ledger import BookedFile, LedgerRow, ledger_rows, mark_duplicates
from backend.books.views import (
    HEADERS,
    LEDGER,
    LINES,
    MOVEMENTS,
    SUPPLIERS,
    VIEWS,
    Cell,
    Kind,
    Locale,
    Row,
    View,
    ViewName,
    ledger_cells,
    streamed_cells,
    supplier_cells,
    worded,
)
from backend.errors import TooLarge

ExportFormat = Literal["xlsx", "csv", "json"]
WORKBOOK = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
MEDIA_TYPES: Mapping[ExportFormat, str] = {
    "xlsx": WORKBOOK,
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
}
MAX_ROWS = 1_048_575  # of a sheet, below its header
_MAX_CHARS = 32_767  # of a cell
_EXACT_DIGITS = 15  # of a number in a spreadsheet
_CREATED = datetime(1980, 1, 1, tzinfo=UTC)  # the same documents give the same bytes
_FIRST_YEAR = 1900  # of a spreadsheet's calendar, which has a 29 February in it
_WIDTHS: Mapping[Kind, int] = {"text": 18, "date": 12, "amount": 14, "number": 12, "code": 14, "tax": 10, "tax_id": 18}
_WIDE = {"supplier": 32, "customer": 32, "description": 48, "file": 28, "document_id": 30, "missing_numbers": 40}

_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,10})?")
# At the begin of a cell; also of what another separator makes one: a Spanish Excel splits at semicolons.
_FORMULA = re.compile(r"(^|[;\t\r\n])( *)(?=[=+\-@\t\r])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def harmless(text: str) -> str:
    """Text that a spreadsheet which reads CSV would take for a formula, behind an apostrophe; numbers stay numbers."""
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub(r"\1'\2", text)


def write_text(sheet: Worksheet, row: int, column: int, text: str, style: Format | None = None) -> None:
    """Text in a cell of a workbook, where it is never a formula, nor the markup of XlsxWriter's rich strings."""
    text = text[:_MAX_CHARS]
    sheet.write_string(row, column, f"{text} " if text.startswith("<r>") and text.endswith("</r>") else text, style)


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What to write."""

    format: ExportFormat
    view: ViewName | None  # None: of a workbook all of them, else the ledger
    locale: Locale


class _Tables(Protocol):
    """A file of tables under way. A table begins with its first row, or with `begin`."""

    def begin(self, view: View) -> None: ...

    def write(self, view: View, row: Row) -> None: ...

    def close(self) -> None:
        """Write what is left."""

    def discard(self) -> None:
        """Give back what was taken, whether or not it was closed."""


class BookExport:
    """Writes the documents that are added into ``target``. Blocks: for threads. Temporary files go when it is left."""

    def __init__(self, options: ExportOptions, target: BinaryIO) -> None:
        if options.view is None:
            views = (LEDGER, LINES, SUPPLIERS, MOVEMENTS) if options.format == "xlsx" else (LEDGER,)
        else:
            views = (VIEWS[options.view],)
        self._views = views
        self._rows: list[LedgerRow] = []
        self._tables = _WRITERS[options.format](target, options.locale)
        for view in views:
            if view is not MOVEMENTS or len(views) == 1:  # a sheet of them only where there are any
                self._tables.begin(view)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tables.discard()

    def add(self, file: BookedFile) -> None:
        """The documents of one file. Raises: TooLarge for more lines than a sheet holds."""
        rows = list(ledger_rows(file))
        self._rows += rows
        for view in self._views:
            if view in (LINES, MOVEMENTS):
                self._write(view, streamed_cells(view, file, rows))

    def finish(self) -> None:
        """Write what needs all documents: the ledger with its duplicates, and the suppliers."""
        if LEDGER in self._views:
            booked = (row for row in mark_duplicates(self._rows) if row.is_bookable)
            self._write(LEDGER, (cells for row in booked for cells in ledger_cells(row)))
        if SUPPLIERS in self._views:
            self._write(SUPPLIERS, supplier_cells(self._rows))
        self._tables.close()

    def _write(self, view: View, rows: Iterator[Row]) -> None:
        for row in rows:
            self._tables.write(view, row)


class _Workbook:
    """A sheet for each table; dates and amounts are what they are, and look as the reader's Excel is set."""

    def __init__(self, target: BinaryIO, locale: Locale) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="books-")  # rows, sheet by sheet
        options = {"constant_memory": True, "tmpdir": self._folder.name, "strings_to_formulas": False}
        self._book = xlsxwriter.Workbook(target, {**options, "strings_to_urls": False})
        self._book.set_properties({"created": _CREATED})
        self._locale, self._words = locale, HEADERS[locale]
        self._bold = self._book.add_format({"bold": True, "bottom": 1})
        self._styles = {
            "amount": self._book.add_format({"num_format": "#,##0.00"}),
            "date": self._book.add_format({"num_format": "dd/mm/yyyy" if locale == "es" else "yyyy-mm-dd"}),
        }
        self._sheets: dict[ViewName, Worksheet] = {}
        self._rows: dict[ViewName, int] = {}  # written, below the header

    def begin(self, view: View) -> None:
        sheet = self._sheets[view.name] = self._book.add_worksheet(self._words[view.name])
        self._rows[view.name] = 0
        for column, (key, kind) in enumerate(view.columns):
            sheet.set_column(column, column, _WIDE.get(key, _WIDTHS[kind]))
            sheet.write_string(0, column, self._words[key], self._bold)
        sheet.freeze_panes(1, 0)

    def write(self, view: View, row: Row) -> None:
        if view.name not in self._sheets:
            self.begin(view)
        self._rows[view.name] += 1
        at = self._rows[view.name]
        if at > MAX_ROWS:
            advice = "Choose fewer documents, or format=csv"
            raise TooLarge(f"rows of {view.name}", at, MAX_ROWS, "what a sheet of Excel holds", advice=advice)
        for column, ((_, kind), cell) in enumerate(zip(view.columns, row, strict=True)):
            if cell is not None:
                self._write_cell(self._sheets[view.name], at, column, kind, cell)

    def _write_cell(self, sheet: Worksheet, row: int, column: int, kind: Kind, cell: str | Decimal) -> None:
        style = self._styles.get(kind)
        if isinstance(cell, Decimal):
            if len(cell.as_tuple().digits) <= _EXACT_DIGITS:
                sheet.write_number(row, column, float(cell), style)
            else:
                write_text(sheet, row, column, f"{cell:f}")
        elif kind == "date" and (day := _day(cell)) is not None:
            sheet.write_datetime(row, column, day, style)
        else:
            write_text(sheet, row, column, worded(kind, cell, self._locale))

    def close(self) -> None:
        for name, sheet in self._sheets.items():
            sheet.autofilter(0, 0, max(self._rows[name], 1), len(VIEWS[name].columns) - 1)
        self._book.close()

    def discard(self) -> None:
        for sheet in self._sheets.values():
            sheet.row_data_fh.close()
        self._folder.cleanup()


class _Csv:
    """One table: for a Spanish Excel with its separators and a mark that it is UTF-8, else RFC 4180."""

    def __init__(self, target: BinaryIO, locale: Locale) -> None:
        self._locale, self._words = locale, HEADERS[locale]
        self._text = io.TextIOWrapper(target, "utf-8-sig" if locale == "es" else "utf-8", "replace", newline="")
        self._rows = csv.writer(self._text, delimiter=";" if locale == "es" else ",")

    def begin(self, view: View) -> None:
        self._rows.writerow([self._words[key] for key, _ in view.columns])

    def write(self, view: View, row: Row) -> None:
        self._rows.writerow([self._cell(kind, cell) for (_, kind), cell in zip(view.columns, row, strict=True)])

    def _cell(self, kind: Kind, cell: Cell) -> str:
        if cell is None:
            return ""
        if isinstance(cell, Decimal):
            return f"{cell:f}".replace(".", ",") if self._locale == "es" else f"{cell:f}"
        if kind == "date" and (day := _day(cell)) is not None:
            return f"{day:%d/%m/%Y}" if self._locale == "es" else cell
        return harmless(_CONTROL.sub(" ", worded(kind, cell, self._locale)))

    def close(self) -> None:
        self._text.flush()

    def discard(self) -> None:
        self._text.detach()  # else it would close the target with itself


class _Json:
    """One table as a list of objects: names and values as the API has them, whatever the language."""

    def __init__(self, target: BinaryIO, locale: Locale) -> None:  # noqa: ARG002 - one signature for all
        self._target, self._count = target, 0

    def begin(self, view: View) -> None:
        self._target.write(b'{"object":"list","view":"%s","data":[' % view.name.encode())

    def write(self, view: View, row: Row) -> None:
        names = (key for key, _ in view.columns)
        cells = (f"{cell:f}" if isinstance(cell, Decimal) else cell for cell in row)
        self._target.write((b",\n" if self._count else b"\n") + orjson.dumps(dict(zip(names, cells, strict=True))))
        self._count += 1

    def close(self) -> None:
        self._target.write(b"\n]}\n")

    def discard(self) -> None:
        """Nothing was taken."""


_WRITERS: Mapping[ExportFormat, Callable[[BinaryIO, Locale], _Tables]] = {"xlsx": _Workbook, "csv": _Csv, "json": _Json}


def _day(text: str) -> date | None:
    """The day that an ISO date names and a spreadsheet's calendar has."""
    try:
        day = date.fromisoformat(text) if _ISO_DAY.fullmatch(text) else None
    except ValueError:
        return None
    return day if day is not None and day.year >= _FIRST_YEAR else None


_SPANISH_NAMES: Mapping[ViewName, str] = {
    "ledger": "facturas-recibidas",
    "lines": "lineas",
    "suppliers": "proveedores",
    "movements": "movimientos",
}


def file_name(options: ExportOptions) -> str:
    """What to call the file, in ASCII."""
    if options.view is None and options.format == "xlsx":
        return "libro.xlsx" if options.locale == "es" else "books.xlsx"
    view = options.view or "ledger"
    return f"{_SPANISH_NAMES[view] if options.locale == 'es' else view}.{options.format}"
