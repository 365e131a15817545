"""Rows of the tables as records, and records as values of columns."""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Sequence

import numpy as np

from backend.models.encoder import Vectors
from backend.search.document_sql import Row
from backend.search.keywords import TERMS_VERSION
from backend.search.packed_words import unpack_words
from backend.search.records import Chunking, IndexFailure, PageSize, Progress, StoredChunk
from backend.search.tables import FileWork, TableSql

STORE_FILE = """s.id, f.id, f.name, sf.created_s, sf.status, sf.attributes, sf.found, sf.batch_id, sf.usage_bytes,
    sf.chunks, sf.pages, sf.language, sf.max_tokens, sf.overlap_tokens, sf.is_auto, sf.stage, sf.done, sf.total,
    sf.failure_code, sf.failure_message"""
STORE_FILE_TABLES = "store_files sf JOIN stores s ON s.number = sf.store JOIN files f ON f.number = sf.file"


def work_of(columns: Row) -> FileWork:
    failure = None if columns[6] is None else IndexFailure(*columns[6:8])
    return Chunking(columns[0], columns[1], bool(columns[2])), Progress(*columns[3:6]), failure


SQL = TableSql(
    stores="""SELECT s.id, s.owner, s.name, s.created_s, s.last_active_s, s.description, s.metadata,
        s.expires_after_days, e.fingerprint, e.name, e.width, n.fingerprint, n.name, n.width, s.embedded,
        (SELECT json_group_array(json_array(status, files, bytes, chunks)) FROM (
            SELECT status, count(*) AS files, sum(usage_bytes) AS bytes, sum(chunks) AS chunks
            FROM store_files WHERE store = s.number GROUP BY status))
    FROM stores s LEFT JOIN encoders e ON e.number = s.encoder LEFT JOIN encoders n ON n.number = s.next_encoder""",
    store_files=f"SELECT {STORE_FILE} FROM {STORE_FILE_TABLES}",
    work_of=work_of,
    key="number",
    more_of_store=(", terms", f", '{TERMS_VERSION}'"),
    of_store="store = (SELECT number FROM stores WHERE id = $1)",
    of_file="file = (SELECT number FROM files WHERE id = {})",
    file_id="f.id",
    indexed="indexed_s",
    no_claim="token = NULL, lease_until_s = NULL",
    usage="""SELECT (SELECT count(*) FROM files WHERE {who}),
        (SELECT coalesce(sum(size_bytes), 0) FROM files WHERE {who})
            + (SELECT coalesce(sum(usage_bytes), 0) FROM documents WHERE {who}) + coalesce(sum(usage_bytes), 0),
        coalesce(sum(chunks), 0), (SELECT count(*) FROM stores WHERE NOT is_deleted AND {who}),
        coalesce(sum(status = 'in_progress'), 0)
    FROM store_files WHERE store IN (SELECT number FROM stores WHERE NOT is_deleted AND {who})""",
)
CHUNK = "c.id, f.id, c.position, c.start, c.end, c.tokens, c.checksum, c.text, c.words"
CHUNK_TABLES = "chunks c JOIN store_files sf ON sf.number = c.store_file JOIN files f ON f.number = sf.file"

_CHECKSUM_BYTES = 4
_SURROGATE = re.compile("[\ud800-\udfff]")


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
