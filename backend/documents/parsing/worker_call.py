"""One call on a worker: what is asked, how long and how much it may give, and what its caller is told when it fails."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from backend.documents.parsing.frames import BadFrame
from backend.documents.parsing.limits import FileLimits
from backend.documents.parsing.stored_file import StoredFile
from backend.documents.parsing.worker_process import WorkerAbsent, WorkerLate
from backend.errors import DeadlineExceeded, FinanciaError, InferenceFailed, TooLarge, Unavailable, UnreadableFile


class Asked(NamedTuple):
    """A request to some worker about an open file."""

    request: Mapping[str, Any]  # empty: nothing but to open the file
    until: float | None = None  # when nobody needs the answer any more, on the monotonic clock
    most_payload_bytes: int = 0
    with_file: StoredFile | None = None  # handed along

    @property
    def page(self) -> int | None:
        """The page it is about; None for the file."""
        page: int | None = self.request.get("page")
        return page

    @property
    def where(self) -> str:
        """The same in words."""
        return "file" if self.page is None else f"page {self.page}"

    @contextmanager
    def lent(self) -> Iterator[tuple[int, ...]]:
        """Descriptors to send with the request."""
        if self.with_file is None:
            yield ()
            return
        fd = self.with_file.lend()
        try:
            yield (fd,)
        finally:
            os.close(fd)


def failure_of(fault: Exception, asked: Asked, limits: FileLimits, now_s: float) -> FinanciaError:
    """What the caller is told of a worker that was lost."""
    where = asked.where
    if isinstance(fault, WorkerAbsent):
        return Unavailable(f"the process that reads files did not start ({fault}); see its stderr")
    if isinstance(fault, BadFrame):
        return InferenceFailed(f"{where}: its reader gave an answer that is none ({fault})")
    if not isinstance(fault, WorkerLate):
        return UnreadableFile(
            f"{where}: the process that read it ended ({fault}); it is damaged in a way that readers do not "
            f"survive, or needs more than {limits.worker_bytes} bytes of memory (LIMIT_READER_BYTES)",
            page=asked.page,
        )
    waited_s, limit_s = round(fault.waited_s, 1), limits.page_s
    if asked.until is not None and now_s >= asked.until:
        return DeadlineExceeded(waited_s)
    advice = "Send the page as an image, or split the file."
    return TooLarge(f"{where}: seconds of reading", waited_s, limit_s, "LIMIT_PAGE_S", advice=advice, param="file")
