"""The web page at /: static files, read once, with headers that keep the text of hostile documents from running."""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from backend.api.static_files import MEDIA_TYPES, StaticRoute, read_static_file

_FOLDER = Path(__file__).resolve().parents[1] / "page"
_INDEX = "index.html"
# Everything is same-origin and nothing inline runs. Pictures of pages and recordings are fetched with a key, or come
# from the reader's disk, hence the blob: URLs.
# Trusted Types with no policy at all: no script, ours or foreign, can turn a string into HTML.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "media-src blob:",
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
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)",
    "Referrer-Policy": "no-referrer",  # the URL holds a job's id
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_ASSETS = {
    "/" if file.name == _INDEX else f"/page/{file.name}": read_static_file(file)
    for file in _FOLDER.iterdir()
    if file.suffix in MEDIA_TYPES
}
PATHS = frozenset(_ASSETS)  # served without a key: they hold no one's data


async def asset(request: Request) -> Response:
    """A file of the page, or 304 when the caller has this very version.

    Raises: HTTPException (404) for a file that the page does not have.
    """
    file = _ASSETS.get(request.scope["path"])
    if file is None:
        raise HTTPException(404)
    return file.answer(request, _HEADERS)


ROUTES = (StaticRoute("/", asset), StaticRoute("/page/{name}", asset))
