"""Workbooks read back, by openpyxl and by LibreOffice."""

import io
import subprocess
from pathlib import Path
from typing import Any

import openpyxl


def sheets_of(book: bytes) -> dict[str, list[dict[str, Any]]]:
    """The rows of each sheet by its headers; empty cells left out."""
    sheets = {}
    for sheet in openpyxl.load_workbook(io.BytesIO(book)):
        headers, *rows = sheet.values
        named = [dict(zip(headers, row, strict=True)) for row in rows]
        sheets[sheet.title] = [{name: cell for name, cell in row.items() if cell is not None} for row in named]
    return sheets


def converted(book: bytes, folder: Path) -> bytes:
    """The workbook as LibreOffice writes it again from what it has read: to its own format and back."""
    (folder / "libro.xlsx").write_bytes(book)
    for source, form, target in (
        ("libro.xlsx", "ods", folder),
        ("libro.ods", "xlsx:Calc MS Excel 2007 XML", folder / "back"),
    ):
        profile = f"-env:UserInstallation=file://{folder}/profile"
        command = [
            "soffice",
            profile,
            "--headless",
            "--convert-to",
            form,
            "--outdir",
            str(target),
            str(folder / source),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return (folder / "back" / "libro.xlsx").read_bytes()
