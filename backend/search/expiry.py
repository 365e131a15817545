"""Deletes files and vector stores whose time is over, and shows what is stored, every half minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from backend.abandoned import end_tasks
from backend.errors import StorageCorrupt, Unavailable
from backend.search.records import StoredUsage
from backend.search.storage import SearchStorage
from backend.search.waker import Waker
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, log_event

_log = logging.getLogger(__name__)
_EVERY_S = 30.0


@dataclass(slots=True)
class StoredNow:
    """What was stored, and what waited to be indexed, at the last look."""

    usage: StoredUsage = field(default_factory=lambda: StoredUsage(0, 0, 0, 0))
    waiting: int = 0


class ExpiryTask:
    """Several processes may do this for one storage: what is gone is no error. Used on the event loop only.

    Args:
        now: Unix seconds.
    """

    def __init__(
        self, storage: SearchStorage, telemetry: Telemetry, supervisor: Supervisor, *, now: Callable[[], float]
    ) -> None:
        self._storage, self._supervisor = storage, supervisor
        self._now = now
        self._waker, self._seen = Waker(), StoredNow()
        self._task: asyncio.Task[None] | None = None
        telemetry.index_files_waiting.set_function(lambda: self._seen.waiting)
        telemetry.stored_files.set_function(lambda: self._seen.usage.files)
        telemetry.stored_bytes.set_function(lambda: self._seen.usage.bytes)
        telemetry.stored_chunks.set_function(lambda: self._seen.usage.chunks)
        telemetry.vector_stores.set_function(lambda: self._seen.usage.stores)

    def start(self) -> None:
        self._task = self._supervisor.keep("expire_stores", self._work)

    async def close(self) -> None:
        await end_tasks(self._task)

    async def look(self) -> None:
        """Delete what has expired now, and count the rest. Raises: Unavailable, StorageCorrupt."""
        now_s = self._now()
        for store in await self._storage.expired_stores(now_s):
            if await self._storage.delete_store(store.owner, store.id):
                log_event(_log, logging.INFO, "store expired", store=store.id)
        for file in await self._storage.expired_files(now_s):
            if await self._storage.delete_file(file.owner, file.id):
                log_event(_log, logging.INFO, "file expired", file=file.id)
        self._seen.usage, self._seen.waiting = await self._storage.totals(), await self._storage.waiting()

    async def _work(self) -> None:
        while True:
            try:
                await self.look()
            except (Unavailable, StorageCorrupt) as error:
                log_event(_log, logging.WARNING, "what is stored cannot be looked at", why=type(error).__name__)
            await self._waker.wait_about(_EVERY_S)
