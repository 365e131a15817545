"""Health probes. They need no key and never queue."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import json_response
from backend.api.problems import MEDIA_TYPE, Problem, ProblemDetails, problem_response
from backend.api.request_context import Handle, context_of
from backend.api.routes.tei import now_s
from backend.api.routing import JSON, described, get
from backend.errors import Unavailable
from backend.serving.health import HealthService

_health_of: Handle[HealthService] = Handle("health")


class Live(TypedDict):
    """The process answers."""

    status: Literal["alive"]


class Ready(TypedDict):
    """Requests are answered; when not, a problem with ``reasons`` is sent instead."""

    status: Literal["ready"]
    reasons: list[str]
    degraded: list[str]  # what fails beside the requests


class NotReady(ProblemDetails):
    """A problem that says why requests are not answered."""

    reasons: list[str]


class HealthModel(TypedDict):
    """A loaded model."""

    name: str
    task: str
    runtime: str
    dtype: str
    is_loaded: Annotated[
        bool, Field(description="false while it is idle and its memory is given back, and just after the start.")
    ]


class HealthDevice(TypedDict):
    """What computes."""

    device: str
    lanes: int
    reason: str


class HealthLanes(TypedDict):
    """The queue and those who work on it."""

    lanes: int
    lanes_alive: int
    busy: int
    queued_jobs: int
    queued_tokens: int
    oldest_s: Annotated[float, Field(description="Age of the oldest queued item.")]
    running_s: Annotated[float, Field(description="Age of the oldest batch on a lane.")]
    last_batch_age_s: Annotated[float | None, Field(description="null before the first batch.")]
    rate_tokens_per_s: float
    device_fault: Annotated[str, Field(description="Why a device is lost for good; empty otherwise.")]


class HealthRedis(TypedDict):
    """The tier of the cache that replicas share."""

    address: str
    state: Literal["closed", "open", "half_open"]
    retry_in_s: float
    pending_bytes: int
    last_error: str | None


class HealthCache(TypedDict):
    """The cache of vectors."""

    enabled: bool
    memory_entries: int
    memory_bytes: int
    memory_limit_bytes: int
    redis: Annotated[HealthRedis | None, Field(description="null without REDIS_URL.")]


class Health(TypedDict):
    """`GET /health`, with 200 and, while unavailable, with 503."""

    status: Literal["ready", "unavailable"]
    reasons: list[str]
    degraded: list[str]  # what fails beside the requests, as a background task that does not stay up
    measuring: Annotated[
        list[str],
        Field(description="What is still to be measured, when nothing else is to be done. It serves meanwhile."),
    ]
    models: list[HealthModel]
    device: HealthDevice
    lanes: HealthLanes
    cache: HealthCache
    unix: Annotated[int, Field(description="Now, in seconds: infinity's clients look for it.")]


_DRAINING = "draining: the process was told to stop"


async def live(_request: Request) -> Response:
    """Whether the process answers. Falls only with the process: restarting is the cure for nothing less."""
    return json_response(Live(status="alive"))


async def ready(request: Request) -> Response:
    """Whether requests are answered now; 503 with `reasons` while loading, draining, or when the device fails.

    `degraded` names what fails beside the requests: the bundled model serving in place of one that the hub does not
    give, or a background task that does not stay up. Requests are answered all the same.
    """
    reasons = await _reasons(request)
    if not reasons:
        return json_response(Ready(status="ready", reasons=[], degraded=_health_of(request).degraded()))
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
    """The state of models, device, lanes and cache; 503 while not ready.

    `degraded` names what fails beside the requests, as a background task that does not stay up, or a model that could
    not be fetched yet.
    """
    reasons = await _reasons(request)
    report = _health_of(request).report()
    status = {"status": "unavailable" if reasons else "ready", "reasons": reasons}
    return json_response({**report, **status, "unix": now_s()}, status=503 if reasons else 200)


async def _reasons(request: Request) -> list[str]:
    """Why requests are not answered now; empty when they are."""
    readiness = await _health_of(request).ready()
    draining = [_DRAINING] if request.app.state.draining else []
    return draining if readiness.ready else [*draining, *readiness.reasons]


_REPORT = {
    "status": "ready",
    "reasons": [],
    "degraded": [],
    "measuring": [],
    "models": [
        {
            "name": "intfloat/multilingual-e5-small",
            "task": "embeddings",
            "runtime": "openvino",
            "dtype": "int8",
            "is_loaded": True,
        }
    ],
    "device": {"device": "cpu", "lanes": 2, "reason": "CPU: no GPU was found"},
    "lanes": {
        "lanes": 2, "lanes_alive": 2, "busy": 1, "queued_jobs": 0, "queued_tokens": 0, "oldest_s": 0.0,
        "running_s": 0.012, "last_batch_age_s": 0.8, "rate_tokens_per_s": 41_000.0, "device_fault": "",
    },
    "cache": {
        "enabled": True,
        "memory_entries": 332,
        "memory_bytes": 688_003,
        "memory_limit_bytes": 134_217_728,
        "redis": None,
    },
    "unix": 1_767_225_600,
}  # fmt: skip
_UNAVAILABLE = {**_REPORT, "status": "unavailable", "reasons": [_DRAINING]}
ROUTES = (
    get(
        "/health",
        health,
        tag="operations",
        schema=Health,
        example=_REPORT,
        more={
            503: described(
                {JSON: {"schema": Health, "example": _UNAVAILABLE}, MEDIA_TYPE: {"schema": ProblemDetails}},
                description="The same while requests are not answered; a problem where the process is stopping.",
            )
        },
    ),
    get("/health/live", live, tag="operations", schema=Live, example={"status": "alive"}),
    get(
        "/health/ready",
        ready,
        tag="operations",
        schema=Ready,
        example={"status": "ready", "reasons": [], "degraded": []},
        more={
            503: described(
                {MEDIA_TYPE: {"schema": {"anyOf": [NotReady, ProblemDetails]}}},
                ("Retry-After", "X-Should-Retry"),
                "Requests are not answered; `reasons` tells why.",
            )
        },
    ),
)
