"""Where Tesseract's language data are, and which languages that makes. Loads none of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from backend.engines.ocr.languages import iso_codes
from backend.errors import SetupError

_SUFFIX = ".traineddata"
_NOT_LANGUAGES = frozenset({"osd", "equ"})  # orientation and script, equations
_ASK_S = 10.0  # the program answers in milliseconds
_USUAL_PLACES = (
    "/usr/share/tesseract-ocr/5/tessdata",  # Debian, Ubuntu
    "/usr/share/tesseract-ocr/5.00/tessdata",
    "/usr/share/tesseract-ocr/4.00/tessdata",
    "/usr/share/tessdata",  # Alpine, Fedora, Arch
    "/usr/share/tesseract/tessdata",  # openSUSE
    "/usr/local/share/tessdata",  # built by hand; Homebrew on Intel
    "/opt/homebrew/share/tessdata",  # Homebrew on Apple silicon
    "/opt/local/share/tessdata",  # MacPorts
    "C:/Program Files/Tesseract-OCR/tessdata",
)


@dataclass(frozen=True, slots=True)
class Tessdata:
    """One folder of language data."""

    folder: Path
    codes: tuple[str, ...]  # Tesseract's names, sorted: ("eng", "spa")
    why: str  # how it was found; one sentence

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 of what it can read."""
        return iso_codes(self.codes)


def find_tessdata(wish: str | None = None, program: str = "tesseract") -> Tessdata | None:
    """The folder of language data to use; None where there is none.

    1. ``wish``, the setting TESSDATA_PREFIX: the folder itself or the one above it.
    2. The environment that Python runs in (conda), then the usual places of Debian, Alpine, Homebrew and others.
    3. What the ``tesseract`` program says when asked.

    Raises:
        SetupError: ``wish`` has no language data; it is not passed over in silence.
    """
    if wish:
        return _wished(Path(wish))
    places = [Path(sys.prefix) / "share" / "tessdata", *map(Path, _USUAL_PLACES)]
    for place in places:
        if codes := _codes_in(place):
            return Tessdata(place, codes, f"found in {place}")
    told = _told_by(program)
    if told is not None and (codes := _codes_in(told)):
        return Tessdata(told, codes, f"{told}, as the {program} program says")
    return None


def _wished(folder: Path) -> Tessdata:
    for place in (folder, folder / "tessdata"):
        if codes := _codes_in(place):
            return Tessdata(place, codes, f"{place}, which TESSDATA_PREFIX names")
    raise SetupError(
        f"TESSDATA_PREFIX: {folder} has no *{_SUFFIX}; name the folder that holds eng{_SUFFIX} and its like, or leave "
        "the setting out to have the usual places searched"
    )


def _codes_in(folder: Path) -> tuple[str, ...]:
    try:
        names = sorted(path.name.removesuffix(_SUFFIX) for path in folder.glob(f"*{_SUFFIX}") if path.stat().st_size)
    except OSError:  # may not be looked into: then it is of no use either
        return ()
    return tuple(name for name in names if name not in _NOT_LANGUAGES)


def _told_by(program: str) -> Path | None:
    """The folder in 'List of available languages in "/usr/share/…/tessdata/" (3):'."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - a program of this machine, found by name
            [path, "--list-langs"], capture_output=True, text=True, timeout=_ASK_S, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _folder_in((answer.stdout + "\n" + answer.stderr).splitlines())


def _folder_in(lines: Iterable[str]) -> Path | None:
    first = next((line for line in lines if line.startswith("List of available languages")), "")
    quoted = first.split('"')
    return Path(quoted[1]) if len(quoted) >= 3 else None
