"""What pages of other origins may send and read, where CORS_ORIGINS names them."""

from __future__ import annotations

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

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
    "ETag",
    "Idempotent-Replay",
)


def with_cors(app: ASGIApp, *, origins: tuple[str, ...]) -> ASGIApp:
    """``app`` with CORS headers on its answers, errors included; ``app`` itself where no origin is named."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["*"],
        expose_headers=_EXPOSED,
    )
