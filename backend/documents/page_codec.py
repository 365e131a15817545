"""A page as bytes and back, exactly: what the cache keeps of it, and what travels to another process of ours."""

from __future__ import annotations

import zlib
from typing import Any

import orjson

from backend.documents.pages import Box, Document, Page, Word

_FAST = 1  # zlib's level: a page of 20 KB in under a millisecond, to a fifth


def pack_page(page: Page) -> bytes:
    """A page as bytes. Numbers come back to the last bit."""
    return zlib.compress(orjson.dumps(_row(page)), _FAST)


def unpack_page(blob: bytes) -> Page | None:
    """The page of these bytes; None where they are not one."""
    try:
        return _page(orjson.loads(zlib.decompress(blob)))
    except (zlib.error, ValueError, TypeError, AttributeError, KeyError):
        return None


def pack_document(document: Document) -> bytes:
    """A whole document as bytes, for another process of ours."""
    fields = {name: getattr(document, name) for name in ("kind", "page_count", "sha256")}
    fields |= {"metadata": dict(document.metadata), "pages": [_row(page) for page in document.pages]}
    return orjson.dumps(fields)


def unpack_document(blob: bytes) -> Document:
    """The document of these bytes. Raises: KeyError, TypeError, ValueError: they are not one."""
    fields = orjson.loads(blob)
    return Document(**{**fields, "pages": tuple(_page(row) for row in fields["pages"])})


_PLAIN = (
    "number", "width", "height", "units_per_inch", "rotation", "text", "source", "why", "engine", "confidence",
    "language",
)  # fmt: skip


def _row(page: Page) -> dict[str, Any]:
    words = [
        [word.text, *word.box, word.confidence, word.start, word.end, word.line, word.block] for word in page.words
    ]
    return {name: getattr(page, name) for name in _PLAIN} | {"words": words}


def _page(row: dict[str, Any]) -> Page:
    words = tuple(Word(text, Box(*rest[:4]), *rest[4:]) for text, *rest in row["words"])
    return Page(**{name: row[name] for name in _PLAIN}, words=words)
