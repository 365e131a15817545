"""Keeps the bytes of the files that were read last for a minute: a viewer asks for one page image after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from backend.files.stored_file import StoredFile

_KEPT_S = 60.0
_MOST_FILES = 4
_MOST_BYTES = 64 * 2**20  # of all together; a larger file is read each time


class RecentContents:
    """Reads files from a storage, and those that were read last from memory. Used on the event loop only.

    Whether a file is still there, and whose it is, the caller has checked.

    Args:
        read: `SearchStorage.content`.
    """

    def __init__(self, read: Callable[[str], Awaitable[StoredFile | None]]) -> None:
        self._read = read
        self._kept: dict[str, StoredFile] = {}  # by id, the one that was used last at the end
        self._reading: dict[str, asyncio.Task[StoredFile | None]] = {}
        self._expiry: dict[str, asyncio.TimerHandle] = {}

    async def content(self, file_id: str) -> StoredFile | None:
        """The bytes, to be closed by the caller; None for a file that is not there. Raises: as ``read``."""
        if (kept := self._kept.pop(file_id, None)) is not None:
            self._kept[file_id] = kept
            return kept.shared()
        if (reading := self._reading.get(file_id)) is None:  # of callers side by side one reads for all
            reading = self._reading[file_id] = asyncio.create_task(self._fetched(file_id))
            reading.add_done_callback(lambda done: self._has_read(file_id, done))
        content = await asyncio.shield(reading)
        return None if content is None else content.shared()

    def forget(self, file_id: str) -> None:
        """Free the bytes of a file, once nobody has them open."""
        if (timer := self._expiry.pop(file_id, None)) is not None:
            timer.cancel()
        self._kept.pop(file_id, None)  # closed with its last reference: somebody may be about to share it

    async def _fetched(self, file_id: str) -> StoredFile | None:
        content = await self._read(file_id)
        if content is not None and content.size_bytes <= _MOST_BYTES:
            self._kept[file_id] = content
            self._expiry[file_id] = asyncio.get_running_loop().call_later(_KEPT_S, self.forget, file_id)
            self._make_room()
        return content

    def _has_read(self, file_id: str, reading: asyncio.Task[StoredFile | None]) -> None:
        del self._reading[file_id]
        if not reading.cancelled():
            reading.exception()  # of which nobody is told where all callers have left

    def _make_room(self) -> None:
        while len(self._kept) > _MOST_FILES or sum(kept.size_bytes for kept in self._kept.values()) > _MOST_BYTES:
            self.forget(next(iter(self._kept)))
