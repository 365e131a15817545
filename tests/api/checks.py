"""Checks of answers and of errors."""

from typing import Any

import httpx
from fastapi import FastAPI
from pydantic import TypeAdapter

from backend.api.routes.files import list_described

_STORES = "/v1/vector_stores"
_WITHOUT_TEXTS = {  # JSON about files and stores, which holds no text to read
    _STORES,
    f"{_STORES}/{{id}}",
    f"{_STORES}/{{id}}/files",
    f"{_STORES}/{{id}}/files/{{file_id}}",
    f"{_STORES}/{{id}}/file_batches",
    "/v1/batches",
    "/api/show",
    "/v1/documents/{id}/split",
    "/v1/uploads",
    "/v1/uploads/{id}/complete",
    "/decode",
    "/hf/automatic-speech-recognition",
    "/v1/detokenize",
}
# Or those of admins.
_WITH_FILES = (
    "/admin/", "/documentintelligence/", "/formrecognizer/", "/providers/", "/v1/convert/", "/v1/chunk/", "/v1/ocr",
)  # fmt: skip
ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


TEI_TYPES = ("Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty")


def problem(response: httpx.Response, status: int, code: str | None = None, *named: str) -> dict[str, Any]:
    """The problem in ``response``, which must have this status and code and name all of ``named``."""
    assert (status, "application/problem+json") == (response.status_code, response.headers["content-type"]), (
        response.text
    )
    body: dict[str, Any] = response.json()
    assert {"type", "title", "status", "detail", "code", "retryable", "request_id", "error"} <= set(body)
    assert status == body["status"]
    assert body["type"] == f"urn:financia:problem:{body['code']}"
    assert body["request_id"] == response.headers["x-request-id"]
    if isinstance(body["error"], str):  # of text-embeddings-inference's routes
        assert (body["detail"], True) == (body["error"], body["error_type"] in TEI_TYPES)
    else:
        assert {"message", "type", "code", "param"} == set(body["error"])
        assert (body["detail"], body["code"]) == (body["error"]["message"], body["error"]["code"])
    if code is not None:
        assert code == body["code"]
    for word in named:
        assert word in body["detail"], f"{word!r} is not named in {body['detail']!r}"
    assert "Traceback" not in response.text
    assert ".py" not in response.text
    return body


def require_schema(schema: type, answer: Any) -> None:
    """Raise what pydantic finds wrong with ``answer``, a field that ``schema`` lacks included."""
    TypeAdapter(schema).validate_python(answer, extra="forbid")


def require_list(item: type, answer: Any) -> None:
    """`require_schema` of a part of a list."""
    require_schema(list_described("List", item, {"id": ""}, "A list.")["schema"], answer)


def json_paths(app: FastAPI) -> set[str]:
    """Paths of the routes that read texts in JSON by POST, but for those of admins."""
    paths = app.openapi()["paths"].items()
    found = {path for path, methods in paths if "application/json" in _body_types(methods.get("post", {}))}
    return {path for path in found if not path.startswith(_WITH_FILES)} - _WITHOUT_TEXTS


async def path_of_store(client: httpx.AsyncClient, path: str, headers: dict[str, str] | None = None) -> str:
    """``path`` with the id of a new vector store, where it has an {id}, and the name of a model for its {name}."""
    path = path.replace("{name}", "bundled")
    if "{id}" not in path:
        return path
    made = await client.post("/v1/vector_stores", json={}, headers=headers)
    return path.replace("{id}", made.json()["id"])


def _body_types(operation: dict[str, Any]) -> dict[str, Any]:
    types: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    return types
