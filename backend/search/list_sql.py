"""SQL for a part of a list by creation time, then id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend.search.records import ListRange

PAST_S = 86_400  # so long a deleted row's position is known, to whoever goes on behind it


def range_query(
    select: str, where: Sequence[str], arguments: list[Any], *, part: ListRange, keys: tuple[str, str]
) -> tuple[str, bool]:
    """The query, with its further arguments appended to ``arguments``; True where its rows come last first.

    With ``before`` alone the part is the one that ends there, so it is read backwards.

    Args:
        select: the query up to WHERE.
        where: conditions of the list itself, over ``arguments`` as $1, $2, ….
        keys: the columns of creation time and id.
    """
    flipped = part.before is not None and part.after is None
    conditions, ascending = list(where), part.order == "asc"
    for position, is_behind in ((part.after, True), (part.before, False)):
        if position is not None:
            arguments += position
            sign = ">" if is_behind == ascending else "<"
            conditions.append(f"({keys[0]}, {keys[1]}) {sign} (${len(arguments) - 1}, ${len(arguments)})")
    arguments.append(part.limit)
    direction = "ASC" if ascending != flipped else "DESC"
    return (
        f"{select} WHERE {' AND '.join(conditions)} ORDER BY {keys[0]} {direction}, {keys[1]} {direction} "
        f"LIMIT ${len(arguments)}"
    ), flipped
