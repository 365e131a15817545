"""What happens to every request, whatever its route. Pure ASGI: no task groups, no copies of bodies.

From the outside in: ``Edge`` opens the exchange and counts it, (CORS, where it is on,) ``Guard`` turns errors
into problems, ``KeyGate`` asks for a key, ``Shortcut`` finds the route. Errors are answered inside CORS, so that
browsers may read them.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from starlette.datastructures import State
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.api.deps import EXCHANGE, Exchange
from backend.api.problems import answer, problem_of
from backend.api.routes import page
from backend.api.routes.plain import PlainRoute
from backend.errors import Unauthorized, Unavailable
from backend.telemetry import STAGES, Telemetry

OTHER = "other"  # the route label of paths that no route has
OPEN_PATHS = frozenset(
    ("/health", "/health/live", "/health/ready", "/metrics", "/metrics/gpu", "/docs", "/openapi.json", *page.PATHS)
)
# Every status a request can end with; their series exist from the first scrape.
STATUSES = (
    "200",
    "202",
    "204",
    "400",
    "401",
    "404",
    "405",
    "406",
    "413",
    "415",
    "422",
    "429",
    "499",
    "500",
    "503",
    "504",
    "507",
)
_SANE_ID = re.compile(rb"[\w.:/+=@-]{1,128}", re.ASCII)
Spent = tuple[tuple[str, float], ...]  # stages of telemetry.STAGES and their seconds
_logger = logging.getLogger(__name__)


class RequestMetrics:
    """The request metrics with their series found once, not by label on each request."""

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

    def count(self, route: str, status: int, spent: Spent | None, total_s: float) -> None:
        """One answered request; ``route`` is a template, anything else counts as "other"."""
        series = self._series.get((route, status))
        if series is None:
            label = route if route in self._routes else OTHER
            series = (self._requests.labels(label, str(status)), self._durations.labels(label))
            if label == route:  # paths that callers make up must not grow this
                self._series[route, status] = series
        series[0].inc()
        series[1].observe(total_s)
        if spent is not None:
            self._stages["total"].observe(total_s)
            for stage, seconds in spent:
                if seconds:  # an answer from the cache never saw the others
                    self._stages[stage].observe(seconds)


class Edge:
    """Gives each request its id, its clock and its place in the metrics, and each answer its headers.

    ``state.draining`` is set by the server while it stops: every answer then ends its connection, so that clients
    reconnect elsewhere.
    """

    def __init__(
        self, app: ASGIApp, *, metrics: RequestMetrics, state: State, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._state = state
        self._clock = clock
        self._prefix = os.urandom(6).hex()
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request; the lifespan passes through untouched."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = self._open(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers(exchange)]
            await send(message)

        self._metrics.in_flight += 1
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            self._metrics.in_flight -= 1
            total_s = self._clock() - exchange.started_s
            self._metrics.count(route_of(scope), exchange.status or 500, stages(exchange), total_s)

    def _open(self, scope: Scope) -> Exchange:
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id")
        sane = given is not None and _SANE_ID.fullmatch(given) is not None
        request_id = given.decode("ascii") if given is not None and sane else f"{self._prefix}-{next(self._numbers)}"
        exchange = Exchange(request_id=request_id, started_s=self._clock(), headers=headers)
        scope[EXCHANGE] = exchange
        return exchange

    def _headers(self, exchange: Exchange) -> list[tuple[bytes, bytes]]:
        total_s = self._clock() - exchange.started_s
        headers = [
            (b"x-request-id", exchange.request_id.encode("ascii")),
            (b"server-timing", server_timing(stages(exchange), total_s).encode("ascii")),
        ]
        if self._state.draining:
            headers.append((b"connection", b"close"))
        return headers


class Guard:
    """Answers every error as a problem. What is not of our tree is logged here, once, with the request's id.

    A request that the server ends because its time to drain is over gets 503, so that its client asks elsewhere.
    """

    def __init__(self, app: ASGIApp, *, state: State) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; nothing is raised unless an answer had already begun."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange: Exchange = scope[EXCHANGE]
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._state.draining or exchange.status:
                raise
            late = Unavailable("the service is shutting down and had no time left for this request; ask again")
            await answer(problem_of(late, scope["path"]), exchange.request_id)(scope, receive, send)
        except Exception as error:
            problem = problem_of(error, scope["path"])
            if problem.code == "internal_error":
                fields = {"request_id": exchange.request_id, "method": scope["method"], "route": route_of(scope)}
                _logger.error("request failed", exc_info=error, extra={"fields": fields})
            if exchange.status:  # half an answer is out: only the end of the connection can tell
                raise
            await answer(problem, exchange.request_id)(scope, receive, send)


class KeyGate:
    """Lets a request pass that carries one of the keys, or asks for nothing that needs one.

    Health, metrics, documentation and the page's files are open: probes and scrapers carry no keys, and none of them
    tells what callers sent. Every key is compared in constant time and to its end, whichever matches.
    """

    def __init__(self, app: ASGIApp, *, keys: Iterable[str]) -> None:
        self._app = app
        self._keys = tuple(key.encode("utf-8") for key in keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; raises Unauthorized, which ``Guard`` answers."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            self._require_key(scope[EXCHANGE].headers.get(b"authorization", b""))
        await self._app(scope, receive, send)

    def _require_key(self, authorization: bytes) -> None:
        scheme, _, given = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not given:
            raise Unauthorized("a key is needed: send the header 'Authorization: Bearer <key>' (API_KEYS)")
        matches = [hmac.compare_digest(given.strip(), key) for key in self._keys]
        if not any(matches):
            raise Unauthorized("the key is not one of this service's (API_KEYS)")


class Shortcut:
    """Leads to a plain route by its path, past the parts of FastAPI that it does not use.

    Those are an exit stack, two more error borders and a search through all routes: 10 µs of a request. Whatever is
    not found here (other methods, path parameters, FastAPI's own routes) goes the usual way.
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
        """Serve one request by the shorter way, if there is one."""
        route = self._routes.get((scope.get("method", ""), scope.get("path", "")))
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        await route.handle(scope, receive, send)


def route_of(scope: MutableMapping[str, Any]) -> str:
    """The template of the route that took the request; of a path that no route took, the path itself."""
    route = scope.get("route")
    path: str = route.path_format if route is not None else scope["path"]
    return path


def stages(exchange: Exchange) -> Spent | None:
    """The stages of a request in their order, in seconds, named as in the metrics; None where none was entered."""
    timing = exchange.timing
    if timing is None:
        return exchange.stages or None
    return (
        ("cache", timing.cache_s),
        ("tokenize", timing.tokenize_s),
        ("queue", timing.queue_s),
        ("inference", timing.inference_s),
    )


def server_timing(spent: Spent | None, total_s: float) -> str:
    """The Server-Timing header: stages and total in milliseconds, as the header's format wants them."""
    total = f"total;dur={total_s * 1e3:.3f}"
    if spent is None:
        return total
    return ", ".join([*(f"{stage};dur={seconds * 1e3:.3f}" for stage, seconds in spent), total])
