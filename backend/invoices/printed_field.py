"""Makes a field from the words in which it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from backend.files.pages import TextLocation, Word, bounding_box
from backend.files.visual_rows import PageRows
from backend.invoices.records import Field


def words_at(words: Sequence[Word], start: int, end: int) -> tuple[Word, ...]:
    """The words that a span of their text touches, which is joined by blanks."""
    found, offset = [], 0
    for word in words:
        if offset < end and start < offset + len(word.text):
            found.append(word)
        offset += len(word.text) + 1
    return tuple(found)


def printed_field(
    name: str, value: str, words: Sequence[Word], page: PageRows, *, score: float, why: str, **more: Any
) -> Field:
    """A field read from a page.

    Args:
        words: those that print the value, in the order in which they are read: line by line for an address.
        page: the page they stand on.
        more: other fields of the record: ``valid``, ``repair``, ``ambiguous``, ``rows``.
    """
    lines = [bounding_box(word.box for word in group) for _, group in groupby(words, attrgetter("line", "block"))]
    return Field(
        name=name,
        value=value,
        text=" ".join(word.text for word in words),
        score=round(score, 4),
        source="text",
        why=why,
        start=page.start + min(word.start for word in words),
        end=page.start + max(word.end for word in words),
        places=tuple(TextLocation(page.page.number, box) for box in lines),
        **more,
    )
