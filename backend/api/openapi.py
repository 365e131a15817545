"""The OpenAPI document: FastAPI's own, with the schemas that plain routes parse and write by themselves.

It says everything that happens: each status with its headers, what the middleware answers on any route, and the limits
of this very service. schemathesis holds the service to it (tests/schema).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from backend.api.api_keys import READ_ROUTES, SAFE_METHODS
from backend.api.json_io import described
from backend.api.problems import MEDIA_TYPE, ProblemDetails
from backend.api.request_context import ApiLimits
from backend.api.request_fields import LIMIT_KEYWORD
from backend.api.routes.audio import TranscriptionForm, TranslationForm
from backend.api.routes.classify import ClassifyForm
from backend.api.routes.documents import DocumentRequest, NewDocumentRequest, ReadRequest
from backend.api.routing import PROBLEM, PlainRoute

SUMMARY = "Vectors, classes, entities and ranks of documents and text, in the shapes that your clients know."
DESCRIPTION = """
Point an OpenAI client at `/v1`, and a Cohere, Jina, text-embeddings-inference or infinity client at the root.

Every error is `application/problem+json` (RFC 9457) with a stable `code`; its `error` object is what OpenAI's clients
show. `X-Request-Id` is echoed, `X-Request-Timeout-S` shortens the wait, `Server-Timing` tells where the time went.
"""
# Forms, whose fields stand in their routes' part of the document, and again under their own names.
_FORMS = (ReadRequest, DocumentRequest, NewDocumentRequest, ClassifyForm, TranscriptionForm, TranslationForm)
# Names of schemas that two resources have, as earlier releases wrote them: generated clients are full of them.
_PUBLISHED_NAMES = {
    "document_answers__ChunkAnswer": "responses__documents__ChunkAnswer",
    "document_answers__PlaceAnswer": "responses__summaries__PlaceAnswer",
    "embeddings__Usage": "responses__embeddings__Usage",
    "search__PlaceAnswer": "responses__search__PlaceAnswer",
    "store_files__ChunkAnswer": "responses__vector_stores__ChunkAnswer",
    "usage__Usage": "responses__usage__Usage",
}
_REF = "#/components/schemas/{model}"
_TAGS = [
    {"name": "OpenAI", "description": "What OpenAI's clients call."},
    {
        "name": "texts",
        "description": "Vectors, classes, entities, ranks, analysis, in Jina's and Cohere's shapes if they have one.",
    },
    {
        "name": "documents",
        "description": "Files: PDF, images, office files, mail, web pages, texts, archives, electronic invoices.",
    },
    {"name": "text-embeddings-inference", "description": "What Hugging Face's clients call."},
    {"name": "infinity", "description": "What infinity's clients call; `POST /rerank` answers them, too."},
    {"name": "Azure Document Intelligence", "description": "What Microsoft's SDKs and Paperless-ngx call."},
    {"name": "docling-serve", "description": "What docling's clients, Open WebUI and RAGFlow call."},
    {"name": "Tika and Open WebUI", "description": "What Tika's clients and Open WebUI's external loader call."},
    {"name": "Ollama", "description": "What Ollama's clients call for vectors."},
    {"name": "Hugging Face tasks", "description": "What huggingface_hub calls at an endpoint's address."},
    {"name": "Weaviate", "description": "What Weaviate's modules call; `POST /rerank` answers them, too."},
    {"name": "operations", "description": "Probes, metrics and what was chosen why. No key needed but for /v1/system."},
]


class _Problem(NamedTuple):
    description: str
    headers: tuple[str, ...] = ()


# Every status of a problem. A route names those of its own; see also _ANY_ROUTE and _GUARDED.
PROBLEMS: dict[int, _Problem] = {
    400: _Problem("The request is malformed, or an input is empty."),
    401: _Problem("No key, none of this service's, or one that has expired.", ("WWW-Authenticate",)),
    403: _Problem(
        "This key may not do this: keys of ADMIN_KEYS may, or the one that made it, or one that may more than read. "
        "Without keys: a browser sent it for a page of another site."
    ),
    404: _Problem(
        "What the request names is not here: a model, a classifier, a job, a page, a file, a document, a vector store."
    ),
    406: _Problem("Accept allows none of the formats."),
    408: _Problem("Request line and headers did not come in time; the connection is closed."),
    409: _Problem("Another model made the vectors of this vector store; somebody changed this stored document."),
    413: _Problem("Over a limit; the message names it, the value and the setting."),
    415: _Problem("Not the media type that this route reads, or a file of a kind that is not read."),
    421: _Problem("Asked by a name that is not this service's, which has no keys; ALLOWED_HOSTS names further ones."),
    422: _Problem("A field is absent or has a value that it cannot have; `error.param` names it."),
    429: _Problem("A queue is full, or this key's quota is used up.", ("Retry-After", "RateLimit", "RateLimit-Policy")),
    431: _Problem("Request line and headers are over 64 KiB or 200 fields; the connection is closed."),
    500: _Problem("The service failed on this request; its log tells why under the request's id."),
    503: _Problem("Not ready, stopping, or a device was lost: another replica can answer.", ("Retry-After",)),
    504: _Problem("Not answered in time."),
    507: _Problem("One input alone needs more device memory than there is."),
}
_ANY_ROUTE = (408, 431, 500, 503)
_GUARDED = (401, 429)  # of routes that need a key, which may have quotas
_WITHOUT_KEYS = (421,)  # of the same routes where no keys are needed
_CHANGES_WITHOUT_KEYS = (403, 421)

_LIMIT_KEYWORDS = {"array": "maxItems", "object": "maxProperties", "string": "maxLength"}  # by type
_EVERY_ANSWER = ("X-Request-Id", "Server-Timing")
_COUNT = {"type": "string", "pattern": r"^\d+$"}
HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-Id": {"description": "The request's own where it sent a valid one; in the log, too.", "required": True},
    "Server-Timing": {"description": "Milliseconds in each stage, and in all.", "required": True},
    "Retry-After": {"description": "Seconds after which to try again.", "required": True, "schema": _COUNT},
    "RateLimit": {"description": "What is left of the key's quotas, where it has any."},
    "RateLimit-Policy": {"description": "The key's quotas, where it has any."},
    "WWW-Authenticate": {"description": "Bearer.", "required": True},
    "X-Should-Retry": {
        "description": "Whether the same request may succeed later; OpenAI's clients obey it.",
        "required": True,
        "schema": {"enum": ["true", "false"]},
    },
    "X-Compute-Tokens": {"description": "Tokens that were read.", "required": True, "schema": _COUNT},
    **described("X-Truncated", "inputs that were cut"),
    **described("X-Failed-Pages", "pages that could not be read (in other formats than JSON)"),
    "X-Partial": {
        "description": "true where the job failed or was cancelled: the pages that it had read.",
        "schema": {"enum": ["true"]},
    },
    "Content-Disposition": {"description": "A file's name, of other formats than JSON."},
    "Location": {"description": "Where the job is."},
    "ETag": {"description": "The document's revision in quotes, for If-Match.", "required": True},
    "Operation-Location": {"description": "Where the result will be.", "required": True},
    "OpenAI-Poll-After-Ms": {
        "description": "While it goes on: milliseconds after which to ask again; OpenAI's clients obey it.",
        "schema": _COUNT,
    },
    "Idempotent-Replay": {"description": "true.", "schema": {"enum": ["true"]}},
}


def describe(app: FastAPI, *, keys_needed: bool, open_paths: frozenset[str], limits: ApiLimits) -> dict[str, Any]:
    """The OpenAPI document of ``app``.

    Args:
        open_paths: need no key, where others do.
        limits: go into the schemas of what they limit.
    """
    document = get_openapi(
        title=app.title, version=app.version, summary=SUMMARY, description=DESCRIPTION, routes=app.routes, tags=_TAGS
    )
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(_component_schemas(app))
    components["headers"] = {name: {"schema": {"type": "string"}, **header} for name, header in HEADERS.items()}
    components["responses"] = {f"Problem{status}": _problem_response(status) for status in PROBLEMS}
    for path, operation, route in _operations(app, document):
        is_open = path in open_paths and set(route.methods or ()) <= SAFE_METHODS  # as api_keys.is_open
        operation["responses"] = _responses(route, () if is_open else _guards(route, keys_needed=keys_needed))
        if keys_needed and is_open:
            operation["security"] = []
    if keys_needed:
        document["security"] = [{"key": []}]
        components["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "description": "One of API_KEYS or ADMIN_KEYS."}
        }
    _state_limits(document, limits)
    return document


def _operations(app: FastAPI, document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], PlainRoute]]:
    for route in app.routes:
        if isinstance(route, PlainRoute):
            for method in route.methods or ():
                yield route.path_format, document["paths"][route.path_format][method.lower()], route


def _guards(route: PlainRoute, *, keys_needed: bool) -> tuple[int, ...]:
    """What keeps callers out of a route that is not open to everybody."""
    if keys_needed:
        return _GUARDED if _leaves_nothing(route) else (*_GUARDED, 403)
    return _WITHOUT_KEYS if set(route.methods or ()) <= {"GET", "HEAD"} else _CHANGES_WITHOUT_KEYS


def _leaves_nothing(route: PlainRoute) -> bool:
    return set(route.methods or ()) <= SAFE_METHODS or route.path_format in READ_ROUTES


def _responses(route: PlainRoute, guards: tuple[int, ...]) -> dict[str, Any]:
    """The route's answers as it declares them: FastAPI would leave nulls out of examples."""
    statuses = {*route.responses, *_ANY_ROUTE, *guards}
    return {str(status): _response(route, status) for status in sorted(statuses, key=int)}


def _response(route: PlainRoute, status: int | str) -> dict[str, Any]:
    """An answer of the route: a problem by reference, unless the route has an answer of its own under its status."""
    response = route.responses.get(status)
    if response is None or response == PROBLEM:
        return {"$ref": f"#/components/responses/Problem{status}"}
    return {**response, "headers": {**response.get("headers", {}), **_header_references(_EVERY_ANSWER)}}


def _problem_response(status: int) -> dict[str, Any]:
    description, headers = PROBLEMS[status]
    return {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model=ProblemDetails.__name__)}}},
        "headers": _header_references((*_EVERY_ANSWER, "X-Should-Retry", *headers)),
    }


def _header_references(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _state_limits(node: Any, limits: ApiLimits) -> None:
    """Give every schema that names a setting as its limit the value that the setting has here, or its own."""
    if isinstance(node, list):
        for child in node:
            _state_limits(child, limits)
    elif isinstance(node, dict):
        if setting := node.get(LIMIT_KEYWORD):
            keyword, limit = _LIMIT_KEYWORDS[node["type"]], getattr(limits, setting.removeprefix("LIMIT_").lower())
            node[keyword] = min(limit, node.get(keyword, limit))  # a field's own may be lower
        for child in node.values():
            _state_limits(child, limits)


def _component_schemas(app: FastAPI) -> dict[str, Any]:
    routes = [route for route in app.routes if isinstance(route, PlainRoute)]
    schemas = dict.fromkeys(schema for route in routes for schema in route.schemas)
    _, document = TypeAdapter.json_schemas(
        [(schema, "validation", TypeAdapter(schema)) for schema in (*_FORMS, ProblemDetails, *schemas)],
        ref_template=_REF,
    )
    text = orjson.dumps(document["$defs"]).decode()
    for own, published in _PUBLISHED_NAMES.items():
        text = text.replace(f"backend__api__routes__{own}", f"backend__api__{published}")
    definitions: dict[str, Any] = orjson.loads(text)
    return dict(sorted(definitions.items()))
