"""Files, stores and chunks to put into a storage."""

import hashlib
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from backend.files.limits import FileLimits
from backend.files.pages import Box
from backend.files.stored_file import StoredFile
from backend.models.encoder import Vectors
from backend.reasons import reasons_in
from backend.search.filters import Dialect, Filter, compile_filter, effective
from backend.search.records import (
    Attributes,
    EncoderIdentity,
    FileRecord,
    IndexedFile,
    NewChunk,
    PageSize,
    PlacedWord,
    Scalar,
    StoreFile,
    VectorStore,
)
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from backend.search.storage import SearchStorage

WIDTH = 16
ENCODER = EncoderIdentity("fingerprint-a", "encoder-a", WIDTH)
OTHER_ENCODER = EncoderIdentity("fingerprint-b", "encoder-b", 24)
LEASE_S = 30.0


def file_record(file_id: str, content: bytes = b"bytes", **changes: object) -> FileRecord:
    fields: dict[str, object] = {
        "id": file_id,
        "owner": "ana",
        "name": f"{file_id}.pdf",
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "purpose": "assistants",
        "created_s": 100.0,
    }
    return FileRecord(**(fields | changes))  # type: ignore[arg-type]


def vector_store(store_id: str = "vs_1", **changes: object) -> VectorStore:
    fields: dict[str, object] = {
        "id": store_id,
        "owner": "ana",
        "name": "Invoices",
        "created_s": 10.0,
        "last_active_s": 10.0,
    }
    return VectorStore(**(fields | changes))  # type: ignore[arg-type]


def store_file(file_id: str, store_id: str = "vs_1", **changes: object) -> StoreFile:
    fields: dict[str, object] = {"store_id": store_id, "file_id": file_id, "name": f"{file_id}.pdf", "created_s": 50.0}
    return StoreFile(**(fields | changes))  # type: ignore[arg-type]


def unit_vectors(count: int, seed: int = 0, width: int = WIDTH) -> Vectors:
    numbers = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)
    vectors: Vectors = numbers / np.linalg.norm(numbers, axis=1, keepdims=True)
    return vectors


def placed_words(text: str) -> tuple[PlacedWord, ...]:
    words, start = [], 0
    for number, word in enumerate(text.split(" ")):
        box = Box(10.25 * number, 700.5, 10.25 * number + 9, 712.75)
        words.append(PlacedWord(start, start + len(word), 1 + number // 20, number // 5, box))
        start += len(word) + 1
    return tuple(words)


def indexed(texts: Sequence[str], vectors: Vectors | None = None, **changes: object) -> IndexedFile:
    chunks, start = [], 0
    for number, text in enumerate(texts):
        chunks.append(NewChunk(number, start, start + len(text), text, len(text.split()), placed_words(text)))
        start += len(text) + 1
    encoder = changes.get("encoder", ENCODER)
    assert isinstance(encoder, EncoderIdentity)
    fields: dict[str, object] = {
        "chunks": chunks,
        "vectors": unit_vectors(len(texts), width=encoder.width) if vectors is None else vectors,
        "encoder": encoder,
        "pages": (PageSize(1, 595.0, 842.0, 0, "Hoja 1"),),
        "language": "en",
    }
    return IndexedFile(**(fields | changes))  # type: ignore[arg-type]


@asynccontextmanager
async def running(folder: Path, **options: Any) -> AsyncIterator[SqliteStorage]:
    """An embedded storage in this folder."""
    storage = SqliteStorage(SqliteOptions(folder, **options))
    await storage.start()
    try:
        yield storage
    finally:
        await storage.close()


@contextmanager
def stored(content: bytes) -> Iterator[StoredFile]:
    """The bytes as an upload."""
    upload = StoredFile.of(content, FileLimits())
    try:
        yield upload
    finally:
        upload.close()


async def upload(storage: SearchStorage, file_id: str, content: bytes = b"bytes", **changes: object) -> FileRecord:
    record = file_record(file_id, content, **changes)
    with stored(content) as kept:
        await storage.add_file(record, kept)
    return record


async def add_indexed(
    storage: SearchStorage,
    file_id: str,
    texts: Sequence[str],
    *,
    store_id: str = "vs_1",
    vectors: Vectors | None = None,
    attributes: Attributes | None = None,
    found: Mapping[str, Sequence[Scalar]] | None = None,
    encoder: EncoderIdentity = ENCODER,
    owner: str = "ana",
) -> None:
    """Upload, attach and index a file while nothing else waits."""
    if await storage.file(owner, file_id) is None:
        await upload(storage, file_id, owner=owner)
    await storage.attach([store_file(file_id, store_id, attributes=attributes or {})])
    claim = await storage.claim(encoder, LEASE_S)
    assert (store_id, file_id) == (claim.file.store_id, claim.file.file_id)
    assert await storage.finish(claim, indexed(texts, vectors, encoder=encoder, found=found or {}))


async def current(storage: SearchStorage, store_id: str = "vs_1", owner: str = "ana") -> VectorStore:
    """The store as it is kept now."""
    store = await storage.store(owner, store_id)
    assert store is not None
    return store


_VALID = {"totals": True, "VendorTaxId": None, "CustomerTaxId": None, "IBAN": None, "differences": []}


def wire_field(value: str, **changes: Any) -> dict[str, Any]:
    """A field as POST /v1/documents answers it."""
    field = {"value": value, "text": value, "score": 0.9, "page": 1, "boxes": [[1.0, 2.0, 3.0, 4.0]]}
    why = "beside its label"
    rest = {"start": 0, "end": len(value), "source": "text", "why": why, "reasons": reasons_in(why)}
    return {**field, **rest, "valid": None, "repair": None, "ambiguous": False, **changes}


def wire_document(pages: Sequence[int] = (1,), kind: str | None = "invoice", **fields: str) -> dict[str, Any]:
    """One document of an answer."""
    made = {name: wire_field(value) for name, value in fields.items()}
    table = {"page": pages[0], "cells": []}
    head = {"pages": list(pages), "kind": kind, "fields": made, "fields_why": "read as invoice", "valid": _VALID}
    return {**head, "tables": [table]}


INVOICE = {
    "VendorName": "Aceros del Norte, S.L.", "VendorTaxId": "B12345674", "InvoiceId": "2026/017",
    "InvoiceDate": "2026-03-12", "SubTotal": "100.00", "TotalTax": "21.00", "InvoiceTotal": "121.00",
}  # fmt: skip


def wire_answer(*documents: Mapping[str, Any], pages: int = 2) -> dict[str, Any]:
    """An answer of POST /v1/documents: an invoice of a file of two pages, unless other documents are given."""
    made = list(documents) or [wire_document(**INVOICE)]
    word = {"text": "FACTURA", "box": [1.0, 2.0, 3.0, 4.0], "confidence": 1.0, "start": 0, "end": 7}
    page = {
        "source": "text_layer",
        "why": "sound",
        "reasons": reasons_in("sound"),
        "engine": "pdfium",
        "confidence": 1.0,
        "language": "es",
    }
    page |= {"width": 595.0, "height": 842.0, "units_per_inch": 72.0, "rotation": 0}
    page |= {"incomplete": False, "start": 0, "text": "FACTURA", "words": [{**word, "line": 0, "block": 0}]}
    return {
        "object": "document",
        "kind": "pdf",
        "page_count": pages,
        "sha256": "ab" * 32,
        "metadata": {},
        "pages": [{"number": number, **page} for number in range(1, pages + 1)],
        "failed_pages": [],
        "text": "FACTURA",
        "language": {"code": "es", "score": 1.0},
        "vector": [0.5],
        "chunks": [],
        **{name: made[0][name] for name in ("fields", "fields_why", "valid")},
        "documents": made,
        "tables": [],
        "model": None,
        "device": "cpu",
        "timings": {},
        "usage": {"pages": 2, "ocr_pages": 0, "prompt_tokens": 0, "total_tokens": 0},
    }


def fits(filters: Filter, attributes: Mapping[str, Scalar | Sequence[Scalar]]) -> bool:
    """Whether a file that has these attributes, with one value or several, is let through."""
    condition = compile_filter(filters, Dialect("file", lambda index: f"?{index + 1}"))
    found = {name: values if isinstance(values, list) else [values] for name, values in attributes.items()}
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE attributes (file, name, number, text, flag)")
        connection.executemany("INSERT INTO attributes VALUES (1, ?, ?, ?, ?)", effective({}, found))
        query = f"SELECT 1 FROM (SELECT 1 AS file) WHERE {condition.sql}"
        return connection.execute(query, condition.values).fetchone() is not None
