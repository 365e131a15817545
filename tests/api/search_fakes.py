"""Files, vector stores and search in memory, with the signatures of the services, so that only HTTP is tested."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from backend.errors import BadInput, InvalidField, NotFound
from backend.files.pages import Box
from backend.files.stored_file import StoredFile
from backend.lanes.inference import Urgency
from backend.search.files import FileService
from backend.search.limits import SearchLimits
from backend.search.records import (
    Attributes,
    DocumentQuery,
    DocumentRow,
    Duplicate,
    EncoderIdentity,
    FileRecord,
    FileStatus,
    IndexFailure,
    ListPage,
    ListRange,
    PageSize,
    PlacedWord,
    Position,
    Progress,
    Reembedding,
    StoredChunk,
    StoredDocument,
    StoreFile,
    VectorStore,
)
from backend.search.search_records import Highlight, Hit, HitScores, PageBox, SearchAnswer, SearchOptions
from backend.search.stored_documents import StoredDocuments
from backend.search.vector_stores import FileBatch, NewFile, StoreChange
from tests.api.document_fakes import FILE_LIMITS
from tests.api.text_fakes import FakeService

CREATED_S = 1_767_225_600.5
ENCODER = EncoderIdentity("f1", "fake-model", 16)
Item = TypeVar("Item")


def part_of(items: Mapping[str, Item], page: ListPage) -> tuple[list[Item], bool]:
    """Part of a list in the order of creation, as the storages cut it."""
    ids = list(items) if page.order == "asc" else list(items)[::-1]
    for cursor, name in ((page.after, "after"), (page.before, "before")):
        if cursor is not None and cursor not in ids:
            raise InvalidField(f"{name}: there is no '{cursor}' in this list", param=name)
    if page.after is not None:
        ids = ids[ids.index(page.after) + 1 :]
    if page.before is not None:
        ids = ids[: ids.index(page.before)]
    return [items[name] for name in ids[: page.limit]], len(ids) > page.limit


@dataclass
class FakeFiles(FakeService):
    """Keeps files of each owner in memory."""

    kept: dict[str, tuple[FileRecord, bytes]] = field(default_factory=dict)

    async def upload(
        self,
        owner: str,
        content: StoredFile,
        name: str,
        purpose: str,
        *,
        expires_after_s: float | None = None,
        file_id: str | None = None,
    ) -> FileRecord:
        await self.enter(owner, name, purpose, expires_after_s)
        if file_id in self.kept:
            raise BadInput(f"file_id: '{file_id}' is there already", param="file_id")
        expires_s = None if expires_after_s is None else CREATED_S + expires_after_s
        number = len(self.kept) + 1
        name_of_file = file_id or f"file-{number}"
        file = FileRecord(name_of_file, owner, name, content.size_bytes, content.sha256, purpose, CREATED_S, expires_s)
        self.kept[file.id] = (file, content.content())
        return file

    def now_s(self) -> float:
        return CREATED_S

    async def find(self, owner: str, file_id: str) -> FileRecord:
        await self.enter(owner, file_id)
        file = self.kept.get(file_id)
        if file is None or file[0].owner != owner:
            raise NotFound(f"file: there is no '{file_id}'", param="file_id")
        return file[0]

    async def list_files(self, owner: str, page: ListPage, purpose: str | None = None) -> tuple[list[FileRecord], bool]:
        await self.enter(owner, page, purpose)
        mine = {
            name: file
            for name, (file, _) in self.kept.items()
            if file.owner == owner and purpose in (None, file.purpose)
        }
        return part_of(mine, page)

    async def content(self, owner: str, file_id: str) -> tuple[FileRecord, StoredFile]:
        file = await self.find(owner, file_id)
        return file, StoredFile.of(self.kept[file_id][1], FILE_LIMITS)

    async def delete(self, owner: str, file_id: str) -> None:
        await self.find(owner, file_id)
        del self.kept[file_id]

    async def page_image(
        self, owner: str, file_id: str, number: int, dpi: float, *, password: str | None = None
    ) -> bytes:
        await self.find(owner, file_id)
        if number > 2:
            raise InvalidField(f"number: there is no page {number}, the file has 2", param="number")
        return b"\x89PNG page %d at %d%s" % (number, dpi, (password or "").encode())


@dataclass
class MemoryDocuments:
    """What `StoredDocuments` asks of a storage, in memory: without filters, sorting and duplicates."""

    files: FakeFiles
    rows: dict[str, StoredDocument] = field(default_factory=dict)
    contents: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    async def add_document(self, row: DocumentRow, content: StoredFile, apart: Mapping[str, Any], **_: Any) -> None:
        self.files.kept[row.stored.id] = (row.stored.file, content.content())
        self.rows[row.stored.id], self.contents[row.stored.id] = row.stored, apart

    async def replace_document(self, row: DocumentRow, **_: Any) -> bool:
        if row.stored.id in self.rows:
            self.rows[row.stored.id] = row.stored
        return row.stored.id in self.rows

    async def document(self, owner: str, file_id: str) -> StoredDocument | None:
        stored = self.rows.get(file_id) if file_id in self.files.kept else None
        return stored if stored is not None and stored.owner == owner else None

    async def document_revision(self, owner: str, file_id: str) -> int | None:
        stored = await self.document(owner, file_id)
        return stored and stored.revision

    async def document_content(self, file_id: str) -> Mapping[str, Any] | None:
        return self.contents.get(file_id)

    async def documents(self, owner: str, query: DocumentQuery, part: ListRange) -> list[StoredDocument]:
        del query
        mine = [await self.document(owner, file_id) for file_id in self.rows]
        return [stored for stored in mine if stored is not None][: part.limit] if part.after is None else []

    async def document_duplicates(self, owner: str, file_ids: Sequence[str]) -> list[Duplicate]:
        del owner, file_ids
        return []

    async def position(self, *_: Any) -> Position | None:
        return None

    async def document_position(self, *_: Any) -> Position | None:
        return None

    async def content(self, file_id: str) -> StoredFile:
        return StoredFile.of(self.files.kept[file_id][1], FILE_LIMITS)

    async def file(self, owner: str, file_id: str) -> FileRecord | None:
        stored = await self.document(owner, file_id)
        return stored and stored.file

    async def delete_file(self, owner: str, file_id: str) -> bool:
        del owner
        return self.files.kept.pop(file_id, None) is not None


def stored_documents(files: FakeFiles) -> StoredDocuments:
    """The service over files in memory."""
    storage: Any = MemoryDocuments(files)

    async def render(upload: StoredFile, number: int, **_: Any) -> bytes:
        return b"\x89PNG page %d of %d bytes" % (number, upload.size_bytes)

    kept = FileService(storage, SearchLimits(), render_page=render, now=lambda: CREATED_S)
    return StoredDocuments(storage, kept)


def indexed(store_id: str, new: NewFile, name: str, batch_id: str | None) -> StoreFile:
    """A file that is indexed as soon as it is added; "broken" in its name makes it fail."""
    fails = "broken" in name
    return StoreFile(
        store_id,
        new.file_id,
        name,
        CREATED_S,
        "failed" if fails else "completed",
        new.attributes,
        {"document_type": ("invoice",), "invoice_total": (1284.5, 12.0)},
        new.chunking,
        batch_id,
        Progress("done", 2, 2),
        IndexFailure("unreadable_file", "it is cut off") if fails else None,
        usage_bytes=99,
        chunks=2,
        pages=(PageSize(1, 595.0, 842.0, 0), PageSize(2, 842.0, 595.0, 90, "Hoja 2")),
        language="es",
    )


@dataclass
class FakeVectorStores(FakeService):
    """Keeps stores in memory, and indexes at once."""

    files: FakeFiles = field(default_factory=FakeFiles)
    stores: dict[str, VectorStore] = field(default_factory=dict)
    in_stores: dict[str, dict[str, StoreFile]] = field(default_factory=dict)

    async def create(
        self,
        owner: str,
        *,
        name: str = "",
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        expires_after_days: int | None = None,
        files: Sequence[NewFile] = (),
    ) -> VectorStore:
        await self.enter(owner, name)
        store = VectorStore(
            f"vs_{len(self.stores) + 1}", owner, name, CREATED_S, CREATED_S, description, dict(metadata or {}),
            expires_after_days, ENCODER,
        )  # fmt: skip
        self.stores[store.id], self.in_stores[store.id] = store, {}
        await self.add_files(owner, store.id, files)
        return await self.find(owner, store.id)

    async def find(self, owner: str, store_id: str) -> VectorStore:
        await self.enter(owner, store_id)
        store = self.stores.get(store_id)
        if store is None or store.owner != owner:
            raise NotFound(f"vector store: there is no '{store_id}'", param="id")
        return replace(store, counts=_counts(self.in_stores[store_id].values()))

    async def list_stores(self, owner: str, page: ListPage) -> tuple[list[VectorStore], bool]:
        await self.enter(owner, page)
        return part_of({name: store for name, store in self.stores.items() if store.owner == owner}, page)

    async def change(self, owner: str, store_id: str, change: StoreChange) -> VectorStore:
        store = await self.find(owner, store_id)
        given = {
            name: getattr(change, name)
            for name in ("name", "description", "metadata", "expires_after_days")
            if getattr(change, name) is not None
        }
        if change.clears_expiry:
            given["expires_after_days"] = None
        self.stores[store_id] = replace(store, **given)
        return await self.find(owner, store_id)

    async def delete(self, owner: str, store_id: str) -> None:
        await self.find(owner, store_id)
        del self.stores[store_id]

    async def add_files(
        self, owner: str, store_id: str, files: Sequence[NewFile], batch_id: str | None = None
    ) -> list[StoreFile]:
        await self.find(owner, store_id)
        added = [indexed(store_id, new, (await self.files.find(owner, new.file_id)).name, batch_id) for new in files]
        self.in_stores[store_id].update({file.file_id: file for file in added})
        return added

    async def file(self, owner: str, store_id: str, file_id: str) -> StoreFile:
        await self.find(owner, store_id)
        file = self.in_stores[store_id].get(file_id)
        if file is None:
            raise NotFound(f"file: there is no '{file_id}' in {store_id}", param="file_id")
        return file

    async def list_files(
        self,
        owner: str,
        store_id: str,
        page: ListPage,
        *,
        status: FileStatus | None = None,
        batch_id: str | None = None,
    ) -> tuple[list[StoreFile], bool]:
        await self.find(owner, store_id)
        found = {
            name: file
            for name, file in self.in_stores[store_id].items()
            if status in (None, file.status) and batch_id in (None, file.batch_id)
        }
        return part_of(found, page)

    async def set_attributes(self, owner: str, store_id: str, file_id: str, attributes: Attributes) -> StoreFile:
        file = await self.file(owner, store_id, file_id)
        self.in_stores[store_id][file_id] = replace(file, attributes=attributes)
        return self.in_stores[store_id][file_id]

    async def remove_file(self, owner: str, store_id: str, file_id: str) -> None:
        await self.file(owner, store_id, file_id)
        del self.in_stores[store_id][file_id]

    async def chunks(self, owner: str, store_id: str, file_id: str) -> AsyncIterator[StoredChunk]:
        await self.file(owner, store_id, file_id)
        yield chunk(file_id)
        yield StoredChunk(8, file_id, 1, 20, 30, "plain text", 2)

    async def add_batch(self, owner: str, store_id: str, files: Sequence[NewFile]) -> FileBatch:
        await self.add_files(owner, store_id, files, "vsfb_1")
        return await self.batch(owner, store_id, "vsfb_1")

    async def batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch:
        await self.find(owner, store_id)
        files = [file for file in self.in_stores[store_id].values() if file.batch_id == batch_id]
        if not files:
            raise NotFound(f"batch: there is no '{batch_id}'", param="batch_id")
        waits = any(file.status == "in_progress" for file in files)
        return FileBatch(batch_id, store_id, CREATED_S, _counts(files), "in_progress" if waits else "completed")

    async def cancel_batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch:
        return replace(await self.batch(owner, store_id, batch_id), status="cancelled")

    async def reembed(self, owner: str, store_id: str) -> VectorStore:
        store = await self.find(owner, store_id)
        return replace(store, reembedding=Reembedding(EncoderIdentity("f2", "other", 8), 1, 2))


@dataclass
class FakeSearch(FakeService):
    """Finds one chunk of each file of the store; a token a character of the queries."""

    vector_stores: FakeVectorStores = field(default_factory=FakeVectorStores)
    options: SearchOptions | None = None  # of the last search

    async def search(
        self, owner: str, store_id: str, queries: Sequence[str], options: SearchOptions, urgency: Urgency
    ) -> SearchAnswer:
        await self.vector_stores.find(owner, store_id)
        await self.enter(owner, store_id, list(queries), options, urgency)
        self.options = options
        hits = [hit(file) for file in self.vector_stores.in_stores[store_id].values() if file.status == "completed"]
        return SearchAnswer(
            tuple(queries), hits[: options.limit], len(hits) > options.limit, sum(map(len, queries)), ("a warning",)
        )


def chunk(file_id: str) -> StoredChunk:
    words = (PlacedWord(0, 5, 1, 0, Box(10, 20, 40.126, 30)), PlacedWord(6, 11, 2, 3, Box(1, 2, 3, 4)))
    return StoredChunk(7, file_id, 0, 0, 11, "Total 1.284", 4, words)


def hit(file: StoreFile) -> Hit:
    return Hit(
        file,
        chunk(file.file_id),
        0.75,
        HitScores(vector=0.8123456789, keyword=3.5),
        (2,),
        (PageBox(2, Box(10, 20, 40.126, 30)),),
        (Highlight(0, 5, (PageBox(2, Box(10, 20, 40, 30)),)),),
        ("file-copy",),
    )


def _counts(files: Any) -> dict[FileStatus, int]:
    counts: dict[FileStatus, int] = {}
    for file in files:
        counts[file.status] = counts.get(file.status, 0) + 1
    return counts
