"""Files, vector stores and their background work over an embedded storage, with faults where a test wants them."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.callers.callers import NO_METER
from backend.documents.records import DocumentEvent
from backend.errors import WrongMediaType
from backend.files.stored_file import StoredFile
from backend.lanes.cache.store import Enter, share_with_all
from backend.retry import Backoff, StoreRetry
from backend.search.file_reading import FactFinder, FileTextReader
from backend.search.files import FileService
from backend.search.indexing import Indexer, IndexPolicy
from backend.search.limits import SearchLimits
from backend.search.records import StoreFile, VectorStore
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from backend.search.upkeep import Reembedder
from backend.search.vector_stores import NewFile, VectorStoreService
from backend.supervision import Supervisor
from backend.text.entities import EntityService
from tests.documents.conftest import LIMITS
from tests.fakes import TEST_TIMEOUT_S, ManualClock
from tests.text.classification_setup import build_classification
from tests.text.service_stack import ServiceStack

OWNER, OTHER = "owner", "other"
DOCUMENT = b"%PDF-1.4 scripted"


class WatchedStorage:
    """A storage whose calls are counted, may fail or wait, and can be waited for."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.calls: Counter[str] = Counter()
        self.errors: dict[str, list[Exception]] = {}  # raised first, one a call
        self.next_call = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.storage, name)
        if name in ("report", "file_chunks"):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.errors.get(name):
                error = self.errors[name].pop(0)
                self._count(f"{name} failed")
                raise error
            result = await method(*args, **kwargs)
            self._count(name)
            return result

        return call

    async def when(self, name: str, count: int = 1) -> None:
        """Return once a call has returned so often; "finish failed" for one that was made to fail."""
        async with asyncio.timeout(TEST_TIMEOUT_S):
            while self.calls[name] < count:
                await self.next_call.wait()

    def _count(self, name: str) -> None:
        self.calls[name] += 1
        self.next_call.set()
        self.next_call = asyncio.Event()


@dataclass
class ScriptedDocuments:
    """Stands for `DocumentService.process`: tells of a page, waits for ``gate``, raises ``errors``.

    `tell_page` tells of it again: an indexer then looks at its claim.
    """

    errors: list[BaseException] = field(default_factory=list)
    gate: asyncio.Event | None = None
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    tell_page: Callable[[], None] = lambda: None

    async def process(self, upload: Any, options: Any, urgency: Any, on_event: Callable[[DocumentEvent], None]) -> Any:
        self.tell_page = lambda: on_event(DocumentEvent("reading", 1, 2, page=object()))  # type: ignore[arg-type]
        self.tell_page()
        self.entered.set()
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        raise self.errors.pop(0) if self.errors else WrongMediaType("file: of no kind")


class Paid:
    """What a caller was charged."""

    def __init__(self) -> None:
        self.units: Counter[str] = Counter()
        self._tokens = asyncio.Queue[int]()

    def charge(self, kind: Any, units: int) -> None:
        self.units[kind] += units
        self._tokens.put_nowait(units if kind == "tokens" else 0)

    async def next_tokens(self) -> int:
        """Those of the next charge."""
        return await asyncio.wait_for(self._tokens.get(), TEST_TIMEOUT_S)


@dataclass
class SearchStack:
    """The services over one storage, and the parts that tests inspect."""

    storage: WatchedStorage
    stack: ServiceStack
    classification: Any
    clock: ManualClock
    limits: SearchLimits
    documents: Any = field(default_factory=ScriptedDocuments)
    meter: Any = NO_METER
    enter: Enter = share_with_all
    running: list[Indexer | Reembedder] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.supervisor = Supervisor(self.stack.telemetry)
        self.files = FileService(self.storage, self.limits, render_page=self._render, now=self.clock)  # type: ignore[arg-type]
        self.stores = VectorStoreService(
            self.storage,  # type: ignore[arg-type]
            self.stack.catalog,
            self.limits,
            on_added=lambda: [one.wake() for one in self.running if isinstance(one, Indexer)],  # type: ignore[arg-type,return-value]
            on_reembed=lambda: [one.wake() for one in self.running if isinstance(one, Reembedder)],  # type: ignore[arg-type,return-value]
            now=self.clock,
        )
        self.rotations: list[int] = []

    def indexer(self, storage: Any = None, **policy: Any) -> Indexer:
        """A started one."""
        entities = EntityService(self.stack.catalog, self.stack.inference, self.stack.telemetry)
        indexer = Indexer(
            storage or self.storage,
            FileTextReader(self.documents.process, LIMITS),
            FactFinder(entities, self.classification),
            self.stack.service,
            self.stack.catalog,
            telemetry=self.stack.telemetry,
            supervisor=self.supervisor,
            policy=IndexPolicy(**{"poll_s": 0.01, "progress_s": 0.0, "lease_s": 30.0, **policy}),
            limits=self.limits,
            meter_of=lambda _owner: self.meter,
            enter=self.enter,
            retry=StoreRetry(Backoff(0.0, 0.0), tries=6),
        )
        indexer.start()
        self.running.append(indexer)
        return indexer

    def reembedder(self, poll_s: float = 0.01) -> Reembedder:
        """A started one."""
        reembedder = Reembedder(
            self.storage,  # type: ignore[arg-type]
            self.stack.service,
            self.stack.catalog,
            telemetry=self.stack.telemetry,
            supervisor=self.supervisor,
            meter_of=lambda _owner: self.meter,
            enter=self.enter,
            poll_s=poll_s,
        )
        reembedder.start()
        self.running.append(reembedder)
        return reembedder

    async def upload(self, content: bytes = b"Hola mundo.", name: str = "a.txt", owner: str = OWNER) -> str:
        stored = StoredFile.of(content, LIMITS)
        try:
            return (await self.files.upload(owner, stored, name, "assistants")).id
        finally:
            stored.close()

    async def store(self, owner: str = OWNER, **settings: Any) -> VectorStore:
        return await self.stores.create(owner, **settings)

    async def indexed(self, owner: str, content: bytes) -> VectorStore:
        """A new store of an owner once a file of this content is in it."""
        store, file_id = await self.store(owner), await self.upload(content, owner=owner)
        await self.stores.add_files(owner, store.id, [NewFile(file_id)])
        await self.ended(store.id, file_id, owner)
        return store

    async def add(self, store_id: str, content: bytes = b"Hola mundo.", name: str = "a.txt", **changes: Any) -> str:
        """Upload a file and add it; its id."""
        file_id = await self.upload(content, name)
        await self.stores.add_files(OWNER, store_id, [NewFile(file_id, **changes)])
        return file_id

    async def ended(self, store_id: str, file_id: str, owner: str = OWNER) -> StoreFile:
        """The file once it is not in progress any more."""
        async with asyncio.timeout(TEST_TIMEOUT_S):
            while (file := await self.stores.file(owner, store_id, file_id)).status == "in_progress":
                await self.storage.next_call.wait()
        return file

    async def settled(self) -> None:
        """Let the indexers end: a file is in its store before its outcome is counted."""
        for one in self.running:
            await one.close()

    async def close(self) -> None:
        await self.settled()
        await self.storage.close()

    async def _render(self, upload: Any, number: int, *, rotation: int, dpi: float, password: Any = None) -> bytes:
        self.rotations.append(rotation)
        return f"{number} at {dpi:g}".encode()


async def open_stack(stack: ServiceStack, tmp_path: Path, limits: SearchLimits) -> SearchStack:
    storage = SqliteStorage(SqliteOptions(tmp_path / "search"))
    await storage.start()
    clock = ManualClock(1_700_000_000.0)
    return SearchStack(WatchedStorage(storage), stack, build_classification(stack, tmp_path).service, clock, limits)
