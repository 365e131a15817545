"""The bytes of uploaded files, a file each: written, synced and renamed before the database knows of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from backend.durable_files import flush
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.search.sqlite.faults import corrupt

_COPY_BYTES = 2**20
_VERIFIED_KEPT = 10_000
_UNFINISHED = ".part"
_ANY_SIZE = FileLimits(file_bytes=2**62)  # what was accepted once is given back, also under a lower LIMIT_FILE_BYTES


class Contents:
    """Blocking: called on the storage's threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._verified: dict[str, tuple[int, ...]] = {}  # what tells a change, by the name of the file

    def write(self, file_id: str, content: StoredFile) -> None:
        """Raises: OSError; nothing is left then."""
        path = self._path(file_id)
        self._make_folder(path.parent)
        unfinished = path.with_suffix(_UNFINISHED)
        try:
            with unfinished.open("wb") as file:
                source = content.lend()
                try:
                    offset = 0
                    while part := os.pread(source, _COPY_BYTES, offset):
                        file.write(part)
                        offset += len(part)
                finally:
                    os.close(source)
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

    def delete(self, file_id: str) -> None:
        """What cannot be deleted now is deleted at the next start."""
        with contextlib.suppress(OSError):
            self._path(file_id).unlink()

    def delete_orphans(self, file_ids: Iterable[str]) -> int:
        """Delete what no row refers to: writes and deletions that a crash cut short. Returns how many."""
        known = {self._path(file_id).name for file_id in file_ids}
        orphans = [path for path in self._folder.glob("??/*") if path.name not in known]
        for path in orphans:
            with contextlib.suppress(OSError):
                path.unlink()
        return len(orphans)

    def _path(self, file_id: str) -> Path:
        name = hashlib.sha256(file_id.encode()).hexdigest()  # an id may hold any characters
        return self._folder / name[:2] / name

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            flush(folder.parent)
            flush(self._folder.parent)
