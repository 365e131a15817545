"""Rows of the tables as records, and records as values of columns."""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from backend.models.encoder import Vectors
from backend.search.list_sql import range_query
from backend.search.packed_words import unpack_words
from backend.search.records import (
    Chunking,
    EncoderIdentity,
    FileRecord,
    FileStatus,
    IndexFailure,
    ListRange,
    PageSize,
    Progress,
    Reembedding,
    StoredChunk,
    StoredUsage,
    StoreFile,
    VectorStore,
)


def usage(connection: sqlite3.Connection, owner: str | None) -> StoredUsage:
    """What an owner has stored; None: what all have."""
    condition, values = ("1 = 1", ()) if owner is None else ("owner = ?", (owner,))
    kept = f"NOT is_deleted AND {condition}"
    files, file_bytes = connection.execute(
        f"SELECT count(*), coalesce(sum(size_bytes), 0) FROM files WHERE {condition}", values
    ).fetchone()
    query = f"SELECT coalesce(sum(usage_bytes), 0) FROM documents WHERE {condition}"
    (document_bytes,) = connection.execute(query, values).fetchone()
    (stores,) = connection.execute(f"SELECT count(*) FROM stores WHERE {kept}", values).fetchone()
    index_bytes, chunks, waiting = connection.execute(
        "SELECT coalesce(sum(usage_bytes), 0), coalesce(sum(chunks), 0), coalesce(sum(status = 'in_progress'), 0) "
        f"FROM store_files WHERE store IN (SELECT number FROM stores WHERE {kept})",
        values,
    ).fetchone()
    return StoredUsage(files, file_bytes + document_bytes + index_bytes, chunks, stores, waiting)


def totals(connection: sqlite3.Connection) -> StoredUsage:
    """What all owners together have stored."""
    return usage(connection, None)


FILE = "f.id, f.owner, f.name, f.size_bytes, f.sha256, f.purpose, f.created_s, f.expires_s"
STORE = """s.number, s.id, s.owner, s.name, s.created_s, s.last_active_s, s.description, s.metadata,
    s.expires_after_days, e.fingerprint, e.name, e.width, n.number, n.fingerprint, n.name, n.width, s.embedded"""
STORE_TABLES = "stores s LEFT JOIN encoders e ON e.number = s.encoder LEFT JOIN encoders n ON n.number = s.next_encoder"
STORE_FILE = """s.id, f.id, f.name, sf.created_s, sf.status, sf.attributes, sf.found, sf.max_tokens, sf.overlap_tokens,
    sf.is_auto, sf.batch_id, sf.stage, sf.done, sf.total, sf.failure_code, sf.failure_message, sf.usage_bytes,
    sf.chunks, sf.pages, sf.language"""
STORE_FILE_TABLES = "store_files sf JOIN stores s ON s.number = sf.store JOIN files f ON f.number = sf.file"
CHUNK = "c.id, f.id, c.position, c.start, c.end, c.tokens, c.checksum, c.text, c.words"
CHUNK_TABLES = "chunks c JOIN store_files sf ON sf.number = c.store_file JOIN files f ON f.number = sf.file"

_CHECKSUM_BYTES = 4
_SURROGATE = re.compile("[\ud800-\udfff]")
Row = Sequence[Any]


def file_record(row: Row) -> FileRecord:
    return FileRecord(*row)


def vector_store(connection: sqlite3.Connection, row: Row) -> VectorStore:
    """A store with what is counted in it."""
    number = row[0]
    counts: dict[FileStatus, int] = {}
    usage_bytes = chunks = 0
    for status, files, more_bytes, more_chunks in connection.execute(
        "SELECT status, count(*), sum(usage_bytes), sum(chunks) FROM store_files WHERE store = ? GROUP BY status",
        (number,),
    ):
        counts[status] = files
        usage_bytes += more_bytes
        chunks += more_chunks
    encoder = None if row[9] is None else EncoderIdentity(*row[9:12])
    reembedding = None
    if row[12] is not None:
        reembedding = Reembedding(EncoderIdentity(*row[13:16]), row[16], chunks)
    return VectorStore(
        id=row[1],
        owner=row[2],
        name=row[3],
        created_s=row[4],
        last_active_s=row[5],
        description=row[6],
        metadata=json.loads(row[7]),
        expires_after_days=row[8],
        encoder=encoder,
        reembedding=reembedding,
        counts=counts,
        usage_bytes=usage_bytes,
        chunks=chunks,
    )


def store_file(row: Row) -> StoreFile:
    failure = None if row[14] is None else IndexFailure(row[14], row[15])
    return StoreFile(
        store_id=row[0],
        file_id=row[1],
        name=row[2],
        created_s=row[3],
        status=row[4],
        attributes=json.loads(row[5]),
        found={name: tuple(values) for name, values in json.loads(row[6]).items()},
        chunking=Chunking(row[7], row[8], bool(row[9])),
        batch_id=row[10],
        progress=Progress(row[11], row[12], row[13]),
        failure=failure,
        usage_bytes=row[16],
        chunks=row[17],
        pages=pages(row[18]),
        language=row[19],
    )


def pages(packed: str) -> tuple[PageSize, ...]:
    return tuple(PageSize(*page) for page in json.loads(packed))


def pack_pages(sizes: Sequence[PageSize]) -> str:
    return json.dumps([page.packed() for page in sizes])


def stored_chunk(row: Row) -> StoredChunk:
    """Raises: DataError for a chunk whose text or words have changed."""
    chunk_id, file_id, position, start, end, tokens, checksum, text, words = row
    if checksum != chunk_checksum(text, words):
        raise sqlite3.DataError(f"chunk {chunk_id} has another checksum than when it was written")
    return StoredChunk(chunk_id, file_id, position, start, end, text, tokens, unpack_words(words))


def chunk_checksum(text: str, words: bytes) -> int:
    return zlib.crc32(words, zlib.crc32(text.encode()))


def encodable(text: str) -> str:
    """The text without lone surrogates, which a broken PDF may hold and UTF-8 cannot; offsets stay."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def pack_vector(vector: Vectors) -> bytes:
    packed = vector.astype("<f2").tobytes()
    return packed + zlib.crc32(packed).to_bytes(_CHECKSUM_BYTES, "little")


def unpack_vectors(packed: Sequence[bytes], width: int) -> Vectors:
    """Shapes: (packed, width) float32. Raises: DataError for a vector that has changed."""
    size = 2 * width
    for one in packed:
        if len(one) != size + _CHECKSUM_BYTES or zlib.crc32(one[:size]) != int.from_bytes(one[size:], "little"):
            raise sqlite3.DataError("a vector has another checksum than when it was written")
    record = np.dtype([("vector", "<f2", (width,)), ("checksum", "<u4")])
    return np.frombuffer(b"".join(packed), record)["vector"].astype(np.float32)


def listed(
    connection: sqlite3.Connection,
    select: str,
    where: Sequence[str],
    arguments: list[Any],
    *,
    part: ListRange,
    keys: tuple[str, str],
) -> list[Any]:
    """The rows of a part of a list; the arguments as `range_query`."""
    query, flipped = range_query(select, where, arguments, part=part, keys=keys)
    rows = connection.execute(query.replace("$", "?"), arguments).fetchall()
    return rows[::-1] if flipped else rows
