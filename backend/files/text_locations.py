"""Maps spans of a document's text to boxes on its pages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from backend.files.pages import Box, Document, Page, bounding_box


@dataclass(frozen=True, slots=True)
class TextLocation:
    """The part of a span that is on one line."""

    page: int  # its number, from 1
    box: Box  # page units


def locate(document: Document, start: int, end: int) -> list[TextLocation]:
    """The boxes of ``document.text[start:end]`` in reading order, one for each line.

    A word that the span only touches counts in full: engines give boxes of words, not of letters, and whatever is
    marked or blacked out must be covered completely. An empty span, one of gaps only, or one beyond the text has none.
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


def _on_page(page: Page, start: int, end: int) -> Iterator[TextLocation]:
    first = bisect_right(page.words, start, key=attrgetter("end"))
    last = bisect_left(page.words, end, lo=first, key=attrgetter("start"))
    for _, words in groupby(page.words[first:last], attrgetter("line")):
        yield TextLocation(page.number, bounding_box(word.box for word in words))
