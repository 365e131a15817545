"""Reads a file for a vector store, as `DocumentService` does or a plain text as it stands, and finds its attributes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from backend.documents.chunks import Span, printed_rows, table_rows
from backend.documents.records import DocumentOptions, EventCallback, ProcessDocument
from backend.documents.text_fields import plain_text_of
from backend.errors import BadInput, InferenceFailed, Unavailable
from backend.files.limits import FileLimits
from backend.files.pages import Document
from backend.files.stored_file import StoredFile
from backend.files.text_files import document_of_text, has_rows
from backend.invoices.records import ExtractedFields
from backend.invoices.structure import fields_of
from backend.lanes.inference import Timing, Urgency
from backend.models.encoder import Vectors, normalized
from backend.search.attributes import found_attributes
from backend.search.lessons import page_of
from backend.search.records import Scalar
from backend.serving.catalog import LoadedModel
from backend.text.classification import ClassificationService
from backend.text.embeddings import TextVectors
from backend.text.entities import EntityService
from backend.text.entity_merge import Entity
from backend.text.language import detect

# Chunks, their vectors and classes are made by the indexer: here nothing is embedded.
_FEATURES = frozenset({"text", "words", "fields", "tables"})
FACT_CHARS = 20_000  # of the start and the end of a text that are searched for names, numbers and fields: some 7 pages
_HEAD_RATIO = 0.75  # of these: who signs stands at the end
# Of a class, whatever less the classifier itself answers with: as an attribute it must be more likely than not. Guides
# and forms of no class had 0.36 to 0.39, invoices and contracts 0.70 to 1.00.
_MIN_TYPE_SCORE = 0.5
_CLASSIFIED_CHARS = 2_000  # by a model of its own, which no vectors are at hand for


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


@dataclass(frozen=True, slots=True)
class ChunkVectors:
    """The vectors of a file's chunks. Shapes: vectors (chunks, width) float32, tokens (chunks)."""

    vectors: Vectors
    tokens: tuple[int, ...]
    model: LoadedModel


@dataclass(frozen=True, slots=True)
class FileFacts:
    found: dict[str, tuple[Scalar, ...]]
    language: str | None  # ISO 639-1
    tokens: int  # read to find them


class FactFinder:
    """Used on the event loop only."""

    def __init__(self, entities: EntityService, classification: ClassificationService) -> None:
        self._entities, self._classification = entities, classification

    async def find(self, file: FileText, embedding: Awaitable[ChunkVectors], urgency: Urgency) -> FileFacts:
        """Names and numbers are those of the file's start and end (`fact_parts`).

        Args:
            embedding: awaited when the rest is found.

        Raises: what ``embedding`` raises; Overloaded, Unavailable, DeadlineExceeded, InferenceFailed.
        """
        language = await asyncio.to_thread(detect, file.text) if file.text else None
        entities, tokens = await self._find_entities(file, urgency)
        chunks = await embedding
        found = found_attributes(
            document_type=await self._document_type(file.text, chunks, urgency),
            language=language.code if language else None,
            fields=file.fields,
            entities=entities,
            pages=file.document.page_count if file.document else None,
            failed_pages=file.failed_pages,
        )
        return FileFacts(found, language.code if language else None, tokens)

    async def _find_entities(self, file: FileText, urgency: Urgency) -> tuple[list[Entity], int]:
        parts = fact_parts(file.text)
        if not parts:
            return [], 0
        result = await self._entities.find(parts, urgency=urgency)
        return [entity for row in result.rows for entity in row.entities], result.tokens

    async def _document_type(self, text: str, chunks: ChunkVectors, urgency: Urgency) -> str | None:
        """The class where it is sure, from the mean of the chunks' vectors: the text is not embedded again for it.

        None where no classifier is ready.
        """
        if not len(chunks.vectors):
            return None
        head, tokens = text[:_CLASSIFIED_CHARS], sum(chunks.tokens)
        mean = np.average(chunks.vectors, axis=0, weights=chunks.tokens).astype(np.float32)[None]
        vectors = TextVectors(normalized(mean), (tokens,), Timing(), chunks.model)
        try:
            if not self._classification.can_classify():
                return None
            classes = self._classification.classify_vectors([head], vectors)
            if classes is None:
                classes = await self._classification.classify([head], urgency=urgency)
        except (BadInput, Unavailable):
            return None
        best = classes.rows[0]
        return best.prediction if best.score >= _MIN_TYPE_SCORE else None
