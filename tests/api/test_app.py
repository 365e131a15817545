"""Concurrent requests, and the OpenAPI document with its examples."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any

import httpx
import pytest

from backend.api.app import ROUTES
from backend.api.request_context import ApiOptions
from backend.api.routes.embeddings import BATCH_ENDPOINT
from backend.api.routes.files import FILE_ID
from backend.api.routes.uploads import PART_ID, UPLOAD_ID
from backend.api.routes.vector_stores import STORE_ID
from backend.batches import BatchRequest
from backend.callers.callers import owner_digest
from backend.documents.extractors import Extractor
from backend.files.stored_file import StoredFile
from backend.jobs.memory_store import MemoryJobStore
from backend.search.files import PARTS
from tests.api.checks import problem, require_schema
from tests.api.conftest import connect
from tests.api.document_fakes import FILE_LIMITS
from tests.api.fakes import FakeServices, batch_service, fake_services
from tests.fakes import ManualClock
from tests.jobs.replica import FakeProcess, JobReplica
from tests.jobs.samples import LIMITS, NOW_S
from tests.search.samples import store_file, upload, vector_store, wire_answer

DOCUMENT = b"%PDF-1.7 stands for a document"
JSON = "application/json"
FORM = "multipart/form-data"
BATCH_ID = f"vsfb_{0:024x}"
WITHOUT_BODY = ("/cancel", "/reembed", "/confirm", "/reopen")
ANSWERS_BY_NAME = {schema.__name__: schema for route in ROUTES for schema in route.schemas}


async def test_concurrent_requests_do_not_mix(client: httpx.AsyncClient) -> None:
    """Each of many concurrent requests gets its own answer and id."""

    async def send(number: int) -> None:
        texts = [f"{number} {index}" for index in range(number % 5 + 1)]
        response = await client.post("/v1/embeddings", json={"input": texts}, headers={"X-Request-Id": f"id-{number}"})
        assert f"id-{number}" == response.headers["x-request-id"]
        assert len(texts) == len(response.json()["data"])

    await asyncio.gather(*(send(number) for number in range(50)))


@pytest.fixture
async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    body: dict[str, Any] = (await client.get("/openapi.json")).json()
    return body


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def _success_content(operation: dict[str, Any]) -> dict[str, Any]:
    """The content of a successful answer by media type; of several statuses the one that has a body."""
    contents = [answer.get("content") for status, answer in operation["responses"].items() if status.startswith("2")]
    content, *others = [*filter(None, contents)] or [{}]
    assert [content] * len(others) == others
    return content


def test_every_route_has_an_example(document: dict[str, Any]) -> None:
    """Every JSON request has an example, and every answer that is JSON or has one media type only."""
    operations = dict(_operations(document))

    assert len(ROUTES) == len(operations)
    for name, operation in operations.items():
        content = _success_content(operation)
        for media_type, answer in content.items():
            assert "example" in answer or (len(content) > 1 and media_type != JSON), name
        assert operation["summary"], name
        assert operation["description"], name
        if name.startswith("post") and not name.endswith(WITHOUT_BODY):
            request = operation["requestBody"]["content"]
            assert request[JSON]["examples"] if JSON in request else request[FORM]["schema"]["properties"], name
            assert "#/components/responses/Problem422" == operation["responses"]["422"]["$ref"], name


@asynccontextmanager
async def _with_jobs() -> AsyncIterator[tuple[FakeServices, dict[str, str]]]:
    """Services, and the ids of jobs that succeeded: by the beginning of the paths whose job it is, "" for the rest."""
    desk = JobReplica(MemoryJobStore(10, 1_000_000, LIMITS, ManualClock(NOW_S)), FakeProcess(), now=ManualClock(NOW_S))
    services = fake_services()
    services.jobs = desk.service
    waiting = JobReplica(MemoryJobStore(10, 1_000_000, LIMITS, ManualClock(NOW_S)), FakeProcess())  # never started
    services.batches = batch_service(services, waiting.service)
    await desk.service.start()
    try:
        owner = owner_digest("secret")
        job = await desk.ended(await desk.submit(owner=owner), owner)
        answer = {"dialect": "docling", "formats": ["md"], "model": "prebuilt-read"}
        other, older = [
            (await desk.ended(await desk.submit(owner=owner, answer={**answer, "page_break": mark}), owner)).id
            for mark in ("", "-")
        ]
        await _add_documents(services, owner)
        batch = await services.batches.create(owner, BatchRequest(FILE_ID, BATCH_ENDPOINT))
        with closing(StoredFile.of(b"a", FILE_LIMITS)) as content:
            stored = await services.stored_documents.add(owner, content, "a.pdf", wire_answer())
        yield (
            services,
            {
                "/v1/documents": stored.id,
                "/documentintelligence": other,
                "/formrecognizer": older,
                "/v1/status": other,
                "/v1/result": other,
                "/v1/batches": batch.id,
                "": job.id,
            },
        )
    finally:
        await desk.service.close()


async def _add_documents(services: FakeServices, owner: str) -> None:
    """The file, the vector store, the batch and the extractor of the examples."""
    services.extractors.kept["bundled"] = Extractor("bundled", owner, '["plate"]', "[]", 1, 0.0)
    await upload(services.storage, FILE_ID, b"a", owner=owner, name="a.pdf", purpose="batch")
    for upload_id in UPLOADS.values():
        started = b'{"bytes": 1, "expires_after_s": null}'
        await upload(services.storage, upload_id, started, owner=owner + PARTS, name="a.pdf", purpose="batch")
    await upload(services.storage, PART_ID, b"a", owner=owner + PARTS, name="", purpose=UPLOAD_ID)
    await services.storage.add_store(vector_store(STORE_ID, owner=owner), [])
    await services.storage.attach([store_file(FILE_ID, STORE_ID, batch_id=BATCH_ID)])


UPLOADS = {
    "/v1/uploads/{id}/complete": UPLOAD_ID,
    "/v1/uploads/{id}/cancel": "upload_1",
    "/v1/uploads/{id}/parts": "upload_2",
}


def _deletes_last(named: tuple[str, Any]) -> tuple[bool, int]:
    """What is within another thing is deleted before it."""
    return named[0].startswith("delete"), -len(named[0])


def _example_path(path: str, job_ids: dict[str, str]) -> str:
    owned = {**UPLOADS, "/v1/files": FILE_ID, "/v1/vector_stores": STORE_ID, **job_ids}
    own = next(example for prefix, example in owned.items() if path.startswith(prefix))
    named = {"name": "bundled", "model": "prebuilt-read", "chunker": "hybrid"}
    return path.format(**named, id=own, number=1, file_id=FILE_ID, batch_id=BATCH_ID)


async def test_examples_are_answered(document: dict[str, Any]) -> None:
    """Every documented example request gets an answer of its documented schema."""
    async with _with_jobs() as (services, job_ids), connect(services, ApiOptions(admin_keys=("secret",))) as client:
        client.headers["Authorization"] = "Bearer secret"
        for name, operation in sorted(_operations(document), key=_deletes_last):
            method, path = name.split(" ")
            path = _example_path(path, job_ids)
            for request in _example_requests(operation):
                bounds = {"X-Request-Timeout-S": "0.5"} if path.endswith("/events") else {}  # streams without an end
                response = await client.request(method, path, headers=bounds, **request)
                assert response.is_success, (name, request, response.text)
                if response.headers.get("content-type") == JSON:
                    _require_schema(operation, response.json())


def _example_requests(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """Each example, a file for an upload, or one empty request."""
    content = operation.get("requestBody", {"content": {}})["content"]
    if FORM in content:
        field = content[FORM]["schema"]["required"][0]
        return [{"files": {field: ("factura.pdf", DOCUMENT)}, "data": {"purpose": "batch", "questions": "Who?"}}]
    if JSON in content:
        return [{"json": example["value"]} for example in content[JSON]["examples"].values()]
    return [{"content": DOCUMENT} if content else {}]


def test_examples_of_answers_match_their_schemas(document: dict[str, Any]) -> None:
    """The documented answers have the fields of their schemas, and no others."""
    for _, operation in _operations(document):
        if JSON in _success_content(operation):
            _require_schema(operation, _success_content(operation)[JSON]["example"])


def _require_schema(operation: dict[str, Any], answer: Any) -> None:
    """Raise what pydantic finds wrong; passes any answer without a named schema."""
    name = _success_content(operation)[JSON]["schema"].get("$ref", "").rpartition("/")[2]
    if name:
        require_schema(ANSWERS_BY_NAME[name], answer)


def test_every_reference_is_defined(document: dict[str, Any]) -> None:
    """Every $ref has its schema."""
    parts = document["components"]
    defined = {f"#/components/{part}/{name}" for part, named in parts.items() for name in named}

    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"]
            for child in node.values():
                yield from references(child)
        elif isinstance(node, list):
            for child in node:
                yield from references(child)

    assert set(references(document)) <= defined
    assert "securitySchemes" not in document["components"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/v1/embeddings", "POST /v1/embeddings"),
        ("/v1/embeddings/", "POST /v1/embeddings"),
        ("/documents", "POST /v1/documents"),
        ("/v1/decode", "POST /decode"),
        ("/v1/embedding", "POST /v1/embeddings"),
        ("/v1/transcribe", "POST /v1/audio/transcriptions"),
        ("/v1/summary", "POST /v1/summarize"),
        ("/invoices", "POST /v1/fields"),
        ("/v1/v1/vector_stores/vs_1/search/", "POST /v1/vector_stores/vs_1/search"),
    ],
)
async def test_a_path_that_is_nearly_a_route(client: httpx.AsyncClient, path: str, meant: str) -> None:
    """A base address with /v1 twice or not at all, a trailing slash, a letter: the answer says which was meant."""
    problem(await client.post(path, json={}), 404, "not_found", f"did you mean {meant}?")


async def test_what_the_service_does_not_do(client: httpx.AsyncClient) -> None:
    """Chats are told apart from a typo, and so is curl's -T from a route that is missing."""
    for path in ("/v1/chat/completions", "/v1/audio/speech", "/api/generate"):
        problem(await client.post(path, json={}), 404, "not_found", "neither chats nor speaks")
    problem(await client.post("/embed_sparse", json={"inputs": "a"}), 404, "not_found", "Sparse vectors need a model")
    problem(await client.put("/v1/documents", content=b"%PDF"), 405, "method_not_allowed", "-F file=@")


async def test_a_path_that_is_no_route(client: httpx.AsyncClient) -> None:
    """Nothing is guessed for it."""
    assert "did you mean" not in (await client.get("/wp-login.php")).json()["detail"]
