"""Files that ship with the service for browsers: the page at /, and Swagger UI at /docs.

All are read from this service's own disk, so that neither needs the internet. backend/api/swagger_ui holds two files of
the npm package swagger-ui-dist 5.35.0 (Apache-2.0) as they are, its licences beside them; index.html and start.js are
this project's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml", ".pdf": "application/pdf",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file, ready to be sent."""

    body: bytes
    media_type: str
    etag: str

    def answer(self, request: Request, headers: Mapping[str, str]) -> Response:
        """The file, or 304 when the caller has this very version."""
        headers = {**headers, "ETag": self.etag}
        known = request.headers.get("if-none-match", "").split(",")
        if self.etag in (etag.strip().removeprefix("W/") for etag in known):
            return Response(status_code=304, headers=headers)
        return Response(self.body, headers=headers, media_type=self.media_type)


def read_static_file(path: Path) -> StaticFile:
    """A file whose suffix is one of ``MEDIA_TYPES``."""
    body = path.read_bytes()
    etag = hashlib.blake2b(body, digest_size=12).hexdigest()
    return StaticFile(body, MEDIA_TYPES[path.suffix], f'"{etag}"')


class StaticRoute(Route):
    """Starlette's route, not FastAPI's: OpenAPI should not describe files that browsers show."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether this route takes the request; puts itself into the scope, where the metrics read its path."""
        match, child_scope = super().matches(scope)
        return match, {**child_scope, "route": self}


_PAGE_FOLDER = Path(__file__).resolve().parents[1] / "page"
_INDEX = "index.html"
# Everything is same-origin and nothing inline runs. Pictures of pages and recordings are fetched with a key, or come
# from the reader's disk, hence the blob: URLs.
# Trusted Types with no policy at all: no script, ours or foreign, can turn a string into HTML.
_POLICY = "; ".join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' blob:", "media-src blob:",
        "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
        "require-trusted-types-for 'script'", "trusted-types 'none'",
    )
)  # fmt: skip
_PAGE_HEADERS = {
    # Validated at each visit and answered 304: modules import each other, so files of two releases must not mix.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)",
    "Referrer-Policy": "no-referrer",  # the URL holds a job's id
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_ASSETS = {
    "/" if file.name == _INDEX else f"/page/{file.name}": read_static_file(file)
    for file in _PAGE_FOLDER.iterdir()
    if file.suffix in MEDIA_TYPES
}
PAGE_PATHS = frozenset(_ASSETS)  # served without a key: they hold no one's data


async def page_asset(request: Request) -> Response:
    """A file of the page, or 304 when the caller has this very version.

    Raises: HTTPException (404) for a file that the page does not have.
    """
    file = _ASSETS.get(request.scope["path"])
    if file is None:
        raise HTTPException(404)
    return file.answer(request, _PAGE_HEADERS)


PAGE_ROUTES = (StaticRoute("/", page_asset), StaticRoute("/page/{name}", page_asset))
_DOCS_FOLDER = Path(__file__).resolve().parents[1] / "swagger_ui"
_DOCS_FILES = {
    "/docs": "index.html",
    "/docs/start.js": "start.js",
    "/docs/swagger-ui-bundle.js": "swagger-ui-bundle.js",
    "/docs/swagger-ui.css": "swagger-ui.css",
}
DOCS_PATHS = frozenset(_DOCS_FILES)  # served without a key: they hold no one's data
_DOCS_HEADERS = {
    "Cache-Control": "no-cache",
    # Nothing from elsewhere, not even where a description in the OpenAPI document asked for it. Swagger UI writes
    # style attributes, shows icons and answers' pictures from data: and blob: URLs.
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'", "script-src 'self'", "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}  # fmt: skip


@cache  # read at the first visit: two megabytes that most processes never send
def _docs_file(name: str) -> StaticFile:
    return read_static_file(_DOCS_FOLDER / name)


async def docs_asset(request: Request) -> Response:
    """A file of the documentation, or 304 when the caller has this very version.

    Raises: HTTPException (404) for a file that it does not have.
    """
    name = _DOCS_FILES.get(request.scope["path"])
    if name is None:
        raise HTTPException(404)
    return _docs_file(name).answer(request, _DOCS_HEADERS)


DOCS_ROUTES = (StaticRoute("/docs", docs_asset), StaticRoute("/docs/{name}", docs_asset))
