"""Who sends a request: keys to callers, what only admins may do, and the first look at a caller's quotas."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.api.dependencies import CONTEXT_KEY, RequestContext, context_of
from backend.api.routes import page
from backend.errors import Forbidden, Unauthorized
from backend.services.callers import KeyRing
from backend.services.quotas import Meters

OPEN_PATHS = frozenset(
    ("/health", "/health/live", "/health/ready", "/metrics", "/metrics/gpu", "/docs", "/openapi.json", *page.PATHS)
)


class ApiKeyMiddleware:
    """Passes on requests that carry a key of the ring, with their caller in the context, or whose path needs none.

    Health, metrics, documentation and the page's files are open: probes and scrapers carry no keys, and none of them
    shows what callers sent. A request of a caller whose quota of requests is used up is refused before its body is
    read.
    """

    def __init__(self, app: ASGIApp, *, keys: KeyRing, meters: Meters) -> None:
        self._app, self._keys, self._meters = app, keys, meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; raises Unauthorized and QuotaExceeded, which ``ProblemMiddleware`` answers."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            self._identify(scope[CONTEXT_KEY])
        await self._app(scope, receive, send)

    def _identify(self, context: RequestContext) -> None:
        scheme, _, key = context.headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not key:
            raise Unauthorized("a key is needed: send the header 'Authorization: Bearer <key>' (API_KEYS)")
        caller = self._keys.find(key.strip())
        if caller is None:
            raise Unauthorized("the key is not one of this service's (API_KEYS, ADMIN_KEYS)")
        context.caller = caller
        context.meter = self._meters.of(caller.owner)
        context.meter.admit()


def require_admin(request: Request) -> None:
    """Raises: Forbidden unless the request came with a key of ADMIN_KEYS."""
    if not context_of(request).caller.is_admin:
        raise Forbidden(
            "this call changes what is served, for everybody: start the service with ADMIN_KEYS and send one of them "
            "as 'Authorization: Bearer <key>'"
        )
