"""The span of an HTTP request, named and described by OpenTelemetry's semantic conventions for HTTP servers.

Left out, as in the log: query, address and user agent of the caller. ``http.route`` has the path that counts.
"""

from __future__ import annotations

from typing import Any

from starlette.types import Scope

from backend.api.dependencies import RequestContext
from backend.tracing.context import SpanContext, read_traceparent
from backend.tracing.spans import Span, Tracer

UNTRACED = ("/health", "/metrics")  # probes and scrapes, every few seconds


def caller_span(headers: dict[bytes, bytes]) -> SpanContext | None:
    """The caller's span, of `traceparent` and `tracestate`; None without one, or with a malformed one."""
    header = headers.get(b"traceparent")
    if header is None:
        return None
    return read_traceparent(header.decode("latin-1").strip(), headers.get(b"tracestate", b"").decode("latin-1"))


def begin_request(tracer: Tracer, scope: Scope, context: RequestContext) -> Span:
    """The request's span, from the arrival of its headers on."""
    return tracer.start(scope["method"], "server", caller_span(context.headers), context.arrived_s)


def describe_request(span: Span, scope: Scope, context: RequestContext, *, route: str | None, status: int) -> None:
    """Name and attributes, once the answer is known; ``route``: None where no template matched."""
    method = scope["method"]
    span.name = method if route is None else f"{method} {route}"
    attributes: dict[str, Any] = {
        "http.request.method": method,
        "http.response.status_code": status,
        "url.path": scope["path"],
        "url.scheme": scope.get("scheme", "http"),
        "network.protocol.version": scope.get("http_version", "1.1"),
        "financia.request_id": context.request_id,
    }
    if route is not None:
        attributes["http.route"] = route
    if (server := scope.get("server")) is not None and server[1]:
        attributes["server.address"], attributes["server.port"] = server
    span.attributes.update(attributes)
    if status >= 500:
        span.error = str(status)
