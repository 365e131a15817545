"""The FastAPI application: routes and middleware over the services that it is given."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from backend.api.api_keys import OPEN_PATHS, ApiKeyMiddleware
from backend.api.browser_guard import BrowserGuardMiddleware
from backend.api.dependencies import ApiLimits, ApiOptions, Services, context_of
from backend.api.middleware import (
    DirectRoutingMiddleware,
    ProblemMiddleware,
    RequestContextMiddleware,
    RequestMetrics,
)
from backend.api.openapi import describe
from backend.api.problems import problem_of, problem_response
from backend.api.routes import (
    admin,
    analyze,
    classifiers,
    classify,
    cohere,
    documents,
    embeddings,
    entities,
    health,
    infinity,
    job_results,
    jobs,
    metrics,
    models,
    page,
    rerank,
    similarity,
    tei,
)
from backend.api.routing import PlainRoute
from backend.api.sse import OpenStreams
from backend.services.callers import KeyRing, read_key_ring

TITLE = "FinancIA Inference"
# In the order in which they are tried: the busiest first.
ROUTES: tuple[PlainRoute, ...] = (
    *embeddings.ROUTES,
    *entities.ROUTES,
    *classify.ROUTES,
    *rerank.ROUTES,
    *cohere.ROUTES,
    *similarity.ROUTES,
    *analyze.ROUTES,
    *documents.ROUTES,
    *jobs.ROUTES,
    *job_results.ROUTES,
    *tei.ROUTES,
    *infinity.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    *models.ROUTES,
    *classifiers.ROUTES,
    *admin.ROUTES,
)
# FastAPI asks the environment for OpenTelemetry providers on every request (5 µs); our metrics are in telemetry.py.
_NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
_DOCUMENTS = ("/docs", "/openapi.json")
_EXPOSED = (
    "X-Request-Id",
    "Server-Timing",
    "Retry-After",
    "RateLimit",
    "RateLimit-Policy",
    "X-Compute-Tokens",
    "X-Truncated",
    "X-Truncated-Count",
    "X-Failed-Pages",
    "X-Failed-Pages-Count",
    "X-Partial",
    "Location",
    "Idempotent-Replay",
)


class InferenceApp(FastAPI):
    """FastAPI with the OpenAPI document of plain routes."""

    def __init__(self, options: ApiOptions, limits: ApiLimits) -> None:
        self._limits = limits
        self._keys_needed = bool(options.api_keys or options.admin_keys)
        super().__init__(
            title=TITLE,
            version=options.version,
            redoc_url=None,
            swagger_ui_oauth2_redirect_url=None,
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
    keys = read_key_ring(options.api_keys, options.admin_keys, options.quotas)
    app = InferenceApp(options, services.limits)
    app.state.services = services
    app.state.draining = False
    app.state.streams = OpenStreams()
    app.state.keys_needed = bool(keys)
    app.router.routes[:0] = (*ROUTES, *page.ROUTES)
    app.user_middleware = _middleware(app, services, options, keys)
    for error in (HTTPException, RequestValidationError):  # FastAPI's own; ours go to ProblemMiddleware
        app.add_exception_handler(error, _problem_handler)
    return app


async def _problem_handler(request: Request, error: Exception) -> Response:
    return problem_response(problem_of(error, request.url.path), context_of(request).request_id)


def _middleware(app: FastAPI, services: Services, options: ApiOptions, keys: KeyRing) -> list[Middleware]:
    """From the outside in; see middleware.py."""
    metrics = RequestMetrics(
        services.telemetry, [*(route.path_format for route in (*ROUTES, *page.ROUTES)), *_DOCUMENTS]
    )
    stack = [Middleware(RequestContextMiddleware, metrics=metrics, state=app.state)]
    if options.cors_origins:
        stack.append(
            Middleware(
                CORSMiddleware,
                allow_origins=options.cors_origins,
                allow_methods=["GET", "POST", "PUT", "DELETE"],
                allow_headers=["*"],
                expose_headers=_EXPOSED,
            )
        )
    stack.append(Middleware(ProblemMiddleware, state=app.state))
    if keys:
        services.meters.open(keys.callers)
        stack.append(Middleware(ApiKeyMiddleware, keys=keys, meters=services.meters))
    else:
        stack.append(Middleware(BrowserGuardMiddleware, hosts=options.allowed_hosts, origins=options.cors_origins))
    return [*stack, Middleware(DirectRoutingMiddleware, routes=ROUTES)]
