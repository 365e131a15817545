"""Opens recordings and decodes them slice by slice, on threads that wait for the worker processes."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial

from backend.files.file_readers import FileReaders, OpenFile
from backend.files.limits import FileLimits
from backend.files.speech_records import AudioSlice
from backend.files.stored_file import StoredFile
from backend.lanes.bulk_retry import retry_bulk
from backend.lanes.file_threads import FileThreads
from backend.lanes.inference import Urgency
from backend.tracing.spans import span


class AudioFiles:
    """Used on the event loop only.

    Args:
        threads: slices that are decoded at once.
    """

    def __init__(self, readers: FileReaders, *, threads: int) -> None:
        self._readers = readers
        self._threads = FileThreads(readers, threads, name="hear")

    @property
    def limits(self) -> FileLimits:
        return self._readers.limits

    async def open(self, upload: StoredFile, urgency: Urgency) -> AudioFile:
        """A recording to be decoded; the caller closes it. Raises: what `FileReaders.open` raises."""
        started_s = time.perf_counter()
        with span("open"):
            opened = await self._threads.open(upload, urgency)
        file = AudioFile(opened, self._threads, self._readers, urgency)
        file.decode_s = time.perf_counter() - started_s
        return file

    def close(self) -> None:
        self._threads.close()


class AudioFile:
    """A recording that is decoded. Used on the event loop only."""

    def __init__(self, file: OpenFile, threads: FileThreads, readers: FileReaders, urgency: Urgency) -> None:
        self._file, self._threads, self._readers, self._urgency = file, threads, readers, urgency
        self.decode_s = 0.0  # so far, opening it included; of workers, or waiting for one

    @property
    def declared_s(self) -> float | None:
        """What the file says it lasts."""
        return self._file.info.audio.declared_s if self._file.info.audio is not None else None

    async def read(self, start: int, seconds: float) -> AudioSlice:
        """The slice from a sample on. Raises: what `FileReaders.audio` raises."""
        started_s = time.perf_counter()
        decode = partial(self._readers.audio, self._file, start, seconds, until=self._urgency.until_s)
        with span("decode"):
            part = await retry_bulk(self._urgency, partial(self._threads.run, decode))
        self.decode_s += time.perf_counter() - started_s
        return part

    def cancel(self) -> None:
        """End its work in a worker process at once."""
        self._file.cancel()

    async def close(self) -> None:
        """On a thread: the worker is told, and megabytes are freed."""
        with suppress(RuntimeError):  # stopping: the readers end anyway
            await self._threads.run(self._file.close)
