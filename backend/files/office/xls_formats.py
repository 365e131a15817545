"""The number formats of an old workbook's cells, which python-calamine does not tell.

Source: Microsoft's [MS-XLS], 2.1.4 (records) and 2.4 (FORMAT, XF, BOUNDSHEET, NUMBER, RK, MULRK, FORMULA).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from backend.files.office.number_formats import BUILT_IN, GENERAL, NumberFormat, number_format

Formats = Mapping[tuple[int, int], NumberFormat]  # by row and column from 0

_BOF, _EOF, _FORMAT, _XF, _BOUNDSHEET, _MULRK = 0x0809, 0x000A, 0x041E, 0x00E0, 0x0085, 0x00BD
_NUMBERS = (0x0203, 0x027E, 0x0006)  # NUMBER, RK, FORMULA: each begins with row, column and the index of its XF
_BIFF8 = 0x0600  # Excel 97 and later; before, texts are of a code page
_MAX_CELLS = 1_000_000


def cell_formats(stream: bytes) -> dict[str, Formats]:
    """By the names of the sheets the formats of their numbers; nothing of what cannot be followed.

    Args:
        stream: the workbook's stream of the compound file.
    """
    try:
        return _cell_formats(stream)
    except (struct.error, UnicodeDecodeError):  # a broken record: the numbers themselves are read anyway
        return {}


def _cell_formats(stream: bytes) -> dict[str, Formats]:
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
        for row, column, style in _cells(stream, place):
            if style < len(formats) and len(cells) < left:
                cells[row, column] = formats[style]
        found[name] = cells
        left -= len(cells)
    return found


def _cells(stream: bytes, place: int) -> Iterator[tuple[int, int, int]]:
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
