"""An upload, held in an anonymous memory file (memfd) and hashed, with its size checked, as it arrives."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

from backend.errors import TooLarge
from backend.files.limits import FileLimits

_CHUNK_BYTES = 2**20
_HEAD_BYTES = 64 * 1024  # of `head`, enough to recognise the type: a zip's first names, a late PDF header
_SEALS = ("F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_WRITE", "F_SEAL_SEAL")


class StoredFile:
    """A file's bytes behind a descriptor that can be passed to workers. Freed however the process ends.

    Filled by `write`, chunk by chunk, so that an upload is refused at the first byte over the limit and is in memory
    only once. One thread writes; `lend` is safe on any.

    Raises:
        TooLarge: from `write` and the constructors, at the first byte over LIMIT_FILE_BYTES.
    """

    def __init__(self, limits: FileLimits) -> None:
        self.size_bytes = 0
        self._limits = limits
        self._hash = hashlib.sha256()
        self._known_sha256: str | None = None  # of a file that was not written here
        self._own(_anonymous_file())

    @classmethod
    def of(cls, source: bytes | bytearray | memoryview | Path, limits: FileLimits) -> StoredFile:
        """A copy of the bytes, or of the file at a path, which may change or disappear afterwards."""
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

    @classmethod
    def opened(cls, path: Path, sha256: str, limits: FileLimits) -> StoredFile:
        """The file at a path itself, not a copy: nobody may change it while it is open, but it may be deleted.

        Args:
            sha256: of its bytes, which whoever calls this has checked.
        """
        stored = object.__new__(cls)
        stored._limits, stored._hash, stored._known_sha256 = limits, hashlib.sha256(), sha256
        stored._own(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        stored.size_bytes = os.fstat(stored._fd).st_size
        return stored

    def shared(self) -> StoredFile:
        """A second handle to the same bytes, closed independently. Neither may be written to afterwards.

        Raises: ValueError after `close`.
        """
        copy = object.__new__(StoredFile)
        copy.size_bytes, copy._limits, copy._hash = self.size_bytes, self._limits, self._hash.copy()
        copy._known_sha256 = self._known_sha256
        copy._own(self.lend())
        return copy

    def content(self) -> bytes:
        """All of the bytes, copied."""
        return os.pread(self._fd, self.size_bytes, 0)

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        left = memoryview(chunk).cast("B")
        check_bytes(self.size_bytes + left.nbytes, self._limits)
        self._hash.update(left)
        self.size_bytes += left.nbytes
        while left:
            left = left[os.write(self._fd, left) :]

    @property
    def sha256(self) -> str:
        """Hash of the bytes written so far, hexadecimal."""
        return self._known_sha256 or self._hash.hexdigest()

    @property
    def head(self) -> bytes:
        """The first bytes, at most 64 KiB."""
        return os.pread(self._fd, _HEAD_BYTES, 0)

    def seal(self) -> None:
        """Make the bytes immutable, also for a worker that a file has taken over. Linux only."""
        if all(hasattr(fcntl, name) for name in (*_SEALS, "F_ADD_SEALS")):
            seals = sum(getattr(fcntl, name) for name in _SEALS)
            with contextlib.suppress(OSError):  # an ordinary file, where there is no memfd
                fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, seals)

    def lend(self) -> int:
        """A duplicated descriptor for a worker; the caller closes it. Raises: ValueError after `close`."""
        with self._lock:  # a descriptor number that was closed may belong to another file by now
            if not self._close.alive:
                raise ValueError("the file was closed")
            return os.dup(self._fd)

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[int]:
        """`lend`, closed at the end."""
        descriptor = self.lend()
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close this handle; descriptors that were lent stay open."""
        with self._lock:
            self._close()

    def _own(self, descriptor: int) -> None:
        self._fd, self._lock = descriptor, threading.Lock()
        self._close = weakref.finalize(self, os.close, descriptor)


def check_bytes(size_bytes: int, limits: FileLimits) -> None:
    """Raises: TooLarge for a file over the limit."""
    if size_bytes > limits.file_bytes:
        raise TooLarge("file: bytes", size_bytes, limits.file_bytes, "LIMIT_FILE_BYTES", param="file")


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("upload", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:  # unlinked at once
        return os.dup(file.fileno())


class MappedFile(io.RawIOBase):
    """Reads a mapping without copying it whole, and hides its descriptor: a library would move the shared offset."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = {0: 0, 1: self._at, 2: len(self._data)}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = len(self._data) if size is None or size < 0 else min(self._at + size, len(self._data))
        chunk = self._data[self._at : end]
        self._at = max(self._at, end)
        return chunk
