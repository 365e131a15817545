"""Routes without FastAPI's machinery: a function from request to response, and what OpenAPI says of it.

FastAPI solves dependencies, opens two exit stacks and validates in passing for every request; here a schema is
parsed from the bytes and an answer written from arrays, so that none of it is needed. It still documents them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from backend.api.problems import MEDIA_TYPE, ProblemDetails

Endpoint = Callable[[Request], Awaitable[Response]]
JSON = "application/json"


class PlainRoute(APIRoute):
    """An ``APIRoute`` that calls its endpoint and sends what it returns, nothing else."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises: HTTPException (405) for a method that neither this route nor another of the same path has.
        """
        if scope["method"] not in (self.methods or ()):
            raise HTTPException(405, headers={"Allow": ", ".join(_methods_at(self.path, scope["app"].routes))})
        response = await self.endpoint(Request(scope, receive))
        await response(scope, receive, send)


def _methods_at(path: str, routes: Iterable[BaseRoute]) -> list[str]:
    return sorted(
        method
        for route in routes
        if isinstance(route, APIRoute) and route.path == path
        for method in route.methods or ()
    )


def _asking(
    method: str,
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
    answers = _answers(_content(schema, {"example": example}, media_type), errors)
    return _route(path, endpoint, methods=[method], tags=[tag], answers=answers, described=_described(parameters))


def _reading(
    method: str,
    path: str,
    endpoint: Endpoint,
    *,
    tag: str,
    request: type[BaseModel],
    examples: dict[str, Any],
    example: Any,
    schema: type[BaseModel] | dict[str, Any],
    errors: tuple[int, ...] = (400, 404, 413, 415, 422, 429, 503, 504),
    parameters: tuple[dict[str, Any], ...] = (),
) -> PlainRoute:
    """A route that reads JSON. ``examples`` are requests by name; ``example`` and ``schema`` the answer's."""
    named = {"examples": {name: {"value": value} for name, value in examples.items()}}
    described = {
        "requestBody": {"required": True, "content": _content(request, named, JSON)},
        **_described(parameters),
    }
    answers = _answers(_content(schema, {"example": example}, JSON), errors)
    return _route(path, endpoint, methods=[method], tags=[tag], answers=answers, described=described)


def upload_route(
    path: str,
    endpoint: Endpoint,
    *,
    tag: str,
    request: type[BaseModel],
    answers: dict[str, dict[str, Any]],
    errors: tuple[int, ...] = (400, 404, 406, 413, 415, 422, 429, 503, 504),
    status: int = 200,
) -> PlainRoute:
    """A route that reads a file, as a form's ``file`` or as the body; ``request`` is the form's other fields.

    Args:
        answers: the content of the answer by media type, as OpenAPI writes it.
    """
    file = {"type": "string", "format": "binary", "description": "PDF, PNG, JPEG, TIFF, WebP, BMP, GIF or HEIC."}
    fields = request.model_json_schema()
    form = {"type": "object", "required": ["file"], "properties": {"file": file, **fields["properties"]}}
    content = {"multipart/form-data": {"schema": form}, "application/octet-stream": {"schema": file}}
    problem = {"content": _content(ProblemDetails, {}, MEDIA_TYPE)}
    return _route(
        path,
        endpoint,
        methods=["POST"],
        tags=[tag],
        answers={status: {"content": answers}, **dict.fromkeys(errors, problem)},
        described={"requestBody": {"required": True, "content": content}},
    )


get, delete = partial(_asking, "GET"), partial(_asking, "DELETE")
post, put = partial(_reading, "POST"), partial(_reading, "PUT")


def name_parameter(example: str) -> dict[str, Any]:
    """What OpenAPI says of a path's ``{name}``."""
    return {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}, "example": example}


def _described(parameters: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    return {"parameters": list(parameters)} if parameters else {}


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
