"""Tesseract's language data: the folder and the languages in it, and those that come with the service, unpacked.

    python -m backend.ocr.tessdata    # unpack into the installation, for every process of it

Run when the service is installed and when an image is built; a start does the same for itself where it was not.
Tesseract reads one folder: where this machine has data of languages that do not come with the service, the folder is
one of links to both. Requests name languages by ISO 639-1, Tesseract's files by ISO 639-2.
"""

from __future__ import annotations

import hashlib
import logging
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from backend.errors import SetupError
from backend.models.fingerprint import file_digest
from backend.models.unpacked_folder import INSTALLED, UnpackedFolder, name_of, temporary_place
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
PACKED = Path(__file__).resolve().parents[1] / "models" / "bundled" / "tessdata"
# Of tessdata_fast 4.1.0.
SHIPPED = MappingProxyType({
    "cat": "250db73cd5b380d2798581295dc12f20d0828cdb335a65d833d12dfdbf57117d",
    "deu": "19d219bbb6672c869d20a9636c6816a81eb9a71796cb93ebe0cb1530e2cdb22d",
    "eng": "7d4322bd2a7749724879683fc3912cb542f19906c83bcc1a52132556427170b2",
    "fra": "ced037562e8c80c13122dece28dd477d399af80911a28791a66a63ac1e3445ca",
    "glg": "7947619c5544d86849f563bd737ad90dbea9f5319fbd838c4747a7a1cd40b260",
    "ita": "b8f89e1e785118dac4d51ae042c029a64edb5c3ee42ef73027a6d412748d8827",
    "por": "c4932b937207a9514b7514d518b931a99938c02a28a5a5a553f8599ed58b7deb",
    "spa": "6f2e04d02774a18f01bed44b1111f2cd7f3ba7ac9dc4373cd3f898a40ea6b464",
})  # fmt: skip


def shipped_folder(keep_in: Path | None = None) -> Path:
    """The folder with the data of every shipped language, unpacked first where there is none. A second then.

    Looked for in the installation, then in ``keep_in``, and written there; without one, into the installation. Where
    neither can be written, a temporary folder serves this process alone.

    Raises: SetupError when the packed data are absent or damaged, or no folder has room.
    """
    try:
        return _unpacked().find(
            INSTALLED,
            keep_in,
            what="Tesseract's language data",
            costs="unpacking at every start: a second and 18 MB of temporary files",
        )
    except OSError as error:
        raise SetupError(f"no folder can hold Tesseract's language data, 18 MB ({error})") from error


def unpack_into(place: Path) -> Path:
    """Unpack into a folder under ``place``, unless another process has done so meanwhile.

    Raises: OSError when ``place`` cannot be written; SetupError when the packed data are absent or damaged.
    """
    return _unpacked().unpack_into(place)


def _unpacked() -> UnpackedFolder:
    files = {f"{code}{DATA_SUFFIX}": sha256 for code, sha256 in SHIPPED.items()}
    return UnpackedFolder(name_of("tessdata", files), files, _unpack)


def _unpack(folder: Path) -> None:
    for code, sha256 in SHIPPED.items():
        name = f"{code}{DATA_SUFFIX}"
        _unpack_file(PACKED / f"{name}.xz", folder / name, sha256)


def _unpack_file(packed: Path, file: Path, sha256: str) -> None:
    if not packed.is_file():
        raise SetupError(f"{packed} is not there; install the service again")
    try:
        with lzma.open(packed) as source, file.open("wb") as stream:
            shutil.copyfileobj(source, stream)
    except (lzma.LZMAError, EOFError) as error:
        raise SetupError(f"{packed} is damaged ({error}); install the service again") from error
    if (digest := file_digest(file)) != sha256:
        raise SetupError(f"{packed} holds data with SHA-256 {digest}, expected {sha256}; install the service again")


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


DATA_SUFFIX = ".traineddata"
# The names of Tesseract's data by ISO 639-1 code. Basque has the letters of Spanish. Its own data (eus, tessdata_fast
# 4.1.0) found 0.39 of the words of two printed pages, those of Spanish and English all of them.
TESSERACT_CODES = MappingProxyType({
    "af": "afr", "ar": "ara", "az": "aze", "be": "bel", "bg": "bul", "bs": "bos", "ca": "cat", "cs": "ces",
    "cy": "cym", "da": "dan", "de": "deu", "el": "ell", "en": "eng", "eo": "epo", "es": "spa", "et": "est",
    "eu": "spa", "fa": "fas", "fi": "fin", "fr": "fra", "ga": "gle", "gl": "glg", "he": "heb", "hi": "hin",
    "hr": "hrv", "hu": "hun", "id": "ind", "is": "isl", "it": "ita", "ja": "jpn", "ko": "kor", "la": "lat",
    "lb": "ltz", "lt": "lit", "lv": "lav", "mk": "mkd", "ms": "msa", "mt": "mlt", "nl": "nld", "no": "nor",
    "oc": "oci", "pl": "pol", "pt": "por", "ro": "ron", "ru": "rus", "sk": "slk", "sl": "slv", "sq": "sqi",
    "sr": "srp", "sv": "swe", "sw": "swa", "th": "tha", "tr": "tur", "uk": "ukr", "vi": "vie", "zh": "chi_sim",
})  # fmt: skip


def iso_codes(tesseract: Iterable[str]) -> tuple[str, ...]:
    """ISO 639-1 of Tesseract's data names, in order; names that are no language ("osd", scripts) are left out."""
    return tuple(iso for code in tesseract for iso, name in TESSERACT_CODES.items() if name == code)


def main() -> int:
    """Unpack into the installation; the exit code."""
    try:
        sys.stdout.write(f"{unpack_into(INSTALLED)}\n")
    except (SetupError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
