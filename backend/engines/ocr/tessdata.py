"""Finds the folder of Tesseract's language data and the languages in it. Loads none of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from backend.engines.ocr.languages import iso_codes
from backend.errors import SetupError

_SUFFIX = ".traineddata"
_SAMPLE_BYTES = 65_536
_NOT_LANGUAGES = frozenset({"osd", "equ"})  # orientation and script, equations
_PROGRAM_TIMEOUT_S = 10.0  # the program answers in milliseconds
_USUAL_FOLDERS = (
    "/usr/share/tesseract-ocr/5/tessdata",  # Debian, Ubuntu
    "/usr/share/tesseract-ocr/5.00/tessdata",
    "/usr/share/tesseract-ocr/4.00/tessdata",
    "/usr/share/tessdata",  # Alpine, Fedora, Arch
    "/usr/share/tesseract/tessdata",  # openSUSE
    "/usr/local/share/tessdata",  # built from source; Homebrew on Intel
    "/opt/homebrew/share/tessdata",  # Homebrew on Apple silicon
    "/opt/local/share/tessdata",  # MacPorts
    "C:/Program Files/Tesseract-OCR/tessdata",
)


@dataclass(frozen=True, slots=True)
class Tessdata:
    folder: Path
    codes: tuple[str, ...]  # Tesseract's names, sorted: ("eng", "spa")
    why: str  # how it was found; one sentence

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 of what it can read."""
        return iso_codes(self.codes)

    def digest(self) -> str:
        """Twelve hexadecimal digits of the files: with other data pages have other words. Reads 128 KiB of each.

        Names, sizes, beginnings and ends: data of one name and one size that differ in the middle alone do not occur.
        """
        hashed = hashlib.blake2b(digest_size=6)
        for file in sorted(self.folder.glob(f"*{_SUFFIX}")):
            try:
                with file.open("rb") as stream:
                    size = stream.seek(0, os.SEEK_END)
                    hashed.update(f"{file.name} {size} ".encode())
                    for start in (0, max(0, size - _SAMPLE_BYTES)):
                        stream.seek(start)
                        hashed.update(stream.read(_SAMPLE_BYTES))
            except OSError as error:  # not readable for Tesseract either
                hashed.update(f"{file.name} {type(error).__name__} ".encode())
        return hashed.hexdigest()


def find_tessdata(setting: str | None = None, program: str = "tesseract") -> Tessdata | None:
    """The folder of language data to use; None where there is none.

    1. ``setting``, TESSDATA_PREFIX: the folder itself or its parent.
    2. The environment that Python runs in (conda), then the usual folders of Debian, Alpine, Homebrew and others.
    3. The folder that the ``tesseract`` program reports.

    Raises:
        SetupError: ``setting`` has no language data; it is not ignored silently.
    """
    if setting:
        return _in_setting(Path(setting))
    folders = [Path(sys.prefix) / "share" / "tessdata", *map(Path, _USUAL_FOLDERS)]
    for folder in folders:
        if codes := _codes_in(folder):
            return Tessdata(folder, codes, f"found in {folder}")
    reported = _reported_by(program)
    if reported is not None and (codes := _codes_in(reported)):
        return Tessdata(reported, codes, f"{reported}, as the {program} program says")
    return None


def _in_setting(folder: Path) -> Tessdata:
    for candidate in (folder, folder / "tessdata"):
        if codes := _codes_in(candidate):
            return Tessdata(candidate, codes, f"{candidate}, which TESSDATA_PREFIX names")
    raise SetupError(
        f"TESSDATA_PREFIX: {folder} has no *{_SUFFIX}; name the folder that holds eng{_SUFFIX} and its like, or leave "
        "the setting out to have the usual places searched"
    )


def _codes_in(folder: Path) -> tuple[str, ...]:
    try:
        names = sorted(path.name.removesuffix(_SUFFIX) for path in folder.glob(f"*{_SUFFIX}") if path.stat().st_size)
    except OSError:  # not readable, so of no use
        return ()
    return tuple(name for name in names if name not in _NOT_LANGUAGES)


def _reported_by(program: str) -> Path | None:
    """The folder in 'List of available languages in "/usr/share/…/tessdata/" (3):'."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - a program of this machine, found by name
            [path, "--list-langs"],
            capture_output=True,
            text=True,
            timeout=_PROGRAM_TIMEOUT_S,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _folder_in((answer.stdout + "\n" + answer.stderr).splitlines())


def _folder_in(lines: Iterable[str]) -> Path | None:
    first = next((line for line in lines if line.startswith("List of available languages")), "")
    quoted = first.split('"')
    return Path(quoted[1]) if len(quoted) >= 3 else None
