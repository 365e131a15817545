"""The documentation at /docs: Swagger UI from this service's own disk, so that it needs no internet.

backend/api/swagger_ui holds two files of the npm package swagger-ui-dist 5.35.0 (Apache-2.0) as they are, its licences
beside them; index.html and start.js are this project's.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from backend.api.static_files import StaticFile, StaticRoute, read_static_file

_FOLDER = Path(__file__).resolve().parents[1] / "swagger_ui"
_FILES = {
    "/docs": "index.html",
    "/docs/start.js": "start.js",
    "/docs/swagger-ui-bundle.js": "swagger-ui-bundle.js",
    "/docs/swagger-ui.css": "swagger-ui.css",
}
PATHS = frozenset(_FILES)  # served without a key: they hold no one's data
_HEADERS = {
    "Cache-Control": "no-cache",
    # Nothing from elsewhere, not even where a description in the OpenAPI document asked for it. Swagger UI writes
    # style attributes, shows icons and answers' pictures from data: and blob: URLs.
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@cache  # read at the first visit: two megabytes that most processes never send
def _file(name: str) -> StaticFile:
    return read_static_file(_FOLDER / name)


async def asset(request: Request) -> Response:
    """A file of the documentation, or 304 when the caller has this very version.

    Raises: HTTPException (404) for a file that it does not have.
    """
    name = _FILES.get(request.scope["path"])
    if name is None:
        raise HTTPException(404)
    return _file(name).answer(request, _HEADERS)


ROUTES = (StaticRoute("/docs", asset), StaticRoute("/docs/{name}", asset))
