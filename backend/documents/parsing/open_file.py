"""A file that is being read, as its reader's user holds it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from backend.documents.parsing.file_types import Kind
from backend.documents.parsing.records import FileInfo
from backend.documents.parsing.stored_file import StoredFile
from backend.documents.parsing.worker_pool import WorkerPool
from backend.errors import CallerGone


class OpenFile:
    """A file that readers can be asked about until it is closed. Made by `FileReaders.open`; safe on any thread."""

    def __init__(self, number: int, stored: StoredFile, kind: Kind, password: str | None, pool: WorkerPool) -> None:
        self.number = number  # of this process; workers know the file by it
        self.kind = kind
        self.password = password
        self.is_cancelled = False
        self._info: FileInfo | None = None
        self._stored, self._pool = stored, pool

    @property
    def info(self) -> FileInfo:
        assert self._info is not None, "set by FileReaders.open before anyone has the file"
        return self._info

    @info.setter
    def info(self, info: FileInfo) -> None:
        self._info = info

    @contextmanager
    def lent(self) -> Iterator[int]:
        """A descriptor to hand to a worker. Raises: CallerGone after `close`."""
        try:
            fd = self._stored.lend()
        except ValueError as error:
            raise CallerGone("the file was closed while it was read") from error
        try:
            yield fd
        finally:
            os.close(fd)

    def cancel(self) -> None:
        """Nobody needs it any more: calls on it that run end at once with CallerGone, and so do later ones."""
        self.is_cancelled = True
        self._pool.kill(self.number)

    def close(self) -> None:
        """Give its memory back, here and in the workers. Calls that run may end as usual."""
        self._stored.close()
        self._pool.forget(self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
