"""The part of a list that a caller asks for by ids."""

from __future__ import annotations

from backend.errors import InvalidField
from backend.search.records import ListKind, ListPage, ListRange, Position
from backend.search.storage import SearchStorage

_NAMES = {"file": "file '{}'", "store": "vector store '{}'", "store_file": "file '{}' in this vector store"}


async def list_range(storage: SearchStorage, kind: ListKind, list_id: str, page: ListPage) -> ListRange:
    """One row more than the page has, to tell whether there are more.

    Raises: InvalidField for an id that is not in the list, and was not within the last day.
    """

    async def position(param: str, row_id: str | None) -> Position | None:
        found = None if row_id is None else await storage.position(kind, list_id, row_id)
        if row_id is not None and found is None:
            raise InvalidField(f"{param}: there is no {_NAMES[kind].format(row_id[:64])}", param=param)
        return found

    after, before = await position("after", page.after), await position("before", page.before)
    return ListRange(page.limit + 1, page.order, after, before)
