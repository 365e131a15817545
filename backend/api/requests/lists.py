"""Which part of a list a request asks for, in OpenAI's words: limit, order, after, before."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from backend.api.requests.identifiers import check_cursor
from backend.search.records import FileStatus, ListPage, Order

_MOST_FILES, _MOST = 10_000, 100
_PURPOSE = "^[A-Za-z0-9_-]{0,100}$"


def _none_if_empty(value: Any) -> Any:
    return None if value == "" else value


Cursor = Annotated[str | None, BeforeValidator(_none_if_empty)]


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

    limit: int = Field(_MOST_FILES, ge=1, le=_MOST_FILES)
    purpose: Annotated[str | None, BeforeValidator(_none_if_empty)] = Field(None, pattern=_PURPOSE)


class StoreFileListQuery(ListQuery):
    """`GET /v1/vector_stores/{id}/files`, and those of a batch."""

    filter: Annotated[FileStatus | None, BeforeValidator(_none_if_empty)] = None


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _cursor(name: Literal["after", "before"], description: str) -> dict[str, Any]:
    return _query(name, {"type": "string"}, description)


def _list_parameters(most: int, usual: int) -> tuple[dict[str, Any], ...]:
    limit = {"type": "integer", "minimum": 1, "maximum": most, "default": usual}
    return (
        _query("limit", limit, "How many to answer with."),
        _query("order", {"enum": ["asc", "desc"], "default": "desc"}, "By the time of their creation."),
        _cursor("after", "The id behind which to begin: `last_id` of the list before."),
        _cursor("before", "The id before which to end."),
    )


LIST_PARAMETERS = _list_parameters(_MOST, 20)
FILE_LIST_PARAMETERS = (
    *_list_parameters(_MOST_FILES, _MOST_FILES),
    _query("purpose", {"type": "string", "pattern": _PURPOSE}, "Only files of this purpose."),
)
STORE_FILE_LIST_PARAMETERS = (
    *LIST_PARAMETERS,
    _query("filter", {"enum": ["", "in_progress", "completed", "cancelled", "failed"]}, "Only files in this state."),
)
