"""Requests at once, and the documentation: an example for every route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from backend.api.app import ROUTES, create_app
from backend.api.deps import ApiOptions
from backend.api.schemas import answers, document_answers, jobs, text_answers
from backend.jobs.memory_store import MemoryJobStore
from tests.api.conftest import connect
from tests.api.fakes import FakeServices, fake_services
from tests.fakes import ManualClock
from tests.jobs.replica import FakeProcess, JobReplica
from tests.jobs.samples import NOW_S

JSON = "application/json"
FORM = "multipart/form-data"
MODELS = (*answers.ANSWERS, *text_answers.ANSWERS, *document_answers.ANSWERS, *jobs.ANSWERS)


async def test_requests_at_once_do_not_mix(client: httpx.AsyncClient) -> None:
    """Requests that run at the same time keep their own answers and ids."""

    async def one(number: int) -> None:
        texts = [f"{number} {index}" for index in range(number % 5 + 1)]
        response = await client.post("/v1/embeddings", json={"input": texts}, headers={"X-Request-Id": f"id-{number}"})
        assert f"id-{number}" == response.headers["x-request-id"]
        assert len(texts) == len(response.json()["data"])

    await asyncio.gather(*(one(number) for number in range(50)))


@pytest.fixture
async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/openapi.json")).json()
    return found


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def _answered(operation: dict[str, Any]) -> dict[str, Any]:
    """What a success gives, by media type; of several kinds of success the one that has a body."""
    described = [answer.get("content") for status, answer in operation["responses"].items() if status.startswith("2")]
    [content] = filter(None, described)
    return content


def test_every_route_has_an_example(document: dict[str, Any]) -> None:
    """Each answer shows an example where it is of one kind or JSON, and each body of JSON that is asked for too."""
    operations = dict(_operations(document))

    assert len(ROUTES) == len(operations)
    for name, operation in operations.items():
        content = _answered(operation)
        for media_type, answer in content.items():
            assert "example" in answer or (len(content) > 1 and media_type != JSON), name
        assert operation["summary"], name
        assert operation["description"], name
        if name.startswith("post"):
            asked = operation["requestBody"]["content"]
            assert asked[JSON]["examples"] if JSON in asked else asked[FORM]["schema"]["properties"]["file"], name
            assert "application/problem+json" in operation["responses"]["422"]["content"], name


@asynccontextmanager
async def _with_jobs() -> AsyncIterator[tuple[FakeServices, str]]:
    """Services, and the id of a job that has ended well."""
    desk = JobReplica(MemoryJobStore(10, 1_000_000, ManualClock(NOW_S)), FakeProcess(), now=ManualClock(NOW_S))
    services = fake_services()
    services.jobs = desk.service
    await desk.service.start()
    try:
        job = await desk.ended(await desk.submit(owner="secret"), "secret")
        yield services, job.id
    finally:
        await desk.service.close()


async def test_examples_are_answered(document: dict[str, Any]) -> None:
    """Every example request that the documentation shows gets an answer of the schema it names."""
    async with _with_jobs() as (services, job_id), connect(services, ApiOptions(api_keys=("secret",))) as client:
        client.headers["Authorization"] = "Bearer secret"
        for name, operation in sorted(_operations(document), key=lambda one: one[0].startswith("delete")):
            method, path = name.split(" ")
            path = path.format(name="bundled", id=job_id, number=1)
            for asked in _asked(operation):
                response = await client.request(method, path, **asked)
                assert response.is_success, (name, asked, response.text)
                if response.headers.get("content-type") == JSON:
                    _require_schema(operation, response.json())


def _asked(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """What to send: each example, a file where one is asked for, or nothing."""
    content = operation.get("requestBody", {"content": {}})["content"]
    if FORM in content:
        return [{"files": {"file": ("factura.pdf", b"%PDF-1.7 stands for a document")}}]
    if JSON in content:
        return [{"json": example["value"]} for example in content[JSON]["examples"].values()]
    return [{}]


def test_examples_of_answers_are_of_their_schemas(document: dict[str, Any]) -> None:
    """What the documentation shows is what it describes, and no field more."""
    for _, operation in _operations(document):
        if JSON in _answered(operation):
            _require_schema(operation, _answered(operation)[JSON]["example"])


def _require_schema(operation: dict[str, Any], answer: Any) -> None:
    """Raise what pydantic finds wrong; an answer without a named schema may be anything."""
    name = _answered(operation)[JSON]["schema"].get("$ref", "").rpartition("/")[2]
    if name:
        [model] = [model for model in MODELS if model.__name__ == name]
        model.model_validate(answer, extra="forbid")


def test_every_reference_is_defined(document: dict[str, Any]) -> None:
    """No schema points to nowhere."""
    defined = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}

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


async def test_docs(client: httpx.AsyncClient) -> None:
    """The page for people is there; with keys the document says that one is needed."""
    assert "swagger" in (await client.get("/docs")).text
    guarded = create_app(fake_services(), ApiOptions(api_keys=("key",))).openapi()
    assert [{"key": []}] == guarded["security"]
