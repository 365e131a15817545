"""The text alone: pages as `Document.text` joins them, so that places in it are the places of every other answer."""

from __future__ import annotations

from collections.abc import Iterator

from backend.documents.pages import PAGE_GAP, Document


def text_parts(document: Document) -> Iterator[bytes]:
    """The UTF-8 of a document's text, a page at a time; together exactly `Document.text`."""
    for index, page in enumerate(document.pages):
        yield ((PAGE_GAP if index else "") + page.text).encode()
