"""The tables in PostgreSQL, their migrations, and what the server must have."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg

from backend.errors import SetupError

SCHEMA = "financia"
_LOCK = 0x46494E4143_4941  # "FINACIA": of pg_advisory_xact_lock, so that one replica migrates at a time
_OLDEST_SERVER = 13
_HALFVEC_SINCE = (0, 7)  # of pgvector
_MIGRATE_S = 300.0  # replicas that start together wait for the one that migrates

# {vector} is halfvec or vector, with its schema. Texts that are compared are ordered by code point (COLLATE "C").
_TABLES = """
CREATE TABLE files (
    id text COLLATE "C" PRIMARY KEY, owner text COLLATE "C" NOT NULL, name text NOT NULL, size_bytes bigint NOT NULL,
    sha256 text NOT NULL, purpose text COLLATE "C" NOT NULL, created_s double precision NOT NULL,
    expires_s double precision
);
CREATE INDEX files_of_owner ON files (owner, created_s, id);
CREATE INDEX files_that_expire ON files (expires_s) WHERE expires_s IS NOT NULL;

CREATE TABLE file_parts (
    file_id text COLLATE "C" NOT NULL REFERENCES files ON DELETE CASCADE, number integer NOT NULL,
    content bytea NOT NULL, PRIMARY KEY (file_id, number)
);
ALTER TABLE file_parts ALTER content SET STORAGE EXTERNAL;  -- documents are compressed already

CREATE TABLE encoders (
    key integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, fingerprint text COLLATE "C" NOT NULL UNIQUE,
    name text NOT NULL, width integer NOT NULL
);

CREATE TABLE stores (
    key integer GENERATED ALWAYS AS IDENTITY UNIQUE, id text COLLATE "C" PRIMARY KEY, owner text COLLATE "C" NOT NULL,
    name text NOT NULL, description text NOT NULL, metadata text NOT NULL, created_s double precision NOT NULL,
    last_active_s double precision NOT NULL, expires_after_days integer, encoder integer REFERENCES encoders,
    next_encoder integer REFERENCES encoders,  -- of a re-embedding
    chunks bigint NOT NULL DEFAULT 0,  -- these three are kept by the trigger
    terms bigint NOT NULL DEFAULT 0, usage_bytes bigint NOT NULL DEFAULT 0
);
CREATE INDEX stores_of_owner ON stores (owner, created_s, id);

CREATE TABLE store_files (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    store_id text COLLATE "C" NOT NULL REFERENCES stores ON DELETE CASCADE,
    file_id text COLLATE "C" NOT NULL REFERENCES files ON DELETE CASCADE, name text NOT NULL,
    created_s double precision NOT NULL, status text COLLATE "C" NOT NULL, attributes text NOT NULL,
    found text NOT NULL DEFAULT '{{}}', chunking text NOT NULL, batch_id text COLLATE "C", progress text NOT NULL,
    failure text, pages text NOT NULL DEFAULT '[]', language text, chunks integer NOT NULL DEFAULT 0,
    terms bigint NOT NULL DEFAULT 0, usage_bytes bigint NOT NULL DEFAULT 0,
    first_chunk bigint,  -- the chunks of a file have ids in a row
    lengths bytea NOT NULL DEFAULT '',  -- terms of each chunk, uint32 little-endian
    indexed_at timestamptz, claim_token text COLLATE "C", claimed_until timestamptz,
    attempts integer NOT NULL DEFAULT 0, UNIQUE (store_id, file_id)
);
CREATE INDEX store_files_by_time ON store_files (store_id, created_s, file_id);
CREATE INDEX store_files_by_status ON store_files (store_id, status);
CREATE INDEX store_files_of_batch ON store_files (store_id, batch_id) WHERE batch_id IS NOT NULL;
CREATE INDEX store_files_of_file ON store_files (file_id);
CREATE INDEX store_files_waiting ON store_files (created_s, file_id) WHERE status = 'in_progress';

-- A row a value: the caller's, and found ones of names that the caller has not set. One of the last three is set.
CREATE TABLE attributes (
    store integer NOT NULL, file bigint NOT NULL REFERENCES store_files ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL, number double precision, text text COLLATE "C", flag boolean
);
CREATE INDEX attributes_of_file ON attributes (file);
CREATE INDEX attributes_of_store ON attributes (store, name, number);

CREATE TABLE chunks (
    id bigint PRIMARY KEY, file bigint NOT NULL REFERENCES store_files ON DELETE CASCADE, index integer NOT NULL,
    start_char integer NOT NULL, end_char integer NOT NULL, text text NOT NULL, tokens integer NOT NULL,
    words bytea NOT NULL, UNIQUE (file, index)
);

-- Where a term stands in one file: (index of the chunk, count) as uint32 and uint16, little-endian. No key and no
-- reference, which would double their size: only who holds the file's row writes them, and the trigger deletes them.
CREATE TABLE postings (
    file bigint NOT NULL, store integer NOT NULL, term text COLLATE "C" NOT NULL, places bytea NOT NULL
);
CREATE INDEX postings_of_term ON postings (store, term);
CREATE INDEX postings_of_file ON postings (file);

CREATE TABLE vectors (
    file bigint NOT NULL, chunk bigint NOT NULL, store integer NOT NULL, encoder integer NOT NULL REFERENCES encoders,
    vector {vector} NOT NULL, PRIMARY KEY (chunk, encoder)
);
ALTER TABLE vectors ALTER vector SET STORAGE MAIN;  -- in the row: a scan that fetches each from elsewhere is slow
CREATE INDEX vectors_of_store ON vectors (store, encoder);
CREATE INDEX vectors_of_file ON vectors (file);

CREATE FUNCTION count_indexed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE stores SET chunks = chunks + NEW.chunks, terms = terms + NEW.terms,
        usage_bytes = usage_bytes + NEW.usage_bytes
    WHERE id = NEW.store_id;
    RETURN NULL;
END $$;
CREATE TRIGGER count_indexed AFTER UPDATE OF chunks ON store_files
    FOR EACH ROW WHEN (OLD.chunks = 0) EXECUTE FUNCTION count_indexed();

CREATE FUNCTION forget_indexed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM postings WHERE file = OLD.key;
    DELETE FROM vectors WHERE file = OLD.key;
    UPDATE stores SET chunks = chunks - OLD.chunks, terms = terms - OLD.terms,
        usage_bytes = usage_bytes - OLD.usage_bytes,
        encoder = CASE WHEN chunks = OLD.chunks AND next_encoder IS NULL THEN NULL ELSE encoder END
    WHERE id = OLD.store_id;
    RETURN NULL;
END $$;
CREATE TRIGGER forget_indexed AFTER DELETE ON store_files
    FOR EACH ROW WHEN (OLD.chunks > 0) EXECUTE FUNCTION forget_indexed();
"""
_FAIRNESS = """
CREATE TABLE owners (owner text COLLATE "C" PRIMARY KEY, claimed_at timestamptz NOT NULL);
DROP INDEX store_files_waiting;
CREATE INDEX store_files_waiting ON store_files (store_id, created_s, key) WHERE status = 'in_progress';
CREATE INDEX store_files_claimed ON store_files (claimed_until) WHERE claimed_until IS NOT NULL;
"""
_TERMS_VERSION = """
-- `keywords.TERMS_VERSION` of a file's postings. An earlier release writes none: its files are made anew.
ALTER TABLE store_files ADD terms_version text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX store_files_by_terms ON store_files (store_id, terms_version) WHERE chunks > 0;
"""
_SHARED_STATE = """
-- Of backend/replicas: records with versions, their large values, the replicas that run, and turns.
CREATE TABLE shared_kinds (
    kind text COLLATE "C" PRIMARY KEY, mark text COLLATE "C" NOT NULL, revision bigint NOT NULL, floor bigint NOT NULL
);
CREATE TABLE shared_entries (
    kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, number bigint NOT NULL,
    id text COLLATE "C" NOT NULL, deleted boolean NOT NULL, header bytea NOT NULL, lost boolean NOT NULL DEFAULT false,
    PRIMARY KEY (kind, name)
);
CREATE TABLE shared_parts (
    kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, part text COLLATE "C" NOT NULL,
    content bytea NOT NULL, PRIMARY KEY (kind, name, part),
    FOREIGN KEY (kind, name) REFERENCES shared_entries ON DELETE CASCADE
);
ALTER TABLE shared_parts ALTER content SET STORAGE EXTERNAL;  -- compressed already
CREATE TABLE replicas (id text COLLATE "C" PRIMARY KEY, report bytea NOT NULL, until timestamptz NOT NULL);
CREATE TABLE turns (
    what text COLLATE "C" NOT NULL, replica text COLLATE "C" NOT NULL, until timestamptz NOT NULL,
    PRIMARY KEY (what, replica)
);
"""
_PENDING_DELETES = """
-- Files that left their store, or whose store is gone: chunks, vectors and postings of them are removed in slices.
CREATE TABLE pending_deletes (file bigint PRIMARY KEY);
ALTER TABLE chunks DROP CONSTRAINT chunks_file_fkey;
CREATE OR REPLACE FUNCTION forget_indexed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO pending_deletes VALUES (OLD.key);
    UPDATE stores SET chunks = chunks - OLD.chunks, terms = terms - OLD.terms,
        encoder = CASE WHEN chunks = OLD.chunks AND next_encoder IS NULL THEN NULL ELSE encoder END
    WHERE id = OLD.store_id;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION count_indexed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE stores SET chunks = chunks + NEW.chunks, terms = terms + NEW.terms WHERE id = NEW.store_id;
    RETURN NULL;
END $$;
ALTER TABLE stores DROP COLUMN usage_bytes;  -- the sum over its files, which attributes change
UPDATE store_files SET usage_bytes = usage_bytes + octet_length(attributes) + octet_length(found) - 4;

-- Where deleted rows stood in their lists (`ListKind`, owner or store).
CREATE TABLE past_positions (
    kind text COLLATE "C" NOT NULL, list text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
    created_s double precision NOT NULL, deleted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (kind, list, id)
);
CREATE INDEX past_positions_by_time ON past_positions (deleted_at);
CREATE FUNCTION remember_position() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_ARGV[0] = 'store_file' THEN
        INSERT INTO past_positions VALUES (TG_ARGV[0], OLD.store_id, OLD.file_id, OLD.created_s)
        ON CONFLICT (kind, list, id) DO UPDATE SET created_s = excluded.created_s, deleted_at = excluded.deleted_at;
    ELSE
        INSERT INTO past_positions VALUES (TG_ARGV[0], OLD.owner, OLD.id, OLD.created_s)
        ON CONFLICT (kind, list, id) DO UPDATE SET created_s = excluded.created_s, deleted_at = excluded.deleted_at;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER remember_file AFTER DELETE ON files FOR EACH ROW EXECUTE FUNCTION remember_position('file');
CREATE TRIGGER remember_store AFTER DELETE ON stores FOR EACH ROW EXECUTE FUNCTION remember_position('store');
CREATE TRIGGER remember_store_file AFTER DELETE ON store_files FOR EACH ROW
    EXECUTE FUNCTION remember_position('store_file');

CREATE TABLE batches (
    store_id text COLLATE "C" NOT NULL REFERENCES stores ON DELETE CASCADE, id text COLLATE "C" NOT NULL,
    PRIMARY KEY (store_id, id)
);
INSERT INTO batches SELECT DISTINCT store_id, batch_id FROM store_files WHERE batch_id IS NOT NULL;
"""
# What was read from an uploaded file, and what people made of it (`document_sql`): gone with its file.
_DOCUMENTS = """
CREATE TABLE documents (
    file_id text COLLATE "C" PRIMARY KEY REFERENCES files ON DELETE CASCADE, owner text COLLATE "C" NOT NULL,
    sha256 text NOT NULL, created_s double precision NOT NULL, state text COLLATE "C" NOT NULL,
    revision integer NOT NULL, updated_s double precision NOT NULL, usage_bytes bigint NOT NULL, changes bytea NOT NULL,
    answer bytea NOT NULL, content bytea NOT NULL
);
ALTER TABLE documents ALTER answer SET STORAGE EXTERNAL, ALTER content SET STORAGE EXTERNAL;  -- compressed already
CREATE INDEX documents_of_owner ON documents (owner, created_s, file_id);
CREATE INDEX documents_by_bytes ON documents (owner, sha256);

CREATE TABLE document_values (
    file_id text COLLATE "C" NOT NULL REFERENCES documents ON DELETE CASCADE, position integer NOT NULL,
    owner text COLLATE "C" NOT NULL, kind text COLLATE "C", supplier text COLLATE "C", supplier_tax_id text COLLATE "C",
    number text COLLATE "C", date text COLLATE "C", due_date text COLLATE "C", base double precision,
    total double precision, PRIMARY KEY (file_id, position)
);
CREATE INDEX document_values_alike ON document_values (owner, supplier_tax_id, number, total);

CREATE TABLE document_lessons (
    file_id text COLLATE "C" NOT NULL REFERENCES documents ON DELETE CASCADE, position integer NOT NULL,
    key text COLLATE "C" NOT NULL, owner text COLLATE "C" NOT NULL, lesson text NOT NULL,
    confirmed_s double precision NOT NULL, PRIMARY KEY (file_id, position, key)
);
CREATE INDEX document_lessons_by_key ON document_lessons (owner, key, confirmed_s);
"""
# By default a fifth of a table may be dead rows before the server sweeps them: of ten million postings two million,
# which hold words of deleted documents and slow searches down.
_SWEPT = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000"
_AUTOVACUUM = "\n".join(
    [f"ALTER TABLE {table} SET ({_SWEPT});" for table in ("attributes", "postings", "vectors")]
    + [
        f"ALTER TABLE {table} SET ({_SWEPT}, {_SWEPT.replace('auto', 'toast.auto')});"
        for table in ("chunks", "documents", "file_parts", "store_files")
    ]
)
_MIGRATIONS = (
    _TABLES,
    _FAIRNESS,
    _TERMS_VERSION,
    _SHARED_STATE,
    _PENDING_DELETES,
    _DOCUMENTS,
    _AUTOVACUUM,
)  # number n makes version n + 1; never change one that was released


@dataclass(frozen=True, slots=True)
class ServerFacts:
    version: str  # of PostgreSQL
    pgvector: str
    vector_type: str  # "halfvec", or "vector" where pgvector has none
    vector_schema: str  # of the extension


async def prepare(connection: asyncpg.Connection, where: str) -> ServerFacts:
    """Check the server, and bring the tables to this release's version.

    Args:
        where: the server's name in messages.

    Raises: SetupError for a server or a database that cannot be used as it is; errors of asyncpg.
    """
    version = connection.get_server_version()
    if version.major < _OLDEST_SERVER:
        raise SetupError(
            f"SEARCH_URL: {where} is PostgreSQL {version.major}; {_OLDEST_SERVER} is the oldest that "
            "can be used. Upgrade it"
        )
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise SetupError(
            f"SEARCH_URL: the database on {where} has the encoding {encoding}, which cannot hold every text; make one "
            "with CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
        )
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK, timeout=_MIGRATE_S)
        pgvector, vector_schema = await _extension(connection, where, version.major)
        vector_type = "halfvec" if _release(pgvector) >= _HALFVEC_SINCE else "vector"
        vector_type = await _migrate(connection, where, vector_type, vector_schema)
    release = (await connection.fetchval("SHOW server_version")).partition(" ")[0]  # without the distribution's words
    return ServerFacts(release, pgvector, vector_type, vector_schema)


async def _extension(connection: asyncpg.Connection, where: str, major: int) -> tuple[str, str]:
    """Version and schema of pgvector, created where it is not yet."""
    query = (
        "SELECT extversion, nspname::text FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace "
        "WHERE extname = 'vector'"
    )
    if row := await connection.fetchrow(query):
        return row[0], row[1]
    if not await connection.fetchval("SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'"):
        raise SetupError(
            f"SEARCH_URL: the server {where} has no extension vector (pgvector). Install it there (Debian and Ubuntu: "
            f"apt-get install postgresql-{major}-pgvector; containers: the image pgvector/pgvector:pg{major}), then "
            "start again"
        )
    try:
        async with connection.transaction():
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except asyncpg.InsufficientPrivilegeError as error:
        raise SetupError(
            f"SEARCH_URL: its user may not create the extension vector on {where}. Let a superuser run this in the "
            "database: CREATE EXTENSION vector"
        ) from error
    row = await connection.fetchrow(query)
    assert row is not None
    return row[0], row[1]


async def _migrate(connection: asyncpg.Connection, where: str, vector_type: str, vector_schema: str) -> str:
    """Run the migrations that are missing; the type of vectors that the tables have."""
    if not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", SCHEMA):
        try:
            async with connection.transaction():
                await connection.execute(f"CREATE SCHEMA {SCHEMA}")
        except asyncpg.InsufficientPrivilegeError as error:
            raise SetupError(
                f"SEARCH_URL: its user may not create the schema {SCHEMA} on {where}. Let the database's owner run: "
                f"CREATE SCHEMA {SCHEMA} AUTHORIZATION the_user"
            ) from error
    await connection.execute(f"SET LOCAL search_path TO {SCHEMA}")
    await connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL, vector_type text)")
    row = await connection.fetchrow("SELECT version, vector_type FROM schema_version")
    version, has_type = (row[0], row[1]) if row else (0, vector_type)
    if version > len(_MIGRATIONS):
        raise SetupError(
            f"SEARCH_URL: the schema {SCHEMA} on {where} has version {version}; this release knows {len(_MIGRATIONS)}. "
            "Run the later release that made it, or set another database"
        )
    quoted = '"' + vector_schema.replace('"', '""') + '".' + has_type
    for migration in _MIGRATIONS[version:]:
        await connection.execute(migration.format(vector=quoted), timeout=_MIGRATE_S)
    if row is None:
        insert = "INSERT INTO schema_version (version, vector_type) VALUES ($1, $2)"
        await connection.execute(insert, len(_MIGRATIONS), has_type)
    elif version < len(_MIGRATIONS):
        await connection.execute("UPDATE schema_version SET version = $1", len(_MIGRATIONS))
    return str(has_type)


def _release(version: str) -> tuple[int, int]:
    major, _, rest = version.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)
