"""Lossless encoding of pages and documents to bytes, for the cache and for worker processes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import orjson

from backend.files.einvoice.records import EInvoice
from backend.files.pages import Barcode, Box, Document, Grid, GridCell, Page, Ruling, Word

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
    """Encode a document: a line of JSON with what is known of it, then one for each page."""
    fields = {name: getattr(document, name) for name in ("kind", "page_count", "sha256")}
    fields |= {"metadata": dict(document.metadata), "pages": [], "einvoice": document.einvoice}
    if document.barcodes:  # replicas of an earlier release know no such field
        fields["barcodes"] = [(code.page, code.kind, code.text, [*code.box]) for code in document.barcodes]
    return b"\n".join([orjson.dumps(fields), *(orjson.dumps(_to_fields(page)) for page in document.pages)])


def unpack_document(blob: bytes) -> Document:
    """Decode a document. Raises: KeyError, TypeError, ValueError for bytes that are none.

    Page by page: a parser holds Python's lock to its end, and 200 pages in one call blocked all threads for 0.4 s.
    """
    first, *lines = blob.split(b"\n")
    fields = orjson.loads(first)
    earlier = (_from_fields(page) for page in fields["pages"])  # written before pages had lines of their own
    pages = (_from_fields(orjson.loads(line)) for line in lines)
    einvoice = EInvoice.of(fields.pop("einvoice", None))
    codes = (Barcode(page, kind, text, Box(*box)) for page, kind, text, box in fields.pop("barcodes", ()))
    return Document(**{**fields, "pages": (*earlier, *pages), "einvoice": einvoice, "barcodes": tuple(codes)})


def grids_of(fields: Sequence[Any]) -> tuple[Grid, ...]:
    """Tables whose fields came through JSON. Raises: TypeError, ValueError for what are none."""
    return tuple(
        Grid(int(rows), int(columns), int(header_rows), tuple(GridCell(*map(int, cell)) for cell in cells))
        for rows, columns, header_rows, cells in fields
    )


def grid_fields(grids: Sequence[Grid] | None) -> list[Any] | None:
    """Tables as fields for JSON, which knows no named tuples."""
    return None if grids is None else [[*grid[:3], [list(cell) for cell in grid.cells]] for grid in grids]


_FIELDS = (
    "number", "width", "height", "units_per_inch", "rotation", "text", "source", "why", "engine", "confidence",
    "language",
)  # fmt: skip
_LATER_FIELDS = ("incomplete", "rulings", "part", "attachment", "grids")  # which pages of earlier releases lack


def _to_fields(page: Page) -> dict[str, Any]:
    words = [
        [word.text, *word.box, word.confidence, word.start, word.end, word.line, word.block] for word in page.words
    ]
    rulings = [list(ruling) for ruling in page.rulings]
    fields = {name: getattr(page, name) for name in (*_FIELDS, *_LATER_FIELDS)}
    return fields | {"words": words, "rulings": rulings, "grids": grid_fields(page.grids)}


def _from_fields(fields: dict[str, Any]) -> Page:
    words = tuple(Word(text, Box(*rest[:4]), *rest[4:]) for text, *rest in fields["words"])
    later = {name: fields[name] for name in _LATER_FIELDS if name in fields}
    if "rulings" in later:
        later["rulings"] = tuple(Ruling(*ends) for ends in later["rulings"])
    if later.get("grids") is not None:
        later["grids"] = grids_of(later["grids"])
    return Page(**{name: fields[name] for name in _FIELDS}, **later, words=words)
