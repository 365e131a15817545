"""SQL for one page of a list by creation time, then id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend.search.records import ListPage


def page_query(
    select: str, page: ListPage, *, table: str, id_column: str, where: Sequence[str], arguments: list[Any]
) -> tuple[str, bool]:
    """The query, with its further arguments appended to ``arguments``; True where its rows come last first.

    With ``before`` alone the page is the one that ends there, so it is read backwards. A cursor that is not in the list
    gives an empty page.

    Args:
        where: conditions of the list itself, which a cursor must meet as well.
    """
    flipped = page.before is not None and page.after is None
    conditions = list(where)
    ascending = page.order == "asc"
    for cursor, is_behind in ((page.after, True), (page.before, False)):
        if cursor is not None:
            arguments.append(cursor)
            place = f"SELECT created_s, {id_column} FROM {table} WHERE {' AND '.join(where)}"
            sign = ">" if is_behind == ascending else "<"
            conditions.append(f"(created_s, {id_column}) {sign} ({place} AND {id_column} = ${len(arguments)})")
    arguments.append(page.limit)
    direction = "ASC" if ascending != flipped else "DESC"
    return (
        f"{select} WHERE {' AND '.join(conditions)} ORDER BY created_s {direction}, {id_column} {direction} "
        f"LIMIT ${len(arguments)}"
    ), flipped
