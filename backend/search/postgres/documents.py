"""Stored documents in PostgreSQL: `document_sql` on its connections."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import asyncpg

from backend.errors import StorageCorrupt
from backend.files.stored_file import StoredFile
from backend.search import document_sql
from backend.search.document_sql import PackedDocument
from backend.search.limits import SearchLimits, check_bytes
from backend.search.postgres.connections import PostgresConnections
from backend.search.postgres.files import PostgresFiles
from backend.search.postgres.stores import usage_alone
from backend.search.records import (
    DocumentQuery,
    DocumentRow,
    DocumentSort,
    Duplicate,
    Lesson,
    ListRange,
    Position,
    StoredDocument,
)

T = TypeVar("T")


class PostgresDocuments:
    def __init__(self, postgres: PostgresConnections, files: PostgresFiles) -> None:
        self._postgres, self._files = postgres, files

    async def add_document(
        self,
        row: DocumentRow,
        content: StoredFile,
        document_content: Mapping[str, Any],
        *,
        limits: SearchLimits | None = None,
    ) -> None:
        packed = await asyncio.to_thread(document_sql.pack, row, document_content)

        async def add(connection: asyncpg.Connection) -> None:
            await connection.execute(document_sql.INSERT, *packed.insert())
            await _write_found_by(connection, packed)

        await self._files.add_file(row.stored.file, content, limits=limits, beside=add)

    async def replace_document(self, row: DocumentRow, *, limits: SearchLimits | None = None) -> bool:
        packed = await asyncio.to_thread(document_sql.pack, row)
        async with self._postgres.transaction() as connection:
            if await connection.fetchval(document_sql.REPLACE, *packed.replace()) is None:
                return False
            for query in document_sql.FORGET:
                await connection.execute(query, row.stored.id)
            await _write_found_by(connection, packed)
            if limits is not None:
                check_bytes((await usage_alone(connection, row.stored.owner)).bytes, limits)
            return True

    async def document(self, owner: str, file_id: str) -> StoredDocument | None:
        row = await self._postgres.fetchrow(document_sql.FIND, owner, file_id)
        return None if row is None else await _read(document_sql.stored_document, row)

    async def document_content(self, file_id: str) -> dict[str, Any] | None:
        packed = await self._postgres.fetchval(document_sql.CONTENT, file_id)
        return None if packed is None else await _read(document_sql.unpacked_content, packed)

    async def documents(self, owner: str, query: DocumentQuery, part: ListRange) -> list[StoredDocument]:
        text, arguments, flipped = document_sql.listed(owner, query, part)
        rows = await self._postgres.fetch(text, *arguments)
        made = await _read(lambda found: [document_sql.stored_document(row) for row in found], rows)
        return made[::-1] if flipped else made

    async def document_position(self, owner: str, file_id: str, sort: DocumentSort) -> Position | None:
        row = await self._postgres.fetchrow(document_sql.position(sort), owner, file_id)
        return None if row is None else Position(*row)

    async def document_duplicates(self, owner: str, file_ids: Sequence[str]) -> list[Duplicate]:
        if not file_ids:
            return []
        rows = await self._postgres.fetch(document_sql.duplicates(len(file_ids)), owner, *file_ids)
        return [document_sql.duplicate(row) for row in rows]

    async def lessons(self, owner: str, keys: Sequence[str], limit: int) -> list[Lesson]:
        if not keys:
            return []
        rows = await self._postgres.fetch(document_sql.lessons(len(keys)), owner, limit, *keys)
        return [document_sql.lesson(row) for row in rows]

    async def lessons_of(self, file_id: str) -> list[Lesson]:
        return [document_sql.lesson(row) for row in await self._postgres.fetch(document_sql.LESSONS_OF, file_id)]


async def _write_found_by(connection: asyncpg.Connection, packed: PackedDocument) -> None:
    for query, arguments in packed.found_by():
        await connection.execute(query, *arguments)


async def _read(unpacked: Callable[[Any], T], row: Any) -> T:
    """Unpacks on a thread: a long document takes milliseconds. Raises: StorageCorrupt."""

    def read() -> T:
        with _translated():
            return unpacked(row)

    return await asyncio.to_thread(read)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (zlib.error, ValueError) as error:
        raise StorageCorrupt(
            "a stored document in PostgreSQL is not what was written; delete it and send its file again, or restore a "
            "backup"
        ) from error
