"""Uploaded files in PostgreSQL: their records, and their bytes in parts of at most 1 MiB."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

import asyncpg

from backend.errors import StorageCorrupt
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.search.limits import SearchLimits, check_kept_file
from backend.search.list_sql import range_query
from backend.search.postgres.connections import PostgresConnections, from_json
from backend.search.postgres.stores import LOCK_STORES, usage, usage_alone
from backend.search.records import FileRecord, ListRange, PageSize, StoredUsage
from backend.search.storage import id_taken

_PART_BYTES = 2**20
_PARTS_AT_ONCE = 4  # in memory while a file is read
_COLUMNS = "id, owner, name, size_bytes, sha256, purpose, created_s, expires_s"
_LOCK_STORE_FILES = "SELECT store_id FROM store_files WHERE file_id = $1 ORDER BY key FOR UPDATE"


class PostgresFiles:
    def __init__(self, postgres: PostgresConnections, limits: FileLimits) -> None:
        self._postgres = postgres
        self._limits = limits

    async def add_file(
        self,
        file: FileRecord,
        content: StoredFile,
        *,
        limits: SearchLimits | None = None,
        beside: Callable[[asyncpg.Connection], Awaitable[None]] | None = None,
    ) -> None:
        """`SearchStorage.add_file`.

        Args:
            beside: adds what belongs to the file, in the same transaction.
        """
        record = (getattr(file, name) for name in _COLUMNS.split(", "))
        with _borrowed(content) as descriptor:
            async with self._postgres.transaction() as connection:
                query = (
                    f"INSERT INTO files ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) "
                    "ON CONFLICT DO NOTHING RETURNING true"
                )
                if not await connection.fetchval(query, *record):
                    raise id_taken("file", file.id)
                if limits is not None:  # before its bytes are sent
                    check_kept_file(await usage(connection, file.owner), limits)
                for number, start in enumerate(range(0, content.size_bytes, _PART_BYTES)):
                    part = await asyncio.to_thread(os.pread, descriptor, _PART_BYTES, start)
                    await connection.execute("INSERT INTO file_parts VALUES ($1, $2, $3)", file.id, number, part)
                if beside is not None:
                    await beside(connection)
                if limits is not None:
                    check_kept_file(await usage_alone(connection, file.owner), limits)

    async def file(self, owner: str, file_id: str) -> FileRecord | None:
        row = await self._postgres.fetchrow(
            f"SELECT {_COLUMNS} FROM files WHERE id = $1 AND owner = $2", file_id, owner
        )
        return FileRecord(*row) if row else None

    async def files_of(self, owner: str, file_ids: Collection[str]) -> list[FileRecord]:
        query = f"SELECT {_COLUMNS} FROM files WHERE id = ANY($1) AND owner = $2"
        return [FileRecord(*row) for row in await self._postgres.fetch(query, list(file_ids), owner)]

    async def files(self, owner: str, part: ListRange, *, purpose: str | None = None) -> list[FileRecord]:
        where, arguments = ["owner = $1"], [owner]
        if purpose is not None:
            arguments.append(purpose)
            where.append("purpose = $2")
        query, flipped = range_query(
            f"SELECT {_COLUMNS} FROM files", where, arguments, part=part, keys=("created_s", "id")
        )
        rows = [FileRecord(*row) for row in await self._postgres.fetch(query, *arguments)]
        return rows[::-1] if flipped else rows

    async def expired_files(self, now_s: float) -> list[FileRecord]:
        """Files of all owners whose ``expires_s`` has passed."""
        query = f"SELECT {_COLUMNS} FROM files WHERE expires_s <= $1 ORDER BY expires_s, id"
        return [FileRecord(*row) for row in await self._postgres.fetch(query, now_s)]

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
            return bool(deleted != "DELETE 0")

    async def file_pages(self, file_id: str) -> tuple[PageSize, ...]:
        """The pages of a file as the store that indexed it last has them; none before it is indexed."""
        pages = await self._postgres.fetchval(
            "SELECT pages FROM store_files WHERE file_id = $1 AND indexed_at IS NOT NULL "
            "ORDER BY indexed_at DESC LIMIT 1",
            file_id,
        )
        return tuple(PageSize(*page) for page in from_json(pages or "[]"))

    async def usage(self, owner: str) -> StoredUsage:
        async with self._postgres.connection() as connection:
            return await usage(connection, owner)

    async def totals(self) -> StoredUsage:
        """What all owners together have stored."""
        async with self._postgres.connection() as connection:
            return await usage(connection, None)


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


@contextmanager
def _borrowed(content: StoredFile) -> Iterator[int]:
    """A descriptor of the file's bytes, closed afterwards."""
    descriptor = content.lend()
    with closing(os.fdopen(descriptor, "rb", closefd=True)):
        yield descriptor
