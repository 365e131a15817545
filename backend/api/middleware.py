"""The middleware of every request. Pure ASGI: no task groups, no copies of bodies.

From the outside in: ``RequestContextMiddleware`` makes the request's context and counts it, (CORS, where it is on,)
``ProblemMiddleware`` turns errors into problems, ``ApiKeyMiddleware`` finds the caller by its key (without keys
``BrowserGuardMiddleware`` keeps other sites out), ``TrafficMiddleware`` counts what it holds,
``DirectRoutingMiddleware`` finds the route. Errors are answered inside CORS, so that browsers may read them.

Left out, as in the log: query, address and user agent of the caller. ``http.route`` has the path that counts.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any

from starlette.datastructures import State
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.api.http_protocol import CONNECTION_KEY, PROBE_PATHS
from backend.api.problems import problem_of, problem_response
from backend.api.request_context import CONTEXT_KEY, RequestContext
from backend.api.routing import PlainRoute
from backend.api.traffic import Traffic
from backend.callers.callers import ANYBODY
from backend.errors import CrossSite, FinanciaError, WrongHost, drained_too_late
from backend.telemetry import STAGES, Telemetry
from backend.tracing.spans import NO_TRACER, Resumed, Span, SpanContext, Tracer, read_traceparent, request_id

OTHER = "other"  # the route label of paths that no route has
# Every status a request can end with; their series exist from the first scrape.
STATUSES = tuple(
    map(str, (200, 202, 204, 400, 401, 403, 404, 405, 406, 413, 415, 421, 422, 429, 499, 500, 503, 504, 507))
)
_VALID_ID = re.compile(rb"[\w.:/+=@-]{1,128}", re.ASCII)
Stages = tuple[tuple[str, float], ...]  # stages of telemetry.STAGES and their seconds
_logger = logging.getLogger(__name__)
UNTRACED = ("/health", "/metrics")  # probes and scrapes, every few seconds
# Suffixes that nobody can register (RFC 6761, 6762, 8375; .internal by ICANN; .svc and .lan by use), so that no page of
# the web has such a name. A name without a dot has no suffix at all: a container, a host of the local network.
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".home.arpa", ".test", ".svc", ".lan")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:/\[\]@]+)(?::\d*)?", re.IGNORECASE)
_ORIGIN = re.compile(r"https?://(.+)", re.IGNORECASE)
_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
CLEARING_PATH = "/v1/clear/results"  # docling-serve's, which deletes by GET: a page's picture could ask for it
_SHOWN_CHARS = 80
_EXPOSED = (
    "X-Request-Id", "Server-Timing", "Retry-After", "RateLimit", "RateLimit-Policy", "X-Compute-Tokens",
    "X-Truncated", "X-Truncated-Count", "X-Failed-Pages", "X-Failed-Pages-Count", "X-Partial", "Location", "ETag",
    "Idempotent-Replay",
)  # fmt: skip


class RequestMetrics:
    """The request metrics, with each series looked up once instead of on each request."""

    def __init__(self, telemetry: Telemetry, routes: Iterable[str]) -> None:
        routes = (*routes, OTHER)
        telemetry.open_series("requests_total", routes, STATUSES)
        telemetry.open_series("request_duration_seconds", routes)
        self.in_flight = 0  # read at each scrape: cheaper than two counts a request
        telemetry.requests_in_flight.set_function(lambda: self.in_flight)
        self._requests = telemetry.requests_total
        self._durations = telemetry.request_duration_seconds
        self._stages = {stage: telemetry.stage_duration_seconds.labels(stage) for stage in STAGES}
        self._routes = frozenset(routes)
        self._series: dict[tuple[str, int], tuple[Any, Any]] = {}

    def count(self, route: str, status: int, stage_times: Stages | None, total_s: float) -> None:
        """Count one answered request; a ``route`` that is no template counts as "other"."""
        series = self._series.get((route, status))
        if series is None:
            label = route if route in self._routes else OTHER
            series = (self._requests.labels(label, str(status)), self._durations.labels(label))
            if label == route:  # or paths that callers make up would fill it
                self._series[route, status] = series
        series[0].inc()
        series[1].observe(total_s)
        if stage_times is not None:
            self._stages["total"].observe(total_s)
            for stage, seconds in stage_times:
                if seconds:  # an answer from the cache skipped the others
                    self._stages[stage].observe(seconds)


class RequestContextMiddleware:
    """Makes the context of each request, counts it in the metrics, and adds the headers of each response.

    The server sets ``state.draining`` while it stops: every response then closes its connection, so that clients
    reconnect elsewhere.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: RequestMetrics,
        state: State,
        tracer: Tracer = NO_TRACER,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._app = app
        self._tracer = tracer
        self._metrics = metrics
        self._state = state
        self._clock = clock
        self._prefix = os.urandom(6).hex()
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request; lifespan events pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = self._make_context(scope)
        token = request_id.set(context.request_id)
        try:
            if self._tracer.is_on and not scope["path"].startswith(UNTRACED):
                await self._serve_traced(scope, receive, send, context)
            else:
                await self._serve(scope, receive, send, context)
        finally:
            request_id.reset(token)

    async def _serve_traced(self, scope: Scope, receive: Receive, send: Send, context: RequestContext) -> None:
        span = begin_request(self._tracer, scope, context)
        with Resumed(span):
            try:
                await self._serve(scope, receive, send, context)
            finally:
                if span.context.is_sampled:
                    route = route_of(scope) if "route" in scope else None
                    describe_request(span, scope, context, route=route, status=context.status or 500)
                    span.end()

    async def _serve(self, scope: Scope, receive: Receive, send: Send, context: RequestContext) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers(context)]
            await send(message)

        self._metrics.in_flight += 1
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            self._metrics.in_flight -= 1
            total_s = self._clock() - context.started_s
            status = context.status or 500
            self._metrics.count(route_of(scope), status, stages(context), total_s)
            context.meter.count(status)

    def _make_context(self, scope: Scope) -> RequestContext:
        headers = dict(scope["headers"])
        callers_id = headers.get(b"x-request-id")
        if callers_id is not None and _VALID_ID.fullmatch(callers_id):
            own_id = callers_id.decode("ascii")
        else:
            own_id = f"{self._prefix}-{next(self._numbers)}"
        context = RequestContext(request_id=own_id, started_s=self._clock(), headers=headers)
        scope[CONTEXT_KEY] = context
        return context

    def _headers(self, context: RequestContext) -> list[tuple[bytes, bytes]]:
        total_s = self._clock() - context.started_s
        headers = [
            (b"x-request-id", context.request_id.encode("ascii")),
            (b"server-timing", server_timing(stages(context), total_s).encode("ascii")),
            *context.meter.headers(),
        ]
        if self._state.draining:
            headers.append((b"connection", b"close"))
        return headers


class ProblemMiddleware:
    """Answers every error as a problem. Unexpected errors are logged here, once, with the request's id.

    A request that the server cancels because its time to drain is over gets 503, so that its client asks elsewhere.
    """

    def __init__(self, app: ASGIApp, *, state: State) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; raises only what happens after the response has started."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context: RequestContext = scope[CONTEXT_KEY]
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._state.draining or context.status:
                raise
            await problem_response(problem_of(drained_too_late(), scope["path"]), context.request_id, scope["path"])(
                scope, receive, send
            )
        except Exception as error:
            problem = problem_of(error, scope["path"])
            if problem.code == "internal_error":
                fields = {"request_id": context.request_id, "method": scope["method"], "route": route_of(scope)}
                _logger.error("request failed", exc_info=error, extra={"fields": fields})
            if context.status:  # a part of the response was sent: only closing the connection shows the error
                raise
            await problem_response(problem, context.request_id, scope["path"])(scope, receive, send)


class BrowserGuardMiddleware:
    """Keeps other web sites' pages, open in a caller's browser, from using a service that asks for no keys.

    Two ways lead there. A page may have its own name resolve to this machine (DNS rebinding): the browser then takes
    the service for the page's own site, but sends the page's name as Host. And a page may send forms and uploads
    anywhere: it cannot read the answer, but the work is done; browsers say where such a request comes from. With keys
    neither works.

    Probes pass under any name: they show nothing, and balancers name them as they like.

    Args:
        hosts: names allowed besides IP addresses and private names; "*" is any.
        origins: that may send changes, those of CORS; "*" is any.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; raises WrongHost and CrossSite, which ``ProblemMiddleware`` answers."""
        if scope["type"] == "http":
            headers: Mapping[bytes, bytes] = scope[CONTEXT_KEY].headers
            host = headers.get(b"host", b"")
            if not is_known_host(host, self._hosts) and scope["path"] not in PROBE_PATHS:
                raise _wrong_host(host)
            is_safe = scope["method"] in _SAFE_METHODS and scope["path"] != CLEARING_PATH
            if not is_safe and is_cross_site(headers, self._origins):
                raise _cross_site(headers)
        await self._app(scope, receive, send)


class TrafficMiddleware:
    """Counts each request, and its body as it arrives, until it has been answered; probes are always answered."""

    def __init__(self, app: ASGIApp, *, traffic: Traffic) -> None:
        self._app, self._traffic = app, traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; raises Overloaded, also from ``receive``, which ``ProblemMiddleware`` answers."""
        if scope["type"] != "http" or scope["path"] in PROBE_PATHS:
            await self._app(scope, receive, send)
            return
        traffic, context, held_bytes = self._traffic, scope[CONTEXT_KEY], 0
        owner = _owner(scope, context)
        if (connection := scope.get(CONNECTION_KEY)) is not None:
            connection.owner = owner

        async def receive_counted() -> Message:
            nonlocal held_bytes
            message = await receive()
            if body := message.get("body"):
                traffic.hold(owner, len(body))
                held_bytes += len(body)
            return message

        length = context.headers.get(b"content-length", b"")
        traffic.begin(owner, int(length[:20]) if length.isdigit() else 0)
        try:
            await self._app(scope, receive_counted, send)
        finally:
            traffic.end(owner, held_bytes)


class DirectRoutingMiddleware:
    """Finds a plain route by its method and path in a dictionary, and calls it past FastAPI's own layers.

    Those are an exit stack, two more exception middlewares and a search through all routes: 10 µs of a request. What is
    not found here (other methods, path parameters, FastAPI's own routes) goes through them.
    """

    def __init__(self, app: ASGIApp, *, routes: Iterable[PlainRoute]) -> None:
        self._app = app
        self._routes = {
            (method, route.path): route
            for route in routes
            if not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, directly where its path is known."""
        route = self._routes.get((scope.get("method", ""), scope.get("path", "")))
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        response: Response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)


def route_of(scope: MutableMapping[str, Any]) -> str:
    """The path template of the request's route; the path itself where no route matched."""
    route = scope.get("route")
    path: str = route.path_format if route is not None else scope["path"]
    return path


def _owner(scope: Scope, context: RequestContext) -> str:
    client = scope.get("client")
    address: str = client[0] if client else ""
    return address if context.caller is ANYBODY else context.caller.owner


def stages(context: RequestContext) -> Stages | None:
    """The stages of a request in their order, in seconds, named as in the metrics; None where it has none."""
    timing = context.timing
    if timing is None:
        return context.stages or None
    return (
        ("cache", timing.cache_s),
        ("tokenize", timing.tokenize_s),
        ("queue", timing.queue_s),
        ("inference", timing.inference_s),
    )


def server_timing(stage_times: Stages | None, total_s: float) -> str:
    """The Server-Timing header: stages and total in milliseconds, as the header's format wants them."""
    total = f"total;dur={total_s * 1e3:.3f}"
    if stage_times is None:
        return total
    return ", ".join([*(f"{stage};dur={seconds * 1e3:.3f}" for stage, seconds in stage_times), total])


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


@lru_cache(maxsize=256)
def is_known_host(header: bytes, hosts: frozenset[str]) -> bool:
    """Whether a Host header names this service: an IP address, a private name, one of ``hosts``, or nothing.

    Browsers always send the header; a client that leaves it out is none.
    """
    if not header or "*" in hosts:
        return True
    name = _host_name(header.decode("latin-1"))
    if name is None:
        return False
    return name in hosts or _is_address(name) or "." not in name or name.endswith(_PRIVATE_SUFFIXES)


def is_cross_site(headers: Mapping[bytes, bytes], origins: frozenset[str]) -> bool:
    """Whether a browser sends the request for a page of another site that ``origins`` does not allow.

    Sec-Fetch-Site says so, where the browser has it and the connection is TLS or local; else the Origin's host does.
    """
    origin = headers.get(b"origin", b"").decode("latin-1")
    if "*" in origins or origin in origins:
        return False
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site.lower() == b"cross-site"
    if not origin:
        return False
    match = _ORIGIN.fullmatch(origin)
    host = _host_name(headers.get(b"host", b"").decode("latin-1"))
    return match is None or host is None or _host_name(match[1]) != host


def _host_name(host: str) -> str | None:
    match = _HOST.fullmatch(host)
    return None if match is None else match[1].lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _wrong_host(host: bytes) -> FinanciaError:
    name = host.decode("latin-1")[:_SHOWN_CHARS]
    return WrongHost(
        f"Host: '{name}' is no name of this service. Without API_KEYS it answers to IP addresses, to names without a "
        "dot and to private ones (localhost, .local, .internal, .svc, …), so that no web page can reach it under a "
        "name of its own. Add the name to ALLOWED_HOSTS, or set API_KEYS"
    )


def _cross_site(headers: Mapping[bytes, bytes]) -> FinanciaError:
    origin = headers.get(b"origin", b"").decode("latin-1")[:_SHOWN_CHARS] or "another site"
    return CrossSite(
        f"a page of {origin} sent this through a browser. Without API_KEYS only this service's own pages may; add the "
        "origin to CORS_ORIGINS, or set API_KEYS"
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
