"""The OpenAPI document: FastAPI's own, with the schemas that plain routes parse and write by themselves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from backend.api.problems import ProblemDetails
from backend.api.routes.plain import PlainRoute
from backend.api.schemas import (
    answers,
    classes,
    document_answers,
    documents,
    jobs,
    ranking,
    text_answers,
    texts,
    vectors,
)

SUMMARY = "Vectors, classes, entities and ranks of documents and text, in the shapes that your clients know."
DESCRIPTION = """
Point an OpenAI client at `/v1`, and a Cohere, Jina or text-embeddings-inference client at the root.

Every error is `application/problem+json` (RFC 9457) with a stable `code`; its `error` object is what OpenAI's clients
show. `X-Request-Id` is echoed, `X-Request-Timeout-S` shortens the wait, `Server-Timing` tells where the time went.
"""
_SCHEMAS: tuple[type[BaseModel], ...] = (
    *vectors.REQUESTS,
    *texts.REQUESTS,
    *classes.REQUESTS,
    *ranking.REQUESTS,
    *documents.REQUESTS,
    *answers.ANSWERS,
    *text_answers.ANSWERS,
    *document_answers.ANSWERS,
    *jobs.ANSWERS,
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
    components.setdefault("schemas", {}).update(_schemas(_SCHEMAS))
    for route in app.routes:
        if isinstance(route, PlainRoute):  # FastAPI leaves nulls out of examples
            for method in route.methods or ():
                answers = document["paths"][route.path_format][method.lower()]["responses"]
                for status, answered in route.responses.items():
                    if "content" in answered:
                        answers[str(status)]["content"] = answered["content"]
    if keys_needed:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "One of API_KEYS."}}
        document["security"] = [{"key": []}]
    return document


def _schemas(models: tuple[type[BaseModel], ...]) -> dict[str, Any]:
    _, document = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    schemas: dict[str, Any] = document["$defs"]
    return schemas
