"""Folders of files that come packed: unpacked once, checked at every start, and never read half-written."""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from backend.durable_files import flush
from backend.models.fingerprint import file_digest
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
# Unpacked when the service is installed (`make install`, the images), for every process of this installation.
INSTALLED = Path(sys.prefix) / "share" / "financia" / "models"
_UNFINISHED = ".unfinished-"  # in the names of folders that are being written


@dataclass(frozen=True, slots=True)
class UnpackedFolder:
    """What a folder must hold, and how it is written."""

    name: str  # of `name_of`
    files: Mapping[str, str]  # path in the folder -> SHA-256
    unpack: Callable[[Path], None]  # writes every file into an empty folder

    def is_sound(self, folder: Path) -> bool:
        """Whether every file is there with its checksum; files that have not changed since are not read again."""
        try:
            return all(_checksum(folder / name) == sha256 for name, sha256 in self.files.items())
        except OSError:
            return False

    def unpack_into(self, place: Path) -> Path:
        """The folder under ``place``, written first unless another process has done so meanwhile.

        Raises: OSError when ``place`` cannot be written; what ``unpack`` raises.
        """
        folder = place / self.name
        place.mkdir(parents=True, exist_ok=True)
        with _lock(place / f".{self.name}.lock"):
            if self.is_sound(folder):
                return folder
            for leftover in (folder, *place.glob(f"{_UNFINISHED}{self.name}*")):  # of a process that was killed
                shutil.rmtree(leftover, ignore_errors=True)
            temporary = Path(tempfile.mkdtemp(dir=place, prefix=_UNFINISHED + self.name))
            try:
                self.unpack(temporary)
                self._publish(temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        return folder

    def find(self, installed: Path, place: Path | None, *, what: str, costs: str) -> Path:
        """The folder in ``installed``, else in ``place``, where it is written first; without one, in ``installed``.

        Where neither can be written, a temporary folder serves this process alone.

        Args:
            what: the content, in the warning that it cannot be kept: "the bundled model".
            costs: what unpacking it at every start costs.

        Raises: OSError when there is no room anywhere; what ``unpack`` raises.
        """
        for present in (installed, place):
            if present is not None and self.is_sound(present / self.name):
                return present / self.name
        try:
            return self.unpack_into(place or installed)
        except OSError as error:
            message = f"{what} cannot be kept"
            log_event(_log, logging.WARNING, message, folder=place or installed, reason=error, costs=costs)
            return self.unpack_into(temporary_place())

    def _publish(self, temporary: Path, folder: Path) -> None:
        """Give the finished folder its name. On disk first: after a power cut a name must not stand for empty files."""
        temporary.chmod(0o755)  # mkdtemp's is for this user only; the images' service runs as another
        for name in self.files:
            flush(temporary / name)
        try:
            temporary.rename(folder)
        except OSError:
            if not self.is_sound(folder):  # else another process was faster, on a file system without locks
                raise
        flush(folder.parent)


def name_of(label: str, files: Mapping[str, str]) -> str:
    """A folder's name: another content has another one, so releases can share a place."""
    listing = json.dumps(dict(files), sort_keys=True)
    return f"{label}-{hashlib.sha256(listing.encode()).hexdigest()[:12]}"


def _checksum(file: Path) -> str:
    status = file.stat()
    return _checksum_of_version(file, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)  # 0.6 s for an encoder's weights, which a start asks for once a task
def _checksum_of_version(file: Path, _inode: int, _size: int, _mtime_ns: int) -> str:
    return file_digest(file)


@lru_cache(maxsize=1)
def temporary_place() -> Path:
    """A folder of this process alone, removed with it."""
    place = Path(tempfile.mkdtemp(prefix="financia-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Let one process write at a time; where files cannot be locked, several may, and the first to finish wins."""
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
