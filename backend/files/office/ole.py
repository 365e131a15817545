"""Reads what old office programs wrote into compound files (OLE): workbooks and mail; tells what the others are."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any, BinaryIO

import olefile

from backend.errors import UnreadableFile
from backend.files.file_types import FileType
from backend.files.office.content import Content
from backend.files.office.mail import read_msg
from backend.files.office.number_formats import NumberFormat, plain_number, shown
from backend.files.office.xls_formats import Formats, cell_formats
from backend.files.set_pages import Cell

_OTHERS = {"WordDocument": FileType.DOC, "PowerPoint Document": FileType.PPT}
_ENCRYPTED = frozenset({"EncryptedPackage", "EncryptionInfo"})


def read_ole(source: BinaryIO, content: Content) -> FileType:
    """Set a workbook or a message; a document or a presentation is told, and `office_converter` reads it.

    Raises: UnreadableFile for broken and encrypted ones, those with macros, and other files.
    """
    try:
        with olefile.OleFileIO(source) as ole:
            names = {path[0] for path in ole.listdir(streams=True, storages=True)}
            workbook = ole.openstream("Workbook").read() if "Workbook" in names else b""
    except (OSError, ValueError, IndexError) as error:
        raise UnreadableFile(f"file: it is a broken compound file ({str(error)[:200]})") from error
    if names & _ENCRYPTED:
        raise UnreadableFile("file: it is encrypted; save it without a password")
    if names & {"Workbook", "Book"}:
        _check_macros(names)
        source.seek(0)
        _read_workbook(source.read(), cell_formats(workbook), content)
        return FileType.XLS
    if "__properties_version1.0" in names:
        source.seek(0)
        read_msg(source, content)
        return FileType.MSG
    kind = next((kind for name, kind in _OTHERS.items() if name in names), None)
    if kind is None:
        raise UnreadableFile("file: it is a compound file (OLE), but no document, workbook, presentation or message")
    _check_macros(names)
    return kind


def _check_macros(names: set[str]) -> None:
    if names & {"_VBA_PROJECT_CUR", "Macros"}:
        raise UnreadableFile("file: it holds macros, which are neither run nor read here; save it without them")


def _read_workbook(data: bytes, formats: Mapping[str, Formats], content: Content) -> None:
    from python_calamine import CalamineError, CalamineWorkbook, SheetVisibleEnum  # a megabyte for few files

    try:
        _set_sheets(CalamineWorkbook.from_filelike(io.BytesIO(data)), SheetVisibleEnum.Visible, formats, content)
    except CalamineError as error:
        raise UnreadableFile(f"file: it is a broken or encrypted workbook ({str(error)[:200]})") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's, which no name can be imported for, is no Exception
            raise
        raise UnreadableFile(f"file: it is a broken workbook ({str(error)[:200]})") from error


def _set_sheets(book: Any, visible: Any, formats: Mapping[str, Formats], content: Content) -> None:
    sheets = [sheet for sheet in book.sheets_metadata if sheet.visible is visible]
    content.require_pages("sheets", len(sheets))
    for sheet in sheets:
        content.setter.begin_part(sheet.name)
        read = book.get_sheet_by_name(sheet.name)
        spans = {start: (end[0] - start[0] + 1, end[1] - start[1] + 1) for start, end in read.merged_cell_ranges or ()}
        first_row, first_column = read.start or (0, 0)
        cells = _cells(read.iter_rows(), first_row, first_column, formats.get(sheet.name, {}))
        content.setter.table(cells, is_sheet=True, spans=spans)


def _cells(rows: Iterator[list[Any]], first_row: int, first_column: int, formats: Formats) -> Iterator[Cell]:
    for row, values in enumerate(rows, first_row):
        for column, value in enumerate(values, first_column):
            if text := _shown(value, formats.get((row, column))):
                yield Cell(row, column, text)


def _shown(value: Any, form: NumberFormat | None) -> str:
    """A value as text: numbers in their format or with the digits they have, dates in ISO 8601."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float | int):
        return shown(value, form) if form and form.kind in ("number", "percent") else plain_number(value)
    if isinstance(value, datetime):
        is_day = value.time() == time(0)
        return value.date().isoformat() if is_day else value.isoformat(" ", "minutes")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    return str(value)
