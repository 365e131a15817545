"""The FastAPI application: routes and middleware over the services that it is given."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from backend.api.api_keys import OPEN_PATHS, ApiKeyMiddleware
from backend.api.middleware import (
    BrowserGuardMiddleware,
    DirectRoutingMiddleware,
    ProblemMiddleware,
    RequestContextMiddleware,
    RequestMetrics,
    TrafficMiddleware,
    with_cors,
)
from backend.api.openapi import describe
from backend.api.problems import problem_of, problem_response
from backend.api.request_context import ApiLimits, ApiOptions, Services, context_of
from backend.api.routes import (
    analyze,
    answer,
    audio,
    azure_documents,
    batches,
    books,
    browser_files,
    classifiers,
    classify,
    cohere,
    docling,
    document_events,
    documents,
    embeddings,
    entities,
    extractors,
    files,
    health,
    huggingface,
    infinity,
    jobs,
    metrics,
    models,
    ocr,
    ollama,
    rerank,
    search,
    similarity,
    store_files,
    stored_documents,
    summarize,
    tei,
    tika,
    unstructured,
    uploads,
    usage,
    vector_stores,
    weaviate,
)
from backend.api.routing import PlainRoute
from backend.api.sse import OpenStreams
from backend.callers.callers import LiveKeys, read_key_ring
from backend.lanes.cache.store import entry

TITLE = "FinancIA Inference"
_MAX_PATH = 100  # letters of a path that are compared with those of routes
# Why routes of other services are not here: by the last part of the path.
_ABSENT = {
    **dict.fromkeys(
        ("completions", "chat", "generate", "responses", "speech", "messages"),
        "This service reads; it neither chats nor speaks",
    ),
    "embed_sparse": "Sparse vectors need a model made for them, which none here is; POST /embed gives dense ones",
    "multimodalembeddings": "Only texts are embedded; POST /v1/embeddings",
    "unpack": "Files in a file are read as parts of it; PUT /rmeta",
}
# What people call a route that has another name: the last part of the path.
_MEANT = {
    **dict.fromkeys(("transcribe", "asr", "stt", "whisper", "speech-to-text"), "/v1/audio/transcriptions"),
    **dict.fromkeys(("summary", "summarization", "summaries"), "/v1/summarize"),
    **dict.fromkeys(("extract", "invoice", "invoices", "receipts", "extraction"), "/v1/fields"),
    **dict.fromkeys(("parse", "upload", "convert", "read", "pdf"), "/v1/documents"),
    **dict.fromkeys(("classification", "zero-shot"), "/v1/classify"),
    "search": "/v1/vector_stores/{id}/search",
}
# In the order in which they are tried: the busiest first.
ROUTES: tuple[PlainRoute, ...] = (
    *embeddings.ROUTES,
    *entities.ROUTES,
    *answer.ROUTES,
    *classify.ROUTES,
    *rerank.ROUTES,
    *cohere.ROUTES,
    *documents.FIELD_ROUTES,
    *search.ROUTES,
    *similarity.ROUTES,
    *analyze.ROUTES,
    *summarize.ROUTES,
    *documents.ROUTES,
    *books.ROUTES,  # before a document whose id would be "ledger"
    *stored_documents.ROUTES,
    *document_events.ROUTES,
    *ocr.ROUTES,
    *audio.ROUTES,
    *jobs.ROUTES,
    *jobs.RESULT_ROUTES,
    *azure_documents.ROUTES,
    *docling.ROUTES,
    *tika.ROUTES,
    *unstructured.ROUTES,
    *files.ROUTES,
    *uploads.ROUTES,
    *batches.ROUTES,
    *vector_stores.ROUTES,
    *store_files.ROUTES,
    *tei.ROUTES,
    *ollama.ROUTES,
    *huggingface.ROUTES,
    *weaviate.ROUTES,
    *embeddings.AZURE_ROUTES,
    *infinity.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    *models.ROUTES,
    *usage.ROUTES,
    *classifiers.ROUTES,
    *extractors.ROUTES,
    *models.ADMIN_ROUTES,
)
# FastAPI asks the environment for OpenTelemetry providers on every request (5 µs); our metrics are in telemetry.py.
_NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
_FILES_FOR_BROWSERS = (*browser_files.PAGE_ROUTES, *browser_files.DOCS_ROUTES)


class InferenceApp(FastAPI):
    """FastAPI with the OpenAPI document of plain routes."""

    def __init__(self, options: ApiOptions, limits: ApiLimits, *, keys_needed: bool) -> None:
        self._limits = limits
        self._keys_needed = keys_needed
        super().__init__(
            title=TITLE,
            version=options.version,
            docs_url=None,  # FastAPI's would load Swagger UI from a CDN
            redoc_url=None,
            redirect_slashes=False,
            telemetry=_NO_TELEMETRY,
        )

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made at the first call."""
        if self.openapi_schema is None:
            self.openapi_schema = describe(
                self, keys_needed=self._keys_needed, open_paths=OPEN_PATHS, limits=self._limits
            )
        return self.openapi_schema


def create_app(services: Services, options: ApiOptions | None = None) -> InferenceApp:
    """The app over ``services``, which the caller starts and closes.

    While the server stops it sets ``app.state.draining`` and ends ``app.state.streams``.
    """
    options = options or ApiOptions()
    keys = options.keys or LiveKeys(read_key_ring(options.api_keys, options.admin_keys, options.quotas))
    app = InferenceApp(options, services.limits, keys_needed=bool(keys.ring))
    app.state.services = services
    app.state.draining = False
    app.state.streams = OpenStreams()
    app.state.keys_needed = bool(keys.ring)
    app.router.routes[:0] = (*ROUTES, *_FILES_FOR_BROWSERS)
    app.user_middleware = _middleware(app, services, options, keys)
    for error in (HTTPException, RequestValidationError):  # FastAPI's own; ours go to ProblemMiddleware
        app.add_exception_handler(error, _problem_handler)
    return app


async def _problem_handler(request: Request, error: Exception) -> Response:
    path = request.url.path
    problem = problem_of(error, path)
    if problem.status == 404 and (why := _ABSENT.get(path.rpartition("/")[2])):
        problem = replace(problem, detail=f"{problem.detail}. {why}")
    elif problem.status == 404 and (meant := _meant_path(path, request.method)):
        problem = replace(problem, detail=f"{problem.detail}; did you mean {request.method} {meant}?")
    elif problem.status == 405 and request.method == "PUT":
        problem = replace(
            problem, detail=f"{problem.detail}; curl sends PUT for -T: use -F file=@… or --data-binary @…"
        )
    return problem_response(problem, context_of(request).request_id, path)


def _meant_path(path: str, method: str) -> str | None:
    """The route that a path without one was likely meant for: without or with /v1, or with a letter right."""
    bare = path.rstrip("/")
    unversioned = re.sub(r"\A(/v1)+(?=/)", "", bare)
    candidates = (bare, "/v1" + unversioned, "/v2" + unversioned, unversioned)
    routes = [route for route in ROUTES if method in (route.methods or ())]
    for candidate in candidates:
        if candidate != path and any(route.path_regex.match(candidate) for route in routes):
            return candidate
    if (word := _MEANT.get(bare.rpartition("/")[2])) and method == "POST":
        return word
    near = difflib.get_close_matches(bare[:_MAX_PATH], [route.path for route in routes], 1, 0.85)
    return near[0] if near else None


def _middleware(app: FastAPI, services: Services, options: ApiOptions, keys: LiveKeys) -> list[Middleware]:
    """From the outside in; see middleware.py."""
    paths = [route.path_format for route in (*ROUTES, *_FILES_FOR_BROWSERS)]
    metrics = RequestMetrics(services.telemetry, [*paths, "/openapi.json"])
    stack = [Middleware(RequestContextMiddleware, metrics=metrics, state=app.state, tracer=services.telemetry.tracer)]
    if options.cors_origins:
        stack.append(Middleware(with_cors, origins=options.cors_origins))
    stack.append(Middleware(ProblemMiddleware, state=app.state))
    if keys.ring:
        services.meters.open(keys.ring.callers)
        enter = entry(options.cache_scope)
        stack.append(Middleware(ApiKeyMiddleware, keys=keys, meters=services.meters, enter=enter))
    else:
        stack.append(Middleware(BrowserGuardMiddleware, hosts=options.allowed_hosts, origins=options.cors_origins))
    services.telemetry.in_flight_bytes.set_function(lambda: options.traffic.total_bytes)
    stack.append(Middleware(TrafficMiddleware, traffic=options.traffic))
    return [*stack, Middleware(DirectRoutingMiddleware, routes=ROUTES)]
