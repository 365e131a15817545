"""JSON: everything the record of a document holds, in an order of fields that does not change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from backend.documents.pages import Box, Document, Page, Word, plain_text

_BOX_DIGITS = 2  # a hundredth of a point or pixel
_CONFIDENCE_DIGITS = 4


def json_parts(document: Document) -> Iterator[bytes]:
    """One JSON object, a page at a time."""
    head = orjson.dumps(document_fields(document))
    yield head[:-1] + b',"pages":['
    for index, page in enumerate(pages_fields(document)):
        yield (b"," if index else b"") + orjson.dumps(page)
    yield b"]}"


def document_fields(document: Document) -> dict[str, Any]:
    """A document without its pages."""
    return {
        "kind": document.kind,
        "page_count": document.page_count,
        "sha256": document.sha256,
        "metadata": {name: plain_text(value) for name, value in document.metadata.items()},
    }


def pages_fields(document: Document) -> Iterator[dict[str, Any]]:
    """Its pages, one at a time."""
    for page, start in zip(document.pages, document.page_starts, strict=True):
        yield page_fields(page, start)


def page_fields(page: Page, start: int) -> dict[str, Any]:
    """One page.

    Args:
        start: where its text begins in the document's; places of its words count from its own.
    """
    return {
        "number": page.number,
        "width": round(page.width, _BOX_DIGITS),
        "height": round(page.height, _BOX_DIGITS),
        "units_per_inch": round(page.units_per_inch, _BOX_DIGITS),
        "rotation": page.rotation,
        "source": page.source,
        "why": page.why,
        "engine": page.engine,
        "confidence": None if page.confidence is None else round(page.confidence, _CONFIDENCE_DIGITS),
        "language": page.language,
        "start": start,
        "text": page.text,
        "words": [word_fields(word) for word in page.words],
    }


def word_fields(word: Word) -> dict[str, Any]:
    """One word."""
    return {
        "text": word.text,
        "box": sides(word.box),
        "confidence": round(word.confidence, _CONFIDENCE_DIGITS),
        "start": word.start,
        "end": word.end,
        "line": word.line,
        "block": word.block,
    }


def sides(box: Box) -> list[float]:
    """Left, top, right, bottom."""
    return [round(side, _BOX_DIGITS) for side in box]
