"""``/v1/batches`` over jobs and files in memory, and jobs in Redis."""

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
import pytest

from backend.api.app import create_app
from backend.api.request_context import ApiOptions
from backend.api.routes.batches import BatchAnswer
from backend.batches import read_lines
from backend.callers.callers import ANYBODY, Quotas, owner_digest
from backend.errors import Unavailable
from backend.jobs.memory_store import MemoryJobStore
from backend.jobs.redis_store import RedisJobOptions, RedisJobStore
from backend.jobs.runner import JobPolicy
from backend.jobs.store import JobStore
from backend.lanes.work_queue import Priority
from backend.search.files import FileService
from tests.api.checks import problem, require_schema
from tests.api.fakes import FakeServices, batch_service, fake_services
from tests.fakes import ManualClock
from tests.jobs.replica import FakeProcess, JobReplica
from tests.jobs.samples import LIMITS, NOW_S, TTL_S
from tests.redis_server import RedisServer
from tests.search.samples import upload


def line(number: int, **fields: Any) -> dict[str, Any]:
    """A request of an input file."""
    body = {"input": f"Factura {number}", "encoding_format": "base64"}
    return {"custom_id": f"r{number}", "method": "POST", "url": "/v1/embeddings", "body": body, **fields}


@dataclass
class Desk:
    """An app over batches whose jobs run."""

    replica: JobReplica
    services: FakeServices
    clock: ManualClock
    client: httpx.AsyncClient
    owner: str = ANYBODY.owner

    async def file(self, lines: Sequence[dict[str, Any] | bytes]) -> str:
        rows = [row if isinstance(row, bytes) else orjson.dumps(row) for row in lines]
        files = {"file": ("in.jsonl", b"\n".join(rows))}
        answer = await self.client.post("/v1/files", files=files, data={"purpose": "batch"})
        return str(answer.json()["id"])

    async def post(self, file_id: str, **fields: Any) -> httpx.Response:
        asked = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h", **fields}
        return await self.client.post("/v1/batches", json=asked)

    async def begin(self, lines: Sequence[dict[str, Any] | bytes], **fields: Any) -> str:
        answer = await self.post(await self.file(lines), **fields)
        assert 200 == answer.status_code, answer.text
        require_schema(BatchAnswer, answer.json())
        return str(answer.json()["id"])

    async def get(self, batch_id: str) -> dict[str, Any]:
        answer = (await self.client.get(f"/v1/batches/{batch_id}")).json()
        require_schema(BatchAnswer, answer)
        return dict(answer)

    async def ended(self, batch_id: str) -> dict[str, Any]:
        """The batch, once its job has ended."""
        job = await self.replica.service.find(batch_id.removeprefix("batch_"), self.owner, "batch")
        async for _ in self.replica.service.events(job, ""):
            pass
        return await self.get(batch_id)

    async def reading(self, batch_id: str) -> dict[str, Any]:
        """The batch, once its requests are being answered."""
        job = await self.replica.service.find(batch_id.removeprefix("batch_"), self.owner, "batch")
        async with contextlib.aclosing(self.replica.service.events(job, "")) as events:
            async for event in events:
                if orjson.loads(event.data)["stage"] == "reading":
                    break
        return await self.get(batch_id)

    async def run(self, lines: Sequence[dict[str, Any] | bytes], **fields: Any) -> dict[str, Any]:
        return await self.ended(await self.begin(lines, **fields))

    async def rows(self, file_id: str) -> list[dict[str, Any]]:
        content = (await self.client.get(f"/v1/files/{file_id}/content")).content
        return [orjson.loads(row) for row in content.splitlines()]


@contextlib.asynccontextmanager
async def opened(
    store: JobStore, clock: ManualClock, output_bytes: int = 100_000, files: FileService | None = None, **options: Any
) -> AsyncIterator[Desk]:
    policy = JobPolicy(workers=1, limit_s=60, ttl_s=TTL_S)
    replica, services = JobReplica(store, FakeProcess(), policy, now=clock), fake_services()
    services.files = files or services.files
    vars(services).update(jobs=replica.service, batches=batch_service(services, replica.service, output_bytes))
    app = create_app(services, ApiOptions(**options))
    await replica.service.start()
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            yield Desk(replica, services, clock, client)
    finally:
        await replica.service.close()
        await services.storage.close()


def memory(clock: ManualClock) -> MemoryJobStore:
    return MemoryJobStore(10, 1_000_000, LIMITS, clock)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    clock = ManualClock(NOW_S)
    async with opened(memory(clock), clock) as desk:
        yield desk


@pytest.fixture(params=["memory", "redis"])
async def any_desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    clock = ManualClock(NOW_S)
    store: JobStore = memory(clock)
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        store = RedisJobStore(RedisJobOptions(server.url, lease_s=6.0), LIMITS, monotonic=clock)
    async with opened(store, clock) as desk:
        yield desk


async def test_a_batch_is_answered_into_files(any_desk: Desk) -> None:
    """Each request as POST /v1/embeddings answers it, errors apart; all in the order of the input."""
    lines = [*(line(number) for number in range(70)), line(70, body={"input": "a", "model": "nope"})]
    metadata = {"team": "ñ"}
    batch = await any_desk.run(lines, metadata=metadata)

    assert ("completed", None, metadata) == (batch["status"], batch["errors"], batch["metadata"])
    assert {"total": 71, "completed": 70, "failed": 1} == batch["request_counts"]
    rows = await any_desk.rows(batch["output_file_id"])
    assert [f"r{number}" for number in range(70)] == [row["custom_id"] for row in rows]
    response = rows[69]["response"]
    alone = (await any_desk.client.post("/v1/embeddings", json=lines[69]["body"])).json()
    assert (200, {**alone, "id": response["request_id"]}) == (response["status_code"], response["body"])
    assert batch["usage"]["total_tokens"] == sum(row["response"]["body"]["usage"]["total_tokens"] for row in rows)
    [refused] = await any_desk.rows(batch["error_file_id"])
    error = refused["response"]["body"]["error"]
    assert ("r70", 404, "model_not_found") == (refused["custom_id"], refused["response"]["status_code"], error["code"])


async def test_it_is_background_work(desk: Desk) -> None:
    """At the lowest priority, with a deadline."""
    await desk.run([line(1)])
    call = desk.services.embeddings.calls[-1][-1]

    assert Priority.BULK == call["urgency"].priority
    assert call["urgency"].deadline_s < float("inf")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([line(1), b"no json"], ("invalid_json_line", 2, None), id="no-json"),
        pytest.param([b"[]"], ("invalid_json_line", 1, None), id="no-object"),
        pytest.param([line(1), b"", line(1)], ("duplicate_custom_id", 3, "custom_id"), id="duplicate"),
        pytest.param([line(1, custom_id=7)], ("missing_required_parameter", 1, "custom_id"), id="no-name"),
        pytest.param([line(1, body=None)], ("missing_required_parameter", 1, "body"), id="no-body"),
        pytest.param([line(1, method="GET")], ("invalid_method", 1, "method"), id="method"),
        pytest.param([line(1, url="/v1/chat/completions")], ("invalid_url", 1, "url"), id="another-endpoint"),
        pytest.param([b" "], ("empty_file", None, None), id="empty"),
    ],
)
async def test_a_file_that_is_no_batch(
    desk: Desk, lines: list[Any], expected: tuple[str, int | None, str | None]
) -> None:
    """The batch fails before any request is answered, and says which line is wrong."""
    batch = await desk.run(lines)

    assert ("failed", None, None) == (batch["status"], batch["output_file_id"], batch["error_file_id"])
    [error] = batch["errors"]["data"]
    assert expected == (error["code"], error["line"], error["param"])
    assert batch["failed_at"]
    assert [] == desk.services.embeddings.calls


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        pytest.param(b"x\n" * 600_000, "too_many_requests", None, id="many"),
        pytest.param(b'{"a": "' + b"x" * 2**22 + b'"}', "line_too_long", 1, id="a-long-line"),
    ],
)
def test_hostile_files(content: bytes, code: str, line: int | None) -> None:
    """They are refused as they are read, without a list of all their lines."""
    tracemalloc.start()
    lines, [error] = read_lines(content, "/v1/embeddings")
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert ([], code, line) == (lines, error.code, error.line)
    assert 3e7 > most_bytes


async def test_of_many_wrong_lines_the_first_are_told(desk: Desk) -> None:
    errors = (await desk.run([b"x"] * 150))["errors"]["data"]

    assert (101, 100, "50 more lines are wrong, and are not listed") == (
        len(errors),
        errors[-2]["line"],
        errors[-1]["message"],
    )


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        pytest.param({"endpoint": "/v1/chat/completions"}, 422, ("endpoint", "/v1/embeddings only"), id="endpoint"),
        pytest.param({"completion_window": "1h"}, 422, ("completion_window", "24h"), id="window"),
        pytest.param({"input_file_id": "file-none"}, 404, ("file-none",), id="no-file"),
        pytest.param({"metadata": {"a": 1}}, 422, ("metadata",), id="metadata"),
    ],
)
async def test_what_is_refused(desk: Desk, fields: dict[str, Any], status: int, named: tuple[str, ...]) -> None:
    answer = await desk.post(await desk.file([line(1)]), **fields)

    problem(answer, status, None, *named)
    assert [] == (await desk.client.get("/v1/batches")).json()["data"]


async def test_cancel(any_desk: Desk) -> None:
    """The work ends at once and leaves no answers; a batch that has ended is not cancelled."""
    embeddings = any_desk.services.embeddings
    embeddings.gate = asyncio.Event()
    batch_id = await any_desk.begin([line(1)])
    await embeddings.entered.wait()
    running = await any_desk.reading(batch_id)
    cancelled = (await any_desk.client.post(f"/v1/batches/{batch_id}/cancel")).json()

    assert ("in_progress", {"total": 1, "completed": 0, "failed": 0}) == (running["status"], running["request_counts"])
    assert cancelled == await any_desk.get(batch_id)
    assert ("cancelled", None) == (cancelled["status"], cancelled["output_file_id"])
    assert cancelled["cancelled_at"]
    problem(await any_desk.client.post(f"/v1/batches/{batch_id}/cancel"), 409, "conflict", "is cancelled")
    embeddings.gate.set()
    assert "completed" == (await any_desk.run([line(2)]))["status"]
    assert 1 == embeddings.cancelled


async def test_what_outlives_the_job(desk: Desk) -> None:
    """A batch and its answers are known when its job is forgotten; one that was lost with its process has failed."""
    done = await desk.run([line(1)])
    desk.services.embeddings.error = Unavailable("no lane is left")
    failed_id = (await desk.run([line(2)]))["id"]
    failed = await desk.get(failed_id)
    desk.clock.advance(TTL_S + 1)

    assert ("failed", "unavailable") == (failed["status"], failed["errors"]["data"][0]["code"])
    assert done == await desk.get(done["id"])
    lost = await desk.get(failed_id)
    assert ("failed", "job_lost") == (lost["status"], lost["errors"]["data"][0]["code"])


async def test_a_batch_that_is_late_has_expired() -> None:
    clock = ManualClock(NOW_S)
    async with opened(memory(clock), clock) as desk:
        desk.services.embeddings.gate = asyncio.Event()
        desk.replica.service._policy = JobPolicy(workers=1, limit_s=0.05, ttl_s=TTL_S)
        batch = await desk.run([line(1)])

    assert ("expired", "deadline_exceeded") == (batch["status"], batch["errors"]["data"][0]["code"])
    assert batch["expired_at"]


async def test_more_answers_than_a_file_holds() -> None:
    """Is said with the setting, and what to ask for instead."""
    clock = ManualClock(NOW_S)
    async with opened(memory(clock), clock, output_bytes=500) as desk:
        batch = await desk.run([line(number) for number in range(5)])

    [error] = batch["errors"]["data"]
    assert ("failed", "too_large") == (batch["status"], error["code"])
    assert "500 (LIMIT_JOB_BYTES)" in error["message"]
    assert "base64" in error["message"]


async def test_lists_and_owners() -> None:
    """Each key sees its own, the newest first; no list of files shows them, and /v1/jobs does not; the quota holds."""
    clock, other = ManualClock(NOW_S), {"Authorization": "Bearer two"}
    async with opened(memory(clock), clock, api_keys=("one", "two"), quotas=Quotas(jobs=1)) as desk:
        desk.owner = owner_digest("one")
        desk.client.headers["Authorization"] = "Bearer one"
        first = (await desk.run([line(1)]))["id"]
        desk.services.embeddings.gate = asyncio.Event()
        second = await desk.begin([line(1)])
        over = await desk.post(await desk.file([line(2)]))
        listed = (await desk.client.get("/v1/batches")).json()
        part = (await desk.client.get("/v1/batches", params={"limit": 1, "after": second})).json()
        files = (await desk.client.get("/v1/files")).json()["data"]
        hidden = [
            await desk.client.get(f"/v1/batches/{first}", headers=other),
            await desk.client.post(f"/v1/batches/{second}/cancel", headers=other),
            await desk.client.get(f"/v1/jobs/{first.removeprefix('batch_')}"),
        ]
        none = (await desk.client.get("/v1/batches", headers=other)).json()

    problem(over, 429, "quota_exceeded", "QUOTA_JOBS")
    assert [second, first] == [batch["id"] for batch in listed["data"]]
    assert ([first], False) == ([batch["id"] for batch in part["data"]], part["has_more"])
    assert ["batch", "batch", "batch", "batch_output"] == sorted(file["purpose"] for file in files)
    assert [404, 404, 404] == [answer.status_code for answer in hidden]
    assert [] == none["data"]


async def test_another_replica_goes_on(redis_server: RedisServer) -> None:
    """Where one is stopped while a batch runs, another one with the same files answers it."""
    clock = ManualClock(NOW_S)
    stores = [RedisJobStore(RedisJobOptions(redis_server.url), LIMITS, monotonic=clock) for _ in range(2)]
    async with opened(stores[0], clock) as desk:
        desk.services.embeddings.gate = asyncio.Event()
        batch_id = await desk.begin([line(1)])
        await desk.services.embeddings.entered.wait()
        await desk.replica.service.drain()
        async with opened(stores[1], clock, files=desk.services.files) as other:
            batch = await other.ended(batch_id)

            assert ("completed", ["r1"]) == (
                batch["status"],
                [row["custom_id"] for row in await other.rows(batch["output_file_id"])],
            )


async def test_files_of_an_attempt_that_died(desk: Desk) -> None:
    """The next one keeps them, and ends the batch."""
    desk.services.embeddings.gate = asyncio.Event()
    batch_id = await desk.begin([line(1)])
    await desk.services.embeddings.entered.wait()
    file_id = f"file-{batch_id.removeprefix('batch_')[:24]}-output"
    await upload(desk.services.storage, file_id, b"{}", owner=desk.owner, purpose="batch_output")
    desk.services.embeddings.gate.set()
    batch = await desk.ended(batch_id)

    assert ("completed", file_id) == (batch["status"], batch["output_file_id"])
