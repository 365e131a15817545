"""Reads what old office programs wrote into compound files (OLE): workbooks and mail; tells what the others are.

The number formats of a workbook's cells, which python-calamine does not tell, after Microsoft's [MS-XLS], 2.1.4
(records) and 2.4 (FORMAT, XF, BOUNDSHEET, NUMBER, RK, MULRK, FORMULA).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any, BinaryIO

import olefile

from backend.errors import UnreadableFile
from backend.files.file_types import FileType
from backend.files.office.content import Content
from backend.files.office.mail import read_msg
from backend.files.office.number_formats import BUILT_IN, GENERAL, NumberFormat, number_format, plain_number, shown
from backend.files.set_pages import Cell

_OTHERS = {"WordDocument": FileType.DOC, "PowerPoint Document": FileType.PPT}
_ENCRYPTED = frozenset({"EncryptedPackage", "EncryptionInfo"})
Formats = Mapping[tuple[int, int], NumberFormat]  # by row and column from 0
_BOF, _EOF, _FORMAT, _XF, _BOUNDSHEET, _MULRK = 0x0809, 0x000A, 0x041E, 0x00E0, 0x0085, 0x00BD
_NUMBERS = (0x0203, 0x027E, 0x0006)  # NUMBER, RK, FORMULA: each begins with row, column and the index of its XF
_BIFF8 = 0x0600  # Excel 97 and later; before, texts are of a code page
_MAX_CELLS = 1_000_000


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
        _read_workbook(source.read(), number_formats_of(workbook), content)
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


def number_formats_of(stream: bytes) -> dict[str, Formats]:
    """By the names of the sheets the formats of their numbers; nothing of what cannot be followed.

    Args:
        stream: the workbook's stream of the compound file.
    """
    try:
        return _number_formats_in(stream)
    except (struct.error, UnicodeDecodeError):  # a broken record: the numbers themselves are read anyway
        return {}


def _number_formats_in(stream: bytes) -> dict[str, Formats]:
    codes, styles, sheets = dict(BUILT_IN), list[int](), dict[str, int]()
    for kind, data in _records(stream, 0):
        if kind == _BOF and struct.unpack_from("<H", data)[0] != _BIFF8:
            return {}
        if kind == _FORMAT:
            number, length, wide = struct.unpack_from("<HHB", data)
            codes[number] = _text(data[5:], length, wide)
        elif kind == _XF:
            styles.append(struct.unpack_from("<2xH", data)[0])
        elif kind == _BOUNDSHEET:
            place, length, wide = struct.unpack_from("<IxxBB", data)
            sheets[_text(data[8:], length, wide)] = place
    formats = [number_format(codes.get(number, GENERAL)) for number in styles]
    left, found = _MAX_CELLS, dict[str, Formats]()
    for name, place in sheets.items():
        cells: dict[tuple[int, int], NumberFormat] = {}
        for row, column, style in _cells_of_sheet(stream, place):
            if style < len(formats) and len(cells) < left:
                cells[row, column] = formats[style]
        found[name] = cells
        left -= len(cells)
    return found


def _cells_of_sheet(stream: bytes, place: int) -> Iterator[tuple[int, int, int]]:
    """Row, column and style of each number of the sheet that begins at a place of the stream."""
    for kind, data in _records(stream, place):
        if kind in _NUMBERS:
            yield struct.unpack_from("<HHH", data)
        elif kind == _MULRK:
            row, first = struct.unpack_from("<HH", data)
            for index in range((len(data) - 6) // 6):
                yield row, first + index, struct.unpack_from("<H", data, 4 + 6 * index)[0]


def _records(stream: bytes, place: int) -> Iterator[tuple[int, bytes]]:
    """Kind and data of the records from a place to the end of what begins there, without charts inside it."""
    depth = 0
    while place + 4 <= len(stream):
        kind, length = struct.unpack_from("<HH", stream, place)
        depth += (kind == _BOF) - (kind == _EOF)
        if depth <= 1:
            yield kind, stream[place + 4 : place + 4 + length]
        if depth <= 0:
            return
        place += 4 + length


def _text(data: bytes, length: int, wide: int) -> str:
    return data[: 2 * length].decode("utf-16-le") if wide & 1 else data[:length].decode("latin-1")
