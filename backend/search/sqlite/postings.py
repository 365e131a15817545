"""Which chunks have which terms, in the database: the terms of new chunks, and segments of thousands of chunks.

A segment holds for each term the chunks that have it, and how often, in one row. The writer makes a segment of each
4,096 new chunks, and one of every eight such segments; what is removed leaves the segments
soon after, in slices (`rewrite_slice`). All of it can be made again from the texts, in slices (`begin_rebuild` to
`end_rebuild`).

In place of FTS5: its bm25() of eight terms over 100,000 chunks takes five times as long, its statistics are those of a
table, not of a store, and deleting from a table without contents needs SQLite 3.43.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.search.keywords import TERMS_VERSION, text_terms
from backend.search.sqlite.database import Repairable

LAST_CHARACTER = "\U0010ffff"
FRESH_CHUNKS = 4096  # counted when a search reads them first, some 0.2 s
FAN_IN = 8  # segments of new chunks that become one
_MAX_TIMES = 2**16 - 1
_REBUILDING = ""  # in place of a version
_CHECKSUM_BYTES = 4
_LAST_CHUNK = 2**62
_RECORD = np.dtype([("chunk", "<u4"), ("times", "<u2")])  # ids over 2**32 raise OverflowError


class BrokenPostings(Repairable):
    """Can be made anew from the texts."""


class Postings(NamedTuple):
    """The chunks that have a term, ascending, and how often."""

    chunk_ids: NDArray[np.int64]
    times: NDArray[np.int64]


class Segment(NamedTuple):
    number: int
    level: int
    first: int  # chunk ids
    last: int


def segments_of(connection: sqlite3.Connection, store: int) -> list[Segment]:
    rows = connection.execute(
        "SELECT number, level, first_chunk, last_chunk FROM segments WHERE store = ? ORDER BY first_chunk", (store,)
    )
    return [Segment(*row) for row in rows]


def read_term(connection: sqlite3.Connection, segment: Segment, term: str) -> Iterator[Postings]:
    for (packed,) in connection.execute(
        "SELECT packed FROM postings WHERE segment = ? AND term = ?", (segment.number, term)
    ):
        yield _unpacked(packed)


def read_prefix(connection: sqlite3.Connection, segment: Segment, prefix: str) -> Iterator[Postings]:
    for (packed,) in connection.execute(
        "SELECT packed FROM postings WHERE segment = ? AND term >= ? AND term < ?",
        (segment.number, prefix, prefix + LAST_CHARACTER),
    ):
        yield _unpacked(packed)


def fresh_terms(
    connection: sqlite3.Connection, store: int, behind: int, last: int = _LAST_CHUNK
) -> Iterator[tuple[int, Mapping[str, int]]]:
    """Chunks behind an id that no segment has, and that are not being removed, with how often they have each term."""
    rows = connection.execute(
        "SELECT chunk, terms FROM fresh_terms f WHERE store = ?1 AND chunk > ?2 AND chunk <= ?3 AND NOT EXISTS "
        "(SELECT 1 FROM pending_deletes l WHERE l.store = ?1 AND f.chunk BETWEEN l.first_chunk AND l.last_chunk) "
        "ORDER BY chunk",
        (store, behind, last),
    )
    for chunk, terms in rows:
        yield chunk, counted(terms)


def fresh_chunks(connection: sqlite3.Connection, store: int) -> int:
    (chunks,) = connection.execute("SELECT count(*) FROM fresh_terms WHERE store = ?", (store,)).fetchone()
    return int(chunks)


def counted(terms: str) -> Mapping[str, int]:
    return Counter(terms.split("\n")) if terms else {}


def merge_added(connection: sqlite3.Connection, store: int) -> bool:
    """Make a segment that is due after chunks were added; whether another one may be due. Raises: DataError."""
    if fresh_chunks(connection, store) < FRESH_CHUNKS or _version(connection, store) != TERMS_VERSION:
        return False
    _merge_fresh(connection, store)
    small = [segment for segment in segments_of(connection, store) if segment.level == 0]
    if len(small) >= FAN_IN:
        _merge(connection, store, small, level=1)
    _count_merge(connection, store)
    return True


def mark_stale(connection: sqlite3.Connection, store: int, first: int, last: int) -> None:
    """Have the segments rewritten that hold terms of these chunks, which were removed."""
    connection.execute(
        "UPDATE segments SET stale = CASE WHEN stale < 2 THEN 1 ELSE 3 END "
        "WHERE store = ? AND first_chunk <= ? AND last_chunk >= ?",
        (store, last, first),
    )


def rewrite_slice(connection: sqlite3.Connection, terms: int) -> bool:
    """Take removed chunks out of some terms of a segment, in place; False where no segment has any."""
    row = connection.execute(
        "SELECT number, level, first_chunk, last_chunk, store, stale, next_term FROM segments WHERE stale > 0 "
        "ORDER BY number LIMIT 1"
    ).fetchone()
    if row is None:
        return False
    segment, (store, stale, begin) = Segment(*row[:4]), row[4:]
    stale = max(stale, 2)
    rows = connection.execute(
        "SELECT term, packed FROM postings WHERE segment = ? AND term > ? ORDER BY term LIMIT ?",
        (segment.number, begin, terms),
    ).fetchall()
    try:
        _drop_removed(connection, store, segment, rows)
    except BrokenPostings:  # the next search makes all of them anew
        connection.execute("UPDATE stores SET terms = ? WHERE number = ?", (_REBUILDING, store))
        rows = []
    state = (stale - 2, "") if len(rows) < terms else (stale, rows[-1][0])
    connection.execute("UPDATE segments SET stale = ?, next_term = ? WHERE number = ?", (*state, segment.number))
    return True


def check_version(connection: sqlite3.Connection, store: int) -> None:
    """Raises: BrokenPostings for terms of another release, whose words may have other stems."""
    version = _version(connection, store)
    if version != TERMS_VERSION:
        raise BrokenPostings(f"postings are of another release: {version}, not {TERMS_VERSION}")


def begin_rebuild(connection: sqlite3.Connection, store_id: str) -> int | None:
    """Mark the postings of a store as broken until all are made anew; the store's number, None where it is gone."""
    row = connection.execute(
        "UPDATE stores SET terms = ? WHERE id = ? RETURNING number", (_REBUILDING, store_id)
    ).fetchone()
    return row and int(row[0])


def texts_behind(
    connection: sqlite3.Connection, store: int, behind: int, limit: int
) -> list[tuple[int, str, str | None]]:
    """Some chunks of a store behind an id, in order: id, text, language."""
    return connection.execute(
        "SELECT c.id, c.text, sf.language FROM store_files sf CROSS JOIN chunks c ON c.id BETWEEN sf.first_chunk AND "
        "sf.first_chunk + sf.chunks - 1 WHERE sf.store = ?1 AND sf.chunks > 0 AND sf.first_chunk + sf.chunks > ?2 + 1 "
        "AND c.id > ?2 ORDER BY sf.first_chunk, c.id LIMIT ?3",
        (store, behind, limit),
    ).fetchall()


def terms_of(texts: Sequence[tuple[int, str, str | None]]) -> list[tuple[int, str]]:
    return [(chunk, "\n".join(text_terms(text, language))) for chunk, text, language in texts]


def add_terms(connection: sqlite3.Connection, store: int, terms: Sequence[tuple[int, str]]) -> None:
    """Add terms of chunks, those that have been removed meanwhile left out."""
    connection.executemany(
        "INSERT OR REPLACE INTO fresh_terms (store, chunk, terms) SELECT sf.store, c.id, ?3 FROM chunks c "
        "JOIN store_files sf ON sf.number = c.store_file WHERE c.id = ?2 AND sf.store = ?1",
        ((store, chunk, joined) for chunk, joined in terms),
    )


def end_rebuild(connection: sqlite3.Connection, store: int) -> None:
    connection.execute("UPDATE stores SET terms = ? WHERE number = ?", (TERMS_VERSION, store))
    _count_merge(connection, store)


def _version(connection: sqlite3.Connection, store: int) -> str:
    (version,) = connection.execute("SELECT terms FROM stores WHERE number = ?", (store,)).fetchone()
    return str(version)


def _count_merge(connection: sqlite3.Connection, store: int) -> None:
    connection.execute("UPDATE stores SET merges = merges + 1 WHERE number = ?", (store,))


def _merge_fresh(connection: sqlite3.Connection, store: int) -> None:
    """Make a segment of the first 4,096 new chunks, and of the rest of the file that the last of them is of."""
    ids = [
        chunk
        for (chunk,) in connection.execute(
            "SELECT chunk FROM fresh_terms WHERE store = ? ORDER BY chunk LIMIT ?", (store, FRESH_CHUNKS)
        )
    ]
    row = connection.execute(
        "SELECT first_chunk + chunks - 1 FROM store_files WHERE store = ? AND first_chunk <= ? AND chunks > 0 "
        "ORDER BY first_chunk DESC LIMIT 1",
        (store, ids[-1]),
    ).fetchone()
    last = max(ids[-1], 0 if row is None else row[0])
    terms: dict[str, list[tuple[int, int]]] = {}
    for chunk, counts in fresh_terms(connection, store, ids[0] - 1, last):
        for term, times in counts.items():
            terms.setdefault(term, []).append((chunk, min(times, _MAX_TIMES)))
    rows = ((term, np.array(terms[term], _RECORD).tobytes()) for term in sorted(terms))
    _write(connection, store, Segment(0, 0, ids[0], last), rows)
    connection.execute("DELETE FROM fresh_terms WHERE store = ? AND chunk <= ?", (store, last))


def _merge(connection: sqlite3.Connection, store: int, parts: Sequence[Segment], level: int) -> None:
    """Join segments that follow one another. Their records are absolute, so that bytes are all that is joined."""
    names = ", ".join(str(part.number) for part in parts)
    rows = connection.execute(f"SELECT term, packed FROM postings WHERE segment IN ({names}) ORDER BY term, segment")
    joined = (
        (term, b"".join(_checked(packed) for _, packed in group)) for term, group in groupby(rows, key=itemgetter(0))
    )
    _write(connection, store, Segment(0, level, parts[0].first, parts[-1].last), joined)
    (is_stale,) = connection.execute(f"SELECT max(stale) > 0 FROM segments WHERE number IN ({names})").fetchone()
    if is_stale:
        mark_stale(connection, store, parts[0].first, parts[-1].last)
    connection.execute(f"DELETE FROM postings WHERE segment IN ({names})")
    connection.execute(f"DELETE FROM segments WHERE number IN ({names})")


def _drop_removed(
    connection: sqlite3.Connection, store: int, segment: Segment, rows: Sequence[tuple[str, bytes]]
) -> None:
    """Write these terms of a segment without the chunks that were removed. Raises: BrokenPostings."""
    ranges = connection.execute(
        "SELECT first_chunk, first_chunk + chunks FROM store_files WHERE store = ? AND chunks > 0 "
        "AND first_chunk <= ? AND first_chunk + chunks > ? ORDER BY first_chunk",
        (store, segment.last, segment.first),
    ).fetchall()
    firsts, ends = np.array(ranges, np.int64).reshape(-1, 2).T
    for term, packed in rows:
        records = np.frombuffer(_checked(packed), _RECORD)
        file = np.searchsorted(firsts, records["chunk"], side="right") - 1
        is_kept = (file >= 0) & (records["chunk"] < ends[file]) if len(firsts) else np.zeros(len(records), np.bool_)
        if not is_kept.any():
            connection.execute("DELETE FROM postings WHERE segment = ? AND term = ?", (segment.number, term))
        elif not is_kept.all():
            connection.execute(
                "UPDATE postings SET packed = ? WHERE segment = ? AND term = ?",
                (_with_checksum(records[is_kept].tobytes()), segment.number, term),
            )


def _write(connection: sqlite3.Connection, store: int, segment: Segment, rows: Iterable[tuple[str, bytes]]) -> None:
    (number,) = connection.execute(
        "INSERT INTO segments (store, level, first_chunk, last_chunk) VALUES (?, ?, ?, ?) RETURNING number",
        (store, segment.level, segment.first, segment.last),
    ).fetchone()
    connection.executemany(
        "INSERT INTO postings (segment, term, packed) VALUES (?, ?, ?)",
        ((number, term, _with_checksum(records)) for term, records in rows if records),
    )


def _with_checksum(records: bytes) -> bytes:
    return records + zlib.crc32(records).to_bytes(_CHECKSUM_BYTES, "little")


def _checked(packed: bytes) -> bytes:
    """Records without their checksum. Raises: BrokenPostings."""
    records = packed[:-_CHECKSUM_BYTES]
    if len(records) % _RECORD.itemsize or zlib.crc32(records) != int.from_bytes(packed[-_CHECKSUM_BYTES:], "little"):
        raise BrokenPostings("postings have another checksum than when they were written")
    return records


def _unpacked(packed: bytes) -> Postings:
    records = np.frombuffer(_checked(packed), _RECORD)
    return Postings(records["chunk"].astype(np.int64), records["times"].astype(np.int64))
