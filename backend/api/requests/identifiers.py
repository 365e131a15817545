"""Ids of files, vector stores and batches in paths, queries and bodies."""

from __future__ import annotations

import re
from typing import Any

from starlette.requests import Request

from backend.api.requests.places import param_of
from backend.errors import InvalidField, NotFound

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
ID_PATTERN = "^[A-Za-z0-9_-]{1,80}$"  # for schemas


def path_id(request: Request, kind: str, name: str = "id") -> str:
    """The id that the path has as ``{name}``, of a ``kind`` such as "file".

    Raises: NotFound for what no id looks like, before a storage reads it.
    """
    value: str = request.path_params[name]
    if not _ID.fullmatch(value):
        raise NotFound(f"{name}: there is no {kind} '{value[:40]}'", param=name)
    return value


def check_id(value: Any, place: str) -> str:
    """An id in a body. Raises: InvalidField."""
    if type(value) is not str or not _ID.fullmatch(value):
        raise InvalidField(
            f"{place}: must be an id of 1 to 80 letters, digits, - and _, got {value!r:.60}", param=param_of(place)
        )
    return value


def check_cursor(value: str | None, place: str) -> str | None:
    """An id in a query, None where there is none. Raises: InvalidField."""
    return None if value is None else check_id(value, place)


def id_parameter(example: str, name: str = "id") -> dict[str, Any]:
    """What OpenAPI says of an id in a path."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "example": example}
