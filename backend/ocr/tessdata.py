"""Finds the folder of Tesseract's language data and the languages in it. Loads none of them.

Tesseract reads one folder: where this machine has data of languages that do not come with the service, the folder is
one of links to both.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.errors import SetupError
from backend.models.unpacked_folder import temporary_place
from backend.ocr.languages import DATA_SUFFIX, iso_codes
from backend.ocr.shipped_tessdata import SHA256 as SHIPPED
from backend.ocr.shipped_tessdata import shipped_folder
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_SAMPLE_BYTES = 65_536
_NOT_LANGUAGES = frozenset({"osd", "equ"})  # orientation and script, equations
_PROGRAM_TIMEOUT_S = 10.0  # the program answers in milliseconds
USUAL_FOLDERS = (
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
        for file in sorted(self.folder.glob(f"*{DATA_SUFFIX}")):
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


def find_tessdata(setting: str | None = None, keep_in: Path | None = None) -> Tessdata | None:
    """The folder of language data to use; None where there is none.

    1. ``setting``, TESSDATA_PREFIX: the folder itself or its parent, and nothing else.
    2. The data that come with the service, and those of further languages that this machine has.
    3. This machine's data alone, where the shipped ones cannot be unpacked.

    Args:
        keep_in: where data are unpacked that the installation has not; None for the installation itself.

    Raises:
        SetupError: ``setting`` has no language data; it is not ignored silently.
    """
    if setting:
        return _in_setting(Path(setting))
    system = find_system_tessdata()
    try:
        shipped = shipped_folder(keep_in)
    except SetupError as error:
        log_event(_log, logging.WARNING, "Tesseract's shipped language data cannot be used", reason=error)
        return system
    own = Tessdata(shipped, tuple(sorted(SHIPPED)), "the data that come with the service")
    further = tuple(code for code in system.codes if code not in SHIPPED) if system else ()
    if system is None or not further:
        return own
    try:
        return _joined(own, system, further, keep_in)
    except OSError as error:
        message = "language data of this machine cannot be used"
        log_event(_log, logging.WARNING, message, languages=",".join(further), reason=error)
        return own


def find_system_tessdata(program: str = "tesseract") -> Tessdata | None:
    """The data of this machine; None where there are none.

    1. Of the environment that Python runs in (conda), then in the usual folders of Debian, Alpine, Homebrew and others.
    2. In the folder that the ``tesseract`` program reports.
    """
    folders = [Path(sys.prefix) / "share" / "tessdata", *map(Path, USUAL_FOLDERS)]
    for folder in folders:
        if codes := _codes_in(folder):
            return Tessdata(folder, codes, f"found in {folder}")
    reported = _reported_by(program)
    if reported is not None and (codes := _codes_in(reported)):
        return Tessdata(reported, codes, f"{reported}, as the {program} program says")
    return None


def _joined(own: Tessdata, system: Tessdata, further: tuple[str, ...], keep_in: Path | None) -> Tessdata:
    """Links to ``own`` data and to the ``further`` ones of the system. Raises: OSError when none can be made."""
    files = {f"{code}{DATA_SUFFIX}": own.folder for code in own.codes}
    files |= {f"{code}{DATA_SUFFIX}": system.folder for code in further}
    sources = {name: (folder / name).resolve() for name, folder in files.items()}
    try:
        folder = _folder_of_links(sources, keep_in or own.folder.parent)
    except OSError:
        folder = _folder_of_links(sources, temporary_place())
    return Tessdata(folder, tuple(sorted([*own.codes, *further])), f"{own.why}, and others of {system.folder}")


def _folder_of_links(sources: Mapping[str, Path], place: Path) -> Path:
    """A folder under ``place`` with a link to each source, or a copy where links fail; other sources have another one.

    Raises: OSError when ``place`` cannot be written.
    """
    versions = ((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in sources.values())
    listing = repr(sorted(versions))
    folder = place / f"tessdata-links-{hashlib.sha256(listing.encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in sources.items():
        if not (folder / name).exists():  # or it is a link to nothing
            with tempfile.TemporaryDirectory(dir=place, prefix=".linking-") as temporary:
                link = Path(temporary) / name
                _link(path, link)
                link.replace(folder / name)  # another process may do the same
    return folder


def _link(source: Path, link: Path) -> None:
    try:
        link.symlink_to(source)
    except OSError:  # Windows, without the right to make links
        shutil.copyfile(source, link)


def _in_setting(folder: Path) -> Tessdata:
    for candidate in (folder, folder / "tessdata"):
        if codes := _codes_in(candidate):
            return Tessdata(candidate, codes, f"{candidate}, which TESSDATA_PREFIX names")
    raise SetupError(
        f"TESSDATA_PREFIX: {folder} has no *{DATA_SUFFIX}; name the folder that holds eng{DATA_SUFFIX} and its like, "
        "or leave the setting out to use the data that come with the service"
    )


def _codes_in(folder: Path) -> tuple[str, ...]:
    try:
        files = [path for path in folder.glob(f"*{DATA_SUFFIX}") if path.stat().st_size]
    except OSError:  # not readable, so of no use
        return ()
    names = sorted(path.name.removesuffix(DATA_SUFFIX) for path in files)
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
