"""What is done for stored files and stores beside requests: embedded anew, deleted at their end, warmed up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from backend.abandoned import end_tasks
from backend.callers.callers import NO_METER, Meter, sharer
from backend.errors import FinanciaError, StorageCorrupt, Unavailable
from backend.lanes.cache.store import Enter, share_with_all
from backend.lanes.inference import Urgency, count_started
from backend.lanes.work_queue import Priority
from backend.search.document_chunks import PASSAGE, QUERY, identity_of
from backend.search.records import StoredUsage, VectorStore
from backend.search.storage import SearchStorage
from backend.search.waker import Waker
from backend.serving.catalog import Catalog, LoadedModel
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, log_event
from backend.text.embeddings import EmbeddingService
from backend.text.neutral_vectors import NeutralVectors

_log = logging.getLogger(__name__)
CHUNKS_AT_ONCE = 256  # embedded and kept in one step; a process that ends loses less than that
_POLL_S = 20.0  # between looks for stores that another process began to re-embed
_LIMIT_S = 600.0  # of one step; then it is tried again


class Reembedder:
    """Embeds the chunks of a store with the model that serves now, in the background, beginning where it stopped.

    Used on the event loop only. What is done stands in the storage, so any process goes on with it.

    Several processes that share a storage may embed the same chunks at the same time; their vectors are equal.

    Args:
        meter_of: the meter of a store's owner, which is charged for tokens.
        enter: entered while chunks of an owner are embedded; CACHE_SCOPE.
    """

    def __init__(
        self,
        storage: SearchStorage,
        embeddings: EmbeddingService,
        catalog: Catalog,
        *,
        telemetry: Telemetry,
        supervisor: Supervisor,
        meter_of: Callable[[str], Meter] = lambda _owner: NO_METER,
        enter: Enter = share_with_all,
        poll_s: float = _POLL_S,
    ) -> None:
        self._storage, self._embeddings, self._catalog = storage, embeddings, catalog
        self._telemetry, self._supervisor, self._enter = telemetry, supervisor, enter
        self._meter_of, self._poll_s = meter_of, poll_s
        self._behind: dict[str, int] = {}  # of a store the last chunk that has its vector
        self._waker = Waker()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._supervisor.keep("reembed_stores", self._work)

    def wake(self) -> None:
        """Look for stores at once."""
        self._waker.wake()

    async def close(self) -> None:
        """End; another process, or the next start, goes on."""
        await end_tasks(self._task)

    async def _work(self) -> None:
        while True:
            try:
                await self._reembed_all()
            except (Unavailable, StorageCorrupt) as error:  # of the storage, or of lanes: the next look may do
                log_event(_log, logging.WARNING, "re-embedding waits", why=type(error).__name__)
            await self._waker.wait_about(self._poll_s)

    async def _reembed_all(self) -> None:
        """Re-embed every store that waits for the model that serves, one step of each at a time."""
        model = self._catalog.embedding()
        waiting = {store.id: store for store in await self._storage.reembedding_stores(identity_of(model))}
        self._behind.clear()
        while waiting:
            for store in list(waiting.values()):
                if self._catalog.embedding() is not model:  # it was swapped: these stores wait for a new beginning
                    return
                if not await self._step(store, model):
                    del waiting[store.id]

    async def _step(self, store: VectorStore, model: LoadedModel) -> bool:
        """Embed some chunks of a store; False where none is left, and the store was switched if it is still there.

        Raises: Unavailable, StorageCorrupt.
        """
        encoder = identity_of(model)
        chunks = await self._storage.unembedded(store.id, encoder, CHUNKS_AT_ONCE, behind=self._behind.get(store.id, 0))
        if not chunks and self._behind.pop(store.id, 0):  # files were indexed meanwhile whose chunks have lower ids
            chunks = await self._storage.unembedded(store.id, encoder, CHUNKS_AT_ONCE)
        if not chunks:
            if await self._storage.switch_encoder(store.id, encoder):
                log_event(_log, logging.INFO, "store re-embedded", store=store.id, encoder=encoder.name)
            return False  # a file that is being indexed with the old model holds the switch up until the next look
        urgency = Urgency(Priority.BULK, time.monotonic() + _LIMIT_S)
        ids, texts = zip(*chunks, strict=True)
        with self._enter(store.owner), count_started(sharer(store.owner)) as started:
            try:
                embedded = await self._embeddings.embed_in_chunks(model, texts, PASSAGE, urgency)
            except FinanciaError as error:
                if isinstance(error, Unavailable):
                    raise
                self._meter_of(store.owner).charge("tokens", started.tokens)
                self._supervisor.failed("reembed_stores", error)
                return False
        await self._storage.put_vectors(store.id, encoder, ids, embedded.vectors)
        self._behind[store.id] = ids[-1]
        self._telemetry.reembedded_chunks_total.inc(len(ids))
        self._meter_of(store.owner).charge("tokens", sum(embedded.tokens))
        return True


_EVERY_S = 30.0


class ExpiryTask:
    """Deletes files and vector stores whose time is over, and shows what is stored, every half minute.

    Several processes may do this for one storage: what is gone is no error. Used on the event loop only.

    Args:
        now: Unix seconds.
    """

    def __init__(
        self, storage: SearchStorage, telemetry: Telemetry, supervisor: Supervisor, *, now: Callable[[], float]
    ) -> None:
        self._storage, self._supervisor = storage, supervisor
        self._now = now
        self._waker, self._stored, self._waiting = Waker(), StoredUsage(0, 0, 0, 0), 0
        self._task: asyncio.Task[None] | None = None
        telemetry.index_files_waiting.set_function(lambda: self._waiting)
        telemetry.stored_files.set_function(lambda: self._stored.files)
        telemetry.stored_bytes.set_function(lambda: self._stored.bytes)
        telemetry.stored_chunks.set_function(lambda: self._stored.chunks)
        telemetry.vector_stores.set_function(lambda: self._stored.stores)

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
        self._stored, self._waiting = await self._storage.totals(), await self._storage.waiting()

    async def _work(self) -> None:
        while True:
            try:
                await self.look()
            except (Unavailable, StorageCorrupt) as error:
                log_event(_log, logging.WARNING, "what is stored cannot be looked at", why=type(error).__name__)
            await self._waker.wait_about(_EVERY_S)


class WarmUp:
    """Computes what scores start from before the first search: a hundred neutral texts take a CPU about a second.

    Once a model: at the start where there is something to search, else when the first file is added.

    Used on the event loop only. A process that nobody searches in computes nothing.
    """

    def __init__(
        self, storage: SearchStorage, neutral: NeutralVectors, catalog: Catalog, supervisor: Supervisor
    ) -> None:
        self._storage, self._neutral = storage, neutral
        self._catalog, self._supervisor = catalog, supervisor
        self._model: LoadedModel | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._supervisor.run("warm_search", self._begin)

    def wake(self) -> None:
        """Somebody will search soon."""
        model = self._catalog.embedding()
        if model is not self._model:
            self._model = model
            self._task = self._supervisor.run("warm_search", partial(self._work, model))

    async def close(self) -> None:
        await end_tasks(self._task)

    async def _begin(self) -> None:
        try:
            stored = await self._storage.totals()
        except FinanciaError:
            return  # a file that is added later, or the first search, tells
        if stored.chunks:
            self.wake()

    async def _work(self, model: LoadedModel) -> None:
        try:
            await self._neutral.unrelated_cosine(model, QUERY, PASSAGE, Urgency(Priority.BULK))
        except FinanciaError as error:
            self._model = None  # the next file tries again, and the first search does it else
            log_event(_log, logging.INFO, "search not warmed up", why=type(error).__name__)
