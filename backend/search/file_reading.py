"""Reads a file for a vector store: any document as `DocumentService` does, a plain text as it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from backend.documents.chunks import Span, printed_rows, table_rows
from backend.documents.records import DocumentAnswer, DocumentOptions, EventCallback
from backend.documents.text_fields import plain_text_of
from backend.errors import InferenceFailed
from backend.files.limits import FileLimits
from backend.files.pages import Document
from backend.files.stored_file import StoredFile
from backend.files.text_files import document_of_text, has_rows
from backend.invoices.records import ExtractedFields
from backend.invoices.structure import fields_of
from backend.lanes.inference import Urgency
from backend.search.lessons import page_of

# Chunks, their vectors and classes are made by the indexer: here nothing is embedded.
_FEATURES = frozenset({"text", "words", "fields", "tables"})
FACT_CHARS = 20_000  # of the start and the end of a text that are searched for names, numbers and fields: some 7 pages
_HEAD_RATIO = 0.75  # of these: who signs stands at the end


class ProcessDocument(Protocol):
    """`DocumentService.process`."""

    def __call__(
        self, upload: StoredFile, options: DocumentOptions, urgency: Urgency, on_event: EventCallback
    ) -> Awaitable[DocumentAnswer]: ...


@dataclass(frozen=True, slots=True)
class FileText:
    """What a file says."""

    text: str
    rows: Sequence[Span] = ()  # of tables, which chunks keep together
    document: Document | None = None  # None for a plain text
    fields: ExtractedFields | None = None
    failed_pages: tuple[int, ...] = ()


class FileTextReader:
    """Used on the event loop only."""

    def __init__(self, process: ProcessDocument, limits: FileLimits) -> None:
        self._process, self._limits = process, limits

    async def read(self, stored: StoredFile, name: str, urgency: Urgency, on_event: EventCallback) -> FileText:
        """The text of a file; pages that cannot be read are left out while there are others.

        Raises: WrongMediaType for what is neither a document nor text; as `DocumentService.process`.
        """
        text = await asyncio.to_thread(plain_text_of, stored, self._limits)
        if text is not None:
            return await asyncio.to_thread(_of_text, text, name)
        answer = await self._process(stored, DocumentOptions(features=_FEATURES), urgency, on_event)
        failed = tuple(page.number for page in answer.failed)
        rows = await asyncio.to_thread(table_rows, answer.understood.tables)
        return FileText(answer.text, rows, answer.document, answer.understood.fields, failed)


def kept_text(content: Mapping[str, Any]) -> FileText:
    """What a stored document said when it was read: for a file that opens with a password alone, which nobody keeps."""
    pages = tuple(map(page_of, content["pages"]))
    document = Document("pdf", pages, len(pages), "")
    return FileText(document.text, document=document)


def fact_parts(text: str) -> list[str]:
    """The parts of a text that are searched for facts: all of it, or its start and its end in whole lines."""
    if len(text) <= FACT_CHARS:
        return [text] if text.strip() else []
    head_chars = int(FACT_CHARS * _HEAD_RATIO)
    head, tail = text[:head_chars], text[head_chars - FACT_CHARS :]
    return [head[: head.rfind("\n")] if "\n" in head else head, tail[tail.find("\n") + 1 :]]


def _of_text(text: str, name: str) -> FileText:
    rows = printed_rows(text, every_line=has_rows(name))
    fields = None
    with suppress(InferenceFailed):  # logged
        fields = fields_of(document_of_text(text[:FACT_CHARS]))
    return FileText(text, rows, fields=fields)
