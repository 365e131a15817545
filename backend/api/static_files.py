"""Files that ship with the service and are sent to browsers: read once, validated at each visit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


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
