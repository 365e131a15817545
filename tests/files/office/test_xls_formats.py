"""Number formats of old workbooks; tests/files/office/test_samples.py reads one that Calc wrote."""

import struct

import pytest

from backend.files.office.number_formats import NumberFormat
from backend.files.office.ole import number_formats_of

_BIFF8 = struct.pack("<HH", 0x0600, 5)
_END = struct.pack("<HH", 0x000A, 0)


def record(kind: int, data: bytes) -> bytes:
    return struct.pack("<HH", kind, len(data)) + data


def workbook(begin: bytes = _BIFF8) -> bytes:
    """Two styles, and a sheet with a number, two numbers in one record and a formula beside a chart."""
    code = "#,##0.0 €".encode("utf-16-le")
    styles = [record(0x00E0, struct.pack("<HH16x", 0, number)) for number in (10, 200)]
    head = [record(0x0809, begin), record(0x041E, struct.pack("<HHB", 200, len(code) // 2, 1) + code), *styles]
    name = b"Hoja"
    place = len(b"".join(head)) + 4 + 8 + len(name) + len(_END)
    chart = [record(0x0809, _BIFF8), record(0x0203, struct.pack("<HHHd", 9, 9, 0, 1.0)), _END]
    sheet = [
        record(0x0809, _BIFF8),
        *chart,
        record(0x0203, struct.pack("<HHHd", 0, 1, 0, 0.21)),
        record(0x00BD, struct.pack("<HHHIHIH", 2, 3, 1, 0, 0, 0, 4)),
        record(0x0006, struct.pack("<HHH14x", 5, 0, 1)),
        _END,
    ]
    return b"".join([*head, record(0x0085, struct.pack("<IHBB", place, 0, len(name), 0) + name), _END, *sheet])


def test_formats_of_numbers():
    """By sheet, row and column; those of a chart's own numbers are no cells'."""
    percent, euros = NumberFormat("percent", 2), NumberFormat("number", 1, "", "€")

    assert {"Hoja": {(0, 1): percent, (2, 3): euros, (2, 4): percent, (5, 0): euros}} == number_formats_of(workbook())


@pytest.mark.parametrize("cut", range(0, 220, 7))
def test_a_broken_stream(cut: int):
    """What is cut off gives no more than what the whole one has."""
    whole = number_formats_of(workbook())["Hoja"]
    found = number_formats_of(workbook()[:cut])

    assert found.get("Hoja", {}).items() <= whole.items()


def test_workbooks_before_excel_97():
    assert {} == number_formats_of(workbook(struct.pack("<HH", 0x0500, 5)))
