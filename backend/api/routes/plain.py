"""Routes without FastAPI's machinery: a function from request to response, and what OpenAPI says of it.

FastAPI solves dependencies, opens two exit stacks and validates in passing for every request; here a schema is
parsed from the bytes and an answer written from arrays, so that none of it is needed. It still documents them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backend.api.problems import MEDIA_TYPE, ProblemDetails

Endpoint = Callable[[Request], Awaitable[Response]]
JSON = "application/json"


class PlainRoute(APIRoute):
    """An ``APIRoute`` that calls its endpoint and sends what it returns, nothing else."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a method that the route lacks is refused by the parent (405)."""
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        response = await self.endpoint(Request(scope, receive))
        await response(scope, receive, send)


def get(
    path: str,
    endpoint: Endpoint,
    *,
    tag: str,
    example: Any,
    schema: type[BaseModel] | None = None,
    media_type: str = JSON,
    errors: tuple[int, ...] = (),
    parameters: tuple[dict[str, Any], ...] = (),
) -> PlainRoute:
    """A route that reads no body. ``example`` and ``schema`` are those of the answer."""
    answer = _content(schema, {"example": example}, media_type)
    described = {"parameters": list(parameters)} if parameters else {}
    return _route(path, endpoint, methods=["GET"], tags=[tag], answers=_answers(answer, errors), described=described)


def post(
    path: str,
    endpoint: Endpoint,
    *,
    tag: str,
    request: type[BaseModel],
    examples: dict[str, Any],
    example: Any,
    schema: type[BaseModel] | dict[str, Any],
    errors: tuple[int, ...] = (400, 404, 413, 415, 422, 429, 503, 504),
) -> PlainRoute:
    """A route that reads JSON. ``examples`` are requests by name; ``example`` and ``schema`` the answer's."""
    named = {"examples": {name: {"value": value} for name, value in examples.items()}}
    body = {"required": True, "content": _content(request, named, JSON)}
    answer = _content(schema, {"example": example}, JSON)
    return _route(
        path, endpoint, methods=["POST"], tags=[tag], answers=_answers(answer, errors), described={"requestBody": body}
    )


def _route(
    path: str,
    endpoint: Endpoint,
    *,
    methods: list[str],
    tags: list[str | Enum],
    answers: dict[int | str, dict[str, Any]],
    described: dict[str, Any],
) -> PlainRoute:
    return PlainRoute(
        path,
        endpoint,
        methods=methods,
        tags=tags,
        response_model=None,
        response_class=Response,  # no media type of its own: ``answers`` names it
        responses=answers,
        openapi_extra=described or None,
    )


def _answers(content: dict[str, Any], errors: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    problem = {"content": _content(ProblemDetails, {}, MEDIA_TYPE)}
    return {200: {"content": content}, **dict.fromkeys(errors, problem)}


def _content(schema: type[BaseModel] | dict[str, Any] | None, shown: dict[str, Any], media_type: str) -> dict[str, Any]:
    if isinstance(schema, type):
        schema = {"$ref": f"#/components/schemas/{schema.__name__}"}
    return {media_type: {"schema": schema or {"type": "string" if media_type != JSON else "object"}, **shown}}
