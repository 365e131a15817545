"""An upload on its way in: kept in memory that has no name, hashed and counted as it comes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import threading
import weakref
from pathlib import Path

from backend.documents.parsing.limits import FileLimits, check_bytes

_CHUNK_BYTES = 2**20
_HEAD_BYTES = 64 * 1024  # what `head` gives for recognising a file: a zip's first names and a late PDF header lie there
_SEALS = ("F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_WRITE", "F_SEAL_SEAL")


class StoredFile:
    """A file's bytes behind a descriptor that workers can be given. Nothing is left behind, however the process ends.

    Filled by `write`, chunk by chunk, so that an upload is refused at the byte that is too many and never stands in
    memory twice. One thread fills it; `lend` is safe on any.

    Raises:
        TooLarge: from `write` and the constructors, at the first byte over LIMIT_FILE_BYTES.
    """

    def __init__(self, limits: FileLimits) -> None:
        self.size_bytes = 0
        self._limits = limits
        self._hash = hashlib.sha256()
        self._fd = _nameless()
        self._lock = threading.Lock()
        self._close = weakref.finalize(self, os.close, self._fd)

    @classmethod
    def of(cls, source: bytes | bytearray | memoryview | Path, limits: FileLimits) -> StoredFile:
        """The bytes, or a copy of the file at a path: what happens to that file afterwards does not matter."""
        stored = cls(limits)
        try:
            if isinstance(source, Path):
                check_bytes(source.stat().st_size, limits)
                with source.open("rb") as file:
                    while chunk := file.read(_CHUNK_BYTES):
                        stored.write(chunk)
            else:
                stored.write(source)
        except BaseException:
            stored.close()
            raise
        return stored

    def shared(self) -> StoredFile:
        """Another holder of the same bytes, to be closed by itself; neither is written to any more.

        Raises: ValueError after `close`.
        """
        twin = object.__new__(StoredFile)
        twin.size_bytes, twin._limits, twin._hash = self.size_bytes, self._limits, self._hash.copy()
        twin._fd, twin._lock = self.lend(), threading.Lock()
        twin._close = weakref.finalize(twin, os.close, twin._fd)
        return twin

    def content(self) -> bytes:
        """All of the bytes, in memory of their own."""
        return os.pread(self._fd, self.size_bytes, 0)

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Add bytes at the end."""
        rest = memoryview(chunk).cast("B")
        check_bytes(self.size_bytes + rest.nbytes, self._limits)
        self._hash.update(rest)
        self.size_bytes += rest.nbytes
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    @property
    def sha256(self) -> str:
        """Of the bytes so far, hexadecimal."""
        return self._hash.hexdigest()

    @property
    def head(self) -> bytes:
        """The first bytes, at most 64 KiB."""
        return os.pread(self._fd, _HEAD_BYTES, 0)

    def seal(self) -> None:
        """From here on nobody can change the bytes, a worker that was taken over least of all. Linux only."""
        if all(hasattr(fcntl, name) for name in (*_SEALS, "F_ADD_SEALS")):
            seals = sum(getattr(fcntl, name) for name in _SEALS)
            with contextlib.suppress(OSError):  # a plain file where memory has no descriptors
                fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, seals)

    def lend(self) -> int:
        """A descriptor of its own for a worker, to be closed by the caller. Raises: ValueError after `close`."""
        with self._lock:  # a number that was closed may be another file's by now
            if not self._close.alive:
                raise ValueError("the file was closed")
            return os.dup(self._fd)

    def close(self) -> None:
        """Give the bytes back; workers that hold them keep theirs."""
        with self._lock:
            self._close()


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("upload", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:  # without a name from the start on macOS
        return os.dup(file.fileno())
