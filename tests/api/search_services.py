"""Files, documents and vector stores over an embedded storage in a temporary folder; reading and ranking are fakes."""

import asyncio
import itertools
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.errors import InvalidField
from backend.files.pages import Box
from backend.files.stored_file import StoredFile
from backend.lanes.inference import Urgency
from backend.search.document_chunks import identity_of
from backend.search.files import FileService
from backend.search.limits import SearchLimits
from backend.search.records import (
    EncoderIdentity,
    IndexedFile,
    IndexFailure,
    ListPage,
    NewChunk,
    PageSize,
    PlacedWord,
    StoredChunk,
    StoreFile,
)
from backend.search.retrieval import Highlight, Hit, HitScores, PageBox, SearchAnswer, SearchOptions
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from backend.search.stored_documents import StoredDocuments
from backend.search.vector_stores import VectorStoreService
from tests.api.text_fakes import FakeService
from tests.search.samples import unit_vectors

CREATED_S = 1_767_225_600.0
WORDS = (PlacedWord(0, 5, 1, 0, Box(10, 20, 40.126, 30)), PlacedWord(6, 11, 2, 3, Box(1, 2, 3, 4)))
CHUNKS = (NewChunk(0, 0, 11, "Total 1.284", 4, WORDS), NewChunk(1, 20, 30, "plain text", 2, ()))


class OpenedOnUse:
    """A storage that the first call opens, and every call after `close`; what waits is indexed before the next call."""

    def __init__(self, encoder: EncoderIdentity) -> None:
        self.encoder = encoder  # that files are indexed with
        self.indexes = True
        self.error: Exception | None = None  # of every call
        self._folder = Path(tempfile.mkdtemp())
        self._storage: SqliteStorage | None = None
        self._opening = asyncio.Lock()
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            return await getattr(await self._opened(), name)(*arguments, **options)

        return call

    async def file_chunks(self, store_id: str, file_id: str) -> AsyncIterator[StoredChunk]:
        async for chunk in (await self._opened()).file_chunks(store_id, file_id):
            yield chunk

    async def close(self) -> None:
        storage, self._storage = self._storage, None
        if storage is not None:
            await storage.close()

    async def _opened(self) -> SqliteStorage:
        if self.error is not None:
            raise self.error
        async with self._opening:
            if self._storage is None:
                self._storage = SqliteStorage(SqliteOptions(self._folder))
                await self._storage.start()
            while self.indexes and (claim := await self._storage.claim(self.encoder, 60.0)):
                if "broken" in claim.file.name:
                    await self._storage.fail(claim, IndexFailure("unreadable_file", "it is cut off"))
                else:
                    await self._storage.finish(claim, self._indexed(() if "blank" in claim.file.name else CHUNKS))
        return self._storage

    def _indexed(self, chunks: Sequence[NewChunk]) -> IndexedFile:
        return IndexedFile(
            chunks,
            unit_vectors(len(chunks), width=self.encoder.width),
            self.encoder,
            {"document_type": ("invoice",), "invoice_total": (1284.5, 12.0)},
            (PageSize(1, 595.0, 842.0, 0), PageSize(2, 842.0, 595.0, 90, "Hoja 2")),
            "es",
        )


async def _render(upload: StoredFile, number: int, *, dpi: float, password: str | None = None, **_: Any) -> bytes:
    del upload
    if number > 2:
        raise InvalidField(f"number: there is no page {number}, the file has 2", param="number")
    return b"\x89PNG page %d at %d%s" % (number, dpi, (password or "").encode())


@dataclass
class FakeSearch(FakeService):
    """Finds one chunk of each file of the store; a token a character of the queries."""

    vector_stores: Any = None
    options: SearchOptions | None = None  # of the last search

    async def search(
        self, owner: str, store_id: str, queries: Sequence[str], options: SearchOptions, urgency: Urgency
    ) -> SearchAnswer:
        files, _ = await self.vector_stores.list_files(owner, store_id, ListPage(order="asc"), status="completed")
        await self.enter(owner, store_id, list(queries), options, urgency)
        self.options = options
        hits = [hit(file) for file in files]
        return SearchAnswer(
            tuple(queries), hits[: options.limit], len(hits) > options.limit, sum(map(len, queries)), ("a warning",)
        )


class SearchServices:
    """The services over one storage; every call of the clock is later than the one before."""

    def __init__(self, catalog: Any) -> None:
        self.storage: Any = OpenedOnUse(identity_of(catalog.embedding()))
        limits, clock = SearchLimits(), itertools.count(CREATED_S, 0.001).__next__
        self.files = FileService(self.storage, limits, render_page=_render, now=clock)
        self.stored_documents = StoredDocuments(self.storage, self.files)
        wakes: dict[str, Any] = {"on_added": lambda: None, "on_reembed": lambda: None}
        self.vector_stores = VectorStoreService(self.storage, catalog, limits, now=clock, **wakes)
        self.search = FakeSearch(vector_stores=self.vector_stores)


def hit(file: StoreFile) -> Hit:
    return Hit(
        file,
        StoredChunk(7, file.file_id, 0, 0, 11, "Total 1.284", 4, WORDS),
        0.75,
        HitScores(vector=0.8123456789, keyword=3.5),
        (2,),
        (PageBox(2, Box(10, 20, 40.126, 30)),),
        (Highlight(0, 5, (PageBox(2, Box(10, 20, 40, 30)),)),),
        ("file-copy",),
    )
