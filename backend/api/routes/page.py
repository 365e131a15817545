"""The web page at /: static files, read once, with headers that keep the text of hostile documents from running."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

_FOLDER = Path(__file__).resolve().parents[1] / "page"
_INDEX = "index.html"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Everything is same-origin and nothing inline runs. Pictures of pages are fetched with a key, hence the blob: URLs.
# Trusted Types with no policy at all: no script, ours or foreign, can turn a string into HTML.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    # Validated at each visit and answered 304: modules import each other, so files of two releases must not mix.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",  # the URL holds a job's id
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class _Asset:
    """One file of the page, ready to be sent."""

    body: bytes
    media_type: str
    etag: str


def _read(path: Path) -> _Asset:
    body = path.read_bytes()
    etag = hashlib.blake2b(body, digest_size=12).hexdigest()
    return _Asset(body, _MEDIA_TYPES[path.suffix], f'"{etag}"')


_ASSETS = {
    "/" if file.name == _INDEX else f"/page/{file.name}": _read(file)
    for file in _FOLDER.iterdir()
    if file.suffix in _MEDIA_TYPES
}
PATHS = frozenset(_ASSETS)  # served without a key: they hold no one's data


async def asset(request: Request) -> Response:
    """A file of the page, or 304 when the caller has this very version.

    Raises: HTTPException (404) for a file that the page does not have.
    """
    file = _ASSETS.get(request.scope["path"])
    if file is None:
        raise HTTPException(404)
    headers = {**_HEADERS, "ETag": file.etag}
    known = request.headers.get("if-none-match", "").split(",")
    if file.etag in (etag.strip().removeprefix("W/") for etag in known):
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)


class PageRoute(Route):
    """Starlette's route, not FastAPI's: OpenAPI should not describe files of the page."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether this route takes the request; puts itself into the scope, where the metrics read its path."""
        match, child_scope = super().matches(scope)
        return match, {**child_scope, "route": self}


ROUTES = (PageRoute("/", asset), PageRoute("/page/{name}", asset))
