"""Lossless encoding of pages and documents to bytes, for the cache and for worker processes."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import orjson

from backend.files.einvoice.records import EInvoice
from backend.files.pages import Barcode, Box, Document, Grid, GridCell, Page, Ruling, Word, shared_offset

_FAST = 1  # zlib's level: 20 KB in under a millisecond, to a fifth of the size


def pack_page(page: Page) -> bytes:
    """Encode a page; numbers are restored exactly."""
    return zlib.compress(b"\n".join(_lines_of(page)), _FAST)


def unpack_page(blob: bytes) -> Page | None:
    """Decode a page; None for bytes that are none."""
    try:
        [page] = _pages_in(zlib.decompress(blob).split(b"\n"))
    except (zlib.error, ValueError, TypeError, AttributeError, KeyError):
        return None
    return page


def pack_document(document: Document) -> bytes:
    """Encode a document: a line of JSON with what is known of it, then those of each page."""
    fields = {name: getattr(document, name) for name in ("kind", "page_count", "sha256")}
    fields |= {"metadata": dict(document.metadata), "pages": [], "einvoice": document.einvoice}
    if document.barcodes:  # replicas of an earlier release know no such field
        fields["barcodes"] = [(code.page, code.kind, code.text, [*code.box]) for code in document.barcodes]
    return b"\n".join([orjson.dumps(fields), *(line for page in document.pages for line in _lines_of(page))])


def unpack_document(blob: bytes) -> Document:
    """Decode a document. Raises: KeyError, TypeError, ValueError for bytes that are none.

    Line by line: a parser holds Python's lock to its end, and 200 pages in one call blocked all threads for 0.4 s.
    """
    first, *lines = blob.split(b"\n")
    fields = orjson.loads(first)
    earlier = (_page_of(page, _words_of(page["words"])) for page in fields["pages"])  # before pages had lines
    einvoice = EInvoice.of(fields.pop("einvoice", None))
    codes = (Barcode(page, kind, text, Box(*box)) for page, kind, text, box in fields.pop("barcodes", ()))
    return Document(
        **{**fields, "pages": (*earlier, *_pages_in(lines)), "einvoice": einvoice, "barcodes": tuple(codes)}
    )


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


_WORDS_A_LINE = 20_000  # one page of a PDF may have hundreds of thousands


def _lines_of(page: Page) -> Iterator[bytes]:
    """An object with what is known of a page and its first words, then lists of further ones."""
    words = (
        [word.text, *word.box, word.confidence, word.start, word.end, word.line, word.block] for word in page.words
    )
    fields = {name: getattr(page, name) for name in (*_FIELDS, *_LATER_FIELDS)}
    fields |= {"words": list(islice(words, _WORDS_A_LINE)), "rulings": [list(ruling) for ruling in page.rulings]}
    yield orjson.dumps(fields | {"grids": grid_fields(page.grids)})
    while more := list(islice(words, _WORDS_A_LINE)):
        yield orjson.dumps(more)


def _pages_in(lines: Iterable[bytes]) -> Iterator[Page]:
    fields, words = None, list[Word]()
    for line in lines:
        read = orjson.loads(line)
        if isinstance(read, list):
            words += _words_of(read)
            continue
        if fields is not None:
            yield _page_of(fields, words)
        fields, words = read, _words_of(read["words"])
    if fields is not None:
        yield _page_of(fields, words)


def _words_of(rows: Sequence[Any]) -> list[Word]:
    """The words; equal texts and numbers are one object, as those of a text layer are."""
    texts, sides = dict[str, str](), dict[float, float]()
    return [
        Word(
            texts.setdefault(text, text),
            Box(*map(sides.setdefault, box, box)),
            sides.setdefault(confidence, confidence),
            *map(shared_offset, places),
        )
        for text, *box, confidence, places in ((*row[:6], row[6:]) for row in rows)
    ]


def _page_of(fields: dict[str, Any], words: Iterable[Word]) -> Page:
    later = {name: fields[name] for name in _LATER_FIELDS if name in fields}
    if "rulings" in later:
        later["rulings"] = tuple(Ruling(*ends) for ends in later["rulings"])
    if later.get("grids") is not None:
        later["grids"] = grids_of(later["grids"])
    return Page(**{name: fields[name] for name in _FIELDS}, **later, words=tuple(words))
