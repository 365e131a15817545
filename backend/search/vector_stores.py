"""The use case behind ``/v1/vector_stores``: collections, the files in them, and batches of files."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backend.errors import InvalidField, NotFound, WrongEncoder
from backend.search.document_chunks import identity_of
from backend.search.limits import SearchLimits
from backend.search.records import Attributes, Chunking, FileStatus, ListPage, StoredChunk, StoreFile, VectorStore
from backend.search.storage import SearchStorage, list_range
from backend.serving.catalog import Catalog

_BATCH_ID = re.compile(r"vsfb_([0-9a-f]{8})[0-9a-f]{16}")
_NAMES = ("person", "organization", "location", "vendor_name", "customer_name")  # attributes found in files
_NAMED_FILES, _NAME_CHARS = 100, 60
MAX_DAYS = 365  # of no activity; as OpenAI's


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to add to a store."""

    file_id: str
    attributes: Attributes = field(default_factory=dict)
    chunking: Chunking = field(default_factory=Chunking)


@dataclass(frozen=True, slots=True)
class FileBatch:
    id: str  # "vsfb_…"
    store_id: str
    created_s: float
    counts: Mapping[FileStatus, int]
    status: FileStatus


@dataclass(frozen=True, slots=True)
class StoreChange:
    """What to change of a store; None leaves it."""

    name: str | None = None
    description: str | None = None
    metadata: Mapping[str, str] | None = None
    expires_after_days: int | None = None
    clears_expiry: bool = False


class VectorStoreService:
    """Each caller sees only its own stores. Used on the event loop only.

    Calls that name a store, a file or a batch raise NotFound for one that is absent or somebody else's.

    Args:
        on_added: called after files were added, to have them indexed at once.
        on_reembed: called after a store began to be re-embedded.
        now: Unix seconds.
        bytes_of: an owner's quota of bytes; None: LIMIT_STORED_BYTES alone.
    """

    def __init__(
        self,
        storage: SearchStorage,
        catalog: Catalog,
        limits: SearchLimits,
        *,
        on_added: Callable[[], None],
        on_reembed: Callable[[], None],
        now: Callable[[], float],
        bytes_of: Callable[[str], int | None] = lambda _owner: None,
    ) -> None:
        self._storage, self._catalog, self._limits, self._bytes_of = storage, catalog, limits, bytes_of
        self._on_added, self._on_reembed, self._now = on_added, on_reembed, now

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
        """A new store with files to be indexed, all of it or nothing.

        Raises: TooLarge over LIMIT_VECTOR_STORES; as `add_files`.
        """
        now_s = self._now()
        store = VectorStore(
            id=f"vs_{secrets.token_hex(12)}",
            owner=owner,
            name=name,
            created_s=now_s,
            last_active_s=now_s,
            description=description,
            metadata=metadata or {},
            expires_after_days=expires_after_days,
        )
        attached = await self._attachable(owner, store, files) if files else []
        await self._storage.add_store(store, attached, limits=self._limits.of_owner(self._bytes_of(owner)))
        if attached:
            self._on_added()
        return await self.find(owner, store.id)

    async def find(self, owner: str, store_id: str) -> VectorStore:
        """Also a store that has expired is not found: it is about to be deleted."""
        store = await self._storage.store(owner, store_id)
        if store is None or self._has_expired(store):
            raise NotFound(f"vector_store_id: there is no vector store '{store_id[:64]}'", param="vector_store_id")
        return store

    async def list_stores(self, owner: str, page: ListPage) -> tuple[list[VectorStore], bool]:
        """The stores of a page of the list, and whether there are more. Raises: InvalidField for an unknown id."""
        rows = await self._storage.stores(owner, await list_range(self._storage, "store", owner, page))
        stores, has_more = page.part_of(rows)
        return [store for store in stores if not self._has_expired(store)], has_more

    async def change(self, owner: str, store_id: str, change: StoreChange) -> VectorStore:
        store = await self.find(owner, store_id)
        days = store.expires_after_days if change.expires_after_days is None else change.expires_after_days
        changed = replace(
            store,
            name=store.name if change.name is None else change.name,
            description=store.description if change.description is None else change.description,
            metadata=store.metadata if change.metadata is None else change.metadata,
            expires_after_days=None if change.clears_expiry else days,
            last_active_s=self._now(),
        )
        if not await self._storage.update_store(changed):
            raise NotFound(f"vector_store_id: there is no vector store '{store_id[:64]}'", param="vector_store_id")
        return await self.find(owner, store_id)

    async def delete(self, owner: str, store_id: str) -> None:
        """Delete a store with what was indexed in it; its files stay."""
        if not await self._storage.delete_store(owner, store_id):
            raise NotFound(f"vector_store_id: there is no vector store '{store_id[:64]}'", param="vector_store_id")

    async def add_files(self, owner: str, store_id: str, files: Sequence[NewFile]) -> list[StoreFile]:
        """Have files indexed in the background; all are added or none.

        Raises: NotFound; TooLarge for attributes, over LIMIT_STORED_CHUNKS or LIMIT_STORED_BYTES; QuotaExceeded over
            LIMIT_WAITING_FILES; InvalidField for attributes and chunking; WrongEncoder for a store whose vectors are
            another model's, which would wait for ever.
        """
        added = await self._add(owner, store_id, files, None)
        return [await self.file(owner, store_id, file.file_id) for file in added]

    async def file(self, owner: str, store_id: str, file_id: str) -> StoreFile:
        await self.find(owner, store_id)
        file = await self._storage.store_file(store_id, file_id)
        if file is None:
            raise _no_file(file_id)
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
        """The files of a page of the list, and whether there are more. Raises: InvalidField for an unknown id."""
        if batch_id is None:
            await self.find(owner, store_id)
        else:
            await self.batch(owner, store_id, batch_id)
        part = await list_range(self._storage, "store_file", store_id, page)
        rows = await self._storage.store_files(store_id, part, status=status, batch_id=batch_id)
        return page.part_of(rows)

    async def set_attributes(self, owner: str, store_id: str, file_id: str, attributes: Attributes) -> StoreFile:
        """Replace the caller's attributes; those that were found stay.

        Raises: TooLarge also over LIMIT_STORED_BYTES; QuotaExceeded; InvalidField.
        """
        await self.find(owner, store_id)
        limits = self._limits.of_owner(self._bytes_of(owner))
        file = await self._storage.set_attributes(store_id, file_id, attributes, limits=limits)
        if file is None:
            raise _no_file(file_id)
        return file

    async def remove_file(self, owner: str, store_id: str, file_id: str) -> None:
        """Take a file out of a store; the file itself stays."""
        await self.find(owner, store_id)
        if not await self._storage.detach(store_id, file_id):
            raise _no_file(file_id)
        await self._storage.touch_store(store_id, self._now())

    async def chunks(self, owner: str, store_id: str, file_id: str) -> AsyncIterator[StoredChunk]:
        """The chunks of a file in order; none before it is indexed."""
        await self.file(owner, store_id, file_id)
        async for chunk in self._storage.file_chunks(store_id, file_id):
            yield chunk

    async def add_batch(self, owner: str, store_id: str, files: Sequence[NewFile]) -> FileBatch:
        """As `add_files`, to be watched and cancelled together."""
        if not files:
            raise InvalidField("file_ids: a batch needs at least one file")
        batch_id = f"vsfb_{int(self._now()):08x}{secrets.token_hex(8)}"  # tells when it was made
        await self._add(owner, store_id, files, batch_id)
        return await self.batch(owner, store_id, batch_id)

    async def batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch:
        """A batch as long as there is its store; its counts are of the files that are still there."""
        await self.find(owner, store_id)
        made = _BATCH_ID.fullmatch(batch_id)
        counts = await self._storage.batch_counts(store_id, batch_id) if made else None
        if made is None or counts is None:
            raise NotFound(f"batch_id: there is no batch '{batch_id[:64]}' in this vector store", param="batch_id")
        return FileBatch(batch_id, store_id, float(int(made[1], 16)), counts, _batch_status(counts))

    async def cancel_batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch:
        """Cancel the files that are not indexed yet, wherever they are worked on."""
        await self.batch(owner, store_id, batch_id)
        await self._storage.cancel_batch(store_id, batch_id)
        return await self.batch(owner, store_id, batch_id)

    async def reembed(self, owner: str, store_id: str) -> VectorStore:
        """Begin, or go on, to re-embed a store with the model that serves now; the old vectors answer meanwhile.

        A store that has this model's vectors, or none, stays as it is.
        """
        store, encoder = await self.find(owner, store_id), identity_of(self._catalog.embedding())
        has_them = store.encoder is None or store.encoder.fingerprint == encoder.fingerprint
        if not has_them or (store.encoder is not None and store.reembedding is not None):
            await self._storage.begin_reembedding(store_id, encoder)
            self._on_reembed()
            self._on_added()  # files that waited for this model
        return await self.find(owner, store_id)

    async def _add(self, owner: str, store_id: str, files: Sequence[NewFile], batch_id: str | None) -> list[StoreFile]:
        """The files as they were attached."""
        attached = await self._attachable(owner, await self.find(owner, store_id), files, batch_id)
        await self._storage.attach(attached, limits=self._limits.of_owner(self._bytes_of(owner)))
        await self._storage.touch_store(store_id, self._now())
        self._on_added()
        return attached

    async def _attachable(
        self, owner: str, store: VectorStore, files: Sequence[NewFile], batch_id: str | None = None
    ) -> list[StoreFile]:
        """The files as they are attached; one that is named twice counts once, as named last."""
        self._check_encoder(store)
        found = await self._storage.files_of(owner, {file.file_id for file in files})
        records = {record.id: record for record in found}
        attached: dict[str, StoreFile] = {}
        for file in files:
            record = records.get(file.file_id)
            if record is None or (record.expires_s is not None and record.expires_s <= self._now()):
                raise NotFound(f"file_id: there is no file '{file.file_id[:64]}'", param="file_id")
            attached[file.file_id] = StoreFile(
                store_id=store.id,
                file_id=file.file_id,
                name=record.name,
                created_s=self._now(),
                attributes=file.attributes,
                chunking=file.chunking,
                batch_id=batch_id,
            )
        return list(attached.values())

    def _check_encoder(self, store: VectorStore) -> None:
        serving = identity_of(self._catalog.embedding())
        known = [store.encoder, store.reembedding and store.reembedding.encoder]
        if store.encoder is not None and serving.fingerprint not in [one.fingerprint for one in known if one]:
            raise WrongEncoder(
                f"vector_store_id: its vectors are those of {store.encoder.name}, and {serving.name} serves; "
                f"POST /v1/vector_stores/{store.id}/reembed embeds them anew, then files can be added",
                param="vector_store_id",
            )

    def _has_expired(self, store: VectorStore) -> bool:
        days = store.expires_after_days
        return days is not None and store.last_active_s + days * 86_400 <= self._now()


async def names_in_stores(stores: VectorStoreService, owner: str, store_ids: Sequence[str]) -> list[str]:
    """Names that the newest files of stores hold: those of most files first, then those of newer ones.

    Raises: NotFound.
    """
    counts: Counter[str] = Counter()
    for store_id in store_ids:
        files, _ = await stores.list_files(owner, store_id, ListPage(limit=_NAMED_FILES), status="completed")
        for file in files:
            values = [value for key in _NAMES for value in file.found.get(key, ()) if isinstance(value, str)]
            counts.update(list(dict.fromkeys(name for name in values if len(name) <= _NAME_CHARS)))
    return [name for name, _ in counts.most_common()]


def index_warnings(file: StoreFile) -> tuple[str, ...]:
    """What is to be said of a file that is indexed; nothing of others."""
    if file.status != "completed" or file.chunks:
        return ()
    read = f"none of its {len(file.pages)} pages has text" if len(file.pages) > 1 else "it has no text"
    return (f"{read}, so nothing was indexed, and no search finds it; is it blank, or a picture without words?",)


def _no_file(file_id: str) -> NotFound:
    return NotFound(f"file_id: there is no file '{file_id[:64]}' in this vector store", param="file_id")


def _batch_status(counts: Mapping[FileStatus, int]) -> FileStatus:
    """In progress while one of its files is; cancelled where one was; failed where all that are left failed."""
    if counts.get("in_progress"):
        return "in_progress"
    if counts.get("cancelled"):
        return "cancelled"
    return "failed" if counts.get("failed") and not counts.get("completed") else "completed"
