"""Where the bundled encoders lie as ordinary model folders, converted once. A half-written folder is never read."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from backend.durable_files import flush
from backend.errors import ModelUnavailable
from backend.models.bundled_encoders.conversion import convert
from backend.models.bundled_encoders.packed_weights import read_packed
from backend.models.bundled_encoders.recipes import PACKED_FILE, Recipe, installation_advice, packed_file
from backend.models.bundled_encoders.student_layers import read_layers
from backend.models.fingerprint import file_digest
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
# Converted when the service is installed (`make install`, the images), for every process of this installation.
INSTALLED = Path(sys.prefix) / "share" / "financia" / "models"
_HALF = ".converting-"  # in the names of folders that are being written


def folder_of(recipe: Recipe, models_dir: Path | None = None) -> Path:
    """The encoder's folder with every file as it must be, converted first where there is none. Seconds then.

    Looked for in the installation, then in ``models_dir``, and written there; without one, into the installation.
    Where neither can be written, a temporary folder serves this process alone.

    Raises: ModelUnavailable when the packed weights are absent or damaged.
    """
    for place in (INSTALLED, models_dir):
        if place is not None and is_sound(place / recipe.folder_name, recipe):
            return place / recipe.folder_name
    place = models_dir or INSTALLED
    try:
        return convert_into(place, recipe)
    except OSError as error:
        log_event(
            _log,
            logging.WARNING,
            "the bundled model cannot be kept",
            folder=place,
            reason=error,
            costs="a conversion at every start: some 10 s and 250 MB of temporary files",
        )
        return _private_folder(recipe)


def convert_into(place: Path, recipe: Recipe) -> Path:
    """Convert the encoder into a folder under ``place``, unless another process has done so meanwhile.

    Raises: OSError when ``place`` cannot be written; ModelUnavailable.
    """
    folder = place / recipe.folder_name
    place.mkdir(parents=True, exist_ok=True)
    with _lock(place / f".{recipe.folder_name}.lock"):
        if is_sound(folder, recipe):
            return folder
        for leftover in (folder, *place.glob(f"{_HALF}{recipe.folder_name}*")):  # of a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(dir=place, prefix=_HALF + recipe.folder_name))
        try:
            _convert(recipe, temporary)
            _publish(temporary, folder, recipe)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def is_sound(folder: Path, recipe: Recipe) -> bool:
    """Whether every file is there with its checksum; files that have not changed since are not read again."""
    try:
        return all(_checksum(folder / name) == sha256 for name, sha256 in recipe.files.items())
    except OSError:
        return False


def _checksum(file: Path) -> str:
    status = file.stat()
    return _checksum_of_version(file, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)  # 0.6 s for the weights, which a start asks for once a task
def _checksum_of_version(file: Path, _inode: int, _size: int, _mtime_ns: int) -> str:
    return file_digest(file)


def _convert(recipe: Recipe, folder: Path) -> None:
    """Write the encoder into an empty folder. Raises: ModelUnavailable where a checksum, before or after, is wrong."""
    started_s = time.monotonic()
    source = packed_file()
    _check(source, recipe.packed_sha256, f"{PACKED_FILE} of the bundled model", installation_advice())
    student = None
    if recipe.layers is not None:
        _check(
            recipe.layers, recipe.layers_sha256, f"{recipe.layers.name} of {recipe.name}", "install the service again"
        )
        student = read_layers(recipe.layers)
    packed = read_packed(source)
    convert(packed, folder, student)
    for name, sha256 in recipe.files.items():
        _check(
            folder / name, sha256, f"the converted {name}", "report it: this release converts to another result here"
        )
    log_event(
        _log, logging.INFO, "bundled model converted", model=recipe.name, s=round(time.monotonic() - started_s, 1)
    )


def _check(file: Path, expected: str, what: str, advice: str) -> None:
    digest = file_digest(file)
    if digest != expected:
        raise ModelUnavailable(f"{what} has SHA-256 {digest}, expected {expected}; {advice}")


def _publish(temporary: Path, folder: Path, recipe: Recipe) -> None:
    """Give the finished folder its name. On disk first: after a power cut the name must not stand for empty files."""
    temporary.chmod(0o755)  # mkdtemp's is for this user only; the images' service runs as another
    for name in recipe.files:
        flush(temporary / name)
    try:
        temporary.rename(folder)
    except OSError:
        if not is_sound(folder, recipe):  # else another process was faster, on a file system without locks
            raise
    flush(folder.parent)


def _private_folder(recipe: Recipe) -> Path:
    """A converted folder of this process alone, removed with it. Raises: ModelUnavailable when there is no room."""
    try:
        return convert_into(_temporary_place(), recipe)
    except OSError as error:
        raise ModelUnavailable(
            "the bundled model cannot be converted: neither STATE_DIR nor the temporary folder can hold its 250 MB "
            f"({error})"
        ) from error


@lru_cache(maxsize=1)
def _temporary_place() -> Path:
    place = Path(tempfile.mkdtemp(prefix="financia-models-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Let one process convert at a time; where files cannot be locked, several may, and the first to finish wins."""
    if os.name == "nt":
        yield
        return
    import fcntl  # there is none on Windows

    with file.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError as error:
            log_event(_log, logging.DEBUG, "a file cannot be locked", file=file, reason=error)
        yield
