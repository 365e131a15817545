"""What is left in Redis when a call to the store breaks off at any of its commands, and when Redis refuses."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from redis import exceptions
from redis.asyncio.connection import DefaultParser

from backend.errors import BadSettings, Unavailable
from backend.jobs import redis_connections
from backend.jobs.records import Job, PageRecord, Progress
from backend.jobs.redis_connections import RedisConnections
from backend.jobs.redis_scripts import ADD, SWAP
from backend.jobs.redis_store import RedisJobOptions, RedisJobStore
from backend.lanes.cache.redis_client import error_code, refuse_unfit
from tests.jobs.samples import CONTENT, LIMITS, TTL_S, job, moved, upload

pytestmark = pytest.mark.redis

LASTING = {b"financia:jobs:queue", b"financia:jobs:kept", b"financia:jobs:stops"}
RESULT = b"r" * len(CONTENT)
PAGE = PageRecord(1, b"packed", b'{"number":1}')


class Faults:
    """Stands between a store and its commands: fails the one of this index, or all from it on."""

    def __init__(self, redis: RedisConnections) -> None:
        self._call = redis.call
        redis.call = self.call
        self.clear()

    def clear(self) -> None:
        self.plan("", -1)

    def plan(self, mode: str, index: int, script: str = "") -> None:
        """Fail the command of this index, counted from now on, among those that run ``script`` where it is given."""
        self.mode, self.fails_at, self.script, self.count, self.happened = mode, index, script, 0, False

    async def call(self, *command: Any) -> Any:
        if self.script not in ("", command[1]):
            return await self._call(*command)
        index, self.count = self.count, self.count + 1
        if self.mode == "dead" and index >= self.fails_at >= 0:
            self.happened = True
            raise Unavailable("the process was killed")
        if index != self.fails_at:
            return await self._call(*command)
        self.happened = True
        if self.mode == "unanswered":
            await self._call(*command)
        raise Unavailable("Redis does not answer")


@dataclass(frozen=True, slots=True)
class Operation:
    """A call to the store, what has to be there before it, and what holds once it was repeated without a fault."""

    prepare: Callable[[RedisJobStore], Awaitable[None]]
    call: Callable[[RedisJobStore], Awaitable[Any]]
    check: Callable[[RedisJobStore], Awaitable[None]]


async def nothing(_store: RedisJobStore) -> None:
    """Needs nothing."""


async def add(store: RedisJobStore, key: str | None = None, *, pinned: bool = False, job_id: str = "one") -> Job:
    with contextlib.closing(upload()) as stored:
        return await store.add(job(job_id, same="same"), stored, key, pinned=pinned)


async def start(store: RedisJobStore) -> None:
    await add(store)
    await store.swap(job(same="same"), running(), claim=await store.take())


def running() -> Job:
    return moved(job(same="same"), "start")


async def end(store: RedisJobStore) -> None:
    await start(store)
    await store.swap(running(), moved(running(), "succeed"), RESULT)


async def has_a_file(store: RedisJobStore) -> None:
    """One job, in the queue, whose file is complete."""
    for job_id in ("one", "two"):
        if await store.find(job_id) is not None:
            with contextlib.closing(await store.file(job_id)) as stored:
                assert CONTENT == stored.content()
    await store.renew_waiting()
    assert 1 == store.waiting()


async def has_a_result(store: RedisJobStore) -> None:
    done = await store.find("one")
    assert ("succeeded", RESULT) == (done.status, await store.result(done))


async def restored(store: RedisJobStore) -> None:
    await has_a_result(store)
    async with asyncio.timeout(10):
        assert ["progress", "end"] == [event.kind async for event in store.events("one", "")]


async def has_a_page(store: RedisJobStore) -> None:
    assert {1: b"packed"} == await store.pages("one")


async def is_gone(store: RedisJobStore) -> None:
    assert await store.find("one") is None
    assert "stale" == await store.swap(running(), moved(running(), "succeed"), RESULT)


OPERATIONS = {
    "add": Operation(nothing, lambda store: add(store, "key"), has_a_file),
    "add pinned": Operation(nothing, lambda store: add(store, pinned=True), has_a_file),
    "add again": Operation(add, lambda store: add(store, "key", job_id="two"), has_a_file),
    "start": Operation(add, lambda store: store.swap(job(same="same"), running()), has_a_file),
    "succeed": Operation(start, lambda store: store.swap(running(), moved(running(), "succeed"), RESULT), has_a_result),
    "requeue": Operation(start, lambda store: store.swap(running(), moved(running(), "requeue")), has_a_file),
    "restore": Operation(nothing, lambda store: store.restore(moved(running(), "succeed"), RESULT), restored),
    "progress": Operation(start, lambda store: store.write_progress(running(), Progress("reading"), PAGE), has_a_page),
    "revive": Operation(nothing, lambda store: store.write_progress(running(), Progress("reading"), PAGE), has_a_page),
    "forget": Operation(end, lambda store: store.forget(moved(running(), "succeed")), is_gone),
}


@pytest.fixture
async def store(redis_server):
    opened = RedisJobStore(RedisJobOptions(redis_server.url), LIMITS, monotonic=time.monotonic)
    await opened.start()
    yield opened
    await opened.close()


def check_keys(client) -> None:
    """Every key expires but the queues, and each of their entries has its job."""
    assert [] == [key for key in client.keys("*") if key not in LASTING and client.pttl(key) < 0]
    for queue in ("financia:jobs:queue", "financia:jobs:kept"):
        for entry, fields in client.xrange(queue):
            place = client.hmget(b"financia:job:" + fields[b"job"], "queue", "entry")
            assert [queue.encode(), entry] == place


@pytest.mark.parametrize("mode", ["unsent", "unanswered", "dead"])
@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_fault_at_any_command(store, redis_server, monkeypatch, name, mode):
    """Whichever command fails, all that is left expires or is a whole job; the same call again then succeeds."""
    monkeypatch.setattr(redis_connections, "CHUNK_BYTES", len(CONTENT) // 2)
    operation, faults = OPERATIONS[name], Faults(store._redis)
    for index in itertools.count():
        faults.clear()
        redis_server.client.flushall()
        store.queue._pinned_claims.clear()
        await store.queue.start()
        await operation.prepare(store)
        faults.plan(mode, index)
        with contextlib.suppress(Unavailable):
            await operation.call(store)
        happened = faults.happened
        faults.clear()
        check_keys(redis_server.client)
        await operation.call(store)
        check_keys(redis_server.client)
        await operation.check(store)
        if not happened:
            break

    assert index > 0


async def test_an_added_job_whose_answer_was_lost(store, redis_server):
    """The caller gets the job, and it keeps its file; one with a password is claimed by this process."""
    faults = Faults(store._redis)
    faults.plan("unanswered", 0, ADD)
    record = await add(store, pinned=True)

    assert faults.happened
    assert record == await store.find("one")
    assert "one" == (await asyncio.wait_for(store.take(), 10)).job_id
    assert 1 == redis_server.client.xlen("financia:jobs:kept")


async def test_a_redis_that_is_silent_while_the_job_is_added(redis_proxy, redis_server):
    """It executed what it did not answer: the caller gets 503, and with the same request the job, with its file."""
    store = RedisJobStore(RedisJobOptions(redis_proxy.url, settle_s=0.2), LIMITS, monotonic=time.monotonic)
    await store.start()
    call = store._redis.call

    async def fall_silent(*command: Any) -> Any:
        if command[1] == ADD:
            redis_proxy.open.clear()
        return await call(*command)

    store._redis.call = fall_silent
    with pytest.raises(Unavailable):
        await add(store)
    store._redis.call = call
    redis_proxy.open.set()

    assert "one" == (await add(store, job_id="two")).id
    check_keys(redis_server.client)
    await has_a_file(store)
    await store.close()


async def test_a_password_job_in_an_emptied_redis(store, redis_server):
    """The group that claims it is gone: it is claimed all the same, and leaves no dead entry."""
    redis_server.client.flushall()
    await add(store, pinned=True)

    assert "one" == (claim := await asyncio.wait_for(store.take(), 10)).job_id
    failed = moved(job(same="same"), "fail")
    assert "done" == await store.swap(job(same="same"), failed, claim=claim)
    await store.renew_waiting()
    assert 0 == store.waiting()


async def test_a_caller_that_leaves_while_the_job_is_added(store, redis_server):
    """Its job is there with its file, or not at all; never without."""
    faults = Faults(store._redis)
    reached, call = asyncio.Event(), faults.call

    async def stall(*command: Any) -> Any:
        reply = await call(*command)
        if command[1] == ADD:
            reached.set()
            await asyncio.Event().wait()
        return reply

    store._redis.call = stall
    adding = asyncio.create_task(add(store))
    await asyncio.wait_for(reached.wait(), 10)
    adding.cancel()
    await asyncio.gather(adding, return_exceptions=True)

    check_keys(redis_server.client)
    await has_a_file(store)


async def test_a_redis_that_fills_up_during_an_upload(store, redis_server):
    """Nothing of the file is left."""
    client = redis_server.client
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 4 * 2**20)
    with contextlib.closing(upload(b"%PDF-1.7 " + bytes(12 * 2**20))) as stored:
        with pytest.raises(Unavailable, match="maxmemory"):
            await store.add(job(), stored, None, pinned=False)

    assert LASTING >= set(client.keys("*"))
    client.config_set("maxmemory", 0)
    await add(store)


async def test_a_full_redis_drops_vectors_before_what_is_being_written(store, redis_server):
    """With `volatile-ttl`, as our Compose file sets it."""
    client = redis_server.client
    client.config_set("maxmemory-policy", "volatile-ttl")
    client.config_set("maxmemory-samples", 10)
    for index in range(160):
        client.set(f"financia:vector:{index}", bytes(100_000), px=int(TTL_S / 4 * 1000))
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 2**20)
    content = b"%PDF-1.7 " + bytes(6 * 2**20)
    with contextlib.closing(upload(content)) as stored:
        await store.add(job(), stored, None, pinned=False)

    with contextlib.closing(await store.file("one")) as kept:
        assert content == kept.content()
    assert client.info("stats")["evicted_keys"] > 20


async def test_the_files_of_one_keys_ended_jobs_have_a_share(start_redis):
    """A quarter of the memory: the files of many ended jobs pushed out other callers' results (`volatile-ttl`)."""
    server = start_redis("--maxmemory", "40mb", "--maxmemory-policy", "volatile-ttl")
    store = RedisJobStore(RedisJobOptions(server.url), LIMITS, monotonic=time.monotonic)
    await store.start()
    content, ends = b"%PDF-1.7 " + bytes(4 * 2**20), list[Any]()
    for name in ("one", "two", "three"):
        record = replace(job(name, owner="busy"), file=replace(job().file, size_bytes=len(content)))
        with contextlib.closing(upload(content)) as stored:
            await store.add(record, stored, None, pinned=False)
        ends.append(moved(record, "cancel"))
        await store.swap(record, ends[-1])
    kept = [server.client.exists(f"financia:job:{name}:file") for name in ("one", "two", "three")]
    for end in ends:
        await store.forget(end)
    left = int(server.client.get("financia:jobs:file-bytes:busy") or 0)
    await store.close()

    assert [0, 1, 1] == kept
    assert 0 == left


async def test_the_results_of_one_keys_ended_jobs_have_a_share(start_redis):
    """Another quarter, pages included, of which the oldest job goes whole; the newest stays however large it is."""
    server = start_redis("--maxmemory", "40mb", "--maxmemory-policy", "volatile-ttl")
    store = RedisJobStore(RedisJobOptions(server.url), LIMITS, monotonic=time.monotonic)
    await store.start()
    page, result, ends = PAGE._replace(packed=bytes(400_000)), bytes(3 * 2**20), dict[str, Job]()
    for index, name in enumerate(("other", "one", "two", "three", "large")):
        record = job(name, owner="busy" if index else "quiet", same=name)
        with contextlib.closing(upload()) as stored:
            await store.add(record, stored, "key" if name == "one" else None, pinned=False)
        running = moved(record, "start")
        await store.swap(record, running)
        await store.write_progress(running, Progress("reading", pages_done=1), page)
        ends[name] = moved(running, "succeed", now_s=time.time() + index)
        await store.swap(running, ends[name], result * 4 if name == "large" else result)
        if name == "three":
            kept = [await store.find(before) is not None for before in ends]
            left_of_one = server.client.keys("financia:job:one*") + server.client.keys("financia:jobs:*:one")
            listed = await store.ended("busy")
    assert [True, False, True, True] == kept
    assert [] == left_of_one
    assert ["two", "three"] == listed
    assert ["large"] == await store.ended("busy")
    assert result == await store.result(ends["other"])

    await store.forget(ends["large"])
    left = server.client.exists("financia:jobs:ended:busy", "financia:jobs:ended-bytes:busy")
    await store.close()
    assert 0 == left


async def test_a_file_that_redis_drops_before_its_job_is_written(store, redis_server):
    """The job is refused with the reason, not accepted without its file."""
    call = store._redis.call

    async def evict(*command: Any) -> Any:
        if command[1] == ADD:
            redis_server.client.delete("financia:job:one:file")
        return await call(*command)

    store._redis.call = evict
    with pytest.raises(Unavailable, match="for want of memory"):
        await add(store)
    assert LASTING >= set(redis_server.client.keys("*"))


async def test_a_file_that_redis_drops_while_it_is_read(store, redis_server, monkeypatch):
    """It is absent, not cut off."""
    monkeypatch.setattr(redis_connections, "CHUNK_BYTES", len(CONTENT) // 2)
    await add(store)
    call = store._redis.call

    async def evict(*command: Any) -> Any:
        if command[0] == "LINDEX" and command[2] == 2:
            redis_server.client.delete("financia:job:one:file")
        return await call(*command)

    store._redis.call = evict
    assert await store.file("one") is None


async def test_a_job_that_is_deleted_while_its_result_is_written(store, redis_server):
    """It stays deleted, and nothing of its result is left."""
    await start(store)
    cancelled = moved(running(), "cancel")
    call, done = store._redis.call, moved(running(), "succeed")

    async def delete_next(*command: Any) -> Any:
        reply = await call(*command)
        if command[0] == "RPUSHX":
            store._redis.call = call
            await store.swap(running(), cancelled)
            await store.forget(cancelled)
        return reply

    store._redis.call = delete_next
    assert "stale" == await store.swap(running(), done, RESULT)
    await store.restore(done, RESULT)
    assert await store.find("one") is None
    assert {b"financia:job:one"} == set(redis_server.client.keys("*")) - LASTING
    assert 0 < redis_server.client.ttl("financia:job:one") <= running().limit_s + 3600


async def test_a_repeated_change_writes_no_result_over_the_one_that_is_there(store, redis_server):
    """Its answer was lost, the result is complete: it keeps its time to live."""
    await start(store)
    done, faults = moved(running(), "succeed"), Faults(store._redis)
    faults.plan("unanswered", 1, SWAP)
    with pytest.raises(Unavailable):
        await store.swap(running(), done, RESULT)
    expires_ms = redis_server.client.pexpiretime("financia:job:one:result:2")

    assert "done" == await store.swap(running(), done, RESULT)
    assert round(done.expires_s * 1000) == expires_ms == redis_server.client.pexpiretime("financia:job:one:result:2")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "OOM"),
        ("OOM command not allowed when used memory > 'maxmemory'. script: 4f, on @user_script:5.", "OOM"),
        ("ERR Error running script (call to f_4f): @user_script:5: @user_script: 5: -OOM command not allowed", "OOM"),
        ("READONLY You can't write against a read only replica.", "READONLY"),
        ("NOREPLICAS Not enough good replicas to write.", "NOREPLICAS"),
        ("MISCONF Redis is configured to save RDB snapshots, but", "MISCONF"),
        ("BUSY Redis is busy running a script.", "BUSY"),
        ("CLUSTERDOWN Hash slot not served", "CLUSTERDOWN"),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "TRYAGAIN"),
        ("MASTERDOWN Link with MASTER is down", "MASTERDOWN"),
        ("NOPERM this user has no permissions to run the 'eval' command", "NOPERM"),
        ("CROSSSLOT Keys in request don't hash to the same slot", "CROSSSLOT"),
        ("MOVED 3999 127.0.0.1:6381", "MOVED"),
        ("NOGROUP No such key 'q' or consumer group 'workers'", "NOGROUP"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE"),
    ],
)
async def test_error_replies(line, code):
    """Those that pass say that Redis takes no jobs; the others are ours to handle."""
    error = DefaultParser.parse_error(line)
    redis = RedisConnections("redis://host", settle_s=1.0, block_s=1.0, readers=1)

    async def refuse(*_command: Any) -> Any:
        raise error

    redis._commands.ask = refuse
    ours = code in ("NOGROUP", "WRONGTYPE")
    with pytest.raises(exceptions.ResponseError if ours else Unavailable):
        await redis.call("PING")
    assert code == error_code(error)
    await redis.close()


async def test_loading_and_missing_replicas(store, redis_server):
    """Faults that a real Redis has for a while."""
    redis_server.client.config_set("min-replicas-to-write", 1)
    with pytest.raises(Unavailable, match="NOREPLICAS"):
        await add(store)
    redis_server.client.config_set("min-replicas-to-write", 0)
    await add(store)


@pytest.mark.parametrize(
    ("information", "warning"),
    [
        pytest.param("maxmemory_policy:allkeys-lru", "allkeys-lru", id="evicts-any-key"),
        pytest.param("maxmemory_policy:volatile-ttl", "", id="as-advised"),
    ],
)
async def test_what_a_server_says_of_itself(caplog, information, warning):
    """One that would drop the queue is reported at the start."""
    redis = RedisConnections("redis://host", settle_s=1.0, block_s=1.0, readers=1)

    async def answer(*_command: Any) -> Any:
        return f"# Server\r\n{information}\r\n".encode()

    redis._commands.ask = answer
    await redis.check_server()

    assert [warning] * bool(warning) == [record.fields["maxmemory_policy"] for record in caplog.records]
    await redis.close()


async def test_a_redis_cluster_is_refused(start_redis, unused_tcp_port):
    """At the start, and at each call where Redis was away at the start: never half of a job."""
    server = start_redis("--cluster-enabled", "yes", "--cluster-port", str(unused_tcp_port))
    server.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    store = RedisJobStore(RedisJobOptions(server.url), LIMITS, monotonic=time.monotonic)

    with pytest.raises(BadSettings, match=r"REDIS_URL.*part of a Redis Cluster.*cluster-enabled no"):
        await refuse_unfit(server.url)
    with pytest.raises(Unavailable, match="part of a Redis Cluster"):
        await add(store)
    await store.close()
