"""The tables of the database with their rows as records, and how one of an earlier release becomes one of this."""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Sequence

import numpy as np

from backend.errors import SetupError
from backend.models.encoder import Vectors
from backend.search.document_chunks import unpack_words
from backend.search.document_sql import Row
from backend.search.keywords import TERMS_VERSION
from backend.search.records import Chunking, IndexFailure, PageSize, Progress, StoredChunk
from backend.search.tables import FileWork, TableSql

PAGE_BYTES = 8192  # holds three float16 vectors of width 1024; in 4096 they waste half of each page

# Each step raises the version by one. A released step is never changed: a new one is added behind it.
# Ids that SQLite gives (`number`) are never used again, so that what points to a deleted row points to nothing.
STEPS: tuple[str, ...] = (
    """
    CREATE TABLE encoders (
        number INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, name TEXT NOT NULL, width INTEGER NOT NULL
    );
    CREATE TABLE files (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name TEXT NOT NULL,
        size_bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, purpose TEXT NOT NULL, created_s REAL NOT NULL,
        expires_s REAL
    );
    CREATE INDEX files_by_owner ON files (owner, created_s, id);
    CREATE INDEX files_by_expiry ON files (expires_s) WHERE expires_s IS NOT NULL;
    CREATE TABLE stores (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name TEXT NOT NULL,
        created_s REAL NOT NULL, last_active_s REAL NOT NULL, description TEXT NOT NULL, metadata TEXT NOT NULL,
        expires_after_days INTEGER, encoder INTEGER REFERENCES encoders, next_encoder INTEGER REFERENCES encoders,
        additions INTEGER NOT NULL DEFAULT 0,  -- counts the times that chunks were added
        removals INTEGER NOT NULL DEFAULT 0,  -- that chunks were removed
        rebuilds INTEGER NOT NULL DEFAULT 0,  -- that vectors were replaced: what is in memory is loaded again
        merges INTEGER NOT NULL DEFAULT 0,  -- that terms were moved from `fresh_terms` to segments
        terms TEXT NOT NULL  -- `keywords.TERMS_VERSION` of its postings
    );
    CREATE INDEX stores_by_owner ON stores (owner, created_s, id);
    CREATE TABLE store_files (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        store INTEGER NOT NULL REFERENCES stores ON DELETE CASCADE,
        file INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
        created_s REAL NOT NULL, status TEXT NOT NULL, attributes TEXT NOT NULL, found TEXT NOT NULL,
        max_tokens INTEGER NOT NULL, overlap_tokens INTEGER NOT NULL, is_auto INTEGER NOT NULL, batch_id TEXT,
        stage TEXT NOT NULL, done INTEGER NOT NULL, total INTEGER, failure_code TEXT, failure_message TEXT,
        usage_bytes INTEGER NOT NULL DEFAULT 0, pages TEXT NOT NULL DEFAULT '[]', language TEXT, indexed_s REAL,
        -- Its chunks have ids without a gap; `lengths` holds how many terms each has, int32.
        first_chunk INTEGER, chunks INTEGER NOT NULL DEFAULT 0, lengths BLOB,
        token TEXT, lease_until_s REAL, attempts INTEGER NOT NULL DEFAULT 0,
        UNIQUE (store, file)
    );
    CREATE INDEX store_files_by_file ON store_files (file);
    CREATE INDEX store_files_counts ON store_files (store, status, usage_bytes, chunks);
    CREATE INDEX store_files_by_chunk ON store_files (store, first_chunk, chunks) WHERE chunks > 0;
    CREATE INDEX store_files_by_batch ON store_files (store, batch_id, status);
    CREATE INDEX store_files_by_token ON store_files (token) WHERE token IS NOT NULL;
    CREATE INDEX store_files_waiting ON store_files (created_s) WHERE status = 'in_progress';
    CREATE TABLE attributes (
        file INTEGER NOT NULL REFERENCES store_files ON DELETE CASCADE, store INTEGER NOT NULL, name TEXT NOT NULL,
        number REAL, text TEXT, flag INTEGER
    );
    CREATE INDEX attributes_by_file ON attributes (file);
    CREATE INDEX attributes_by_name ON attributes (store, name, number, text, flag);
    CREATE TABLE chunks (
        id INTEGER PRIMARY KEY AUTOINCREMENT, store_file INTEGER NOT NULL, position INTEGER NOT NULL,
        start INTEGER NOT NULL, end INTEGER NOT NULL, tokens INTEGER NOT NULL, checksum INTEGER NOT NULL,
        text TEXT NOT NULL, words BLOB NOT NULL
    );
    CREATE TABLE vectors (
        store INTEGER NOT NULL, encoder INTEGER NOT NULL REFERENCES encoders, chunk INTEGER NOT NULL,
        vector BLOB NOT NULL  -- float16, then the CRC-32 of it
    );
    CREATE UNIQUE INDEX vectors_by_chunk ON vectors (store, encoder, chunk);
    -- Terms of chunks that no segment has yet, joined by line feeds.
    CREATE TABLE fresh_terms (store INTEGER NOT NULL, chunk INTEGER NOT NULL, terms TEXT NOT NULL);
    CREATE UNIQUE INDEX fresh_terms_by_chunk ON fresh_terms (store, chunk);
    CREATE TABLE segments (
        number INTEGER PRIMARY KEY AUTOINCREMENT, store INTEGER NOT NULL, level INTEGER NOT NULL,
        first_chunk INTEGER NOT NULL, last_chunk INTEGER NOT NULL,
        chunks INTEGER NOT NULL  -- when it was made
    );
    CREATE INDEX segments_by_store ON segments (store, first_chunk);
    CREATE TABLE postings (
        segment INTEGER NOT NULL, term TEXT NOT NULL,
        packed BLOB NOT NULL,  -- for each chunk its id, uint32, and how often, uint16; the CRC-32 of all
        PRIMARY KEY (segment, term)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE owners (owner TEXT PRIMARY KEY, claimed INTEGER NOT NULL) WITHOUT ROWID;  -- counts claims of all
    DROP INDEX store_files_waiting;
    CREATE INDEX store_files_waiting ON store_files (store, created_s) WHERE status = 'in_progress';
    """,
    """
    ALTER TABLE stores ADD is_deleted INTEGER NOT NULL DEFAULT 0;  -- nobody finds it; it is removed in slices
    CREATE INDEX stores_deleted ON stores (number) WHERE is_deleted;
    -- Chunks, or vectors of an encoder, that nobody finds any more; they are removed in slices.
    CREATE TABLE leavings (
        number INTEGER PRIMARY KEY AUTOINCREMENT, store INTEGER NOT NULL, encoder INTEGER,
        first_chunk INTEGER, last_chunk INTEGER
    );
    CREATE INDEX leavings_by_store ON leavings (store, first_chunk);
    ALTER TABLE stores ADD embedded INTEGER NOT NULL DEFAULT 0;  -- counts the vectors of `next_encoder`
    UPDATE stores SET embedded = (SELECT count(*) FROM vectors v WHERE v.store = number AND v.encoder = next_encoder)
    WHERE next_encoder IS NOT NULL;
    """,
    """
    DROP INDEX leavings_by_store;
    ALTER TABLE leavings RENAME TO pending_deletes;
    CREATE INDEX pending_deletes_by_store ON pending_deletes (store, first_chunk);
    -- Files without a row whose bytes are still to be deleted: nothing else in the folder ever is.
    CREATE TABLE deleted_files (id TEXT PRIMARY KEY) WITHOUT ROWID;
    ALTER TABLE segments DROP COLUMN chunks;
    -- 1: has terms of removed chunks; 2: being rewritten, up to `next_term`; 3: being rewritten, and then once more
    ALTER TABLE segments ADD stale INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE segments ADD next_term TEXT NOT NULL DEFAULT '';
    UPDATE segments SET stale = 1;
    -- Where deleted rows stood in their lists (`ListKind`, owner or store).
    CREATE TABLE past_positions (
        kind TEXT NOT NULL, list TEXT NOT NULL, id TEXT NOT NULL, created_s REAL NOT NULL,
        deleted_s INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER)), PRIMARY KEY (kind, list, id)
    ) WITHOUT ROWID;
    CREATE INDEX past_positions_by_time ON past_positions (deleted_s);
    CREATE TABLE batches (
        store INTEGER NOT NULL REFERENCES stores ON DELETE CASCADE, id TEXT NOT NULL, PRIMARY KEY (store, id)
    ) WITHOUT ROWID;
    INSERT INTO batches SELECT DISTINCT store, batch_id FROM store_files WHERE batch_id IS NOT NULL;
    UPDATE store_files  -- without the braces
    SET usage_bytes = usage_bytes + length(CAST(attributes AS BLOB)) + length(CAST(found AS BLOB)) - 4;
    CREATE INDEX segments_stale ON segments (number) WHERE stale > 0;
    """,
    """
    -- What was read from an uploaded file, and what people made of it (`document_sql`): gone with its file.
    CREATE TABLE documents (
        file_id TEXT PRIMARY KEY REFERENCES files (id) ON DELETE CASCADE, owner TEXT NOT NULL, sha256 TEXT NOT NULL,
        created_s REAL NOT NULL, state TEXT NOT NULL, revision INTEGER NOT NULL, updated_s REAL NOT NULL,
        usage_bytes INTEGER NOT NULL, changes BLOB NOT NULL, answer BLOB NOT NULL, content BLOB NOT NULL
    );
    CREATE INDEX documents_by_owner ON documents (owner, created_s, file_id);
    CREATE INDEX documents_by_bytes ON documents (owner, sha256);
    CREATE TABLE document_values (
        file_id TEXT NOT NULL REFERENCES documents ON DELETE CASCADE, position INTEGER NOT NULL, owner TEXT NOT NULL,
        kind TEXT, supplier TEXT, supplier_tax_id TEXT, number TEXT, date TEXT, due_date TEXT, base REAL, total REAL,
        PRIMARY KEY (file_id, position)
    ) WITHOUT ROWID;
    CREATE INDEX document_values_alike ON document_values (owner, supplier_tax_id, number, total);
    CREATE TABLE document_lessons (
        file_id TEXT NOT NULL REFERENCES documents ON DELETE CASCADE, position INTEGER NOT NULL, key TEXT NOT NULL,
        owner TEXT NOT NULL, lesson TEXT NOT NULL, confirmed_s REAL NOT NULL, PRIMARY KEY (file_id, position, key)
    ) WITHOUT ROWID;
    CREATE INDEX document_lessons_by_key ON document_lessons (owner, key, confirmed_s);
    """,
)
VERSION = len(STEPS)


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the tables; 0 for an empty database."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def check_version(connection: sqlite3.Connection, where: str) -> None:
    """Raises: SetupError for tables that this release cannot read."""
    version = version_of(connection)
    if version > VERSION:
        raise SetupError(
            f"search storage: {where} has tables of version {version}, this release reads up to {VERSION}; start the "
            "newer release again, or point STATE_DIR to another folder"
        )


def upgrade(connection: sqlite3.Connection, where: str) -> None:
    """Bring the tables to this release's version, each step in one transaction. Raises: SetupError."""
    check_version(connection, where)
    for version in range(version_of(connection), VERSION):
        # executescript commits first, so the transaction is part of the script; a failure leaves it open
        script = f"BEGIN IMMEDIATE; {STEPS[version]}; PRAGMA user_version = {version + 1}; COMMIT;"
        try:
            connection.executescript(script)
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


STORE_FILE = """s.id, f.id, f.name, sf.created_s, sf.status, sf.attributes, sf.found, sf.batch_id, sf.usage_bytes,
    sf.chunks, sf.pages, sf.language, sf.max_tokens, sf.overlap_tokens, sf.is_auto, sf.stage, sf.done, sf.total,
    sf.failure_code, sf.failure_message"""
STORE_FILE_TABLES = "store_files sf JOIN stores s ON s.number = sf.store JOIN files f ON f.number = sf.file"


def work_of(columns: Row) -> FileWork:
    failure = None if columns[6] is None else IndexFailure(*columns[6:8])
    return Chunking(columns[0], columns[1], bool(columns[2])), Progress(*columns[3:6]), failure


def chunk_of(row: Row) -> StoredChunk:
    """Raises: DataError for a chunk whose text or words have changed."""
    chunk_id, file_id, position, start, end, tokens, checksum, text, words = row
    if checksum != chunk_checksum(text, words):
        raise sqlite3.DataError(f"chunk {chunk_id} has another checksum than when it was written")
    return StoredChunk(chunk_id, file_id, position, start, end, text, tokens, unpack_words(words))


def chunk_checksum(text: str, words: bytes) -> int:
    return zlib.crc32(words, zlib.crc32(text.encode()))


# Chunks are found by the file's range of ids, or by their own id: they have no index of files.
_CHUNK_TABLES = (
    "store_files sf JOIN files f ON f.number = sf.file JOIN chunks c ON c.store_file = sf.number "
    "AND c.id BETWEEN sf.first_chunk AND sf.first_chunk + sf.chunks - 1"
)
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
    waiting="""SELECT count(*) FROM store_files INDEXED BY store_files_waiting WHERE status = 'in_progress'
    AND store NOT IN (SELECT number FROM stores WHERE is_deleted)""",
    chunks=f"""SELECT c.id, f.id, c.position, c.start, c.end, c.tokens, c.checksum, c.text, c.words
    FROM {_CHUNK_TABLES}""",
    chunk_of=chunk_of,
    chunk_contents=f"""SELECT c.id, f.id, f.sha256, c.start, c.end, CAST(c.checksum AS TEXT)
    FROM {_CHUNK_TABLES}""",
    behind="c.id > sf.first_chunk + $3",
)

_CHECKSUM_BYTES = 4
_SURROGATE = re.compile("[\ud800-\udfff]")


def pack_pages(sizes: Sequence[PageSize]) -> str:
    return json.dumps([page.packed() for page in sizes])


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
