"""The OpenAPI document: FastAPI's own, with the schemas that plain routes parse and write by themselves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from backend.api.problems import ProblemDetails
from backend.api.requests import classification, reranking
from backend.api.requests import documents as document_requests
from backend.api.requests import embeddings as embedding_requests
from backend.api.requests import texts as text_requests
from backend.api.responses import documents, embeddings, jobs, operations, texts
from backend.api.routing import PlainRoute

SUMMARY = "Vectors, classes, entities and ranks of documents and text, in the shapes that your clients know."
DESCRIPTION = """
Point an OpenAI client at `/v1`, and a Cohere, Jina or text-embeddings-inference client at the root.

Every error is `application/problem+json` (RFC 9457) with a stable `code`; its `error` object is what OpenAI's clients
show. `X-Request-Id` is echoed, `X-Request-Timeout-S` shortens the wait, `Server-Timing` tells where the time went.
"""
_REQUESTS: tuple[type, ...] = (
    *embedding_requests.REQUESTS,
    *text_requests.REQUESTS,
    *classification.REQUESTS,
    *reranking.REQUESTS,
    *document_requests.REQUESTS,
)
ANSWERS: tuple[type, ...] = (
    *embeddings.SCHEMAS,
    *operations.SCHEMAS,
    *texts.SCHEMAS,
    *documents.SCHEMAS,
    *jobs.SCHEMAS,
    ProblemDetails,
)
_REF = "#/components/schemas/{model}"
_TAGS = [
    {"name": "OpenAI", "description": "What OpenAI's clients call."},
    {
        "name": "texts",
        "description": "Classes, entities, ranks and analysis, in Jina's and Cohere's shapes where they have one.",
    },
    {"name": "documents", "description": "Files: PDF, PNG, JPEG, TIFF, WebP, BMP, GIF, HEIC."},
    {"name": "text-embeddings-inference", "description": "What Hugging Face's clients call."},
    {"name": "operations", "description": "Probes, metrics and what was chosen why. No key needed but for /v1/system."},
]


def describe(app: FastAPI, *, keys_needed: bool) -> dict[str, Any]:
    """The OpenAPI document of ``app``."""
    document = get_openapi(
        title=app.title, version=app.version, summary=SUMMARY, description=DESCRIPTION, routes=app.routes, tags=_TAGS
    )
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(_component_schemas())
    for route in app.routes:
        if isinstance(route, PlainRoute):  # FastAPI leaves nulls out of examples
            for method in route.methods or ():
                described = document["paths"][route.path_format][method.lower()]["responses"]
                for status, response in route.responses.items():
                    if "content" in response:
                        described[str(status)]["content"] = response["content"]
    if keys_needed:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "One of API_KEYS."}}
        document["security"] = [{"key": []}]
    return document


def _component_schemas() -> dict[str, Any]:
    schemas = (*_REQUESTS, *ANSWERS)
    _, document = TypeAdapter.json_schemas(
        [(schema, "validation", TypeAdapter(schema)) for schema in schemas], ref_template=_REF
    )
    definitions: dict[str, Any] = document["$defs"]
    return definitions
