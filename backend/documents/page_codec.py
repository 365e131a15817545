"""Lossless encoding of pages and documents to bytes, for the cache and for worker processes."""

from __future__ import annotations

import zlib
from typing import Any

import orjson

from backend.documents.pages import Box, Document, Page, Word

_FAST = 1  # zlib's level: 20 KB in under a millisecond, to a fifth of the size


def pack_page(page: Page) -> bytes:
    """Encode a page; numbers are restored exactly."""
    return zlib.compress(orjson.dumps(_to_fields(page)), _FAST)


def unpack_page(blob: bytes) -> Page | None:
    """Decode a page; None for bytes that are none."""
    try:
        return _from_fields(orjson.loads(zlib.decompress(blob)))
    except (zlib.error, ValueError, TypeError, AttributeError, KeyError):
        return None


def pack_document(document: Document) -> bytes:
    """Encode a document, for a worker process."""
    fields = {name: getattr(document, name) for name in ("kind", "page_count", "sha256")}
    fields |= {"metadata": dict(document.metadata), "pages": [_to_fields(page) for page in document.pages]}
    return orjson.dumps(fields)


def unpack_document(blob: bytes) -> Document:
    """Decode a document. Raises: KeyError, TypeError, ValueError for bytes that are none."""
    fields = orjson.loads(blob)
    return Document(**{**fields, "pages": tuple(_from_fields(page) for page in fields["pages"])})


_FIELDS = (
    "number", "width", "height", "units_per_inch", "rotation", "text", "source", "why", "engine", "confidence",
    "language",
)  # fmt: skip


def _to_fields(page: Page) -> dict[str, Any]:
    words = [
        [word.text, *word.box, word.confidence, word.start, word.end, word.line, word.block] for word in page.words
    ]
    return {name: getattr(page, name) for name in _FIELDS} | {"words": words}


def _from_fields(fields: dict[str, Any]) -> Page:
    words = tuple(Word(text, Box(*rest[:4]), *rest[4:]) for text, *rest in fields["words"])
    return Page(**{name: fields[name] for name in _FIELDS}, words=words)
