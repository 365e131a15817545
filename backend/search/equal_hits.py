"""Makes one hit of equal ones: the same place of files with the same bytes, which were added more than once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from backend.search.records import ChunkContent, Ranked


def without_equal(
    ranked: Sequence[Ranked], contents: Iterable[ChunkContent]
) -> tuple[list[Ranked], Mapping[int, tuple[str, ...]]]:
    """Of equal chunks the best one, in the order of the ranking; and for it the other files that have it, best first.

    A chunk that ``contents`` lacks is equal to none.
    """
    known = {content.chunk_id: content for content in contents}
    firsts: dict[tuple[object, ...], int] = {}
    kept: list[Ranked] = []
    others: dict[int, list[str]] = {}
    for candidate in ranked:
        content = known.get(candidate.chunk_id)
        first = candidate.chunk_id if content is None else firsts.setdefault(content[2:], candidate.chunk_id)
        if content is None or first == candidate.chunk_id:
            kept.append(candidate)
        else:
            others.setdefault(first, []).append(content.file_id)
    return kept, {chunk_id: tuple(file_ids) for chunk_id, file_ids in others.items()}
