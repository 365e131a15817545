"""What the soak finds in Redis when all traffic has ended."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from backend.replicas.records import new_id
from backend.replicas.redis_records import RedisRecords
from benchmarks.soak.cluster import Cluster
from benchmarks.soak.job_client import JobBook, Known
from benchmarks.soak.ledger import Ledger
from benchmarks.soak.rest import check_redis
from tests.redis_server import RedisServer

pytestmark = pytest.mark.redis


async def violations(server: RedisServer, book: JobBook, ledger: Ledger) -> list[str]:
    admin = Redis(unix_socket_path=str(server.socket))
    cluster = cast("Cluster", cast("Any", SimpleNamespace(admin=admin)))
    await check_redis(cluster, ledger, book)
    await admin.aclose()
    return [violation.rule for violation in ledger.all_violations()]


async def test_a_key_that_never_expires_is_left_over(redis_server: RedisServer):
    """But the queues' own."""
    redis_server.client.set("financia:job:known:file", "bytes")
    redis_server.client.set("financia:vector:1", "bytes", ex=600)
    redis_server.client.xadd("financia:jobs:queue", {"job": "known"})
    ledger = Ledger()

    assert ["left over"] == await violations(redis_server, JobBook(), ledger)
    assert "financia:job:known:file" in ledger.violations[0].what


async def test_of_what_replicas_share_old_versions_are_left_over(redis_server: RedisServer):
    """The one that holds stays; one that was replaced or deleted must be gone."""
    records = RedisRecords(redis_server.url, "financia")
    write = partial(records.write, "classifiers")
    await write("kept", new_id(), expected=None, header=b"{}", parts={"weights": b"1"})
    written = await write("deleted", old := new_id(), expected=None, header=b"{}", parts={"weights": b"1"})
    assert written.entry
    await write("deleted", new_id(), expected=written.entry.version, header=b"", parts=None)
    await records.close()

    assert [] == await violations(redis_server, JobBook(), Ledger())
    redis_server.client.hset(f"financia:shared:classifiers:deleted:{old}", "weights", "1")
    assert ["left over"] == await violations(redis_server, JobBook(), Ledger())


async def test_a_job_that_no_client_knows_was_doubled(redis_server: RedisServer):
    """Unless the answer to its submission was lost, or Redis forgot the key of one."""
    for job in ("known", "unknown"):
        redis_server.client.hset(f"financia:job:{job}", "v", "1")
        redis_server.client.expire(f"financia:job:{job}", 600)
    book = JobBook({"known": Known("known", "file:slip-0", 0.0)})
    emptied = Ledger()
    emptied.begin("redis_emptied", 0.0, "")

    assert ["doubled"] == await violations(redis_server, book, Ledger())
    assert [] == await violations(redis_server, book, emptied)
    book.lost_answers = 1
    assert [] == await violations(redis_server, book, Ledger())
