"""A `SearchStorage` in a folder: for one process that writes, and any number on the same machine that search."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from backend.abandoned import end_tasks
from backend.device.facts.host import usable_cores
from backend.errors import FinanciaError, SetupError, StorageCorrupt, Unavailable
from backend.files.stored_file import StoredFile
from backend.models.encoder import Vectors
from backend.search import document_sql
from backend.search.filters import Filter
from backend.search.limits import SearchLimits, check_kept_file
from backend.search.records import (
    EncoderIdentity,
    FileRecord,
    IndexClaim,
    IndexedFile,
    IndexFailure,
    KeywordQuery,
    Progress,
    Ranked,
    StoreFile,
    VectorStore,
)
from backend.search.sqlite import indexing, pending_deletes, postings, store_files, vector_stores
from backend.search.sqlite.contents import LOST_DAYS, Contents
from backend.search.sqlite.database import Database, Transaction
from backend.search.sqlite.loaded_stores import Behind, LoadedStores
from backend.search.sqlite.schema import SQL
from backend.search.sqlite.searching import Query, Searcher
from backend.search.sqlite.vector_matrix import DeviceVectors
from backend.search.storage import SearchStorage
from backend.search.tables import id_taken
from backend.supervision import Supervisor
from backend.telemetry import log_event

T = TypeVar("T")
_READ_AGAIN_MOST = 10  # each time at a later state
_LOG_TRIES, _LOG_RETRY_S = 30, 1.0  # to empty the log: a search that reads takes seconds at most
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SqliteOptions:
    """Where the data are, and how much of them is kept in memory."""

    folder: Path
    memory_bytes: int = 2 * 2**30  # SEARCH_MEMORY_BYTES
    device: DeviceVectors | None = None  # that scans large stores


class SqliteStorage(SearchStorage):
    """The embedded storage. Methods that are one query are those of the modules beside this one.

    Args:
        clock: of the leases of claims, monotonic; they end with the process.
    """

    def __init__(
        self,
        options: SqliteOptions,
        *,
        supervisor: Supervisor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options, self._clock = options, clock
        self._contents = Contents(options.folder / "files")
        self._database = Database(options.folder, check_new=self._check_new, prepare=self._prepare)
        self._has_swept = False
        self._loaded = LoadedStores(options.memory_bytes, options.device)
        self._scanning = ThreadPoolExecutor(usable_cores(), thread_name_prefix="search-scan")
        self._searcher = Searcher(self._loaded, self._scanning)
        self._rebuilds: dict[str, asyncio.Task[None]] = {}  # of the postings of a store, by its id

        super().__init__(self._database, SQL, supervisor)

    async def start(self) -> None:
        await self._database.open()
        if self._database.is_writer:
            self._sweeper.wake()

    async def close(self) -> None:
        await self._sweeper.close()
        await end_tasks(*self._rebuilds.values())  # the next search begins anew
        await self._database.close()
        self._scanning.shutdown(wait=False)

    @property
    def memory_bytes(self) -> int:
        """Of the stores that are in memory."""
        return self._loaded.memory_bytes

    def release_memory(self) -> None:
        """Forget the stores that are not searched now. Any thread."""
        self._loaded.release()

    def report(self) -> dict[str, Any]:
        device = self._options.device
        on_device = {} if device is None else {"device_bytes": self._loaded.device_bytes}
        device_limit = {} if device is None else {"device_limit_bytes": device.memory_bytes}
        return {
            "kind": "sqlite",
            "folder": str(self._options.folder),
            "writes": self._database.is_writer,
            "writer": self._database.writer(),
            "fault": self._database.fault,
            "memory_bytes": self._loaded.memory_bytes,
            "memory_limit_bytes": self._options.memory_bytes,
            **on_device,
            **device_limit,
        }

    # Files

    async def _add_file(
        self,
        file: FileRecord,
        content: StoredFile,
        document: document_sql.PackedDocument | None,
        limits: SearchLimits | None,
    ) -> None:
        await self._database.must_write()
        if limits is not None:  # before its bytes are written
            now = await self.usage(file.owner)
            check_kept_file(replace(now, files=now.files + 1, bytes=now.bytes + file.size_bytes), limits)
        if (
            await self._read(store_files.checksum, file.id) is not None
        ):  # also another owner's, whose bytes are not touched
            raise id_taken("file", file.id)
        if await self._read(store_files.is_deleted, file.id):  # before its bytes are other ones
            await self._delete(self._delete_bytes_without_row, file.id)
        writing = asyncio.create_task(self._database.compute(lambda: self._contents.write(file.id, content)))
        try:
            await asyncio.shield(writing)
            await self._database.transact(lambda rows: self._add_rows(rows, file, document, limits))
        except BaseException:  # cancelled, too: threads end what they have begun
            await asyncio.wait({writing})
            with suppress(FinanciaError):
                await self._write(self._delete_bytes_without_row, file.id)
            raise

    async def _add_rows(
        self,
        rows: Transaction,
        file: FileRecord,
        document: document_sql.PackedDocument | None,
        limits: SearchLimits | None,
    ) -> None:
        await self.insert_file(rows, file)
        await self.insert_document(rows, document)
        if limits is not None:
            check_kept_file(await self.usage_in(rows, file.owner), limits)

    async def content(self, file_id: str) -> StoredFile | None:
        sha256 = await self._read(store_files.checksum, file_id)
        return None if sha256 is None else await self._database.compute(lambda: self._contents.read(file_id, sha256))

    async def delete_file(self, owner: str, file_id: str) -> bool:
        is_deleted = await self._delete(store_files.delete_file, owner, file_id)
        if is_deleted:
            self._sweeper.wake()
        return is_deleted

    # Vector stores

    async def delete_store(self, owner: str, store_id: str) -> bool:
        number = await self._delete(vector_stores.delete, owner, store_id)
        if number is not None:
            self._loaded.forget(number)
            self._sweeper.wake()
        return number is not None

    # The files of a store

    async def detach(self, store_id: str, file_id: str) -> bool:
        is_removed = await self._delete(store_files.detach, store_id, file_id)
        if is_removed:
            self._sweeper.wake()
        return is_removed

    async def _place_files(self, rows: Transaction, files: Sequence[StoreFile]) -> bool:
        return store_files.attach(rows.connection, files)

    async def _write_attributes(self, rows: Transaction, key: int, file: StoreFile) -> None:
        store_files.write_attributes(rows.connection, key, file.attributes, file.found)

    async def file_vectors(self, store_id: str, file_id: str) -> Vectors:
        return await self._read(indexing.file_vectors, store_id, file_id)

    # Indexing

    async def claim(self, encoder: EncoderIdentity, lease_s: float) -> IndexClaim | None:
        return await self._write(indexing.claim, encoder, self._clock(), lease_s)

    async def renew(self, claim: IndexClaim, progress: Progress, lease_s: float) -> bool:
        return await self._write(indexing.renew, claim, progress, self._clock() + lease_s)

    async def fail(self, claim: IndexClaim, failure: IndexFailure) -> bool:
        return await self._write(indexing.fail, claim, failure)

    async def release(self, claim: IndexClaim) -> None:
        await self._write(indexing.release, claim)

    async def finish(self, claim: IndexClaim, indexed: IndexedFile) -> bool:
        packed = await self._database.compute(lambda: indexing.pack(indexed))
        is_stored = await self._write(indexing.finish, claim, indexed, packed, _unix_s())
        if is_stored:
            await self._merge(postings.merge_added, claim.file.store_id)
        return is_stored

    # Search

    async def nearest(self, store: VectorStore, vector: Vectors, filters: Filter | None, limit: int) -> list[Ranked]:
        encoder = store.encoder
        if encoder is None:
            return []
        query = Query(store.id, filters, limit)
        return await self._search(lambda connection: self._searcher.nearest(connection, query, vector, encoder))

    async def matching(
        self, store: VectorStore, query: KeywordQuery, filters: Filter | None, limit: int
    ) -> list[Ranked]:
        found = Query(store.id, filters, limit)

        async def ranked() -> list[Ranked]:
            return await self._search(lambda connection: self._searcher.matching(connection, found, query))

        with suppress(postings.BrokenPostings):
            return await _with_broken_postings(ranked())
        if store.id not in self._rebuilds:
            with suppress(postings.BrokenPostings):  # they have just been made anew
                return await _with_broken_postings(ranked())
        if store.id not in self._rebuilds:
            self._rebuilds[store.id] = asyncio.create_task(self._rebuild(store.id))
        await asyncio.shield(self._rebuilds[store.id])  # it goes on where the search is given up
        return await ranked()

    # Copies from one storage to another

    async def restore(self, file: StoreFile, indexed: IndexedFile) -> None:
        packed = await self._database.compute(lambda: indexing.pack(indexed))
        await self._write(indexing.restore, file, indexed, packed, _unix_s())
        await self._merge(postings.merge_added, file.store_id)

    # Another encoder

    async def begin_reembedding(self, store_id: str, encoder: EncoderIdentity) -> bool:
        has_begun = await self._write(vector_stores.begin_reembedding, store_id, encoder)
        self._sweeper.wake()
        return has_begun

    async def unembedded(
        self, store_id: str, encoder: EncoderIdentity, limit: int, *, behind: int = 0
    ) -> list[tuple[int, str]]:
        return await self._read(vector_stores.unembedded, store_id, encoder, limit, behind)

    async def put_vectors(
        self, store_id: str, encoder: EncoderIdentity, chunk_ids: Sequence[int], vectors: Vectors
    ) -> None:
        await self._write(vector_stores.put_vectors, store_id, encoder, chunk_ids, vectors)

    async def switch_encoder(self, store_id: str, encoder: EncoderIdentity) -> bool:
        is_switched = await self._write(vector_stores.switch_encoder, store_id, encoder)
        if is_switched:
            self._sweeper.wake()
        return is_switched

    async def _read(self, query: Callable[..., T], *arguments: object) -> T:
        return await self._database.read(lambda connection: query(connection, *arguments))

    async def _search(self, ranking: Callable[[sqlite3.Connection], list[Ranked]]) -> list[Ranked]:
        for _ in range(_READ_AGAIN_MOST):
            with suppress(Behind):
                return await self._database.search(ranking)
        raise Unavailable("search storage: the store changes faster than it can be read; search again")

    async def _write(self, query: Callable[..., T], *arguments: object) -> T:
        return await self._database.write(lambda connection: query(connection, *arguments))

    async def _delete(self, query: Callable[..., T], *arguments: object) -> T:
        """`_write`, also on a full disk."""
        return await self._database.write(lambda connection: query(connection, *arguments), frees=True)

    def _delete_bytes_without_row(self, connection: sqlite3.Connection, file_id: str) -> None:
        """On the writer's thread: an addition that was cancelled has been made before, or never will be."""
        if store_files.checksum(connection, file_id) is None and self._contents.delete(file_id):
            store_files.forget_deleted(connection, [file_id])

    async def _sweep(self) -> bool:
        """Remove a slice of what was deleted, bytes of files first; False where nothing is left, nor in the log."""
        if await self._delete(self._sweep_slice):
            self._has_swept = True
            return True
        for _ in range(_LOG_TRIES if self._has_swept else 0):
            if await self._database.empty_log():
                self._has_swept = False
                break
            await asyncio.sleep(_LOG_RETRY_S)
        return False

    def _sweep_slice(self, connection: sqlite3.Connection) -> bool:
        gone = [file_id for file_id in store_files.deleted_files(connection) if self._contents.delete(file_id)]
        store_files.forget_deleted(connection, gone)
        vector_stores.forget_past(connection)
        return bool(gone) or pending_deletes.sweep(connection)

    async def _rebuild(self, store_id: str) -> None:
        """Make the postings of a store anew; others write in between."""
        log_event(_log, logging.ERROR, "postings are made anew from the texts", store=store_id)
        try:
            number = await self._write(postings.begin_rebuild, store_id)
            while number is not None and await self._delete(pending_deletes.sweep_postings, number):
                pass
            behind = 0
            while number is not None and (
                texts := await self._read(postings.texts_behind, number, behind, pending_deletes.ROWS_AT_ONCE)
            ):
                terms = await self._database.compute(partial(postings.terms_of, texts))
                await self._write(postings.add_terms, number, terms)
                behind = texts[-1][0]
            if number is not None:
                await self._write(postings.end_rebuild, number)
        finally:
            del self._rebuilds[store_id]
        await self._merge(postings.merge_added, store_id)

    async def _merge(self, merge: Callable[[sqlite3.Connection, int], bool], store_id: str) -> None:
        """Keep postings compact. What called this is stored already, so a fault here must not fail it."""

        def run(connection: sqlite3.Connection) -> bool:
            number = vector_stores.number_of(connection, store_id)
            return number is not None and merge(connection, number)

        try:
            while await self._database.write(run):
                pass
        except FinanciaError as error:
            log_event(_log, logging.WARNING, "postings could not be merged", reason=str(error))

    def _check_new(self) -> None:
        if self._contents.has_any():
            raise SetupError(
                f"search storage: {self._database.path} is missing or empty, and the folder files beside it holds "
                "uploads that a new database would not know. Nothing was changed. Put search.db back (from a backup, "
                "or mount its volume), with search.db-wal where there is one; to begin without these uploads, move the "
                "folder files to another place first"
            )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        indexing.end_claims(connection)
        lost = self._contents.set_unknown_aside(
            store_files.file_ids(connection), store_files.deleted_files(connection), _unix_s()
        )
        if lost:
            what = "bytes that the database does not know were moved to the folder lost"
            log_event(_log, logging.WARNING, what, files=lost, folder=str(self._options.folder), kept_days=LOST_DAYS)


def _unix_s() -> float:
    return time.time()  # noqa: TID251 - a point in time that is stored, not a duration


async def _with_broken_postings(ranking: Coroutine[Any, Any, list[Ranked]]) -> list[Ranked]:
    """The ranking. Raises: BrokenPostings where that is what is broken."""
    try:
        return await ranking
    except StorageCorrupt as error:
        if isinstance(error.__cause__, postings.BrokenPostings):
            raise error.__cause__ from None
        raise
