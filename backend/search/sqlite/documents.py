"""Stored documents in the database: `document_sql` on a connection of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from backend.search import document_sql
from backend.search.document_sql import PackedDocument
from backend.search.limits import SearchLimits, check_bytes
from backend.search.records import (
    DocumentQuery,
    DocumentSort,
    Duplicate,
    Lesson,
    ListRange,
    Position,
    StoredDocument,
)
from backend.search.sqlite.rows import usage


def _run(connection: sqlite3.Connection, query: str, arguments: Sequence[Any]) -> sqlite3.Cursor:
    return connection.execute(query.replace("$", "?"), arguments)


def add(connection: sqlite3.Connection, packed: PackedDocument) -> None:
    """Beside its file, which has just been added."""
    _run(connection, document_sql.INSERT, packed.insert())
    for query, arguments in packed.found_by():
        _run(connection, query, arguments)


def replace(connection: sqlite3.Connection, packed: PackedDocument, limits: SearchLimits | None) -> bool:
    """False: it is gone, or of another revision. Raises: TooLarge, QuotaExceeded."""
    if _run(connection, document_sql.REPLACE, packed.replace()).fetchone() is None:
        return False
    for query in document_sql.FORGET:
        _run(connection, query, [packed.row.stored.id])
    for query, arguments in packed.found_by():
        _run(connection, query, arguments)
    if limits is not None:
        check_bytes(usage(connection, packed.row.stored.owner).bytes, limits)
    return True


def find(connection: sqlite3.Connection, owner: str, file_id: str) -> StoredDocument | None:
    row = _run(connection, document_sql.FIND, [owner, file_id]).fetchone()
    return row and document_sql.stored_document(row)


def content(connection: sqlite3.Connection, file_id: str) -> dict[str, Any] | None:
    row = _run(connection, document_sql.CONTENT, [file_id]).fetchone()
    return None if row is None else document_sql.unpacked_content(row[0])


def range_of(connection: sqlite3.Connection, owner: str, query: DocumentQuery, part: ListRange) -> list[StoredDocument]:
    text, arguments, flipped = document_sql.listed(owner, query, part)
    rows = [document_sql.stored_document(row) for row in _run(connection, text, arguments)]
    return rows[::-1] if flipped else rows


def position(connection: sqlite3.Connection, owner: str, file_id: str, sort: DocumentSort) -> Position | None:
    row = _run(connection, document_sql.position(sort), [owner, file_id]).fetchone()
    return None if row is None else Position(*row)


def duplicates(connection: sqlite3.Connection, owner: str, file_ids: Sequence[str]) -> list[Duplicate]:
    if not file_ids:
        return []
    rows = _run(connection, document_sql.duplicates(len(file_ids)), [owner, *file_ids])
    return [document_sql.duplicate(row) for row in rows]


def lessons(connection: sqlite3.Connection, owner: str, keys: Sequence[str], limit: int) -> list[Lesson]:
    if not keys:
        return []
    rows = _run(connection, document_sql.lessons(len(keys)), [owner, limit, *keys])
    return [document_sql.lesson(row) for row in rows]


def lessons_of(connection: sqlite3.Connection, file_id: str) -> list[Lesson]:
    return [document_sql.lesson(row) for row in _run(connection, document_sql.LESSONS_OF, [file_id])]
