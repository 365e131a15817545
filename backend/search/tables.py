"""How rows of files, documents and vector stores become records, and how the tables of the two databases differ."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import orjson

from backend.errors import BadInput
from backend.search.document_sql import PackedDocument, Row
from backend.search.records import (
    Chunking,
    EncoderIdentity,
    IndexFailure,
    PageSize,
    Progress,
    Reembedding,
    StoredChunk,
    StoreFile,
    VectorStore,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableSql:
    """How the tables of a database differ from those of the other."""

    stores: str  # the query of stores s with their encoders e and coming ones n, up to WHERE, for `vector_store`
    store_files: str  # the same of files of stores sf, for `store_file`
    work_of: Callable[[Row], FileWork]  # from the columns that are the database's own, the last ones of `store_files`
    key: str  # the column of the number of a store, an encoder and a file of a store in their tables
    of_store: str  # whether a row of `store_files` or `batches` is of the store with the id $1
    of_file: str  # whether a row of `store_files` is of the file with the id {}
    file_id: str  # the column of the file's id in `store_files`
    indexed: str  # the column of when a file was indexed
    no_claim: str  # assignments that end a claim
    usage: str  # the query of `StoredUsage`, with {who} for whom it counts
    waiting: str  # the query of how many files are in progress
    chunks: str  # the query of chunks c with their files of stores, up to WHERE, for ``chunk_of``
    chunk_of: Callable[[Row], StoredChunk]  # of a row of ``chunks``; raises what `Driver.unpack` knows
    chunk_contents: str  # the same query of `ChunkContent`
    behind: str  # whether a chunk stands behind the $3rd of its file, from 0
    more_of_store: tuple[str, str] = ("", "")  # further columns of a new row of `stores`, and their values
    lock_row: str = ""  # behind a query of a row that others wait for until the transaction ends
    lock_owner: str = ""  # the query that keeps other transactions from adding something of the owner $1


class Rows(Protocol):
    """A transaction."""

    async def fetch(self, query: str, /, *arguments: Any) -> Sequence[Row]: ...


class Driver(Rows, Protocol):
    """The database. Its `fetch` only reads."""

    async def change(self, query: str, /, *arguments: Any) -> Sequence[Row]:
        """`fetch` of one query that writes."""

    async def transact(self, work: Callable[[Rows], Awaitable[T]], /) -> T:
        """Run ``work``, which awaits nothing but its rows, in a transaction that writes, undone where it raises."""

    async def unpack(self, work: Callable[[], T], /) -> T:
        """Run ``work`` on a thread that reads. Raises: StorageCorrupt where it cannot unpack what was stored."""


def id_taken(kind: str, taken_id: str) -> BadInput:
    """What a storage raises where another row has the id, whoever owns it."""
    return BadInput(f"{kind} '{taken_id}': there is one with this id already; delete it first, or choose another id")


async def encoder_key(rows: Rows, encoder: EncoderIdentity, column: str = "key") -> int:
    """The number of an encoder, given on its first use."""
    select = f"SELECT {column} FROM encoders WHERE fingerprint = $1"
    insert = (
        f"INSERT INTO encoders (fingerprint, name, width) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING {column}"
    )
    found = await rows.fetch(select, encoder.fingerprint)
    found = found or await rows.fetch(insert, encoder.fingerprint, encoder.name, encoder.width)
    found = found or await rows.fetch(select, encoder.fingerprint)  # another replica has just inserted it
    return int(found[0][0])


async def write_found_by(rows: Rows, packed: PackedDocument) -> None:
    for query, arguments in packed.found_by():
        await rows.fetch(query, *arguments)


def to_json(value: object) -> str:
    return orjson.dumps(value).decode()


def page_sizes(packed: str) -> tuple[PageSize, ...]:
    return tuple(PageSize(*page) for page in orjson.loads(packed))


def vector_store(row: Row) -> VectorStore:
    """A row of `TableSql.stores`."""
    store_id, owner, name, created_s, last_active_s, description, metadata, expires_after_days = row[:8]
    by_status = orjson.loads(row[15] or "[]")  # status, files, bytes and chunks of each
    chunks = sum(one[3] for one in by_status)
    return VectorStore(
        store_id,
        owner,
        name,
        created_s,
        last_active_s,
        description,
        orjson.loads(metadata),
        expires_after_days,
        None if row[8] is None else EncoderIdentity(*row[8:11]),
        None if row[11] is None else Reembedding(EncoderIdentity(*row[11:14]), row[14], chunks),
        {one[0]: one[1] for one in by_status},
        sum(one[2] for one in by_status),
        chunks,
    )


FileWork = tuple[Chunking, Progress, IndexFailure | None]


def store_file(row: Row, work_of: Callable[[Row], FileWork]) -> StoreFile:
    """A row that begins with the columns of `TableSql.store_files`; those behind the language are for ``work_of``."""
    store_id, file_id, name, created_s, status, attributes, found = row[:7]
    batch_id, usage_bytes, chunks, pages, language = row[7:12]
    chunking, progress, failure = work_of(row[12:])
    return StoreFile(
        store_id,
        file_id,
        name,
        created_s,
        status,
        orjson.loads(attributes),
        {key: tuple(values) for key, values in orjson.loads(found).items()},
        chunking,
        batch_id,
        progress,
        failure,
        usage_bytes,
        chunks,
        page_sizes(pages),
        language,
    )
