"""``/v1/documents`` with ``store=true``, and what is kept then, over the embedded storage."""

import asyncio
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import orjson
import pytest

from backend.api.request_context import ApiOptions
from backend.api.routes.stored_documents import (
    DeletedDocumentAnswer,
    DocumentListAnswer,
    ListedDocumentAnswer,
    StoredDocumentAnswer,
)
from backend.bootstrap.search import keep_document
from backend.callers.callers import ANYBODY, Caller, KeyRing, LiveKeys, key_digest, owner_digest
from backend.callers.event_watch import Watchers
from backend.documents.formats.plain_json import written_pages
from backend.documents.records import DocumentAnswer, DocumentOptions
from backend.documents.service import SupplierExamples
from backend.documents.text_fields import find_text_fields
from backend.errors import UnreadableFile
from backend.files.limits import FileLimits
from backend.files.pages import Box, Document, Page, RawWord, make_page
from backend.files.stored_file import StoredFile
from backend.jobs.memory_store import MemoryJobStore
from backend.lanes.inference import Urgency
from backend.lanes.text_work import TextWork
from backend.reasons import reasons_in
from backend.search.files import FileService
from backend.search.lessons import lesson_of
from backend.search.limits import SearchLimits
from backend.search.records import DocumentQuery, ListPage
from backend.search.stored_documents import StoredDocuments
from backend.telemetry import Telemetry
from tests.api.checks import problem, require_schema
from tests.api.conftest import connect
from tests.api.document_fakes import FakeDocuments
from tests.api.fakes import FakeServices
from tests.fakes import ManualClock
from tests.jobs.replica import FakeProcess, JobReplica
from tests.search.samples import INVOICE, stored, wire_answer, wire_document

PDF = b"%PDF-1.7 stands for a document"
HOUR = {"expires_after[seconds]": "3600"}
EXPIRY = {"expires_after[anchor]": "created_at", **HOUR}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_767_225_600.0)


@pytest.fixture
def services(services: FakeServices, clock: ManualClock) -> FakeServices:
    async def render(*_: Any, rotation: int, password: str | None, **__: Any) -> bytes:
        return b"\x89PNG turned by %d%s" % (rotation, (password or "").encode())

    files = FileService(services.storage, SearchLimits(), render_page=render, now=clock)
    services.stored_documents = StoredDocuments(services.storage, files, lesson_of=lesson_of)
    return services


async def _keep(client: httpx.AsyncClient, **fields: str) -> dict[str, Any]:
    data = {"store": "true", **fields}
    answer = await client.post("/v1/documents", files={"file": ("ñ.pdf", io.BytesIO(PDF))}, data=data)
    assert 200 == answer.status_code, answer.text
    kept: dict[str, Any] = answer.json()
    return kept


async def _kept_invoice(services: FakeServices, owner: str, **fields: str) -> str:
    """An invoice that was read before; its id."""
    with stored(PDF) as content:
        answer = wire_answer(wire_document(**{**INVOICE, **fields}))
        return (await services.stored_documents.add(owner, content, "a.pdf", answer)).id


@pytest.fixture
def owner() -> str:
    return ANYBODY.owner


async def test_kept_as_it_was_answered(client: httpx.AsyncClient):
    """The answer of an upload is given again later, but for vectors; its file and pages are there."""
    answer = await _keep(client, features="fields,vector")

    asked = await client.get(f"/v1/documents/{answer['id']}")
    original = await client.get(f"/v1/documents/{answer['id']}/content")
    page = await client.get(f"/v1/documents/{answer['id']}/pages/1.png")

    require_schema(StoredDocumentAnswer, asked.json())
    kept = {key: value for key, value in answer.items() if key not in ("vector", "documents", "timings")}
    assert kept.items() <= asked.json().items()
    assert {"text", "words"} <= asked.json()["pages"][0].keys()
    assert ("to_review", 1, "ñ.pdf", [], '"1"') == (
        *(asked.json()[key] for key in ("state", "revision", "filename", "changes")), asked.headers["ETag"]
    )  # fmt: skip
    assert (PDF, "application/octet-stream") == (original.content, original.headers["Content-Type"])
    assert (b"\x89PNG turned by 0", "image/png") == (page.content, page.headers["Content-Type"])


async def test_not_kept_unless_asked_to(client: httpx.AsyncClient):
    """Without store=true nothing is left behind, and the answer has no id."""
    answer = await client.post("/v1/documents", files={"file": io.BytesIO(PDF)}, data={"store": "false"})

    assert "id" not in answer.json()
    assert [] == (await client.get("/v1/documents")).json()["data"]


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        pytest.param("documents", {"store": "true", "format": "xlsx"}, "format=json, got xlsx", id="format"),
        pytest.param("jobs", {"store": "true", "format": "xlsx"}, "a document is stored with format=json", id="job"),
        pytest.param("documents", {"store": "perhaps"}, "store: ", id="store"),
        pytest.param("documents", EXPIRY, "send store=true", id="expiry"),
        pytest.param("documents", {"store": "true", **HOUR}, "send it together", id="half-an-expiry"),
    ],
)
async def test_refused_uploads(client: httpx.AsyncClient, path: str, fields: dict[str, str], named: str):
    """Before anything is read."""
    answer = await client.post(f"/v1/{path}", files={"file": io.BytesIO(PDF)}, data=fields)

    problem(answer, 422, "invalid_field", named)


async def test_expiry(client: httpx.AsyncClient, clock: ManualClock):
    """As of a file: it is gone by itself."""
    kept = await _keep(client, **EXPIRY)
    clock.advance(3600.0)

    assert clock() == kept["expires_at"]
    problem(await client.get(f"/v1/documents/{kept['id']}"), 404, "not_found")


async def test_pictures_of_an_encrypted_file(client: httpx.AsyncClient, services: FakeServices, owner: str):
    """The password comes in a header, with percent signs for what is not ASCII."""
    path = f"/v1/documents/{await _kept_invoice(services, owner)}"

    page = await client.get(f"{path}/pages/1.png", headers={"X-Document-Password": "contrase%C3%B1a"})

    assert page.content.endswith("contraseña".encode())


async def _send(client: httpx.AsyncClient, key: str, content: bytes = PDF) -> httpx.Response:
    file = {"file": ("a.pdf", io.BytesIO(content))}
    return await client.post("/v1/documents", files=file, data={"store": "true"}, headers={"Idempotency-Key": key})


async def test_sent_twice_with_one_key(client: httpx.AsyncClient):
    """Is one document, at the same time too, as it is corrected; another file is refused, another key is another."""
    first, second = await asyncio.gather(_send(client, "k1"), _send(client, "k1"))
    path = f"/v1/documents/{first.json()['id']}"
    await client.patch(f"{path}/fields", json={"fields": {"InvoiceId": "mine"}})
    third = await _send(client, "k1")

    assert first.json()["id"] == second.json()["id"] == third.json()["id"]
    assert ("true", '"2"', "mine") == (
        third.headers["Idempotent-Replay"], third.headers["ETag"], third.json()["fields"]["InvoiceId"]["value"],
    )  # fmt: skip
    problem(await _send(client, "k1", PDF + b" another"), 422, "invalid_field", "it came before with another file")
    assert 2 == len({(await _send(client, key)).json()["id"] for key in ("k1", "k2")})
    require_schema(StoredDocumentAnswer, third.json())
    await client.delete(path)
    assert 1 == (await _send(client, "k1")).json()["revision"]


@pytest.fixture
async def jobs(services: FakeServices) -> AsyncIterator[JobReplica]:
    """Jobs of a process that reads two pages."""
    store = MemoryJobStore(10, 1_000_000, FileLimits(), ManualClock(1_767_225_600.0))
    replica = JobReplica(store, FakeProcess())
    replica.service.keep_with(partial(keep_document, services.stored_documents))
    services.jobs = replica.service  # type: ignore[attr-defined]
    await replica.service.start()
    yield replica
    await replica.service.close()


async def _job(client: httpx.AsyncClient, headers: dict[str, str] | None = None, **fields: str) -> dict[str, Any]:
    """A job that has ended."""
    data = {"store": "true", "features": "fields", **fields}
    sent = await client.post("/v1/jobs", files={"file": ("a.pdf", io.BytesIO(PDF))}, data=data, headers=headers)
    path = f"/v1/jobs/{sent.json()['id']}"
    assert sent.json()["document_id"] is None or sent.status_code == 200
    await client.get(f"{path}/events")
    ended: dict[str, Any] = (await client.get(path)).json()
    return ended


@pytest.mark.usefixtures("jobs")
async def test_a_job_that_stores(client: httpx.AsyncClient, clock: ManualClock):
    """Its document is stored with all that corrections need, and deleted when it was asked to be."""
    job = await _job(client, **EXPIRY)

    document = (await client.get(f"/v1/documents/{job['document_id']}")).json()
    assert ("succeeded", "a.pdf", "to_review") == (job["status"], document["filename"], document["state"])
    assert ["page1", "page2"] == [page["words"][0]["text"] for page in document["pages"]]
    assert clock() + 3600 == document["expires_at"]
    require_schema(StoredDocumentAnswer, document)


@pytest.mark.usefixtures("jobs")
async def test_jobs_that_store_twice(client: httpx.AsyncClient):
    """Each request stores a document of its own, but for those with the same Idempotency-Key."""
    ids = [(await _job(client))["document_id"] for _ in range(2)]
    keyed = [(await _job(client, {"Idempotency-Key": "k"}))["document_id"] for _ in range(2)]

    assert (2, 1) == (len(set(ids)), len(set(keyed)))
    assert 3 == len((await client.get("/v1/documents")).json()["data"])


async def test_a_job_whose_process_died_after_storing(services: FakeServices, jobs: JobReplica, owner: str):
    """The next attempt finds the document that the first one stored."""
    process = FakeProcess()
    with stored(PDF) as content:
        answer = await process(content, DocumentOptions(), Urgency(), lambda _event: None, owner=owner)
        job = await jobs.submit(PDF, owner=owner, stores=True)
        await jobs.ended(job, owner)
        await keep_document(services.stored_documents, job, content, answer)

    listed, _ = await services.stored_documents.list_documents(owner, DocumentQuery(), ListPage())
    assert [f"file-{job.id}"] == [one.id for one in listed]


def _told(stream: str) -> list[tuple[str, str, dict[str, Any]]]:
    """The events of a stream: id, name, data."""
    blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in stream.split("\n\n") if block]
    return [(one.get("id", ""), one["event"], orjson.loads(one["data"])) for one in blocks if "event" in one]


async def test_events_of_a_document(client: httpx.AsyncClient, jobs: JobReplica, services: FakeServices, owner: str):
    """From its first page, over what people do to it, to its deletion; a client goes on where it broke."""
    jobs.process.stops_at = 2
    data = {"store": "true", "features": "fields"}
    sent = await client.post("/v1/jobs", files={"file": ("a.pdf", io.BytesIO(PDF))}, data=data)
    path = f"/v1/documents/file-{sent.json()['id']}"
    stream = asyncio.create_task(client.get(f"{path}/events"))
    await jobs.process.started.get()
    problem(await client.get(path), 404, "not_found")
    jobs.process.gate.set()
    await client.get(f"/v1/jobs/{sent.json()['id']}/events")
    await client.patch(f"{path}/fields", json={"fields": {"InvoiceId": "17"}})
    await client.post(f"{path}/confirm")
    later = asyncio.create_task(client.get(f"{path}/events", headers={"Last-Event-ID": "r2"}))
    await _watched(services, 2)
    await client.delete(path)

    told, after = _told((await stream).text), _told((await later).text)
    names = [name for _, name, _ in told]
    assert ["page", "page"] == [name for name in names if name == "page"]
    assert ("end", {"id": path.rpartition("/")[2], "object": "document.deleted", "deleted": True}) == told[-1][1:]
    assert {"state", "confirmed"} <= {"state", told[-2][2]["state"]}
    assert ["change", "state", "end"] == [name for _, name, _ in after]
    assert ("r3", "confirmed", 3) == (after[1][0], after[1][2]["state"], after[1][2]["revision"])
    assert {"action": "confirm", "document": 0}.items() <= after[0][2].items()
    problem(await client.get(f"{path}/events"), 404, "not_found", "was deleted")


async def test_formats_of_a_stored_document(client: httpx.AsyncClient, services: FakeServices, owner: str):
    """What was read of it, as of a job, and of a recording its subtitles; JSON is the document itself."""
    path = f"/v1/documents/{await _kept_invoice(services, owner)}"
    minute = {"number": 1, "start_s": 0.0, "end_s": 2.5, "text": "hola", "source": "speech", "why": "", "engine": "w"}
    word = {
        "text": "hola",
        "start_s": 0.5,
        "end_s": 1.0,
        "confidence": 0.9,
        "start": 0,
        "end": 4,
        "line": 0,
        "block": 0,
    }
    heard = {**wire_answer(wire_document()), "kind": "audio", "pages": [{**minute, "words": [word]}]}
    with stored(PDF) as content:
        recording = (await services.stored_documents.add(owner, content, "a.mp3", heard)).id

    text = await client.get(f"{path}/result?format=text")
    json = await client.get(f"{path}/result")
    subtitles = await client.get(f"/v1/documents/{recording}/result?format=srt")
    refused = await client.get(f"/v1/documents/{recording}/result?format=alto")

    pages = (await client.get(path)).json()["pages"]
    assert "\n\f".join(page["text"] for page in pages) == text.text
    assert ("text/plain; charset=utf-8", (await client.get(path)).json()) == (text.headers["Content-Type"], json.json())
    assert ["1", "00:00:00,500 --> 00:00:01,500", "hola"] == subtitles.text.split("\n")[:3]
    problem(refused, 422, "invalid_field", "which a recording has not")


async def _watched(services: FakeServices, count: int) -> None:
    """Return when so many clients wait for a document's changes."""
    async with asyncio.timeout(30):
        while len(services.stored_documents._waiting) < count:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)


async def test_events_of_a_file_that_cannot_be_read(client: httpx.AsyncClient, jobs: JobReplica):
    """The last one is the job with its error; after that nothing comes."""
    jobs.process.error = UnreadableFile("file: it is broken")
    job = (await client.post("/v1/jobs", files={"file": io.BytesIO(PDF)}, data={"store": "true"})).json()
    path = f"/v1/documents/file-{job['id']}/events"

    told = _told((await client.get(path)).text)
    after = await client.get(path, headers={"Last-Event-ID": told[-1][0]})

    assert ("end", "failed", "file: it is broken") == (
        told[-1][1], told[-1][2]["status"], told[-1][2]["error"]["message"]
    )  # fmt: skip
    assert 204 == after.status_code


@pytest.mark.parametrize("event_id", ["r", "r-1", "r1234567890", "x"])
async def test_what_is_no_event_id(client: httpx.AsyncClient, services: FakeServices, owner: str, event_id: str):
    path = f"/v1/documents/{await _kept_invoice(services, owner)}/events"

    problem(await client.get(path, headers={"Last-Event-ID": event_id}), 422, "invalid_field", "Last-Event-ID")


@pytest.mark.usefixtures("jobs")
async def test_events_are_bounded_a_caller_and_in_time(client: httpx.AsyncClient, services: FakeServices, owner: str):
    """A stream that ends gives its place to the next one; those of others are not found."""
    path = f"/v1/documents/{await _kept_invoice(services, owner)}/events"
    services.stored_documents._watchers = Watchers(1)
    stream = asyncio.create_task(client.get(path, headers={"X-Request-Timeout-S": "0.2"}))
    await _watched(services, 1)

    refused = await client.get(path)
    told = _told((await stream).text)

    problem(refused, 429, "overloaded", "2 clients", "limit of 1")
    assert [("r1", "state")] == [event[:2] for event in told]
    assert 200 == (await client.get(path, headers={"X-Request-Timeout-S": "0.2"})).status_code
    problem(await client.get("/v1/documents/file-0/events"), 404, "not_found")


async def test_corrected_then_confirmed(client: httpx.AsyncClient, services: FakeServices, owner: str):
    """Each answer has the revision, who changed what, and what does not fit."""
    path = f"/v1/documents/{await _kept_invoice(services, owner)}"

    wrong = await client.patch(f"{path}/fields", json={"fields": {"VendorTaxId": "B12345675"}, "revision": 1})
    right = await client.patch(
        f"{path}/fields",
        json={"fields": {"VendorTaxId": "B12345674", "kind": "receipt"}},
        headers={"If-Match": 'W/"2"'},
    )
    confirmed = await client.post(f"{path}/confirm?document=0", headers={"If-Match": '"3"'})
    reopened = await client.post(f"{path}/reopen")

    for answer in (wrong, right, confirmed, reopened):
        require_schema(ListedDocumentAnswer, answer.json())
    assert ["check_digits"] == [one["code"] for one in wrong.json()["problems"]]
    assert ([], "receipt", '"3"') == (
        right.json()["problems"], right.json()["documents"][0]["kind"], right.headers["ETag"]
    )  # fmt: skip
    assert ("confirmed", "anybody") == (confirmed.json()["state"], confirmed.json()["documents"][0]["confirmed_by"])
    assert ["correct", "correct", "confirm", "reopen"] == [one["action"] for one in reopened.json()["changes"]]
    require_schema(StoredDocumentAnswer, (await client.get(path)).json())


def _paper(number: int, name: str, total: str) -> Page:
    """A page of an invoice."""
    lines = (
        f"FACTURA {name}",
        "Fecha: 12/03/2026",
        "Base imponible 100,00 €",
        "IVA 21 % 21,00 €",
        f"Total factura {total} €",
    )
    words = [
        [
            RawWord(word, Box(60.0 + 60 * place, 60.0 + 30 * row, 110.0 + 60 * place, 72.0 + 30 * row), 1.0)
            for place, word in enumerate(line.split())
        ]
        for row, line in enumerate(lines)
    ]
    return make_page(
        [words], number=number, width=595.0, height=842.0, source="text_layer", why="sound", engine="pdfium",
        confidence=1.0,
    )  # fmt: skip


async def test_cut_by_hand(client: httpx.AsyncClient, services: FakeServices, owner: str):
    """A file that was read as one invoice is cut into two, each read from its pages as they are kept; then joined."""
    pages = (_paper(1, "F-1", "121,00"), _paper(2, "F-2", "121,00"))
    read = orjson.loads(b"".join(written_pages(Document("pdf", pages, 2, "ab"))))
    wire = {**wire_answer(wire_document((1, 2), **INVOICE)), "pages": read}
    with stored(PDF) as content:
        path = f"/v1/documents/{(await services.stored_documents.add(owner, content, 'a.pdf', wire)).id}"
    await client.patch(f"{path}/fields", json={"fields": {"InvoiceTotal": "1.00"}})

    body = {"documents": [{"pages": "1"}, {"pages": "2"}]}
    cut = await client.post(f"{path}/split", json=body, headers={"If-Match": '"2"'})
    late = await client.post(f"{path}/split", json={"documents": [{"pages": "1-2"}], "revision": 2})
    ledger = await client.get("/v1/documents/ledger")
    joined = await client.post(f"{path}/split", json={"documents": [{"pages": "1-2"}], "revision": 3})

    for answer in (cut, joined):
        require_schema(ListedDocumentAnswer, answer.json())
    documents = cut.json()["documents"]
    assert [("121.00", [1]), ("121.00", [2])] == [
        (one["fields"]["InvoiceTotal"]["value"], one["pages"]) for one in documents
    ]
    assert [1, 2] == [one["fields"]["InvoiceTotal"]["page"] for one in documents]
    assert [("121.00", [1]), ("121.00", [2])] == sorted((row["total"], row["pages"]) for row in ledger.json()["data"])
    problem(late, 409, "conflict", "anybody split documents")
    assert [[1, 2]] == [one["pages"] for one in joined.json()["documents"]]
    assert ["correct", "split", "split"] == [one["action"] for one in joined.json()["changes"]]
    assert [{"pages": [1], "of": None}, {"pages": [2], "of": None}] == joined.json()["changes"][1]["documents"]
    require_schema(StoredDocumentAnswer, (await client.get(path)).json())


async def test_a_code_stays_with_its_page(client: httpx.AsyncClient, services: FakeServices, owner: str):
    """What a tax QR code said of a page is said of the document that has this page afterwards, and of no other."""
    pages = (_paper(1, "F-1", "121,00"), _paper(2, "F-2", "121,00"))
    document = wire_document((1, 2), **INVOICE)
    why = "the VERI*FACTU code on page 2 says so"
    document["fields"]["InvoiceId"] |= {"value": "QR-2", "source": "qr", "why": why, "reasons": reasons_in(why)}
    wire = {**wire_answer(document), "pages": orjson.loads(b"".join(written_pages(Document("pdf", pages, 2, "ab"))))}
    with stored(PDF) as content:
        path = f"/v1/documents/{(await services.stored_documents.add(owner, content, 'a.pdf', wire)).id}"

    cut = await client.post(f"{path}/split", json={"documents": [{"pages": "1"}, {"pages": "2"}]})

    first, second = (one["fields"] for one in cut.json()["documents"])
    assert ("QR-2", "qr") == (second["InvoiceId"]["value"], second["InvoiceId"]["source"])
    assert "qr" not in {field["source"] for field in first.values()}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param({"documents": "1"}, "documents", id="no-list"),
        pytest.param({"documents": [{"pages": "1"}, {"pages": "1-2"}]}, "page 1 is in documents[0], too", id="twice"),
        pytest.param({"documents": [{"pages": "x"}]}, "is no page and no range", id="no-number"),
    ],
)
async def test_cuts_that_are_refused(
    client: httpx.AsyncClient, services: FakeServices, owner: str, body: dict[str, Any], said: str
):
    """Each says what is wrong with which pages."""
    path = f"/v1/documents/{await _kept_invoice(services, owner)}"

    problem(await client.post(f"{path}/split", json=body), 422, "invalid_field", said)


async def test_deleted_while_edited(client: httpx.AsyncClient, services: FakeServices, owner: str):
    """Every call says what happened; another delete, too."""
    path = f"/v1/documents/{await _kept_invoice(services, owner)}"
    deleted = await client.delete(path)

    require_schema(DeletedDocumentAnswer, deleted.json())
    body = {"fields": {"InvoiceId": "1"}}
    for call in (
        client.patch(f"{path}/fields", json=body),
        client.post(f"{path}/confirm"),
        client.get(path),
        client.get(f"{path}/content"),
        client.get(f"{path}/pages/1.png"),
        client.delete(path),
    ):
        problem(await call, 404, "not_found", "was deleted; what was changed in it is gone")


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        pytest.param({"fields": {"VendorName": "x" * 10_000}}, (413, "too_large", "10000 is over the"), id="long"),
        pytest.param({"fields": {"InvoiceDate": "1/2/26"}}, (422, "invalid_field", "a date such as 2026"), id="date"),
        pytest.param({"fields": {}}, (422, "invalid_field", "fields: is empty"), id="empty"),
        pytest.param({"field": {"Total": "1"}}, (422, "invalid_field", "did you mean 'fields'"), id="typo"),
        pytest.param({"fields": {"Total": "1"}, "document": 7}, (422, "invalid_field", "0 to 0, got 7"), id="document"),
        pytest.param({"fields": {"Total": "1"}, "revision": 9}, (409, "conflict", "there is no such"), id="revision"),
    ],
)  # fmt: skip
async def test_bad_corrections(
    client: httpx.AsyncClient, services: FakeServices, owner: str, body: Any, refused: tuple[int, str, str]
):
    """What is wrong, how much, the limit and what to send instead."""
    document_id = await _kept_invoice(services, owner)

    problem(await client.patch(f"/v1/documents/{document_id}/fields", json=body), *refused)


async def test_a_bad_etag(client: httpx.AsyncClient, services: FakeServices, owner: str):
    """Is refused with a good one; * is any."""
    path = f"/v1/documents/{await _kept_invoice(services, owner)}/confirm"

    problem(await client.post(path, headers={"If-Match": '"abc"'}), 422, "invalid_field", "If-Match: must be")
    assert 200 == (await client.post(path, headers={"If-Match": "*"})).status_code


async def test_list(client: httpx.AsyncClient, services: FakeServices, owner: str, clock: ManualClock):
    """Filtered, sorted and page by page, without pages, words and lines."""
    for number, total in enumerate(("30.00", "10.00", "20.00")):
        clock.advance(1.0)
        await _kept_invoice(services, owner, InvoiceId=f"F{number}", InvoiceTotal=total)
    line = {"fields": {"Items": [{"Description": "Tornillos"}]}}
    last = (await client.get("/v1/documents?limit=1")).json()["last_id"]
    assert 200 == (await client.patch(f"/v1/documents/{last}/fields", json=line)).status_code

    query = "/v1/documents?sort=total&order=asc&limit=1&total_from=15&supplier=aceros&kind=invoice&state=to_review"
    first = (await client.get(query)).json()
    second = (await client.get(f"{query}&after={first['last_id']}")).json()

    require_schema(DocumentListAnswer, first)
    totals = [one["documents"][0]["fields"]["InvoiceTotal"]["value"] for one in (first["data"] + second["data"])]
    assert (["20.00", "30.00"], True, False) == (totals, first["has_more"], second["has_more"])
    assert not {"pages", "text", "tables", "changes"} & first["data"][0].keys()
    assert "Items" not in first["data"][0]["documents"][0]["fields"]
    assert {"same_file"} == {one["code"] for one in first["data"][0]["problems"]}


@pytest.mark.parametrize("sort", ["created_at", "total", "supplier", "number"])
async def test_a_list_goes_on_behind_a_deleted_document(
    client: httpx.AsyncClient, services: FakeServices, owner: str, clock: ManualClock, sort: str
):
    """Read a page, delete it, read the next one: each document is seen once."""
    stored = []
    for number in range(3):
        clock.advance(1.0)
        fields = {"InvoiceId": f"F{number}", "InvoiceTotal": f"{number}.10", "VendorName": f"Año & Cía {number}"}
        stored.append(await _kept_invoice(services, owner, **fields))
    seen, query = [], {"sort": sort, "order": "asc", "limit": "1"}
    for _ in stored:
        page = (await client.get("/v1/documents", params=query)).json()
        seen += [one["id"] for one in page["data"]]
        assert 200 == (await client.delete(f"/v1/documents/{seen[-1]}")).status_code
        query["after"] = page["last_id"]

    assert (stored, False) == (seen, page["has_more"])


async def test_a_cursor_of_another_list(client: httpx.AsyncClient, services: FakeServices, owner: str):
    """Sorted in another way, or made up, it is refused."""
    await _kept_invoice(services, owner)
    cursor = (await client.get("/v1/documents?sort=total")).json()["last_id"]
    wrong = [("supplier", cursor), ("created_at", cursor), ("total", "file-1~"), ("total", "file-1~W10=")]

    for sort, after in wrong:
        answer = await client.get("/v1/documents", params={"sort": sort, "after": after})
        problem(answer, 422, "invalid_field", "after: is of a list that is sorted in another way")


async def test_empty_values_are_absent(client: httpx.AsyncClient, services: FakeServices, owner: str):
    """As a form of a page sends them."""
    path = f"/v1/documents/{await _kept_invoice(services, owner)}"
    listed = await client.get("/v1/documents?supplier=&date_from=&total_from=&state=&kind=&after=")

    assert 1 == len(listed.json()["data"])
    assert 200 == (await client.post(f"{path}/confirm?document=&revision=")).status_code


@pytest.mark.parametrize(
    ("query", "named"),
    [
        pytest.param("limit=501", "limit", id="limit"),
        pytest.param("sort=weight", "sort", id="sort"),
        pytest.param("state=lost", "state", id="state"),
        pytest.param("date_from=12/03/2026", "date_from", id="date"),
        pytest.param("total_from=nan", "total_from", id="amount"),
        pytest.param("after=file-x", "after: there is no file 'file-x'", id="cursor"),
        pytest.param("after=file-x&sort=total", "after: there is no document 'file-x'", id="cursor-of-a-field"),
    ],
)
async def test_bad_queries(client: httpx.AsyncClient, query: str, named: str):
    """Each names the parameter."""
    problem(await client.get(f"/v1/documents?{query}"), 422, "invalid_field", named)


async def test_keys(services: FakeServices):
    """Each sees its own, whatever id it guesses; a change has its key's name; one that may only read keeps nothing."""
    team, other = (Caller(name, owner_digest("name", name)) for name in ("team", "other"))
    callers = {"own": team, "read": replace(team, role="read"), "other": other}
    keys = LiveKeys(KeyRing({key_digest(key.encode()): caller for key, caller in callers.items()}))
    async with connect(services, ApiOptions(keys=keys)) as client:

        async def call(key: str, method: str, path: str, **more: Any) -> httpx.Response:
            return await client.request(method, path, headers={"Authorization": f"Bearer {key}"}, **more)

        upload: dict[str, Any] = {"files": {"file": ("a.pdf", PDF)}, "data": {"store": "true"}}
        kept = (await call("own", "POST", "/v1/documents", **upload)).json()
        path = f"/v1/documents/{kept['id']}"
        refused = await call("read", "POST", "/v1/documents", **upload)
        guessed = [
            await call("other", method, path + rest, **more)
            for method, rest, more in (
                ("GET", "", {}), ("GET", "/content", {}), ("GET", "/pages/1.png", {}), ("DELETE", "", {}),
                ("POST", "/confirm", {}), ("PATCH", "/fields", {"json": {"fields": {"Total": "1"}}}),
            )
        ]  # fmt: skip
        changed = await call("own", "PATCH", f"{path}/fields", json={"fields": {"Total": "1"}})
        lists = [(await call(key, "GET", "/v1/documents")).json()["data"] for key in ("other", "read")]

    problem(refused, 403, "forbidden", "role is read", "store=true")
    for answer in guessed:
        problem(answer, 404, "not_found", f"there is no document '{kept['id']}'")
    assert "team" == changed.json()["changes"][0]["by"]
    assert [[], [kept["id"]]] == [[one["id"] for one in listed] for listed in lists]


class _TextDocuments(FakeDocuments):
    """Reads texts as documents, with what their owner confirmed."""

    def __init__(self, stored: StoredDocuments) -> None:
        super().__init__()
        self.examples = SupplierExamples(TextWork(Telemetry()))
        self.examples.lessons_of = stored._storage.lessons

    async def process(
        self, upload: StoredFile, options: DocumentOptions, *_: Any, owner: str | None = None
    ) -> DocumentAnswer:
        assert owner is not None
        answer = await find_text_fields(TextWork(Telemetry()), upload.content().decode(), self.examples, owner)
        return replace(answer, options=options)


_PAPER = """Talleres Rovira, S.L.                      FACTURA
NIF B12345674                              Nº factura: TR-{number}
C/ Mayor 3, 08001 Barcelona                Fecha: {day}
                                           Recogida: {due}
Concepto             Cantidad    Horas     Importe
Revisión                   12        2      {base}
Base imponible {base} €
IVA 21 %       {tax} €
TOTAL          {total} €
"""
_MARCH = _PAPER.format(number=17, day="12/03/2026", due="11/04/2026", base="150,00", tax="31,50", total="181,50")
_JUNE = _PAPER.format(number=52, day="02/06/2026", due="20/06/2026", base="300,00", tax="63,00", total="363,00")


async def test_a_confirmed_correction_teaches_its_owner_alone(services: FakeServices):
    """The next invoice of the supplier is read as the last one was corrected, until that is deleted."""
    services.documents = _TextDocuments(services.stored_documents)
    own, other = Caller("own", owner="own"), Caller("other", owner="other")
    ring = KeyRing({key_digest(b"a"): own, key_digest(b"b"): other})

    async with connect(services, ApiOptions(keys=LiveKeys(ring))) as client:

        async def post(text: str, key: str = "a", **data: str) -> dict[str, Any]:
            files, headers = {"file": ("f.txt", text.encode())}, {"Authorization": f"Bearer {key}"}
            answer = await client.post("/v1/documents", files=files, data=data, headers=headers)
            assert 200 == answer.status_code, answer.text
            found: dict[str, Any] = answer.json()
            return found

        mine: dict[str, Any] = {"headers": {"Authorization": "Bearer a"}}
        document_id = (await post(_MARCH, store="true"))["id"]
        unread = (await post(_JUNE))["fields"]
        lines = [{"Description": "Revisión", "Quantity": "2", "Amount": "150.00"}]
        body = {"fields": {"DueDate": "2026-04-11", "Items": lines}}
        await client.patch(f"/v1/documents/{document_id}/fields", json=body, **mine)
        unconfirmed = (await post(_JUNE))["fields"]
        await client.post(f"/v1/documents/{document_id}/confirm", **mine)
        taught, others = (await post(_JUNE))["fields"], (await post(_JUNE, "b"))["fields"]
        asked = await client.post("/v1/fields", json={"input": _JUNE}, **mine)
        await client.delete(f"/v1/documents/{document_id}", **mine)
        forgotten = (await post(_JUNE))["fields"]

    assert "DueDate" not in unread
    assert unread == unconfirmed == others == forgotten
    assert ("2026-06-20", "as in 1 confirmed invoice") == (taught["DueDate"]["value"], taught["DueDate"]["why"])
    assert taught["DueDate"]["boxes"]
    quantities = [[line["Quantity"]["value"] for line in fields["Items"]["value"]] for fields in (unread, taught)]
    assert ([["12"], ["2"]], "as in 1 confirmed invoice") == (quantities, taught["Items"]["why"])
    assert "2026-06-20" == asked.json()["fields"]["DueDate"]["value"]
