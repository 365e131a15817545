"""``GET /metrics`` for Prometheus, ``GET /metrics/gpu`` for people, programs and Prometheus alike."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from backend.api.json_io import json_response
from backend.api.request_context import Handle, context_of, services_of
from backend.api.routing import JSON, described, get
from backend.device.watch.gpu_report import gpu_samples
from backend.serving.health import HealthService
from backend.telemetry import render_samples

_health_of: Handle[HealthService] = Handle("health")

_TEXT = "text/plain"
_EXPOSITION = "text/plain; version=1.0.0; charset=utf-8"  # the format of Telemetry.render; a test compares the two


async def metrics(request: Request) -> Response:
    """Every metric in Prometheus' text format, summed over the processes of the service.

    All series exist from the first scrape. Where the service has keys, the names of callers (the label `key`) are told
    to an admin's key alone; others get the sums over all callers.
    """
    caller = context_of(request).caller
    hidden = ("key",) if request.app.state.keys_needed and not caller.is_admin else ()
    return Response(await services_of(request).telemetry.render_all(hidden=hidden), media_type=_EXPOSITION)


async def gpu_metrics(request: Request) -> Response:
    """The accelerators: memory, use, temperature, power, errors, processes, and how much more fits.

    `gpus` are the cards of the machine, `devices` what this service computes on, a CPU too; without a GPU the answer
    has the same fields and says why. What nobody can tell is null, never 0. JSON, unless `Accept` names `text/plain`
    or OpenMetrics and not JSON, as Prometheus does.
    """
    report = _health_of(request).gpu()
    if _wants_text(context_of(request).headers.get(b"accept", b"")):
        return Response(render_samples(gpu_samples(report)), media_type=_EXPOSITION)
    return json_response(report)


def _wants_text(accept: bytes) -> bool:
    accept = accept.lower()
    return b"application/json" not in accept and (b"text/plain" in accept or b"openmetrics-text" in accept)


_GPU_EXAMPLE = {
    "available": True,
    "type": "cuda",
    "device": "cuda:0",
    "reason": "NVIDIA L4: automatic choice, the most free memory of 1",
    "memory": {"used_bytes": 1_300_000_000, "free_bytes": 21_734_068_992, "total_bytes": 23_034_068_992},
    "platform": "Linux (docker)",
    "driver": {"version": "580.95.05", "cuda": "13.0", "fault": ""},
    "why_no_gpu": "",
    "gpus": [
        {
            "index": 0, "name": "NVIDIA L4", "uuid": "GPU-5c2…", "device": "cuda:0", "lost": "",
            "memory": {"used_bytes": 1_300_000_000, "free_bytes": 21_734_068_992, "total_bytes": 23_034_068_992},
            "utilization_ratio": 0.63, "temperature_celsius": 54.0, "power_watts": 61.2, "throttle": ["sw_power_cap"],
            "processes": [{"pid": 17, "name": "python", "used_bytes": 1_100_000_000, "own": True}],
        }
    ],
    "devices": [
        {
            "device": "cuda:0",
            "ceiling_bytes": 20_730_662_092,
            "allocator": {"allocated_bytes": 900_000_000, "reserved_bytes": 1_000_000_000, "retries": 0, "ooms": 0},
            "headroom": {"bytes": 19_800_000_000, "batches": 9.4, "exhaustion_s": None},
            "alerts": [],
        }
    ],
    "counters": {},
    "collector": {"running": True, "interval_s": 1.0, "looks": 3600, "errors": 0},
}  # fmt: skip

ROUTES = (
    get(
        "/metrics", metrics, tag="operations", media_type=_TEXT,
        example='financia_requests_total{route="/v1/embeddings",status="200"} 42.0\n',
    ),
    get(
        "/metrics/gpu",
        gpu_metrics,
        tag="operations",
        example=_GPU_EXAMPLE,
        more={
            200: described(
                {JSON: {"schema": {"type": "object"}, "example": _GPU_EXAMPLE}, _TEXT: {"schema": {"type": "string"}}}
            )
        },
    ),
)  # fmt: skip
