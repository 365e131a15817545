"""Checks of answers and of errors."""

from __future__ import annotations

from typing import Any

import httpx
from pydantic import TypeAdapter

ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


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
