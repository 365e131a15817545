"""The upper bound of HTTP: a route that returns constant bytes.

It bounds the speed of cache hits. ``bare`` is FastAPI alone, used as its guide shows; ``ours`` is this service's app
with middleware, metrics and headers, and an endpoint that does nothing. Neither reads the request's body, which favours
the constant over the service.
"""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from fastapi import FastAPI, Response
from starlette.requests import Request

from backend.api.app import ROUTES, create_app
from backend.api.request_context import ApiLimits, Services
from backend.telemetry import Telemetry

_PATH = "/v1/embeddings"
_READY = "/health/ready"


def bare() -> FastAPI:
    """FastAPI with this route only."""
    app = FastAPI()
    body = _body()

    @app.post(_PATH)
    async def constant() -> Response:
        return Response(body, media_type="application/json")

    @app.get(_READY)
    async def ready() -> dict[str, str]:
        return {"status": "ok"}

    return app


def ours() -> FastAPI:
    """This service's app with the endpoint of its embeddings route replaced; no model is loaded."""
    body = _body()

    async def constant(_request: Request) -> Response:
        return Response(body, media_type="application/json")

    for route in ROUTES:
        if route.path in (_PATH, _READY):
            route.endpoint = constant
    return create_app(cast("Services", SimpleNamespace(telemetry=Telemetry(), limits=ApiLimits())))


def _body() -> bytes:
    return Path(os.environ["BENCHMARK_BODY"]).read_bytes()
