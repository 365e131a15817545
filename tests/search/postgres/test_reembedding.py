"""What a change of the encoder costs the server."""

import json

from backend.search.postgres import indexing
from backend.search.postgres.storage import PostgresSearchStorage
from tests.search.postgres.server import PostgresServer
from tests.search.samples import OTHER_ENCODER, add_indexed
from tests.search.samples import vector_store as new_store


async def test_a_batch_reads_no_more_than_itself(
    storage: PostgresSearchStorage, postgres_server: PostgresServer, postgres_url: str
):
    """Of a store with many chunks in front of it and behind it: else re-embedding is quadratic."""
    await storage.add_store(new_store())
    for number in range(30):
        await add_indexed(storage, f"file-{number}", [f"text {index}" for index in range(100)])
    await storage.begin_reembedding("vs_1", OTHER_ENCODER)
    middle = await storage.unembedded("vs_1", OTHER_ENCODER, 1000)
    connection = await postgres_server.connect(postgres_url.rpartition("/")[2])
    await connection.execute("SET search_path TO financia")
    await connection.execute("ANALYZE")
    arguments = ("vs_1", OTHER_ENCODER.fingerprint, 50, middle[-1][0])
    (plan,) = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {indexing.UNEMBEDDED}", *arguments))
    await connection.close()

    assert 50 == len(await storage.unembedded("vs_1", OTHER_ENCODER, 50, behind=middle[-1][0]))
    assert _rows_of(plan["Plan"], "chunks") <= 400  # 2,000 are behind


def _rows_of(plan: dict, table: str) -> int:
    """Rows that scans of a table gave or threw away."""
    rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) if plan.get("Relation Name") == table else 0
    return rows * plan["Actual Loops"] + sum(_rows_of(part, table) for part in plan.get("Plans", ()))
