"""Where a chunk and the words of a query in it stand on the pages: a box for each line."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from backend.files.pages import Box, bounding_box
from backend.search.keywords import matched_spans
from backend.search.records import KeywordQuery, PlacedWord, StoredChunk
from backend.search.search_records import Highlight, Place


def line_places(words: Iterable[PlacedWord]) -> tuple[Place, ...]:
    """One box a line, around the words of it that are given; in the order of the lines' first words."""
    lines: dict[tuple[int, int], list[Box]] = {}
    for word in words:
        lines.setdefault((word.page, word.line), []).append(word.box)
    return tuple(Place(page, bounding_box(boxes)) for (page, _), boxes in lines.items())


def pages_of(words: Iterable[PlacedWord]) -> tuple[int, ...]:
    """The numbers of the pages on which words stand, ascending."""
    return tuple(sorted({word.page for word in words}))


def highlights_of(chunk: StoredChunk, query: KeywordQuery, language: str | None) -> tuple[Highlight, ...]:
    """The words of the query in a chunk, with the boxes of the printed words that they touch."""
    spans = matched_spans(chunk.text, query, language)
    starts = [word.start for word in chunk.words]
    return tuple(Highlight(start, end, line_places(_between(chunk.words, starts, start, end))) for start, end in spans)


def _between(words: Sequence[PlacedWord], starts: Sequence[int], start: int, end: int) -> Iterable[PlacedWord]:
    """The words that overlap a span; ``starts`` are theirs."""
    first = max(0, bisect_right(starts, start) - 1)
    for word in words[first:]:
        if word.start >= end:
            return
        if word.end > start:
            yield word
