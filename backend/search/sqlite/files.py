"""Uploaded files in the database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import replace

from backend.search.document_sql import PackedDocument
from backend.search.limits import SearchLimits, check_kept_file
from backend.search.records import FileRecord, ListRange, PageSize
from backend.search.sqlite import documents
from backend.search.sqlite.rows import FILE, file_record, listed, pages, usage
from backend.search.sqlite.store_files import remove

_REMEMBER = (
    "INSERT OR REPLACE INTO past_positions (kind, list, id, created_s) "
    "SELECT 'file', owner, id, created_s FROM files WHERE number = ?"
)


def add(
    connection: sqlite3.Connection,
    file: FileRecord,
    limits: SearchLimits | None,
    document: PackedDocument | None = None,
) -> None:
    """A file, with what was read from it where it is a stored document. Raises: TooLarge."""
    connection.execute(
        "INSERT INTO files (id, owner, name, size_bytes, sha256, purpose, created_s, expires_s) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            file.id,
            file.owner,
            file.name,
            file.size_bytes,
            file.sha256,
            file.purpose,
            file.created_s,
            file.expires_s,
        ),
    )
    if document is not None:
        documents.add(connection, document)
    if limits is not None:
        check_kept_file(usage(connection, file.owner), limits)


def check_room(connection: sqlite3.Connection, file: FileRecord, limits: SearchLimits | None) -> None:
    """Raises: TooLarge for a file that there is no room for, before its bytes are written."""
    if limits is not None:
        now = usage(connection, file.owner)
        check_kept_file(replace(now, files=now.files + 1, bytes=now.bytes + file.size_bytes), limits)


def find(connection: sqlite3.Connection, owner: str, file_id: str) -> FileRecord | None:
    row = connection.execute(f"SELECT {FILE} FROM files f WHERE f.id = ? AND f.owner = ?", (file_id, owner)).fetchone()
    return row and file_record(row)


def find_all(connection: sqlite3.Connection, owner: str, file_ids: Collection[str]) -> list[FileRecord]:
    rows = connection.execute(
        f"SELECT {FILE} FROM json_each(?) wanted JOIN files f ON f.id = wanted.value WHERE f.owner = ?",
        (json.dumps(list(file_ids)), owner),
    )
    return [file_record(row) for row in rows]


def range_of(
    connection: sqlite3.Connection, owner: str, part: ListRange, *, purpose: str | None = None
) -> list[FileRecord]:
    where, values = ["f.owner = $1"], [owner]
    if purpose is not None:
        where, values = [*where, "f.purpose = $2"], [owner, purpose]
    rows = listed(connection, f"SELECT {FILE} FROM files f", where, values, part=part, keys=("f.created_s", "f.id"))
    return [file_record(row) for row in rows]


def checksum(connection: sqlite3.Connection, file_id: str) -> str | None:
    """SHA-256 of the bytes; None: there is no such file."""
    row = connection.execute("SELECT sha256 FROM files WHERE id = ?", (file_id,)).fetchone()
    return row and str(row[0])


def delete(connection: sqlite3.Connection, owner: str, file_id: str) -> bool:
    """Its bytes are deleted once this is on the disk (`deleted`). False: there was no such file."""
    row = connection.execute("SELECT number FROM files WHERE id = ? AND owner = ?", (file_id, owner)).fetchone()
    if row is None:
        return False
    for (number,) in connection.execute("SELECT number FROM store_files WHERE file = ?", row).fetchall():
        remove(connection, number)
    connection.execute(_REMEMBER, row)
    connection.execute("DELETE FROM files WHERE number = ?", row)
    connection.execute("INSERT OR IGNORE INTO deleted_files (id) VALUES (?)", (file_id,))
    return True


def deleted(connection: sqlite3.Connection) -> list[str]:
    """Ids of files without a row whose bytes may still be there."""
    return [file_id for (file_id,) in connection.execute("SELECT id FROM deleted_files")]


def is_deleted(connection: sqlite3.Connection, file_id: str) -> bool:
    return connection.execute("SELECT 1 FROM deleted_files WHERE id = ?", (file_id,)).fetchone() is not None


def forget_deleted(connection: sqlite3.Connection, file_ids: Sequence[str]) -> None:
    connection.executemany("DELETE FROM deleted_files WHERE id = ?", ((file_id,) for file_id in file_ids))


def page_sizes(connection: sqlite3.Connection, file_id: str) -> tuple[PageSize, ...]:
    row = connection.execute(
        "SELECT sf.pages FROM store_files sf JOIN files f ON f.number = sf.file "
        "WHERE f.id = ? AND sf.indexed_s IS NOT NULL ORDER BY sf.indexed_s DESC, sf.number DESC LIMIT 1",
        (file_id,),
    ).fetchone()
    return () if row is None else pages(row[0])


def expired(connection: sqlite3.Connection, now_s: float) -> list[FileRecord]:
    rows = connection.execute(f"SELECT {FILE} FROM files f WHERE f.expires_s <= ? ORDER BY f.expires_s", (now_s,))
    return [file_record(row) for row in rows]


def ids(connection: sqlite3.Connection) -> list[str]:
    return [file_id for (file_id,) in connection.execute("SELECT id FROM files")]
