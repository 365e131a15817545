"""Threads that wait for the worker processes of files, so that the event loop does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from backend.files.file_readers import FileReaders, OpenFile
from backend.files.stored_file import StoredFile
from backend.lanes.inference import Urgency, retry_bulk

Result = TypeVar("Result")


class FileThreads:
    """Used on the event loop only.

    Args:
        count: calls of worker processes that are waited for at once.
        name: of the threads.
    """

    def __init__(self, readers: FileReaders, count: int, *, name: str) -> None:
        self._readers = readers
        self._threads = ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)
        self._closer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="close")  # not behind files being read

    async def open(self, upload: StoredFile, urgency: Urgency, *, password: str | None = None) -> OpenFile:
        """A file, to be given back to ``release``; the upload stays open. Raises: as `FileReaders.open` does."""
        return await retry_bulk(urgency, partial(self._open, upload, urgency, password))

    async def run(self, work: Callable[[], Result]) -> Result:
        """What ``work`` returns, from a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def release(self, file: OpenFile) -> None:
        """Close on a thread: its reader processes are told and waited for, and 100 MB take 50 ms to free."""
        try:
            self._closer.submit(file.close)
        except RuntimeError:  # stopping: the readers end anyway
            file.close()

    def close(self) -> None:
        """Begin nothing more; what is being closed is closed."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._closer.shutdown(wait=False)

    async def _open(self, upload: StoredFile, urgency: Urgency, password: str | None) -> OpenFile:
        opening = partial(self._readers.open, upload.shared(), password=password, deadline_s=urgency.worker_deadline_s)
        future = asyncio.get_running_loop().run_in_executor(self._threads, opening)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(self._release_opened)
            raise

    def _release_opened(self, future: asyncio.Future[OpenFile]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.release(future.result())
