"""The document store on a PostgreSQL server with pgvector. Replicas share it; what one writes, all see."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import asyncpg

from backend.errors import StorageCorrupt
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.search import document_sql
from backend.search.limits import SearchLimits, check_kept_file
from backend.search.postgres.connections import ConnectionLimits, PostgresConnections
from backend.search.postgres.indexing import PostgresIndexing
from backend.search.postgres.ranking import PostgresRanking
from backend.search.postgres.stores import LOCK_STORES, SQL, PostgresStores
from backend.search.records import FileRecord
from backend.search.storage import SearchStorage
from backend.supervision import Supervisor

_PART_BYTES = 2**20
_PARTS_AT_ONCE = 4  # in memory while a file is read
_LOCK_STORE_FILES = "SELECT store_id FROM store_files WHERE file_id = $1 ORDER BY key FOR UPDATE"


class PostgresFiles(SearchStorage):
    _postgres: PostgresConnections
    _limits: FileLimits

    async def _add_file(
        self,
        file: FileRecord,
        content: StoredFile,
        document: document_sql.PackedDocument | None,
        limits: SearchLimits | None,
    ) -> None:
        with content.borrowed() as descriptor:
            async with self._postgres.transaction() as connection:
                await self.insert_file(connection, file)
                if limits is not None:  # before its bytes are sent
                    check_kept_file(await self.usage_in(connection, file.owner), limits)
                for number, start in enumerate(range(0, content.size_bytes, _PART_BYTES)):
                    part = await asyncio.to_thread(os.pread, descriptor, _PART_BYTES, start)
                    await connection.execute("INSERT INTO file_parts VALUES ($1, $2, $3)", file.id, number, part)
                await self.insert_document(connection, document)
                if limits is not None:
                    check_kept_file(await self.usage_alone(connection, file.owner), limits)

    async def content(self, file_id: str) -> StoredFile | None:
        """A copy of the file's bytes. Raises: StorageCorrupt where they are not those that were stored."""
        async with self._postgres.transaction(isolation="repeatable_read", readonly=True) as connection:
            record = await connection.fetchrow("SELECT size_bytes, sha256 FROM files WHERE id = $1", file_id)
            if record is None:
                return None
            # A file that is kept may be larger than what may be sent today.
            limits = replace(self._limits, file_bytes=max(self._limits.file_bytes, record["size_bytes"]))
            content = StoredFile(limits)
            try:
                await _read_parts(connection, file_id, content)
                _check(file_id, content, record)
            except BaseException:
                content.close()
                raise
            return content

    async def delete_file(self, owner: str, file_id: str) -> bool:
        async with self._postgres.transaction() as connection:
            if not await connection.fetchval("SELECT count(*) FROM files WHERE id = $1 AND owner = $2", file_id, owner):
                return False
            places = await connection.fetch(_LOCK_STORE_FILES, file_id)
            await connection.execute(LOCK_STORES, [row["store_id"] for row in places])
            deleted = await connection.execute("DELETE FROM files WHERE id = $1", file_id)
        self._sweeper.wake()
        return bool(deleted != "DELETE 0")


async def _read_parts(connection: asyncpg.Connection, file_id: str, content: StoredFile) -> None:
    cursor = await connection.cursor("SELECT content FROM file_parts WHERE file_id = $1 ORDER BY number", file_id)
    while rows := await cursor.fetch(_PARTS_AT_ONCE):
        await asyncio.to_thread(_write_all, content, [row["content"] for row in rows])


def _write_all(content: StoredFile, parts: Sequence[bytes]) -> None:
    """Copies and hashes: milliseconds for each part, which the event loop should not wait for."""
    for part in parts:
        content.write(part)


def _check(file_id: str, content: StoredFile, record: asyncpg.Record) -> None:
    if (content.size_bytes, content.sha256) != (record["size_bytes"], record["sha256"]):
        raise StorageCorrupt(
            f"file {file_id}: its {content.size_bytes} bytes in PostgreSQL are not the {record['size_bytes']} that "
            "were stored; delete it and send it again, or restore a backup"
        )


class PostgresSearchStorage(PostgresFiles, PostgresStores, PostgresIndexing, PostgresRanking):
    """Of four parts, each of which knows its tables.

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

        self._limits = limits
        super().__init__(self._postgres, SQL, supervisor)

    async def start(self) -> None:
        await self._postgres.start()
        if self._postgres.facts is not None:
            self._sweeper.wake()

    async def close(self) -> None:
        await self._sweeper.close()
        await self._postgres.close()

    def report(self) -> dict[str, Any]:
        facts = self._postgres.facts
        report: dict[str, Any] = {"kind": "postgres", "where": self._postgres.address, "writes": True}
        if facts is None:
            return {**report, "reached": False}
        versions = {"postgres": facts.version, "pgvector": facts.pgvector, "vectors": facts.vector_type}
        return {**report, "reached": True, **versions}
