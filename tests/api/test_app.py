"""Requests at once, and the documentation: an example for every route."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backend.api.app import ROUTES, create_app
from backend.api.deps import ApiOptions
from backend.api.schemas.answers import ANSWERS
from backend.api.schemas.text_answers import ANSWERS as TEXT_ANSWERS
from tests.api.conftest import connect
from tests.api.fakes import FakeServices, fake_services


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


def test_every_route_has_an_example(document: dict[str, Any]) -> None:
    """Each answer shows an example, and each body that is asked for too."""
    operations = dict(_operations(document))

    assert len(ROUTES) == len(operations)
    for name, operation in operations.items():
        for answer in operation["responses"]["200"]["content"].values():
            assert "example" in answer, name
        assert operation["summary"], name
        assert operation["description"], name
        if name.startswith("post"):
            assert operation["requestBody"]["content"]["application/json"]["examples"], name
            assert "application/problem+json" in operation["responses"]["422"]["content"], name


async def test_examples_are_answered(services: FakeServices, document: dict[str, Any]) -> None:
    """Every example request that the documentation shows gets an answer."""
    async with connect(services, ApiOptions(api_keys=("secret",))) as client:
        client.headers["Authorization"] = "Bearer secret"
        await _ask_all(client, document)


async def _ask_all(client: httpx.AsyncClient, document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for example in (
                operation.get("requestBody", {})
                .get("content", {})
                .get("application/json", {})
                .get("examples", {None: {"value": None}})
                .values()
            ):
                response = await client.request(method, path.replace("{name}", "bundled"), json=example["value"])
                assert 200 == response.status_code, (path, example, response.text)
                _require_schema(operation, response.json() if _is_json(response) else None)


def test_examples_of_answers_are_of_their_schemas(document: dict[str, Any]) -> None:
    """What the documentation shows is what it describes, and no field more."""
    for _, operation in _operations(document):
        [content] = operation["responses"]["200"]["content"].values()
        _require_schema(operation, content["example"])


def _is_json(response: httpx.Response) -> bool:
    return response.headers["content-type"] == "application/json"


def _require_schema(operation: dict[str, Any], answer: Any) -> None:
    """Raise what pydantic finds wrong; an answer without a named schema may be anything."""
    [content] = operation["responses"]["200"]["content"].values()
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    if name:
        [model] = [model for model in (*ANSWERS, *TEXT_ANSWERS) if model.__name__ == name]
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
