"""What stores files, vector stores and chunks, and ranks the chunks of one store.

Rows are read and written here, for all by the same queries: PostgreSQL's, in which SQLite's driver puts its own words.
Bytes, claims, chunks and rankings are the storages' own: `sqlite` keeps everything in a folder of one machine,
`postgres` on a server that replicas share. Both pass the same tests (tests/search/storage_contract.py).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import orjson

from backend.errors import InvalidField
from backend.files.stored_file import StoredFile
from backend.models.encoder import Vectors
from backend.search import document_sql
from backend.search.document_sql import FILE_COLUMNS, PackedDocument, Row, range_query
from backend.search.filters import ATTRIBUTE_TYPES, Filter
from backend.search.limits import (
    SearchLimits,
    attributes_bytes,
    check_bytes,
    check_kept_store,
    check_room_to_index,
    check_waiting_files,
)
from backend.search.records import (
    Attributes,
    ChunkContent,
    DocumentQuery,
    DocumentRow,
    DocumentSort,
    Duplicate,
    EncoderIdentity,
    FileRecord,
    FileStatus,
    IndexClaim,
    IndexedFile,
    IndexFailure,
    KeywordQuery,
    Lesson,
    ListKind,
    ListPage,
    ListRange,
    PageSize,
    Position,
    Progress,
    Ranked,
    StoredChunk,
    StoredDocument,
    StoredUsage,
    StoreFile,
    VectorStore,
)
from backend.search.tables import (
    Driver,
    Rows,
    TableSql,
    encoder_key,
    id_taken,
    page_sizes,
    store_file,
    to_json,
    vector_store,
    write_found_by,
)
from backend.search.waker import Sweeper
from backend.supervision import Supervisor

_FILES = f"SELECT {FILE_COLUMNS} FROM files f"
_DAY_S = 86_400.0
_CHUNKS_AT_ONCE = 256


class SearchStorage(ABC):
    """Called on the event loop; nothing here blocks it. What returns from a call that changes something is durable.

    Every call raises Unavailable where the storage is away, cannot be written by this process, or its disk is full
    (nothing has changed then), and StorageCorrupt where its data are broken: never a wrong answer.
    """

    def __init__(self, driver: Driver, sql: TableSql, supervisor: Supervisor | None) -> None:
        self._driver, self._sql = driver, sql
        self._sweeper = Sweeper(self._sweep, supervisor)

    @abstractmethod
    async def start(self) -> None:
        """Open, creating or upgrading the schema. Raises: SetupError for what cannot be opened at all."""

    @abstractmethod
    async def close(self) -> None: ...

    async def swept(self) -> None:
        """Return when what was deleted before has left the disk, which it does in the background."""
        await self._sweeper.idle()

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """The kind of storage, where it is, and whether this process writes, for GET /v1/system."""

    async def position(self, kind: ListKind, list_id: str, row_id: str) -> Position | None:
        """Where a row stands in its list, also one that was deleted within the last day.

        Args:
            list_id: the owner, or the store.
        """
        store_file = f"{self._sql.store_files} WHERE {self._sql.of_store} AND {self._sql.file_id} = $2"
        created = {
            "file": "SELECT created_s FROM files WHERE owner = $1 AND id = $2",
            "store": "SELECT created_s FROM stores WHERE owner = $1 AND id = $2",
            "store_file": f"SELECT one.created_s FROM ({store_file}) one",
        }
        past = "SELECT created_s FROM past_positions WHERE kind = $3 AND list = $1 AND id = $2"
        row = await self._row(f"{created[kind]} UNION ALL {past} LIMIT 1", list_id, row_id, kind)
        return None if row is None else Position(row[0], row_id)

    # Files

    async def add_file(self, file: FileRecord, content: StoredFile, *, limits: SearchLimits | None = None) -> None:
        """Cancelled, it has kept the file whole or not at all.

        Raises: BadInput for an id that anybody has already; TooLarge as `limits.check_kept_file`.

        Args:
            limits: of the owner, as in the other calls that add something: whoever adds at the same time, the sum
                stays below them. None: none.
        """
        await self._add_file(file, content, None, limits)

    @abstractmethod
    async def _add_file(
        self, file: FileRecord, content: StoredFile, document: PackedDocument | None, limits: SearchLimits | None
    ) -> None:
        """`add_file`, with what was read from it where it is a stored document."""

    async def file(self, owner: str, file_id: str) -> FileRecord | None:
        row = await self._row(f"{_FILES} WHERE f.id = $1 AND f.owner = $2", file_id, owner)
        return None if row is None else FileRecord(*row)

    async def files_of(self, owner: str, file_ids: Collection[str]) -> list[FileRecord]:
        """Those of the files that are there, in any order."""
        query = f"{_FILES} WHERE f.id = ANY($1) AND f.owner = $2"
        return [FileRecord(*row) for row in await self._driver.fetch(query, list(file_ids), owner)]

    async def files(self, owner: str, part: ListRange, *, purpose: str | None = None) -> list[FileRecord]:
        keys, equal = ("f.created_s", "f.id"), {"f.purpose": purpose}
        rows = await self._listed(_FILES, "f.owner = $1", owner, part=part, keys=keys, equal=equal)
        return [FileRecord(*row) for row in rows]

    @abstractmethod
    async def content(self, file_id: str) -> StoredFile | None:
        """The file's bytes, to be closed by the caller."""

    @abstractmethod
    async def delete_file(self, owner: str, file_id: str) -> bool:
        """Delete a file, also from every vector store. False: there was none."""

    async def file_pages(self, file_id: str) -> tuple[PageSize, ...]:
        """The pages of a file as the store that indexed it last has them; none before it is indexed."""
        row = await self._row(
            f"SELECT pages FROM store_files WHERE {self._sql.of_file.format('$1')} AND {self._sql.indexed} IS NOT NULL "
            f"ORDER BY {self._sql.indexed} DESC LIMIT 1",
            file_id,
        )
        return () if row is None else page_sizes(row[0])

    async def expired_files(self, now_s: float) -> list[FileRecord]:
        """Files of all owners whose ``expires_s`` has passed."""
        query = f"{_FILES} WHERE f.expires_s <= $1 ORDER BY f.expires_s, f.id"
        return [FileRecord(*row) for row in await self._driver.fetch(query, now_s)]

    async def usage(self, owner: str) -> StoredUsage:
        return await self.usage_in(self._driver, owner)

    async def totals(self) -> StoredUsage:
        """What all owners together have stored."""
        return await self.usage_in(self._driver, None)

    # Stored documents: files with what was read from them. `delete_file` deletes all of it.

    async def add_document(
        self,
        row: DocumentRow,
        content: StoredFile,
        document_content: Mapping[str, Any],
        *,
        limits: SearchLimits | None = None,
    ) -> None:
        """`add_file` of a file with its document, both or neither. Raises: as `add_file`.

        Args:
            document_content: the answer's `DOCUMENT_CONTENT`, which stays as it is.
        """
        packed = await asyncio.to_thread(document_sql.pack, row, document_content)
        await self._add_file(row.stored.file, content, packed, limits)

    async def replace_document(self, row: DocumentRow, *, limits: SearchLimits | None = None) -> bool:
        """Write a document's next revision with its values and lessons, in place of those of the revision before.

        False: it is gone, or of another revision; nothing has changed. Raises: TooLarge, QuotaExceeded.
        """
        packed = await asyncio.to_thread(document_sql.pack, row)

        async def replace(rows: Rows) -> bool:
            if not await rows.fetch(document_sql.REPLACE, *packed.replace()):
                return False
            for query in document_sql.FORGET:
                await rows.fetch(query, row.stored.id)
            await write_found_by(rows, packed)
            if limits is not None:
                check_bytes((await self.usage_alone(rows, row.stored.owner)).bytes, limits)
            return True

        return await self._driver.transact(replace)

    async def document(self, owner: str, file_id: str) -> StoredDocument | None:
        row = await self._row(document_sql.FIND, owner, file_id)
        return None if row is None else await self._driver.unpack(lambda: document_sql.stored_document(row))

    async def document_revision(self, owner: str, file_id: str) -> int | None:
        """The revision alone, for whoever waits for the next one; None where the document is gone."""
        row = await self._row("SELECT revision FROM documents WHERE owner = $1 AND file_id = $2", owner, file_id)
        return None if row is None else row[0]

    async def document_content(self, file_id: str) -> dict[str, Any] | None:
        """The answer's `DOCUMENT_CONTENT` as it was read."""
        row = await self._row(document_sql.CONTENT, file_id)
        return None if row is None else await self._driver.unpack(lambda: document_sql.unpacked_content(row[0]))

    async def documents(self, owner: str, query: DocumentQuery, part: ListRange) -> tuple[list[StoredDocument], bool]:
        """Those of the query, and whether large ones had to be left out at the end that is read last.

        Positions in ``part`` are those of `document_position`.
        """
        text, arguments, flipped = document_sql.listed(owner, query, part)
        rows = await self._driver.fetch(text, *arguments)
        found = await self._driver.unpack(lambda: list(document_sql.stored_documents(rows)))
        return found[::-1] if flipped else found, len(found) < len(rows)

    async def document_position(self, owner: str, file_id: str, sort: DocumentSort) -> Position | None:
        """Where a document stands in a list that is sorted so."""
        row = await self._row(document_sql.position(sort), owner, file_id)
        return None if row is None else Position(*row)

    async def document_duplicates(self, owner: str, file_ids: Sequence[str]) -> list[Duplicate]:
        """Which of these documents there is another of, the owner's all together."""
        if not file_ids:
            return []
        rows = await self._driver.fetch(document_sql.duplicates(len(file_ids)), owner, *file_ids)
        return [Duplicate(*row) for row in rows]

    async def lessons(self, owner: str, keys: Sequence[str], limit: int) -> list[Lesson]:
        """What confirmed documents with any of the keys taught, each once, the newest first."""
        if not keys:
            return []
        rows = await self._driver.fetch(document_sql.lessons(len(keys)), owner, limit, *keys)
        return [document_sql.lesson(row) for row in rows]

    async def lessons_of(self, file_id: str) -> list[Lesson]:
        """Those that the documents of a file taught."""
        return [document_sql.lesson(row) for row in await self._driver.fetch(document_sql.LESSONS_OF, file_id)]

    # Vector stores

    async def add_store(
        self, store: VectorStore, files: Sequence[StoreFile] = (), *, limits: SearchLimits | None = None
    ) -> None:
        """Add a store with its files, all of it or nothing.

        Raises: BadInput for an id that anybody has already; TooLarge as `limits.check_kept_store`; as `attach`.
        """

        async def add(rows: Rows) -> None:
            query = (
                "INSERT INTO stores (id, owner, name, created_s, last_active_s, description, metadata, "
                f"expires_after_days, encoder{self._sql.more_of_store[0]}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9"
                f"{self._sql.more_of_store[1]}) ON CONFLICT DO NOTHING RETURNING id"
            )
            head = (store.id, store.owner, store.name, store.created_s, store.last_active_s, store.description)
            encoder = None if store.encoder is None else await encoder_key(rows, store.encoder, self._sql.key)
            if not await rows.fetch(query, *head, to_json(store.metadata), store.expires_after_days, encoder):
                raise id_taken("vector store", store.id)
            if limits is not None:
                check_kept_store(await self.usage_alone(rows, store.owner), limits)
            if files:
                await self._attach(rows, files, limits)

        await self._driver.transact(add)

    async def store(self, owner: str, store_id: str) -> VectorStore | None:
        row = await self._row(f"{self._sql.stores} WHERE s.id = $1 AND s.owner = $2", store_id, owner)
        return None if row is None else vector_store(row)

    async def stores(self, owner: str, part: ListRange) -> list[VectorStore]:
        rows = await self._listed(self._sql.stores, "s.owner = $1", owner, part=part, keys=("s.created_s", "s.id"))
        return [vector_store(row) for row in rows]

    async def update_store(self, store: VectorStore) -> bool:
        """Write name, description, metadata, expiry and last activity. False: it is gone."""
        query = (
            "UPDATE stores SET name = $3, description = $4, metadata = $5, expires_after_days = $6, last_active_s = $7 "
            "WHERE id = $1 AND owner = $2 RETURNING id"
        )
        written = (store.name, store.description, to_json(store.metadata), store.expires_after_days)
        return bool(await self._driver.change(query, store.id, store.owner, *written, store.last_active_s))

    async def touch_store(self, store_id: str, now_s: float) -> None:
        """Write the last activity alone, where it is later than the one that is kept."""
        query = "UPDATE stores SET last_active_s = $2 WHERE id = $1 AND last_active_s < $2"
        await self._driver.change(query, store_id, now_s)

    @abstractmethod
    async def delete_store(self, owner: str, store_id: str) -> bool: ...

    async def expired_stores(self, now_s: float) -> list[VectorStore]:
        """Stores of all owners whose time without activity is over."""
        query = f"{self._sql.stores} WHERE s.last_active_s + s.expires_after_days * {_DAY_S} <= $1 ORDER BY s.id"
        return [vector_store(row) for row in await self._driver.fetch(query, now_s)]

    # The files of a store

    async def attach(self, files: Sequence[StoreFile], *, limits: SearchLimits | None = None) -> None:
        """Add files to their store, all or none, to be indexed. One that is there already is indexed anew.

        Raises: NotFound; TooLarge as `limits.check_room_to_index`, QuotaExceeded as `limits.check_waiting_files`.
        """
        if await self._driver.transact(lambda rows: self._attach(rows, files, limits)):
            self._sweeper.wake()

    async def store_file(self, store_id: str, file_id: str) -> StoreFile | None:
        query = f"{self._sql.store_files} WHERE {self._sql.of_store} AND {self._sql.file_id} = $2"
        row = await self._row(query, store_id, file_id)
        return None if row is None else store_file(row, self._sql.work_of)

    async def store_files(
        self, store_id: str, part: ListRange, *, status: FileStatus | None = None, batch_id: str | None = None
    ) -> list[StoreFile]:
        rows = await self._listed(
            self._sql.store_files,
            self._sql.of_store,
            store_id,
            part=part,
            keys=("sf.created_s", self._sql.file_id),
            equal={"sf.status": status, "sf.batch_id": batch_id},
        )
        return [store_file(row, self._sql.work_of) for row in rows]

    async def set_attributes(
        self, store_id: str, file_id: str, attributes: Attributes, *, limits: SearchLimits | None = None
    ) -> StoreFile | None:
        """Raises: TooLarge, QuotaExceeded where they are more than before, and too much."""
        this = f"{self._sql.of_store} AND {self._sql.of_file.format('$2')}"
        owner = "(SELECT owner FROM stores WHERE id = $1)"
        before = f"SELECT {self._sql.key}, attributes, {owner} FROM store_files WHERE {this}{self._sql.lock_row}"
        change = (
            "UPDATE store_files SET attributes = $3, "
            f"usage_bytes = CASE WHEN usage_bytes + $4 > 0 THEN usage_bytes + $4 ELSE 0 END WHERE {this}"
        )

        async def write(rows: Rows) -> StoreFile | None:
            found = await rows.fetch(before, store_id, file_id)
            if not found:
                return None
            key, kept, owner = found[0]
            more_bytes = attributes_bytes(attributes, {}) - attributes_bytes(orjson.loads(kept), {})
            await rows.fetch(change, store_id, file_id, to_json(dict(attributes)), more_bytes)
            if limits is not None and more_bytes > 0:
                check_bytes((await self.usage_alone(rows, owner)).bytes, limits)
            (row,) = await rows.fetch(f"{self._sql.store_files} WHERE {this}", store_id, file_id)
            file = store_file(row, self._sql.work_of)
            await self._write_attributes(rows, key, file)
            return file

        return await self._driver.transact(write)

    @abstractmethod
    async def detach(self, store_id: str, file_id: str) -> bool: ...

    async def batch_counts(self, store_id: str, batch_id: str) -> dict[FileStatus, int] | None:
        """Of its files that are still in the store. None: the store has never had files of such a batch."""
        known = f"SELECT 1 FROM batches WHERE {self._sql.of_store} AND id = $2"
        if not await self._driver.fetch(known, store_id, batch_id):
            return None
        query = f"SELECT status, count(*) FROM store_files WHERE {self._sql.of_store} AND batch_id = $2 GROUP BY status"
        return {row[0]: row[1] for row in await self._driver.fetch(query, store_id, batch_id)}

    async def cancel_batch(self, store_id: str, batch_id: str) -> int:
        """Cancel those of its files that are in progress; how many they were."""
        query = (
            f"UPDATE store_files SET status = 'cancelled', {self._sql.no_claim} "
            f"WHERE {self._sql.of_store} AND batch_id = $2 AND status = 'in_progress' RETURNING 1"
        )
        return len(await self._driver.change(query, store_id, batch_id))

    async def file_chunks(self, store_id: str, file_id: str) -> AsyncIterator[StoredChunk]:
        """All chunks of a file in order. Holds no connection between two of its queries."""
        this = f"{self._sql.of_store} AND {self._sql.of_file.format('$2')} AND {self._sql.behind}"
        query, position = f"{this} ORDER BY c.id LIMIT {_CHUNKS_AT_ONCE}", -1
        while chunks := await self._chunks(query, store_id, file_id, position):
            for chunk in chunks:
                yield chunk
            position = chunks[-1].index

    # Indexing

    @abstractmethod
    async def claim(self, encoder: EncoderIdentity, lease_s: float) -> IndexClaim | None:
        """A file that waits, of a store of this encoder, of none yet, or being re-embedded with it.

        Owners take turns: of the owner with the fewest running files, then of the one whose last claim is the longest
        ago, it is the file that has waited longest. A file whose claim ran out is claimed again.
        """

    @abstractmethod
    async def renew(self, claim: IndexClaim, progress: Progress, lease_s: float) -> bool:
        """False: the file was removed or cancelled, or another process has it. Stop then."""

    @abstractmethod
    async def finish(self, claim: IndexClaim, indexed: IndexedFile) -> bool:
        """Store chunks, vectors and attributes in one step, in place of earlier ones; the status is `completed`.

        The store's encoder becomes this one where it had none. False as `renew`: nothing is stored then.
        """

    @abstractmethod
    async def fail(self, claim: IndexClaim, failure: IndexFailure) -> bool: ...

    @abstractmethod
    async def release(self, claim: IndexClaim) -> None:
        """Give the file back to the queue, not counted as an attempt. Its progress stays: those pages are charged."""

    async def waiting(self) -> int:
        """Files of all owners that are in progress."""
        ((count,),) = await self._driver.fetch(self._sql.waiting)
        return int(count)

    # Search

    @abstractmethod
    async def nearest(self, store: VectorStore, vector: Vectors, filters: Filter | None, limit: int) -> list[Ranked]:
        """The chunks of completed files with the highest cosine, exactly as many as there are up to ``limit``.

        Shapes: vector (width) float32, unit length, of the store's encoder.
        """

    @abstractmethod
    async def matching(
        self, store: VectorStore, query: KeywordQuery, filters: Filter | None, limit: int
    ) -> list[Ranked]:
        """The chunks of completed files with the highest BM25 (`backend.search.keywords`, statistics of this store)."""

    async def chunks(self, store_id: str, ids: Collection[int]) -> list[StoredChunk]:
        """The chunks in the order of ``ids``; those that have been deleted since are left out."""
        chunks = await self._chunks(f"{self._sql.of_store} AND c.id = ANY($2)", store_id, list(ids))
        found = {chunk.id: chunk for chunk in chunks}
        return [found[chunk_id] for chunk_id in ids if chunk_id in found]

    async def chunk_contents(self, store_id: str, ids: Collection[int]) -> list[ChunkContent]:
        """What tells equal chunks, in any order, without reading their texts; those that are deleted are left out."""
        query = f"{self._sql.chunk_contents} WHERE {self._sql.of_store} AND c.id = ANY($2)"
        return [ChunkContent(*row) for row in await self._driver.fetch(query, store_id, list(ids))]

    async def attribute_keys(self, store_id: str, limit: int = 100) -> list[str]:
        """Names of the attributes that files of this store have, the caller's and found ones, sorted."""
        query = f"SELECT DISTINCT name FROM attributes WHERE {self._attributes_of_store()} ORDER BY name LIMIT $2"
        return [row[0] for row in await self._driver.fetch(query, store_id, limit)]

    async def attribute_types(self, store_id: str, names: Sequence[str]) -> dict[str, set[str]]:
        """Of each name, which of "numbers", "texts" and "booleans" files of this store have under it."""
        condition = f"{self._attributes_of_store()} AND name = $2"
        columns = ("number", "text", "flag")
        some = (f"EXISTS (SELECT 1 FROM attributes WHERE {condition} AND {column} IS NOT NULL)" for column in columns)
        query = f"SELECT {', '.join(some)}"
        types = {}
        for name in names:
            (row,) = await self._driver.fetch(query, store_id, name)
            types[name] = {kind for kind, is_there in zip(ATTRIBUTE_TYPES, row, strict=True) if is_there}
        return types

    # Copies from one storage to another

    @abstractmethod
    async def file_vectors(self, store_id: str, file_id: str) -> Vectors:
        """The vectors of a file's chunks in order, by the store's encoder. Shapes: (chunks, width) float32.

        (0, 0) where there are none. Raises: StorageCorrupt where a chunk has none.
        """

    @abstractmethod
    async def restore(self, file: StoreFile, indexed: IndexedFile) -> None:
        """Add a file that another storage has indexed: nobody indexes it in between.

        Raises: NotFound as `attach`; WrongEncoder where the store has vectors of another encoder.
        """

    # Another encoder

    @abstractmethod
    async def begin_reembedding(self, store_id: str, encoder: EncoderIdentity) -> bool: ...

    @abstractmethod
    async def unembedded(
        self, store_id: str, encoder: EncoderIdentity, limit: int, *, behind: int = 0
    ) -> list[tuple[int, str]]:
        """Ids and texts of chunks without a vector of this encoder, the lowest ids first.

        Args:
            behind: the last id of the batch before, so that nobody reads again what is done.
        """

    @abstractmethod
    async def put_vectors(
        self, store_id: str, encoder: EncoderIdentity, chunk_ids: Sequence[int], vectors: Vectors
    ) -> None:
        """Keep vectors beside those of the store's encoder, which go on answering. Deleted chunks are ignored."""

    @abstractmethod
    async def switch_encoder(self, store_id: str, encoder: EncoderIdentity) -> bool:
        """Make this the store's encoder, and delete the vectors of others. False: some chunks have no vector yet."""

    async def reembedding_stores(self, encoder: EncoderIdentity) -> list[VectorStore]:
        """Stores of all owners that are being re-embedded with this encoder."""
        query = f"{self._sql.stores} WHERE n.fingerprint = $1 ORDER BY s.id"
        return [vector_store(row) for row in await self._driver.fetch(query, encoder.fingerprint)]

    async def usage_in(self, rows: Rows, owner: str | None) -> StoredUsage:
        """What an owner has stored, with what this transaction has added; None: what all have."""
        query = self._sql.usage.format(who="true" if owner is None else "owner = $1")
        (row,) = await rows.fetch(query, *(() if owner is None else (owner,)))
        return StoredUsage(*map(int, row))

    async def usage_alone(self, rows: Rows, owner: str) -> StoredUsage:
        """`usage_in`; until the transaction ends nobody else gets it, so that two do not take the last room."""
        if self._sql.lock_owner:
            await rows.fetch(self._sql.lock_owner, owner)
        return await self.usage_in(rows, owner)

    async def insert_file(self, rows: Rows, file: FileRecord) -> None:
        """Raises: BadInput for an id that anybody has already."""
        columns = FILE_COLUMNS.replace("f.", "")
        query = (
            f"INSERT INTO files ({columns}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING id"
        )
        if not await rows.fetch(query, *(getattr(file, name) for name in columns.split(", "))):
            raise id_taken("file", file.id)

    async def insert_document(self, rows: Rows, packed: PackedDocument | None) -> None:
        """Beside its file, which has just been added; None: it has none."""
        if packed is not None:
            await rows.fetch(document_sql.INSERT, *packed.insert())
            await write_found_by(rows, packed)

    async def _attach(self, rows: Rows, files: Sequence[StoreFile], limits: SearchLimits | None) -> bool:
        if limits is None:
            return await self._place_files(rows, files)
        query = "SELECT DISTINCT owner FROM stores WHERE id = ANY($1) ORDER BY owner"
        owners = [row[0] for row in await rows.fetch(query, list({file.store_id for file in files}))]
        for owner in owners:
            check_room_to_index(await self.usage_alone(rows, owner), limits)
        has_replaced = await self._place_files(rows, files)
        for owner in owners:
            now = await self.usage_in(rows, owner)
            check_waiting_files(now.waiting, len(files), limits)
            check_bytes(now.bytes, limits)
        return has_replaced

    def _attributes_of_store(self) -> str:
        return f"store = (SELECT {self._sql.key} FROM stores WHERE id = $1)"

    async def _chunks(self, condition: str, *arguments: Any) -> list[StoredChunk]:
        rows = await self._driver.fetch(f"{self._sql.chunks} WHERE {condition}", *arguments)
        return await self._driver.unpack(lambda: list(map(self._sql.chunk_of, rows)))

    async def _row(self, query: str, *arguments: Any) -> Row | None:
        rows = await self._driver.fetch(query, *arguments)
        return rows[0] if rows else None

    async def _listed(
        self,
        select: str,
        condition: str,
        argument: str,
        *,
        part: ListRange,
        keys: tuple[str, str],
        equal: Mapping[str, str | None] = MappingProxyType({}),
    ) -> Sequence[Row]:
        """The rows of a part of a list, those alone whose columns ``equal`` what is not None."""
        conditions, arguments = [condition], list[Any]([argument])
        for column, value in equal.items():
            if value is not None:
                arguments.append(value)
                conditions.append(f"{column} = ${len(arguments)}")
        query, flipped = range_query(select, conditions, arguments, part=part, keys=keys)
        rows = await self._driver.fetch(query, *arguments)
        return rows[::-1] if flipped else rows

    @abstractmethod
    async def _sweep(self) -> bool:
        """Remove a slice of what was deleted; False where nothing is left."""

    @abstractmethod
    async def _place_files(self, rows: Any, files: Sequence[StoreFile]) -> bool:
        """Add files to their stores, to be indexed, in place of those that are there; whether some were.

        Raises: NotFound.
        """

    @abstractmethod
    async def _write_attributes(self, rows: Any, key: int, file: StoreFile) -> None:
        """Write what filters see of the file of a store with this number, in place of what they saw."""


_NAMES = {"file": "file '{}'", "store": "vector store '{}'", "store_file": "file '{}' in this vector store"}


async def list_range(storage: SearchStorage, kind: ListKind, list_id: str, page: ListPage) -> ListRange:
    """One row more than the page has, to tell whether there are more.

    Raises: InvalidField for an id that is not in the list, and was not within the last day.
    """

    async def position(param: str, cursor: str | Position | None) -> Position | None:
        if not isinstance(cursor, str):
            return cursor
        found = await storage.position(kind, list_id, cursor)
        if found is None:
            raise InvalidField(f"{param}: there is no {_NAMES[kind].format(cursor[:64])}", param=param)
        return found

    after, before = await position("after", page.after), await position("before", page.before)
    return ListRange(page.limit + 1, page.order, after, before)
