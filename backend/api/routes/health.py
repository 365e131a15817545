"""Health probes. They need no key and never queue."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.problems import Problem, problem_response
from backend.api.responses.json_bytes import json_response
from backend.api.responses.operations import Live, Ready
from backend.api.routing import get
from backend.errors import Unavailable

_DRAINING = "draining: the process was told to stop"


async def live(_request: Request) -> Response:
    """Whether the process answers. Falls only with the process: restarting is the cure for nothing less."""
    return json_response(Live(status="alive"))


async def ready(request: Request) -> Response:
    """Whether requests are answered now; 503 with `reasons` while loading, draining, or when the device fails."""
    reasons = await _reasons(request)
    if not reasons:
        return json_response(Ready(status="ready", reasons=[]))
    problem = Problem(
        status=Unavailable.status,
        code=Unavailable.code,
        title="Not ready",
        detail="; ".join(reasons),
        retryable=Unavailable.retryable,
        retry_after_s=1.0,
        extensions={"reasons": reasons},
    )
    return problem_response(problem, context_of(request).request_id)


async def health(request: Request) -> Response:
    """The state of models, device, lanes and cache; 503 while not ready."""
    reasons = await _reasons(request)
    report = services_of(request).health.report()
    status = {"status": "unavailable" if reasons else "ready", "reasons": reasons}
    return json_response({**report, **status}, status=503 if reasons else 200)


async def _reasons(request: Request) -> list[str]:
    """Why requests are not answered now; empty when they are."""
    readiness = await services_of(request).health.ready()
    draining = [_DRAINING] if request.app.state.draining else []
    return draining if readiness.ready else [*draining, *readiness.reasons]


_REPORT = {"status": "ready", "reasons": [], "models": ["all-MiniLM-L6-v2"], "device": "cpu", "cache": {"memory": "up"}}
ROUTES = (
    get("/health", health, tag="operations", example=_REPORT, errors=(503,)),
    get("/health/live", live, tag="operations", schema=Live, example={"status": "alive"}),
    get(
        "/health/ready",
        ready,
        tag="operations",
        schema=Ready,
        example={"status": "ready", "reasons": []},
        errors=(503,),
    ),
)
