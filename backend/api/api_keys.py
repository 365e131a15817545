"""Who sends a request: keys to callers, what a key may do, and the first look at a caller's quotas."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.api.http_protocol import WEBSOCKET_PATHS
from backend.api.request_context import CONTEXT_KEY, RequestContext, context_of
from backend.api.routes.browser_files import DOCS_PATHS, PAGE_PATHS
from backend.callers.callers import Caller, LiveKeys
from backend.callers.quotas import Meters
from backend.errors import Forbidden, KeyExpired, QuotaExceeded, Unauthorized
from backend.lanes.cache.store import Enter, share_with_all

METRICS_PATH = "/metrics"
OPEN_PATHS = frozenset(
    (
        *("/health", "/health/live", "/health/ready", METRICS_PATH, "/metrics/gpu", "/openapi.json"),
        *("/.well-known/ready", "/.well-known/live"),
        *DOCS_PATHS,
        *PAGE_PATHS,
    )
)
TIKA_CONTENTS = ("", "/text", "/html", "/xml", "/ignore")  # how its paths end: what they ask for
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
# The routes by POST and PUT that leave nothing behind: a key of the role "read" may use these and every GET, and no
# other. What is missing here is refused to it, so a new route is closed until somebody has thought about it.
READ_ROUTES = frozenset(
    (
        *("/v1/embeddings", "/embeddings", "/embed", "/embed_all", "/v1/embed", "/v2/embed", "/tokenize", "/decode"),
        *("/", "/invocations", "/api/embed", "/api/embeddings", "/v1/ranking", "/v1/retrieval/{name}/reranking"),
        *("/vectors", "/vectors/", "/ner", "/ner/", "/hf/token-classification", "/hf/zero-shot-classification"),
        *("/hf/summarization", "/hf/question-answering", "/api/show", "/hf/automatic-speech-recognition"),
        *("/v1/tokenize", "/v1/detokenize", "/v2/audio/transcriptions", "/openai/deployments/{name}/embeddings"),
        *("/openai/deployments/{name}/audio/transcriptions", "/openai/deployments/{name}/audio/translations"),
        *("/similarity", "/v1/similarity", "/rerank", "/v1/rerank", "/v2/rerank"),
        *("/v1/classify", "/classify", "/predict", "/v1/entities", "/v1/fields", "/v1/analyze", "/v1/summarize"),
        *("/v1/ocr", "/providers/mistral/azure/ocr", "/v1/documents"),
        *("/v1/audio/transcriptions", "/v1/audio/translations"),
        *("/v1/convert/file", "/v1/convert/source", "/v1/chunk/{chunker}/file", "/v1/chunk/{chunker}/source"),
        *(f"{path}{content}" for path in ("/tika", "/rmeta", "/tika/form", "/rmeta/form") for content in TIKA_CONTENTS),
        *("/meta", "/meta/form", "/detect/stream", "/language/stream", "/language/string", "/process"),
        *("/v1/answer", "/v1/vector_stores/{id}/search", "/general/v0/general"),
    )
)
# In which clients of Azure, docling-serve and others send their key; "Authorization: Bearer" goes before them.
KEY_HEADERS = (b"ocp-apim-subscription-key", b"x-api-key", b"api-key", b"unstructured-api-key")
_READ_PATHS = re.compile(
    r"/v1/vector_stores/[^/]+/search|/v1/chunk/[^/]+/(file|source)"
    r"|/openai/deployments/[^/]+/(embeddings|audio/transcriptions|audio/translations)|/v1/retrieval/.+/reranking"
)


def unix_s() -> float:
    """The time by which keys expire."""
    return datetime.now(UTC).timestamp()


def is_open(method: str, path: str) -> bool:
    """Whether a request needs no key: the page at / is open, and what is sent there is not."""
    return path in OPEN_PATHS and (method, path) != ("POST", "/")


class ApiKeyMiddleware:
    """Passes on requests that carry a key of the ring, with their caller in the context, or whose path needs none.

    Health, metrics, documentation and the page's files are open: probes and scrapers carry no keys, and none of them
    shows what callers sent. A request of a caller whose quota of requests is used up is refused before its body is
    read, and so is one that its key's role does not allow.

    Args:
        enter: entered while a request of a caller is served; CACHE_SCOPE.
        now_s: Unix seconds; keys expire by them.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: LiveKeys,
        meters: Meters,
        enter: Enter = share_with_all,
        now_s: Callable[[], float] = unix_s,
    ) -> None:
        self._app, self._keys, self._meters, self._enter, self._now_s = app, keys, meters, enter, now_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; raises Unauthorized, Forbidden, QuotaExceeded, which ``ProblemMiddleware`` answers."""
        if scope["type"] != "http" or is_open(scope["method"], scope["path"]):
            if scope.get("path") == METRICS_PATH:
                with suppress(Unauthorized):  # they are open; an admin sees more
                    scope[CONTEXT_KEY].caller = self._find(scope[CONTEXT_KEY])
            await self._app(scope, receive, send)
            return
        context: RequestContext = scope[CONTEXT_KEY]
        query = scope["query_string"] if scope["path"].startswith(WEBSOCKET_PATHS) else b""
        caller = self._identify(context, query)
        if not caller.may_write:
            require_reading(scope["method"], scope["path"])
        try:
            with self._enter(caller.owner):
                await self._app(scope, receive, send)
        except QuotaExceeded as error:
            context.meter.refuse(error)  # a storage that refuses knows no meters
            raise

    def _identify(self, context: RequestContext, query: bytes) -> Caller:
        caller = context.caller = self._find(context, query)
        context.meter = self._meters.of(caller.owner)
        context.meter.admit()
        return caller

    def _find(self, context: RequestContext, query: bytes = b"") -> Caller:
        [key] = parse_qs(query).get(b"api_key", [b""])[:1]  # browsers' WebSockets have no headers of their own
        caller = self._keys.ring.find(key or sent_key(context.headers))
        if caller is None:
            raise Unauthorized("the key is not one of this service's (API_KEYS, ADMIN_KEYS)")
        if caller.expires_s is not None and caller.expires_s <= self._now_s():
            when = datetime.fromtimestamp(caller.expires_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            raise KeyExpired(f"this key of '{caller.name}' expired at {when}; ask the operator for a new one")
        return caller


def sent_key(headers: Mapping[bytes, bytes]) -> bytes:
    """The key that a request carries. Raises: Unauthorized where it carries none."""
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and key.strip():
        return key.strip()
    for name in KEY_HEADERS:
        if key := headers.get(name, b"").strip():
            return key
    advice = "the header came without the word Bearer: " if scheme and not key and scheme.lower() != b"bearer" else ""
    raise Unauthorized(f"a key is needed: {advice}send the header 'Authorization: Bearer <key>' (API_KEYS)")


def require_reading(method: str, path: str) -> None:
    """Raises: Forbidden for a request that leaves something behind or deletes it."""
    if method in SAFE_METHODS or (method in ("POST", "PUT") and (path in READ_ROUTES or _READ_PATHS.fullmatch(path))):
        return
    raise _read_only(f"{method} {path[:200]}")


def require_writing(request: Request, what: str) -> None:
    """Raises: Forbidden for a key that may only read, where a route leaves something behind on request alone."""
    if not context_of(request).caller.may_write:
        raise _read_only(what)


def _read_only(what: str) -> Forbidden:
    return Forbidden(
        f"this key's role is read: it may get, search and infer, and neither keep, teach, change nor delete ({what}); "
        "use another key, or have the operator give this one the role user"
    )


def require_admin(request: Request) -> None:
    """Raises: Forbidden unless the request came with a key of an admin."""
    if not context_of(request).caller.is_admin:
        raise Forbidden(
            "this call changes what is served, for everybody: start the service with ADMIN_KEYS (or an admin in the "
            "keys file) and send one of them as 'Authorization: Bearer <key>'"
        )
