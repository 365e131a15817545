"""Parameters of paths and queries: ids, pages of files, and which part of a list is asked for."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from backend.api.request_context import context_of, number_of
from backend.api.request_fields import OrAbsent
from backend.errors import InvalidField, NotFound
from backend.search.records import FileStatus, ListPage, Order

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
        raise InvalidField(f"{place}: must be an id of 1 to 80 letters, digits, - and _, got {value!r:.60}")
    return value


def check_cursor(value: str | None, place: str) -> str | None:
    """An id in a query, None where there is none. Raises: InvalidField."""
    return None if value is None else check_id(value, place)


def id_parameter(example: str, name: str = "id") -> dict[str, Any]:
    """What OpenAPI says of an id in a path."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "example": example}


_MAX_FILES, _MOST = 10_000, 100
_PURPOSE = "^[A-Za-z0-9_-]{0,100}$"
Cursor = OrAbsent[str]


class ListQuery(BaseModel):
    """The query of a list. Values are texts, as queries have no others."""

    model_config = ConfigDict(extra="ignore")

    limit: int = Field(20, ge=1, le=_MOST)
    order: Order = "desc"
    after: Cursor = None
    before: Cursor = None

    def page(self) -> ListPage:
        """Raises: InvalidField for an id that cannot be one."""
        return ListPage(self.limit, self.order, check_cursor(self.after, "after"), check_cursor(self.before, "before"))


class FileListQuery(ListQuery):
    """`GET /v1/files`, which OpenAI's clients expect to be answered whole."""

    limit: int = Field(_MAX_FILES, ge=1, le=_MAX_FILES)
    purpose: OrAbsent[str] = Field(None, pattern=_PURPOSE)


class StoreFileListQuery(ListQuery):
    """`GET /v1/vector_stores/{id}/files`, and those of a batch."""

    filter: OrAbsent[FileStatus] = None


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _list_parameters(most: int, usual: int) -> tuple[dict[str, Any], ...]:
    limit = {"type": "integer", "minimum": 1, "maximum": most, "default": usual}
    return (
        _query("limit", limit, "How many to answer with."),
        _query("order", {"enum": ["asc", "desc"], "default": "desc"}, "By the time of their creation."),
        _query("after", {"type": "string"}, "The id behind which to begin: `last_id` of the list before."),
        _query("before", {"type": "string"}, "The id before which to end."),
    )


LIST_PARAMETERS = _list_parameters(_MOST, 20)
FILE_LIST_PARAMETERS = (
    *_list_parameters(_MAX_FILES, _MAX_FILES),
    _query("purpose", {"type": "string", "pattern": _PURPOSE}, "Only files of this purpose."),
)
STORE_FILE_LIST_PARAMETERS = (
    *LIST_PARAMETERS,
    _query("filter", {"enum": ["", "in_progress", "completed", "cancelled", "failed"]}, "Only files in this state."),
)
_DPI = (10.0, 110.0, 300.0)  # least, usual, most


def page_number(text: str) -> int:
    """A page's number in a path. Raises: InvalidField."""
    if not (text.isascii() and text.isdigit() and len(text) < 7 and int(text) > 0):
        raise InvalidField(f"number: must be a page's number from 1, got '{text[:40]}'")
    return int(text)


def dots_per_inch(text: str | None) -> float:
    """The query's ``dpi``. Raises: InvalidField."""
    least, usual, most = _DPI
    if text is None:
        return usual
    dpi = number_of(text)
    if not least <= dpi <= most:
        raise InvalidField(f"dpi: must be a number from {least:g} to {most:g}, got '{text[:40]}'")
    return dpi


NUMBER_PARAMETER = {
    "name": "number", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 1, "maximum": 999_999},
    "example": 1,
}  # fmt: skip
DPI_PARAMETER = {
    "name": "dpi",
    "in": "query",
    "schema": {"type": "number", "minimum": _DPI[0], "maximum": _DPI[2], "default": _DPI[1]},
}


_KEY_CHARS = 255


def idempotency_key(request: Request) -> str | None:
    """The Idempotency-Key of a request; None without one. Raises: InvalidField."""
    header = context_of(request).headers.get(b"idempotency-key")
    if header is None:
        return None
    key = header.decode("latin-1").strip()
    if not 1 <= len(key) <= _KEY_CHARS:
        raise InvalidField(f"Idempotency-Key: must have 1 to {_KEY_CHARS} characters, got {len(key)}")
    return key


IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": _KEY_CHARS, "pattern": r"\S"},
    "description": "The same key again gives what it gave before.",
}


_PASSWORD_CHARS = 3000  # with its percent signs
PASSWORD_PARAMETER = {
    "name": "X-Document-Password",
    "in": "header",
    "schema": {"type": "string", "maxLength": _PASSWORD_CHARS},
    "description": "Of an encrypted PDF, with percent signs for what is not ASCII (UTF-8). It is kept nowhere.",
}


def document_password(request: Request) -> str | None:
    """The password of an encrypted file that a request without a body is about; None without one.

    Raises: InvalidField for one that is too long.
    """
    header = context_of(request).headers.get(b"x-document-password", b"")
    if len(header) > _PASSWORD_CHARS:
        name = PASSWORD_PARAMETER["name"]
        message = f"{name}: has {len(header):,} characters, at most {_PASSWORD_CHARS:,} are taken; send it shorter"
        raise InvalidField(message, param=str(name))
    return unquote(header.decode("latin-1")) or None
