"""Routes that call their function without FastAPI's per-request work, and still appear in its OpenAPI document.

For every request FastAPI solves dependencies, opens two exit stacks and validates. Here a route parses its schema from
the bytes and writes its answer itself, so it needs none of that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
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
Described = dict[str, Any]  # an OpenAPI response
JSON = "application/json"
REQUEST_TIMEOUT = {
    "name": "X-Request-Timeout-S",
    "in": "header",
    "schema": {"type": "number", "exclusiveMinimum": 0},
    "description": "Seconds after which the answer is 504; at most, and unset, LIMIT_REQUEST_S.",
}
_FILE = (
    "PDF, PNG, JPEG, TIFF, WebP, BMP, GIF, HEIC or the XML of an electronic invoice; for /v1/documents and /v1/jobs "
    "also a recording. Alone as the body, the fields go into the query."
)
_INFERENCE_ERRORS = (400, 404, 413, 415, 422, 429, 504, 507)
UPLOAD_ERRORS = (400, 404, 406, 413, 415, 422, 429, 504, 507)


class PlainRoute(APIRoute):
    """An ``APIRoute`` that only calls its endpoint and sends the response."""

    schemas: tuple[type, ...] = ()  # that its part of the OpenAPI document refers to

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


def _route_without_body(
    method: str,
    path: str,
    endpoint: Endpoint,
    *,
    tag: str,
    example: Any,
    schema: type | dict[str, Any] | None = None,
    media_type: str = JSON,
    headers: tuple[str, ...] = (),
    more: dict[int, Described] | None = None,
    errors: tuple[int, ...] = (),
    parameters: tuple[dict[str, Any], ...] = (),
) -> PlainRoute:
    """A route that reads no body. ``example`` and ``schema`` are those of the answer.

    Args:
        headers: of the answer, of ``openapi.HEADERS``; those of every answer need no mention.
        more: other answers than 200 and problems, by status.
        errors: statuses of problems, of ``openapi.PROBLEMS``; those of every route need no mention.
    """
    answer = described(_content(schema, {"example": example}, media_type), headers)
    return _route(
        method, path, endpoint, tag=tag, answers={200: answer, **(more or {})}, errors=errors, parameters=parameters
    )


def _route_with_json(
    method: str,
    path: str,
    endpoint: Endpoint,
    *,
    tag: str,
    request: type[BaseModel],
    examples: dict[str, Any],
    example: Any,
    schema: type | dict[str, Any],
    headers: tuple[str, ...] = (),
    errors: tuple[int, ...] = _INFERENCE_ERRORS,
    parameters: tuple[dict[str, Any], ...] = (REQUEST_TIMEOUT,),
) -> PlainRoute:
    """A route that reads JSON. ``examples`` are requests by name; ``example`` and ``schema`` the answer's."""
    answers = {200: described(_content(schema, {"example": example}, JSON), headers)}
    body = _json(request, examples)
    return _route(method, path, endpoint, tag=tag, body=body, answers=answers, errors=errors, parameters=parameters)


def upload_route(
    path: str,
    endpoint: Endpoint,
    *,
    tag: str,
    request: type[BaseModel],
    answers: dict[int, Described],
    json_request: tuple[type[BaseModel], dict[str, Any]] | None = None,
    file: str = _FILE,
    field: str = "file",
    several: bool = False,
    errors: tuple[int, ...] = UPLOAD_ERRORS,
    parameters: tuple[dict[str, Any], ...] = (),
) -> PlainRoute:
    """A route that reads a file, as a form's ``file`` or as the body; ``request`` is the form's other fields.

    Args:
        field: of the form, that has the file; under another name than ``file`` the body alone is none.
        several: whether it may come again and again.
        json_request: what it reads as JSON instead of a file, and examples by name; None: nothing.
        file: which files it reads.
    """
    fields = request.model_json_schema()
    files = _binary(file) if not several else {"type": "array", "minItems": 1, "items": _binary(file)}
    required = [field, *fields.get("required", ())]
    form = {"type": "object", "required": required, "properties": {field: files, **fields["properties"]}}
    body: dict[str, Any] = {"multipart/form-data": {"schema": form}}
    if field == "file":
        body |= _bytes(file)
    if json_request is not None:
        body |= _json(*json_request)
    parameters = (*parameters, REQUEST_TIMEOUT)
    return _route("POST", path, endpoint, tag=tag, body=body, answers=answers, errors=errors, parameters=parameters)


def body_route(
    method: str,
    path: str,
    endpoint: Endpoint,
    *,
    tag: str,
    answers: dict[int, Described],
    json_request: tuple[type[BaseModel], dict[str, Any]] | None = None,
    file: str = _FILE,
    parameters: tuple[dict[str, Any], ...] = (),
) -> PlainRoute:
    """A route that reads a file as its body, or as base64 in JSON: ``json_request`` is that and examples by name."""
    body = _bytes(file) if json_request is None else _bytes(file) | _json(*json_request)
    parameters = (*parameters, REQUEST_TIMEOUT)
    return _route(method, path, endpoint, tag=tag, body=body, answers=answers, parameters=parameters)


def json_upload_route(
    path: str,
    endpoint: Endpoint,
    *,
    tag: str,
    request: type[BaseModel],
    examples: dict[str, Any],
    answers: dict[int, Described],
    parameters: tuple[dict[str, Any], ...] = (),
) -> PlainRoute:
    """A route that reads files as base64 in JSON; ``examples`` are requests by name."""
    body, parameters = _json(request, examples), (*parameters, REQUEST_TIMEOUT)
    return _route("POST", path, endpoint, tag=tag, body=body, answers=answers, parameters=parameters)


def query_parameters(model: type[BaseModel]) -> tuple[dict[str, Any], ...]:
    """What OpenAPI says of a query whose values are the fields of ``model``."""
    properties = model.model_json_schema()["properties"]
    return tuple(
        {"name": name, "in": "query", "schema": schema, "description": schema.pop("description", "")}
        for name, schema in properties.items()
    )


get, delete = partial(_route_without_body, "GET"), partial(_route_without_body, "DELETE")
action = partial(_route_without_body, "POST")
post, put = partial(_route_with_json, "POST"), partial(_route_with_json, "PUT")
patch = partial(_route_with_json, "PATCH")


def name_parameter(example: str, *, pattern: str | None = None) -> dict[str, Any]:
    """What OpenAPI says of a path's ``{name}``."""
    schema: dict[str, Any] = {"type": "string", "minLength": 1, **({"pattern": pattern} if pattern else {})}
    return {"name": "name", "in": "path", "required": True, "schema": schema, "example": example}


def described(content: dict[str, Any] | None, headers: tuple[str, ...] = (), description: str = "") -> Described:
    """What OpenAPI says of an answer: its content by media type (None: no body), and headers of its own."""
    answer: Described = {"description": description or "The answer."}
    if content is not None:
        answer["content"] = content
    if headers:
        answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
    return answer


def _json(request: type[BaseModel], examples: dict[str, Any]) -> dict[str, Any]:
    """A body of JSON; ``examples`` by name."""
    return _content(request, {"examples": {name: {"value": value} for name, value in examples.items()}}, JSON)


def _bytes(file: str) -> dict[str, Any]:
    """A body that is a file."""
    return {"application/octet-stream": {"schema": _binary(file)}}


def _binary(file: str) -> dict[str, Any]:
    return {"type": "string", "format": "binary", "minLength": 1, "description": file}


def _route(
    method: str,
    path: str,
    endpoint: Endpoint,
    *,
    tag: str,
    answers: dict[int, Described],
    body: dict[str, Any] | None = None,
    errors: tuple[int, ...] = UPLOAD_ERRORS,
    parameters: tuple[dict[str, Any], ...] = (),
) -> PlainRoute:
    """A route as OpenAPI describes it. ``body``: its content by media type; None: it reads none."""
    schemas: list[type] = []
    extra: dict[str, Any] = {} if body is None else {"requestBody": {"required": True, "content": body}}
    if parameters:
        extra["parameters"] = list(parameters)
    responses: dict[int | str, Described] = dict.fromkeys(errors, PROBLEM)
    route = PlainRoute(
        path,
        endpoint,
        methods=[method],
        tags=[tag],
        response_model=None,
        response_class=Response,  # no media type of its own: ``responses`` names it
        responses=_referring(responses | dict(answers), schemas),
        openapi_extra=_referring(extra, schemas) or None,
    )
    route.schemas = tuple(schemas)
    return route


def _referring(node: Any, schemas: list[type]) -> Any:
    """``node`` with a reference in place of each type, which stands for its schema and is added to ``schemas``."""
    if isinstance(node, type):
        schemas.append(node)
        return {"$ref": f"#/components/schemas/{node.__name__}"}
    if isinstance(node, dict):
        return {key: _referring(value, schemas) for key, value in node.items()}
    return [_referring(value, schemas) for value in node] if isinstance(node, list) else node


def _content(schema: type | dict[str, Any] | None, examples: dict[str, Any], media_type: str) -> dict[str, Any]:
    if schema is None:
        schema = {"type": "object"} if media_type == JSON else {"type": "string"}
    return {media_type: {"schema": schema, **examples}}


PROBLEM: Described = _referring(
    {"content": _content(ProblemDetails, {}, MEDIA_TYPE)}, []
)  # openapi.PROBLEMS says the rest of each
