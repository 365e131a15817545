"""Documents as jobs keep them: options as JSON and back, pages as they come, and the document they make so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import orjson

from backend.documents.formats.plain_json import document_fields, pages_fields
from backend.documents.page_codec import pack_page, unpack_page
from backend.documents.pages import Document, Page
from backend.jobs.records import Job, PageNote
from backend.services.documents.records import DocumentOptions


def option_fields(options: DocumentOptions) -> dict[str, Any]:
    """Options as JSON. The password stays behind."""
    told = {one.name: getattr(options, one.name) for one in fields(options) if one.name != "password"}
    return {**told, "features": sorted(options.features)}


def options_of(told: Mapping[str, Any], password: str | None) -> DocumentOptions:
    """The options that `option_fields` wrote. Raises: TypeError, KeyError for those of another version."""
    as_tuples = {name: None if told[name] is None else tuple(told[name]) for name in ("languages", "labels")}
    return DocumentOptions(**{**told, **as_tuples, "features": frozenset(told["features"]), "password": password})


def page_note(page: Page) -> PageNote:
    """A page as a job keeps it and tells of it."""
    told = {
        "number": page.number,
        "source": page.source,
        "why": page.why,
        "engine": page.engine,
        "confidence": page.confidence,
        "words": len(page.words),
        "text": page.text,
        "rotation": page.rotation,
        "width": page.width,
        "height": page.height,
    }
    return PageNote(page.number, pack_page(page), orjson.dumps(told))


def document_of(job: Job, packed: Mapping[int, bytes], result: bytes | None = None) -> Document:
    """The document that a job's pages make.

    Args:
        result: of a job that succeeded, for what the file says of itself; without it the pages known of count.
    """
    pages = [page for number in sorted(packed) if (page := unpack_page(packed[number])) is not None]
    known = {} if result is None else orjson.loads(result)
    return Document(
        kind=job.file.kind,
        pages=tuple(pages),
        page_count=known.get("page_count", max([job.progress.pages_total or 0, *packed])),
        sha256=job.file.sha256,
        metadata=known.get("metadata", {}),
    )


def partial_result(job: Job, packed: Mapping[int, bytes]) -> bytes:
    """A document's JSON as far as it was read: pages and text, nothing of what the text says."""
    document = document_of(job, packed)
    return orjson.dumps(
        {
            "object": "document",
            "partial": True,
            **document_fields(document),
            "pages": list(pages_fields(document)),
            "failed_pages": [],
            "text": document.text,
        }
    )
