"""A mapped file as a file object with its own position, for libraries that read one."""

from __future__ import annotations

import io
import mmap


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
