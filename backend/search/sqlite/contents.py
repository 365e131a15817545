"""The bytes of uploaded files, a file each: written, synced and renamed before the database knows of them.

Deleted is only what the database says was deleted. Other bytes that it does not know, of an upload that a crash cut
short or because an older database was put in its place, are kept for a week in the folder `lost` beside them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from backend.durable_files import flush
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.search.sqlite.database import corrupt

_COPY_BYTES = 2**20
_VERIFIED_KEPT = 10_000
LOST_DAYS = 7
_LOST_S = LOST_DAYS * 86_400.0
_UNFINISHED = ".part"
_ANY_SIZE = FileLimits(file_bytes=2**62)  # what was accepted once is given back, also under a lower LIMIT_FILE_BYTES


class Contents:
    """Blocking: called on the storage's threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lost = folder.parent / "lost"
        self._verified: dict[str, tuple[int, ...]] = {}  # what tells a change, by the name of the file

    def write(self, file_id: str, content: StoredFile) -> None:
        """Raises: OSError; nothing is left then."""
        path = self._path(file_id)
        self._make_folder(path.parent)
        unfinished = path.with_suffix(_UNFINISHED)
        try:
            with unfinished.open("wb") as file, content.borrowed() as source:
                offset = 0
                while part := os.pread(source, _COPY_BYTES, offset):
                    file.write(part)
                    offset += len(part)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
            flush(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise

    def read(self, file_id: str, sha256: str) -> StoredFile:
        """The file itself, not a copy. Its bytes are hashed when it is read first, and again where it was written to.

        Raises: StorageCorrupt where the bytes are not those that were stored.
        """
        path = self._path(file_id)
        try:
            stored = StoredFile.opened(path, sha256, _ANY_SIZE)
        except FileNotFoundError as error:
            raise corrupt(f"the bytes of {file_id} are gone") from error
        try:
            self._verify(file_id, path.name, stored)
        except BaseException:
            stored.close()
            raise
        return stored

    def _verify(self, file_id: str, name: str, stored: StoredFile) -> None:
        with os.fdopen(stored.lend(), "rb") as file:
            state = os.fstat(file.fileno())
            version = state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
            if self._verified.get(name) == version:
                return
            if hashlib.file_digest(file, "sha256").hexdigest() != stored.sha256:
                raise corrupt(f"the bytes of {file_id} have changed") from ValueError(f"SHA-256 of {file_id}")
        if len(self._verified) >= _VERIFIED_KEPT:
            self._verified.clear()
        self._verified[name] = version

    def delete(self, file_id: str) -> bool:
        """False where that cannot be done now."""
        try:
            self._path(file_id).unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def has_any(self) -> bool:
        return any(path.suffix != _UNFINISHED for path in self._folder.glob("??/*"))

    def set_unknown_aside(self, known: Iterable[str], deleted: Iterable[str], now_s: float) -> int:
        """Move what no file's id stands for to `lost`, and back what is known again; how many were moved there.

        What has been there for a week is deleted, as are uploads whose writing was cut short.
        """
        kept = {path.name: path for path in map(self._path, known)}
        expected = kept.keys() | {self._path(file_id).name for file_id in deleted}
        lost = 0
        for path in list(self._folder.glob("??/*")):
            if path.suffix == _UNFINISHED:
                path.unlink(missing_ok=True)
            elif path.name not in expected:
                self._make_folder(self._lost)
                os.utime(path, (now_s, now_s))
                path.replace(self._lost / path.name)
                lost += 1
        for path in self._lost.glob("*"):
            if path.name in kept and not kept[path.name].exists():
                self._make_folder(kept[path.name].parent)
                path.replace(kept[path.name])
            elif path.stat().st_mtime < now_s - _LOST_S:
                path.unlink(missing_ok=True)
        return lost

    def _path(self, file_id: str) -> Path:
        name = hashlib.sha256(file_id.encode()).hexdigest()  # an id may hold any characters
        return self._folder / name[:2] / name

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            flush(folder.parent)
            flush(self._folder.parent)
