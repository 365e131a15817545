"""What only this storage's rankings have to mind."""

import asyncio
import threading
from collections import Counter

import asyncpg
import numpy as np
import pytest

from backend.errors import TooLarge
from backend.files.stored_file import StoredFile
from backend.search.filters import Comparison
from backend.search.keywords import TERMS_VERSION
from backend.search.postgres.ranking import FileLengths, Postings, pack_lengths, pack_postings, rank
from backend.search.postgres.storage import PostgresSearchStorage
from backend.search.records import KeywordQuery
from tests.search.postgres.server import PostgresServer
from tests.search.samples import add_indexed, current, unit_vectors, upload
from tests.search.samples import vector_store as new_store


async def test_more_values_than_a_query_takes(storage: PostgresSearchStorage):
    """Refused with both numbers, the name counted; the next search goes on."""
    await storage.add_store(new_store())
    await add_indexed(storage, "file-1", ["alpha"], attributes={"n": 7.0})
    store = await current(storage)

    with pytest.raises(TooLarge, match="40001 is over the limit of 32757"):
        await storage.nearest(store, unit_vectors(1)[0], Comparison("n", "in", tuple(map(float, range(40_000)))), 10)
    where = Comparison("n", "in", tuple(map(float, range(30_000))))
    assert 1 == len(await storage.nearest(store, unit_vectors(1)[0], where, 10))
    assert 1 == len(await storage.matching(store, KeywordQuery(("alpha",)), where, 10))


async def test_terms_of_another_release_are_made_anew(
    storage: PostgresSearchStorage, postgres_server: PostgresServer, postgres_url: str
):
    """Its stems may be others: a search would miss words. Scores are as before, however many search."""
    await storage.add_store(new_store())
    for number in range(4):
        await add_indexed(storage, f"file-{number}", ["alpha beta", f"alpha alpha {number}"])
    query, store = KeywordQuery(("alpha",)), await current(storage)
    before = await storage.matching(store, query, None, 10)
    connection = await postgres_server.connect(postgres_url.rpartition("/")[2])
    await connection.execute("UPDATE financia.store_files SET terms_version = '0', terms = 7, lengths = ''")
    await connection.execute("UPDATE financia.stores SET terms = 4 * 7")
    await connection.execute("UPDATE financia.postings SET term = 'alphabet'")

    hits = await asyncio.gather(*(storage.matching(store, query, None, 10) for _ in range(4)))
    versions = await connection.fetch("SELECT DISTINCT terms_version FROM financia.store_files")
    await connection.close()

    assert [before] * 4 == hits
    assert 8 == len(before)
    assert [(TERMS_VERSION,)] == [tuple(row) for row in versions]


async def test_an_index_of_the_operators_makes_no_hit_disappear(
    storage: PostgresSearchStorage, postgres_server: PostgresServer, postgres_url: str
):
    """HNSW finds its nearest few before a filter looks at them. The exact scan is not done by one, filtered or not."""
    await storage.add_store(new_store())
    vectors = unit_vectors(600, seed=3)
    for number in range(6):
        part = slice(100 * number, 100 * number + 100)
        await add_indexed(
            storage, f"file-{number}", ["alpha"] * 100, vectors=vectors[part], attributes={"n": float(number)}
        )
    connection = await postgres_server.connect(postgres_url.rpartition("/")[2])
    (schema,) = await connection.fetchrow(
        "SELECT nspname::text FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector'"
    )
    index = "CREATE INDEX ON financia.vectors USING hnsw {} {}.halfvec_ip_ops)"
    with pytest.raises(asyncpg.PostgresError, match="does not have dimensions"):
        await connection.execute(index.format("(vector", schema))
    await connection.execute(index.format(f"((vector::{schema}.halfvec({vectors.shape[1]}))", schema))
    await connection.execute("ANALYZE financia.vectors")
    await connection.close()
    store = await current(storage)

    assert 600 == len(await storage.nearest(store, vectors[0], None, 1000))
    for number in range(6):
        hits = await storage.nearest(store, vectors[0], Comparison("n", "eq", float(number)), 1000)
        assert 100 == len(hits)
        assert 50 == len(await storage.nearest(store, vectors[0], Comparison("n", "eq", float(number)), 50))


async def test_bytes_are_hashed_beside_the_event_loop(storage: PostgresSearchStorage, monkeypatch: pytest.MonkeyPatch):
    """A file of 100 MB would hold every other request up for a quarter of a second."""
    content, threads = bytes(range(256)) * 20_000, set()
    await upload(storage, "file-1", content)
    write = StoredFile.write
    monkeypatch.setattr(StoredFile, "write", lambda self, part: (threads.add(threading.get_ident()), write(self, part)))
    copy = await storage.content("file-1")

    assert content == copy.content()
    copy.close()
    assert threads
    assert threading.get_ident() not in threads


def test_postings_of_files_that_are_gone_are_left_out():
    """A file that is deleted between the two queries has postings and no lengths."""
    terms = [Counter({"a": 2, "b": 1}), Counter({"b": 3})]
    places = pack_postings(terms)["b"]
    phrase = Postings(np.array([3, 5, 9]), np.array([2, 2, 2]), places * 3)
    files = FileLengths(
        np.array([3, 9]), np.array([300, 900]), np.array([2, 2]), np.array([True, True]), pack_lengths(terms) * 2
    )

    hits = rank([phrase], files, chunks=10, mean_length=3.0, limit=10)

    assert [301, 901, 300, 900] == [hit.chunk_id for hit in hits]
    assert hits[0].score == hits[1].score > hits[2].score == hits[3].score
