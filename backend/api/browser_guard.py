"""Keeps other web sites' pages, open in a caller's browser, from using a service that asks for no keys.

Two ways lead there. A page may have its own name resolve to this machine (DNS rebinding): the browser then takes the
service for the page's own site, but sends the page's name as Host. And a page may send forms and uploads anywhere: it
cannot read the answer, but the work is done; browsers say where such a request comes from. With keys neither works.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.api.dependencies import CONTEXT_KEY
from backend.api.http_protocol import PROBE_PATHS
from backend.errors import CrossSite, FinanciaError, WrongHost

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


class BrowserGuardMiddleware:
    """Passes on requests under a name of this service, and no changes that another site's page makes.

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
