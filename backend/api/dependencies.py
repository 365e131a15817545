"""What every route can reach: the services, the limits, and the context of the request."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, cast

from starlette.requests import Request

from backend.api.traffic import Traffic
from backend.callers.callers import ANYBODY, NO_METER, Caller, LiveKeys, Meter, Quotas
from backend.callers.quotas import Meters
from backend.lanes.cache.keys import CacheScope
from backend.lanes.inference import Timing
from backend.lanes.text_work import TextWork
from backend.telemetry import Telemetry

Service = TypeVar("Service")
CONTEXT_KEY = "financia.request_context"  # in the ASGI scope


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
