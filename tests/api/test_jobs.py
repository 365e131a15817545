"""``/v1/jobs`` over jobs in memory with scripted document processing."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
import pytest

from backend.api.app import create_app
from backend.api.http_protocol import GuardedProtocol
from backend.api.request_context import ApiOptions
from backend.api.routes import documents, jobs
from backend.api.sse import EventStream, OpenStreams, ServerEvent
from backend.callers.callers import ANYBODY
from backend.callers.event_watch import Watchers
from backend.errors import Unavailable, UnreadableFile
from backend.invoices.records import ExtractedFields, Field, FieldRow, Validity
from backend.jobs.memory_store import MemoryJobStore
from backend.jobs.runner import JobPolicy
from tests.api.asgi import Call
from tests.api.checks import problem
from tests.api.fakes import FakeCatalog, FakeServices, fake_model
from tests.browser.chrome import served
from tests.fakes import ManualClock
from tests.jobs.replica import TIMEOUT_S, FakeProcess, JobReplica
from tests.jobs.samples import LIMITS, NOW_S, TTL_S

PDF = b"%PDF-1.7 one"
FILE = {"file": ("factura.pdf", PDF, "application/pdf")}


@dataclass
class JobsApi:
    """An app over a job service."""

    replica: JobReplica
    services: Any
    app: Any
    client: httpx.AsyncClient
    clock: ManualClock

    async def ended(self, job_id: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """The job, once its events have ended."""
        await self.client.get(f"/v1/jobs/{job_id}/events", headers=headers)
        return (await self.client.get(f"/v1/jobs/{job_id}", headers=headers)).json()


class ServicesWithJobs(FakeServices):
    jobs: Any


@contextlib.asynccontextmanager
async def opened(process: FakeProcess, *, keys: tuple[str, ...] = (), jobs: int = 10) -> AsyncIterator[JobsApi]:
    """The API with running workers."""
    clock = ManualClock(NOW_S)
    replica = JobReplica(
        MemoryJobStore(jobs, 1_000_000, LIMITS, clock),
        process,
        JobPolicy(workers=1, limit_s=60, ttl_s=TTL_S),
        now=clock,
    )
    services = ServicesWithJobs(FakeCatalog(fake_model()), None, None, telemetry=replica.telemetry)  # type: ignore[arg-type]
    services.jobs = replica.service
    app = create_app(services, ApiOptions(api_keys=keys))  # type: ignore[arg-type]
    await replica.service.start()
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            yield JobsApi(replica, services, app, client, clock)
    finally:
        await replica.service.close()


@pytest.fixture
async def api() -> AsyncIterator[JobsApi]:
    """Processes two pages at once."""
    async with opened(FakeProcess()) as api:
        yield api


@pytest.fixture
async def slow() -> AsyncIterator[JobsApi]:
    """Processes one page, and the second when its gate opens."""
    async with opened(FakeProcess(stops_at=2)) as api:
        yield api


def events_of(text: str) -> list[tuple[str, str, Any]]:
    """Id, name and data of each event of a stream."""
    received = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in fields:
            received.append((fields["id"], fields["event"], orjson.loads(fields["data"])))
    return received


async def test_a_job_from_end_to_end(api):
    """Accepted with its location, then done with the document."""
    answer = await api.client.post("/v1/jobs", files=FILE, data={"features": "text", "deadline_s": "5"})
    job = answer.json()

    assert (202, f"/v1/jobs/{job['id']}") == (answer.status_code, answer.headers["location"])
    assert ("job", "queued", None) == (job["object"], job["status"], job["result"])
    assert {"stage": "queued", "pages_done": 0, "pages_total": None, "failed_pages": 0} == job["progress"]
    assert {"name": "factura.pdf", "bytes": len(PDF)} == {name: job["file"][name] for name in ("name", "bytes")}
    assert (NOW_S, None) == (job["created_at"], job["expires_at"])
    done = await api.ended(job["id"])
    assert done["ended_at"] + TTL_S == done["expires_at"]
    assert ("succeeded", None, 1) == (done["status"], done["error"], done["attempts"])
    assert ["page1", "page2"] == [page["text"] for page in done["result"]["pages"]]
    assert "page1\n\x0cpage2" == done["result"]["text"]
    lean = (await api.client.get(f"/v1/jobs/{job['id']}?result=false")).json()
    assert done | {"result": None} == lean
    assert frozenset({"text"}) == api.replica.process.calls[0][1].features


async def test_a_job_keeps_what_an_extractor_was(api):
    """A job is done with what was taught when it was sent."""
    example = {"input": "Placa: 1234 BCD", "values": {"plate": "1234 BCD"}}
    await api.client.put("/v1/extractors/notes", json={"examples": [example]})
    job = (await api.client.post("/v1/jobs", files=FILE, data={"extractor": "notes"})).json()
    await api.client.delete("/v1/extractors/notes")
    await api.ended(job["id"])

    options = api.replica.process.calls[0][1]
    assert {"type": "object", "properties": {"plate": {"type": "string"}}} == orjson.loads(options.schema)
    assert "Placa" in options.lessons


async def test_an_equal_request(api):
    """It is the same job; an Idempotency-Key belongs to one request."""
    first = await api.client.post("/v1/jobs", files=FILE, headers={"Idempotency-Key": "a"})
    again = await api.client.post("/v1/jobs", content=PDF, headers={"content-type": "application/pdf"})
    other = await api.client.post("/v1/jobs", files=FILE, data={"pages": "1"}, headers={"Idempotency-Key": "a"})

    assert first.json()["id"] == again.json()["id"]
    assert (200, "true") == (again.status_code, again.headers["idempotent-replay"])
    assert "idempotent-replay" not in first.headers
    problem(other, 422, "invalid_field", "Idempotency-Key")
    problem(await api.client.post("/v1/jobs", files=FILE, headers={"Idempotency-Key": "x" * 256}), 422, None, "255")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        pytest.param({"deadline_s": "0"}, "deadline_s", id="no-time"),
        pytest.param({"deadline_s": "nan"}, "deadline_s", id="no-number"),
        pytest.param({"features": "tea"}, "features", id="unknown-feature"),
        pytest.param({"format": "docx"}, "format", id="unknown-format"),
        *(pytest.param({"pages": pages}, "pages: ", id=pages) for pages in ("one", "0", "3-1", "\u0661")),
    ],
)
async def test_bad_fields(api, data, named):
    """Refused at once: pages that no file can have were accepted, and the job failed."""
    problem(await api.client.post("/v1/jobs", files=FILE, data=data), 422, "invalid_field", named)
    assert 0 == api.replica.service.report()["jobs"]


async def test_unknown_types(api):
    problem(await api.client.post("/v1/jobs", files={"file": b"MZ\x90\x00\x03\x00\x00\x00"}), 415, "wrong_media_type")


async def test_too_many_jobs():
    """The error has the numbers, the setting, and when to retry."""
    async with opened(FakeProcess(stops_at=1), jobs=1) as api:
        await api.client.post("/v1/jobs", files=FILE)
        answer = await api.client.post("/v1/jobs", files={"file": b"%PDF-1.7 two"})

    problem(answer, 429, "overloaded", "1 jobs", "LIMIT_JOBS")
    assert "30" == answer.headers["retry-after"]


async def test_events(api):
    """Progress, every page with its text, the fields, and the end with the job; ids to continue from."""
    total = Field("InvoiceTotal", "1284.50", "1.284,50", 0.9, "text", "beside the amount")
    lines = Field("Items", "", "", 0.9, "text", "", rows=(FieldRow((total,)),))
    api.replica.process.fields = ExtractedFields((total, lines), Validity(totals=True), "", kind="invoice")
    job = (await api.client.post("/v1/jobs", files=FILE)).json()
    answer = await api.client.get(f"/v1/jobs/{job['id']}/events")
    received = events_of(answer.text)

    assert "text/event-stream; charset=utf-8" == answer.headers["content-type"]
    assert ("no-store", "no") == (answer.headers["cache-control"], answer.headers["x-accel-buffering"])
    assert "content-length" not in answer.headers
    names = [name for _, name, _ in received]
    assert ("progress", 2, "end") == (names[0], names.count("page"), names[-1])
    page = next(data for _, name, data in received if name == "page")
    assert {
        "number": 1,
        "source": "ocr",
        "why": "scan",
        "engine": "fake",
        "confidence": None,
        "words": 1,
        "text": "page1",
        "rotation": 90,
        "width": 100,
        "height": 200,
    } == page
    [found] = [data for _, name, data in received if name == "fields"]
    assert ("invoice", ["InvoiceTotal"], True) == (found["kind"], list(found["fields"]), found["valid"]["totals"])
    assert ("1284.50", "beside_amount") == (
        found["fields"]["InvoiceTotal"]["value"],
        found["fields"]["InvoiceTotal"]["reasons"][0]["code"],
    )
    end = received[-1][2]
    assert (job["id"], "succeeded", "done") == (end["id"], end["status"], end["progress"]["stage"])
    assert "result" not in end
    after = await api.client.get(f"/v1/jobs/{job['id']}/events", headers={"Last-Event-ID": received[2][0]})
    assert received[3:] == events_of(after.text)
    nothing = await api.client.get(f"/v1/jobs/{job['id']}/events", headers={"Last-Event-ID": received[-1][0]})
    assert (204, b"") == (nothing.status_code, nothing.content)
    empty = await api.client.get(f"/v1/jobs/{job['id']}/events", headers={"Last-Event-ID": ""})
    assert received == events_of(empty.text)
    beyond = await api.client.get(f"/v1/jobs/{job['id']}/events", headers={"Last-Event-ID": f"{2**63 - 1}-0"})
    assert 204 == beyond.status_code


@pytest.mark.parametrize("event_id", ["x' OR 1", "-1", "1-2-3", "$", "99999999999999999999", f"1-{2**64}", "1" * 5000])
async def test_what_is_no_event_id_is_refused(api, event_id):
    """Redis would refuse it after the answer had begun; the header is named, and what it got."""
    job_id = (await api.client.post("/v1/jobs", files=FILE)).json()["id"]

    answer = await api.client.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": event_id})

    refused = problem(answer, 422, None, "Last-Event-ID", event_id[:40])
    assert "Last-Event-ID" == refused["error"]["param"]
    assert len(refused["detail"]) < 300


async def test_too_many_watchers_get_429(slow):
    """Before the answer begins, with a Retry-After; a place that is given up is free again."""
    slow.replica.service._watchers = Watchers(1)
    job_id = (await slow.client.post("/v1/jobs", files=FILE)).json()["id"]
    job = await slow.replica.service.find(job_id, ANYBODY.owner)
    watch = slow.replica.service.events(job, "")

    refused = await slow.client.get(f"/v1/jobs/{job_id}/events")
    problem(refused, 429, "overloaded", "2 clients", "limit of 1")
    assert "retry-after" in refused.headers
    await watch.aclose()
    slow.replica.process.gate.set()

    assert 200 == (await slow.client.get(f"/v1/jobs/{job_id}/events")).status_code
    assert 0 == slow.replica.service._watchers.count


async def first_page(api: JobsApi, job_id: str) -> None:
    async with contextlib.aclosing(api.replica.store.events(job_id, "")) as events:
        async for event in events:
            if event.kind == "page":
                return


async def test_cancel_and_forget(slow):
    """First the work ends and its pages stay; then the job is deleted."""
    job_id = (await slow.client.post("/v1/jobs", files=FILE)).json()["id"]
    await slow.replica.process.started.get()
    url = f"/v1/jobs/{job_id}"
    problem(await slow.client.get(f"{url}/result"), 404, "not_found", "running", "events")
    await first_page(slow, job_id)
    cancelled = await slow.client.delete(url)

    assert (200, "cancelled") == (cancelled.status_code, cancelled.json()["status"])
    job = await slow.ended(job_id)
    assert (True, ["page1"]) == (job["result"]["partial"], [page["text"] for page in job["result"]["pages"]])
    partial = await slow.client.get(f"{url}/result?format=text")
    assert ("true", "page1") == (partial.headers["x-partial"], partial.text.strip())
    assert 204 == (await slow.client.delete(url)).status_code
    for method, path in (("GET", url), ("DELETE", url), ("GET", f"{url}/events"), ("GET", f"{url}/result")):
        problem(await slow.client.request(method, path), 404, "not_found", "JOB_TTL_S")
    text = slow.replica.telemetry.render().decode()
    assert 'requests_total{route="/v1/jobs/{id}",status="204"} 1.0' in text


async def test_a_failure_has_the_error_of_a_request():
    async with opened(FakeProcess(pages=0, error=UnreadableFile("file: it is broken"))) as api:
        job_id = (await api.client.post("/v1/jobs", files=FILE)).json()["id"]
        job = await api.ended(job_id)
        result = await api.client.get(f"/v1/jobs/{job_id}/result")

    assert {
        "message": "file: it is broken",
        "type": "invalid_request_error",
        "code": "unreadable_file",
        "param": "file",
        "status": 422,
        "retryable": False,
    } == job["error"]
    problem(result, 404, "not_found", "failed")


@pytest.mark.parametrize(
    ("query", "accept", "media_type", "named"),
    [
        pytest.param("", "*/*", "application/json", '"pages"', id="json"),
        pytest.param("?format=text", "*/*", "text/plain; charset=utf-8", "page1", id="text"),
        pytest.param("", "text/markdown", "text/markdown; charset=utf-8", "page2", id="accepted"),
        pytest.param("?format=hocr", "*/*", "text/vnd.hocr+html; charset=utf-8", "ocrx_word", id="hocr"),
        pytest.param("?format=alto", "*/*", "application/alto+xml", "<alto", id="alto"),
        pytest.param("?format=pdf", "*/*", "application/pdf", "%PDF-1.7 searchable", id="pdf"),
    ],
)
async def test_results_in_every_format(api, query, accept, media_type, named):
    job_id = (await api.client.post("/v1/jobs", files=FILE)).json()["id"]
    await api.ended(job_id)
    answer = await api.client.get(f"/v1/jobs/{job_id}/result{query}", headers={"Accept": accept})

    assert (200, media_type) == (answer.status_code, answer.headers["content-type"])
    assert named in answer.text
    assert "x-partial" not in answer.headers


async def test_the_jobs_own_format(api):
    """The format of the submission is the default of the result."""
    job_id = (await api.client.post("/v1/jobs", files=FILE, data={"format": "markdown"})).json()["id"]
    await api.ended(job_id)

    assert "text/markdown" in (await api.client.get(f"/v1/jobs/{job_id}/result")).headers["content-type"]
    problem(await api.client.get(f"/v1/jobs/{job_id}/result?format=tea"), 422, None, "markdown")
    problem(await api.client.get(f"/v1/jobs/{job_id}/result", headers={"Accept": "audio/ogg"}), 406)


async def test_page_images(api):
    """Of the stored file, rotated as OCR found the page; a page that was not extracted is not rotated."""
    job_id = (await api.client.post("/v1/jobs", files=FILE)).json()["id"]
    await api.ended(job_id)
    answer = await api.client.get(f"/v1/jobs/{job_id}/pages/1?dpi=72")

    assert ("image/png", b"12 1 90 72 None") == (answer.headers["content-type"], answer.content)
    assert b"12 2 90 110 None" == (await api.client.get(f"/v1/jobs/{job_id}/pages/2")).content
    assert b"12 9 0 110 None" == (await api.client.get(f"/v1/jobs/{job_id}/pages/9")).content
    for path in ("0", "x", "-1", "1?dpi=9", "1?dpi=x", "1?dpi=nan", "1?dpi=301", "1?dpi=1_0", "1?dpi=%D9%A1%D9%A1"):
        problem(await api.client.get(f"/v1/jobs/{job_id}/pages/{path}"), 422, "invalid_field")


async def test_jobs_are_seen_with_their_own_key():
    """With another key they are not found, and nothing of them is in the error."""
    mine, yours = ({"Authorization": f"Bearer {key}"} for key in ("mine", "yours"))
    async with opened(FakeProcess(), keys=("mine", "yours")) as api:
        job_id = (await api.client.post("/v1/jobs", files=FILE, headers=mine)).json()["id"]
        await api.ended(job_id, mine)
        url = f"/v1/jobs/{job_id}"
        for path in (url, f"{url}/events", f"{url}/result", f"{url}/pages/1"):
            assert 200 == (await api.client.get(path, headers=mine)).status_code
            body = problem(await api.client.get(path, headers=yours), 404, "not_found")
            assert "factura" not in body["detail"]
        problem(await api.client.delete(url, headers=yours), 404)
        problem(await api.client.get(url), 401)
        assert job_id != (await api.client.post("/v1/jobs", files=FILE, headers=yours)).json()["id"]


async def test_expired(api):
    job_id = (await api.client.post("/v1/jobs", files=FILE)).json()["id"]
    await api.ended(job_id)
    api.clock.advance(TTL_S)

    problem(await api.client.get(f"/v1/jobs/{job_id}"), 404, "not_found", "100 s")


async def test_a_client_that_disconnects_from_events(slow):
    """Its stream ends, and the job goes on."""
    job_id = (await slow.client.post("/v1/jobs", files=FILE)).json()["id"]
    await slow.replica.process.started.get()
    call = Call(slow.services, f"/v1/jobs/{job_id}/events", method="GET", app=slow.app)
    before = asyncio.all_tasks()
    running = asyncio.create_task(call.run())
    await asyncio.sleep(0)
    assert not running.done()
    call.disconnect()
    await asyncio.wait_for(running, TIMEOUT_S)

    assert before - {running} >= asyncio.all_tasks() - {running}
    assert 0 == slow.replica.service._watchers.count
    assert "running" == (await slow.client.get(f"/v1/jobs/{job_id}")).json()["status"]


async def sent(stream: EventStream, gone: asyncio.Event, enough: int) -> list[bytes]:
    """The first ``enough`` parts that a stream sends."""
    parts: list[bytes] = []

    async def receive() -> dict[str, str]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        parts.append(message.get("body", b""))
        if len(parts) == enough:
            gone.set()

    await asyncio.wait_for(stream({}, receive, send), TIMEOUT_S)
    return parts


async def never() -> AsyncGenerator[ServerEvent]:
    await asyncio.Event().wait()
    yield ServerEvent("1", "never", b"")


async def test_heartbeats_of_a_silent_stream():
    """Proxies close idle connections."""
    parts = await sent(EventStream(never(), OpenStreams(), heartbeat_s=0.01), asyncio.Event(), 4)

    assert [b"", b"retry: 2000\n\n", b": still here\n\n", b": still here\n\n"] == parts[:4]


async def test_a_client_that_never_takes_the_beginning_gives_up_its_place():
    """Whatever becomes of the connection, ``on_end`` is called."""
    ended = asyncio.Event()

    async def refuse(_message: Any) -> None:
        raise OSError("gone")

    async def on_end() -> None:
        ended.set()

    stream = EventStream(never(), OpenStreams(), on_end=on_end)
    with pytest.raises(OSError, match="gone"):
        await stream({}, asyncio.Event().wait, refuse)  # type: ignore[arg-type]

    assert ended.is_set()


async def test_streams_end_with_the_process():
    """A server that stops does not wait for listeners; later streams end at once."""
    streams = OpenStreams()
    asyncio.get_running_loop().call_soon(streams.end)

    assert [b"", b"retry: 2000\n\n", b""] == await sent(EventStream(never(), streams), asyncio.Event(), 99)
    assert [b"", b"retry: 2000\n\n", b""] == await sent(EventStream(never(), streams), asyncio.Event(), 99)


async def test_a_lost_store_ends_the_stream():
    async def failing() -> AsyncGenerator[ServerEvent]:
        yield ServerEvent("1", "progress", b"{}")
        raise Unavailable("gone")

    parts = await sent(EventStream(failing(), OpenStreams()), asyncio.Event(), 99)

    assert [b"id: 1\nevent: progress\ndata: {}\n\n", b""] == parts[2:]


async def test_events_over_a_real_connection(slow):
    async with (
        served(slow.app, http=GuardedProtocol) as url,
        httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client,
    ):
        job_id = (await client.post("/v1/jobs", files=FILE)).json()["id"]
        names = []
        async with client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    names.append(line.removeprefix("event: "))
                    if names.count("page") == 1:
                        slow.replica.process.gate.set()  # the second page is not read before the first was seen
        async with client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
            whole = await answer.aread()

    assert (2, "end") == (names.count("page"), names[-1])
    assert names == [name for _, name, _ in events_of(whole.decode())]


async def test_a_long_job_is_written_on_a_thread(api, monkeypatch):
    """Its whole JSON: two hundred pages took the event loop 1.8 s."""
    threads = []
    write = jobs.document_pieces

    def recording_write(*arguments: Any) -> list[bytes]:
        threads.append(threading.current_thread())
        return write(*arguments)

    monkeypatch.setattr(documents, "INLINE_CHARS", -1)
    monkeypatch.setattr(jobs, "document_pieces", recording_write)
    job_id = (await api.client.post("/v1/jobs", files=FILE)).json()["id"]
    done = await api.ended(job_id)
    alone = (await api.client.get(f"/v1/jobs/{job_id}/result")).json()

    assert done["result"] == alone
    assert 2 == len(threads)
    assert threading.main_thread() not in threads
