"""The document store on a PostgreSQL server with pgvector. Replicas share it; what one writes, all see."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from backend.files.limits import FileLimits
from backend.search.postgres.connections import ConnectionLimits, PostgresConnections
from backend.search.postgres.documents import PostgresDocuments
from backend.search.postgres.files import PostgresFiles
from backend.search.postgres.indexing import PostgresIndexing
from backend.search.postgres.ranking import PostgresRanking
from backend.search.postgres.stores import PostgresStores
from backend.search.sweeper import Sweeper
from backend.supervision import Supervisor

P = ParamSpec("P")
T = TypeVar("T")


class PostgresSearchStorage:
    """A `SearchStorage`. Its methods are those of the parts, each of which knows its tables.

    The service starts without the server: calls raise Unavailable until it is there.

    Args:
        url: SEARCH_URL.
        limits: of files; one that is kept already may be larger.

    Raises: BadSettings for a bad URL.
    """

    def __init__(
        self,
        url: str,
        limits: FileLimits,
        *,
        connections: ConnectionLimits | None = None,
        supervisor: Supervisor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._postgres = PostgresConnections(url, connections or ConnectionLimits(), clock=clock)

        files = PostgresFiles(self._postgres, limits)
        self.add_file = files.add_file
        self.file, self.files_of, self.files = files.file, files.files_of, files.files
        self.content, self.file_pages = files.content, files.file_pages
        self.expired_files = files.expired_files
        self.usage, self.totals = files.usage, files.totals

        documents = PostgresDocuments(self._postgres, files)
        self.add_document, self.replace_document = documents.add_document, documents.replace_document
        self.document, self.documents = documents.document, documents.documents
        self.document_content, self.document_position = documents.document_content, documents.document_position
        self.document_duplicates = documents.document_duplicates
        self.lessons, self.lessons_of = documents.lessons, documents.lessons_of

        stores = PostgresStores(self._postgres)
        self._sweeper = Sweeper(stores.sweep, supervisor)
        self.swept = self._sweeper.idle
        self.delete_file = self._sweeping(files.delete_file)
        self.delete_store = self._sweeping(stores.delete_store)
        self.attach = self._sweeping(stores.attach)  # in place of files that are there
        self.detach = self._sweeping(stores.detach)
        self.add_store = stores.add_store
        self.store, self.stores = stores.store, stores.stores
        self.update_store, self.touch_store = stores.update_store, stores.touch_store
        self.expired_stores = stores.expired_stores
        self.store_file, self.store_files = stores.store_file, stores.store_files
        self.set_attributes = stores.set_attributes
        self.position = stores.position
        self.batch_counts = stores.batch_counts
        self.cancel_batch = stores.cancel_batch
        self.file_chunks, self.file_vectors = stores.file_chunks, stores.file_vectors

        indexing = PostgresIndexing(self._postgres, stores)
        self.claim, self.renew, self.release = indexing.claim, indexing.renew, indexing.release
        self.finish, self.fail, self.restore = indexing.finish, indexing.fail, indexing.restore
        self.waiting = indexing.waiting
        self.begin_reembedding = indexing.begin_reembedding
        self.unembedded = indexing.unembedded
        self.put_vectors = indexing.put_vectors
        self.switch_encoder = indexing.switch_encoder
        self.reembedding_stores = indexing.reembedding_stores

        ranking = PostgresRanking(self._postgres)
        self.nearest = ranking.nearest
        self.matching = ranking.matching
        self.chunks, self.chunk_contents = ranking.chunks, ranking.chunk_contents
        self.attribute_keys = ranking.attribute_keys
        self.attribute_types = ranking.attribute_types

    async def start(self) -> None:
        await self._postgres.start()
        if self._postgres.facts is not None:
            self._sweeper.wake()

    async def close(self) -> None:
        await self._sweeper.close()
        await self._postgres.close()

    def _sweeping(self, call: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """The call, and then what it deleted is removed in the background."""

        async def called(*args: P.args, **kwargs: P.kwargs) -> T:
            result = await call(*args, **kwargs)
            self._sweeper.wake()
            return result

        return called

    def report(self) -> dict[str, Any]:
        facts = self._postgres.facts
        report: dict[str, Any] = {"kind": "postgres", "where": self._postgres.address, "writes": True}
        if facts is None:
            return {**report, "reached": False}
        versions = {"postgres": facts.version, "pgvector": facts.pgvector, "vectors": facts.vector_type}
        return {**report, "reached": True, **versions}
