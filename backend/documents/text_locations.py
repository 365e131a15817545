"""Where a stretch of a document's text stands on its pages: what an entity's offsets mean on paper."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from backend.documents.pages import Box, Document, Page, around


@dataclass(frozen=True, slots=True)
class Place:
    """One line's part of a stretch."""

    page: int  # the page's number
    box: Box  # page units


def places(document: Document, start: int, end: int) -> list[Place]:
    """The boxes of ``document.text[start:end]`` in reading order, one a line: several for what goes over line ends.

    A word that the stretch only touches counts in full: engines say where words are, not where letters are, and what
    is marked or blacked out must not stick out. A stretch that is empty, of gaps alone, or
    beyond the text, is nowhere.
    """
    if start >= end:
        return []
    starts = document.page_starts
    first = max(0, bisect_right(starts, start) - 1)
    last = bisect_left(starts, end)
    return [
        place
        for page, offset in zip(document.pages[first:last], starts[first:last], strict=True)
        for place in _on_page(page, start - offset, end - offset)
    ]


def _on_page(page: Page, start: int, end: int) -> Iterator[Place]:
    first = bisect_right(page.words, start, key=attrgetter("end"))
    last = bisect_left(page.words, end, lo=first, key=attrgetter("start"))
    for _, words in groupby(page.words[first:last], attrgetter("line")):
        yield Place(page.number, around(word.box for word in words))
