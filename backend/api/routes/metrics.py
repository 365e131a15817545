"""``GET /metrics`` for Prometheus, ``GET /metrics/gpu`` for people, programs and Prometheus alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.answers import json_answer
from backend.api.deps import exchange_of, services_of
from backend.api.routes.plain import get

_TEXT = "text/plain"
_EXPOSITION = "text/plain; version=1.0.0; charset=utf-8"  # what Telemetry.render writes; a test holds it to that
_PREFIX = "financia_gpu_"


async def metrics(request: Request) -> Response:
    """Every metric in Prometheus' text format. All series exist from the first scrape."""
    return Response(services_of(request).telemetry.render(), media_type=_EXPOSITION)


async def gpu_metrics(request: Request) -> Response:
    """The accelerator: memory, use, temperature, power. Without one the answer has the same fields and says why.

    JSON, unless `Accept` names `text/plain` or OpenMetrics and not JSON, as Prometheus does.
    """
    report = services_of(request).health.gpu()
    if _wants_text(exchange_of(request).headers.get(b"accept", b"")):
        return Response(gpu_text(report), media_type=_EXPOSITION)
    return json_answer(report)


def _wants_text(accept: bytes) -> bool:
    accept = accept.lower()
    return b"application/json" not in accept and (b"text/plain" in accept or b"openmetrics-text" in accept)


def gpu_text(report: Mapping[str, Any]) -> str:
    """The report's numbers as gauges, one family a field: those of the device in use, then those of each GPU."""
    in_use = f'{{device="{report["device"]}"}}'
    samples = [("available", in_use, float(report["available"]))]
    samples += [(f"memory_{name}", in_use, float(value)) for name, value in report["memory"].items()]
    for gpu in report["gpus"]:
        labels = f'{{index="{gpu["index"]}",name="{gpu["name"]}",uuid="{gpu["uuid"]}"}}'
        samples += [(f"card_{name}", labels, float(value)) for name, value in gpu.items() if _is_gauge(name, value)]
    families: dict[str, list[str]] = {}
    for name, labels, value in samples:
        families.setdefault(name, []).append(f"{_PREFIX}{name}{labels} {value}")
    lines = [f"# TYPE {_PREFIX}{name} gauge\n" + "\n".join(rows) for name, rows in families.items()]
    return "\n".join([*lines, ""])


def _is_gauge(name: str, value: object) -> bool:
    return isinstance(value, int | float) and name != "index"


ROUTES = (
    get(
        "/metrics",
        metrics,
        tag="operations",
        media_type=_TEXT,
        example='financia_requests_total{route="/v1/embeddings",status="200"} 42.0\n',
    ),
    get(
        "/metrics/gpu",
        gpu_metrics,
        tag="operations",
        example={
            "available": True,
            "type": "cuda",
            "device": "cuda:0",
            "reason": "the GPU with most free memory",
            "gpus": [{"index": 0, "name": "NVIDIA L4", "uuid": "GPU-5c2…", "total_bytes": 23_034_068_992}],
            "memory": {"used_bytes": 1_300_000_000, "total_bytes": 23_034_068_992},
        },
    ),
)
