"""Tesseract as a program, through pytesseract: one call a page. For machines without the library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.errors import InferenceFailed, SetupError
from backend.ocr.records import Gray
from backend.ocr.tessdata import Tessdata
from backend.ocr.tesseract_words import TesseractResult, TesseractWord, result_of

_WORD = "5"  # the level of a row of TSV that is a word
_COLUMNS = 12
_VERSION_TIMEOUT_S = 10.0
# Environment variables that the program needs.
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


class TesseractProgram:
    """A `TesseractBackend` that starts the ``tesseract`` program for each page, and kills it at the time limit."""

    def __init__(self, data: Tessdata, program: str = "tesseract") -> None:
        """Check the version of the program.

        Raises:
            SetupError: pytesseract or the program is absent.
        """
        self.data = data
        self._version = _version_of(program)
        self._pytesseract = _load(program)

    @property
    def version(self) -> str:
        return self._version

    @property
    def why(self) -> str:
        return "as a program"

    def work_clock(self) -> float:
        """The time of ended programs on cores, of other pages too: never less than what this page has cost."""
        if sys.platform == "win32":  # tells nothing about programs that have ended
            return time.monotonic()
        times = os.times()
        return times.children_user + times.children_system

    def recognize(self, gray: Gray, codes: tuple[str, ...], dpi: float, limit_s: float) -> TesseractResult:
        height, width_px = gray.shape
        with tempfile.TemporaryDirectory(prefix="ocr-") as folder:
            page = Path(folder) / "page.pgm"  # raw pixels: no time for a PNG
            page.write_bytes(b"P5 %d %d 255\n" % (width_px, height) + gray.tobytes())
            table = self._table(page, codes, dpi, limit_s)
        return result_of(_words(table or ""), width_px, height)._replace(complete=table is not None)

    def _table(self, page: Path, codes: tuple[str, ...], dpi: float, limit_s: float) -> str | None:
        """Its output; None when its time was over."""
        config = f'--dpi {round(dpi)} --psm 3 --tessdata-dir "{self.data.folder.as_posix()}"'
        try:
            return str(self._pytesseract.image_to_data(str(page), lang="+".join(codes), config=config, timeout=limit_s))
        except self._pytesseract.TesseractError as error:
            raise InferenceFailed(f"Tesseract failed on this page: {str(error.message)[:300]}") from error
        except RuntimeError:  # of pytesseract, after it has killed the program
            return None


def _words(table: str) -> Iterator[TesseractWord]:
    """The rows of words: level, page, block, paragraph, line, word, left, top, width, height, confidence, text."""
    paragraph = line = -1
    previous = ("", "")
    for row in table.splitlines():
        cells = row.split("\t")
        if cells[0] != _WORD or len(cells) < _COLUMNS:
            continue
        ids = ("/".join(cells[2:4]), "/".join(cells[2:5]))
        paragraph += ids[0] != previous[0]
        line += ids[1] != previous[1]
        previous = ids
        left, top, width_px, height = (int(cell) for cell in cells[6:10])
        box = (left, top, left + width_px, top + height)
        yield TesseractWord(cells[11], box, float(cells[10]) / 100, paragraph, line)


def _version_of(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise SetupError(f"the program '{program}' is not on this machine (install tesseract-ocr)")
    try:
        answer = subprocess.run(  # noqa: S603 - a program of this machine, found by name
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=True,
            errors="replace",
        )
        return (answer.stdout or answer.stderr).split()[1].removeprefix("v")
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise SetupError(f"the program '{path}' does not say its version: {error}") from error


def _load(program: str) -> Any:
    try:
        import pytesseract  # lazily: only where the library is absent or the setting asks for it
    except ImportError as error:
        raise SetupError(f"pytesseract cannot be imported ({error}); install it") from error
    inner = pytesseract.pytesseract
    inner.tesseract_cmd = program
    # What the program inherits: no secrets of this service. One thread a page: OpenMP's four would take other lanes'
    # cores for 8 % less time. Set for the program only, as torch uses OpenMP in this process.
    inherited = {name: inner.environ[name] for name in _INHERITED if name in inner.environ}
    inner.environ = {**inherited, "OMP_THREAD_LIMIT": "1"}
    return pytesseract
