"""What every route can reach: the services, the limits, the context of the request; and how it calls a service.

A call is cancelled at the request's deadline and when its client disconnects.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from starlette.requests import Request
from starlette.types import Receive

from backend.api.traffic import Traffic
from backend.callers.callers import ANYBODY, NO_METER, Caller, LiveKeys, Meter, Quotas, sharer
from backend.callers.quotas import Meters
from backend.errors import CallerGone, DeadlineExceeded, InvalidField
from backend.lanes.cache.store import CacheScope
from backend.lanes.inference import Timing, Urgency, count_started
from backend.lanes.text_work import TextWork
from backend.telemetry import Telemetry

Service = TypeVar("Service")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
CONTEXT_KEY = "financia.request_context"  # in the ASGI scope
_TIMEOUT_HEADER = b"x-request-timeout-s"
_NUMBER = re.compile(r"[0-9.eE+-]{1,40}")


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Limits of one request; each field is the setting LIMIT_<NAME>."""

    inputs: int = 2048
    labels: int = 1000  # of one request or classifier
    text_chars: int = 1_000_000  # of one text
    tokenize_tokens: int = 1_000_000  # that one POST /tokenize is answered with
    body_bytes: int = 16 * 2**20
    request_s: float = 60.0
    connections: int = 2000
    transcription_s: float = 600.0  # instead of request_s, of /v1/audio


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Options of the HTTP layer, whatever services are behind it."""

    api_keys: tuple[str, ...] = ()  # as in API_KEYS; without these and admin_keys no key is asked for
    admin_keys: tuple[str, ...] = ()  # as in ADMIN_KEYS
    quotas: Quotas = field(default_factory=Quotas)  # of each caller of api_keys
    keys: LiveKeys | None = None  # in place of the three above; which of them may change while the app serves
    cache_scope: CacheScope = "service"  # as CACHE_SCOPE
    cors_origins: tuple[str, ...] = ()  # empty: CORS is off
    allowed_hosts: tuple[str, ...] = ()  # names of this service that are not private, while there are no keys
    traffic: Traffic = field(default_factory=Traffic)  # which the connections of the server count too
    version: str = "0.1.0"


class Services(Protocol):
    """What every app needs of its services; each route takes others by a `Handle`."""

    @property
    def text_work(self) -> TextWork: ...

    @property
    def telemetry(self) -> Telemetry: ...

    @property
    def meters(self) -> Meters: ...

    @property
    def limits(self) -> ApiLimits: ...


class Handle(Generic[Service]):
    """A service by its name among the app's: a route imports the types of those that it calls, and of no others.

    A test compares the types with those of the running services. Source: hynek/svcs, one key a service.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, request: Request) -> Service:
        """The service of the app that got ``request``."""
        return cast("Service", getattr(request.app.state.services, self.name))


@dataclass(slots=True)
class RequestContext:
    """What the middleware knows of a request, and what routes report to it."""

    request_id: str  # the caller's X-Request-Id where it is valid; in the answer and in the log
    started_s: float  # perf_counter
    headers: dict[bytes, bytes]  # names in lower case; of a repeated header the last value
    status: int = 0  # of the response; set when it starts
    timing: Timing | None = None  # set by routes that run inference
    caller: Caller = ANYBODY  # whose key it carries
    meter: Meter = NO_METER  # counts what the caller uses
    arrived_s: float = field(default_factory=time.monotonic)  # when its headers were there; deadlines count from here
    stages: tuple[tuple[str, float], ...] = ()  # set by routes with other stages: names of telemetry.STAGES, seconds


def context_of(request: Request) -> RequestContext:
    """The context that the middleware made for this request."""
    return cast("RequestContext", request.scope[CONTEXT_KEY])


def owner_of(request: Request) -> str:
    """Whose files, stores and jobs a request sees."""
    return context_of(request).caller.owner


def base_of(request: Request) -> str:
    """The address that the client used, behind a proxy that tells it, too."""
    headers = context_of(request).headers
    scheme = headers.get(b"x-forwarded-proto", request.url.scheme.encode()).partition(b",")[0].strip()
    host = headers.get(b"x-forwarded-host", headers.get(b"host", b"")).partition(b",")[0].strip()
    return f"{'https' if scheme.lower() == b'https' else 'http'}://{host.decode('latin-1')}"


def services_of(request: Request) -> Services:
    """What every app needs of its services."""
    return cast("Services", request.app.state.services)


def limits_of(request: Request) -> ApiLimits:
    """The limits of requests."""
    return services_of(request).limits


class Timed(Protocol):
    """A result that says how long each stage took, and how many tokens it took."""

    @property
    def timing(self) -> Timing: ...

    @property
    def tokens(self) -> int | Sequence[int]:
        """Of all inputs, or of each."""


TimedResult = TypeVar("TimedResult", bound=Timed)


class ServiceCall(Protocol[Result_co]):
    """A call of a service that lacks only its urgency: interactive, with the request's deadline."""

    def __call__(self, *, urgency: Urgency) -> Coroutine[Any, Any, Result_co]: ...


async def call_service(
    request: Request, call: ServiceCall[Result], *, characters: int = 0, most_s: float | None = None
) -> Result:
    """The result of ``call``. Whoever leaves, or asks for more than can be done in time, pays for what has begun.

    Args:
        most_s: instead of LIMIT_REQUEST_S.
        characters: of all texts of the request; until the call ends they count against the budget of all requests.

    Raises: InvalidField for an invalid X-Request-Timeout-S, TooLarge and Overloaded for the characters, CallerGone,
        DeadlineExceeded, and whatever ``call`` raises.
    """
    services = services_of(request)
    limit_s = time_limit_s(request, services.limits, most_s)
    deadline_s = context_of(request).arrived_s + limit_s
    owner = sharer(context_of(request).caller.owner)
    with services.text_work.admit(characters, owner), count_started(owner) as started:
        try:
            work = call(urgency=Urgency(deadline_s=deadline_s))
            return await run_until_disconnect(work, request.receive, limit_s, deadline_s)
        except (DeadlineExceeded, CallerGone) as error:
            started.charge_to(partial(context_of(request).meter.charge, "tokens"))
            if isinstance(error, CallerGone):
                raise
            raise DeadlineExceeded(limit_s) from error  # a batch knows only the time that was left to it


async def call_within_limit(request: Request, call: Coroutine[Any, Any, Result]) -> Result:
    """As ``call_service``, of a call that takes no deadline because it computes nothing: a storage's."""
    try:
        limit_s = time_limit_s(request, limits_of(request))
    except BaseException:
        call.close()
        raise
    return await run_until_disconnect(call, request.receive, limit_s, context_of(request).arrived_s + limit_s)


async def read_within_limit(
    request: Request, read: Coroutine[Any, Any, Result], *, most_s: float | None = None
) -> Result:
    """What ``read`` makes of the body; its time counts against that of the whole request.

    Args:
        most_s: LIMIT_TRANSCRIPTION_S where it holds instead of LIMIT_REQUEST_S.

    Raises: DeadlineExceeded when the body is not whole in time; InvalidField for an invalid X-Request-Timeout-S;
        whatever ``read`` raises.
    """
    try:
        limit_s = time_limit_s(request, limits_of(request), most_s)
    except BaseException:
        read.close()
        raise
    try:
        return await run_until_disconnect(read, None, limit_s, context_of(request).arrived_s + limit_s)
    except DeadlineExceeded as error:
        setting = "LIMIT_REQUEST_S" if most_s is None else "LIMIT_TRANSCRIPTION_S"
        raise DeadlineExceeded(
            limit_s,
            f"the body was not whole after {limit_s:g} s, the time of the whole request ({setting}, or its own "
            "X-Request-Timeout-S); send less at once, or over a faster connection, or raise the limit",
        ) from error


async def call_service_timed(request: Request, call: ServiceCall[TimedResult], *, characters: int = 0) -> TimedResult:
    """As ``call_service``; the stages' times go to the Server-Timing header and to the metrics, the caller pays."""
    result = await call_service(request, call, characters=characters)
    context = context_of(request)
    context.timing = result.timing
    tokens = result.tokens
    context.meter.charge("tokens", tokens if isinstance(tokens, int) else sum(tokens))
    return result


def time_limit_s(request: Request, limits: ApiLimits, most_s: float | None = None) -> float:
    """Seconds from a request's headers to its answer: LIMIT_REQUEST_S, or less where the caller asks for less.

    ``most_s``: instead of LIMIT_REQUEST_S.

    Raises: InvalidField when X-Request-Timeout-S is no positive number.
    """
    most_s = limits.request_s if most_s is None else most_s
    header = context_of(request).headers.get(_TIMEOUT_HEADER)
    if header is None:
        return most_s
    timeout_s = number_of(header.decode("latin-1"))
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise InvalidField(
            f"X-Request-Timeout-S: must be a positive number of seconds, got '{header.decode('latin-1')[:40]}'",
            param="X-Request-Timeout-S",
        )
    return min(timeout_s, most_s)


def number_of(text: str) -> float:
    """A number as JSON and HTTP write it; NaN for anything else, also for what Python reads: 1_0, inf, " 1"."""
    try:
        return float(text) if _NUMBER.fullmatch(text) else math.nan
    except ValueError:
        return math.nan


async def run_until_disconnect(
    work: Coroutine[Any, Any, Result], receive: Receive | None, limit_s: float, deadline_s: float | None = None
) -> Result:
    """The result of ``work``, which is cancelled when the client disconnects or the time is up.

    Watching starts only once ``work`` has to wait: what the cache answers in one step pays one cancelled callback.

    Args:
        receive: the client's ASGI messages, its body read to the end, because the watcher drops what comes;
            None watches the clock alone.
        limit_s: of the whole request, for the error's message.
        deadline_s: when that is over, on the monotonic clock; unset: ``limit_s`` from now.

    Raises: CallerGone, DeadlineExceeded, and whatever ``work`` raises.
    """
    task = asyncio.current_task()
    assert task is not None, "routes run in a task"
    left_s = limit_s if deadline_s is None else max(0.0, deadline_s - time.monotonic())
    watcher = _DisconnectWatcher(task, receive, limit_s, left_s)
    start = watcher.loop.call_soon(watcher.start)
    try:
        return await work
    except asyncio.CancelledError:
        if watcher.error is None:  # cancelled from outside, e.g. by the server at shutdown
            raise
        task.uncancel()
        raise watcher.error from None
    finally:
        start.cancel()
        watcher.stop()


class _DisconnectWatcher:
    """Cancels one task when its client disconnects or its time is up, and remembers which as an error."""

    __slots__ = ("_left_s", "_limit_s", "_reader", "_receive", "_task", "_timer", "error", "loop")

    def __init__(self, task: asyncio.Task[Any], receive: Receive | None, limit_s: float, left_s: float) -> None:
        self.loop = task.get_loop()
        self.error: CallerGone | DeadlineExceeded | None = None
        self._task = task
        self._receive = receive
        self._limit_s, self._left_s = limit_s, left_s
        self._reader: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._receive is not None:
            self._reader = self.loop.create_task(self._read(self._receive))
        self._timer = self.loop.call_later(self._left_s, self._time_is_up)

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        if self._timer is not None:
            self._timer.cancel()

    async def _read(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass  # nothing may follow the body; ASGI allows empty messages
        self._cancel(CallerGone("the client closed the connection before it was answered"))

    def _time_is_up(self) -> None:
        self._cancel(DeadlineExceeded(self._limit_s))

    def _cancel(self, error: CallerGone | DeadlineExceeded) -> None:
        if self.error is None:
            self.error = error
            self._task.cancel()
