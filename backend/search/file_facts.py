"""Finds the attributes of a file in its text: language, class, fields, names and numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

import numpy as np

from backend.errors import BadInput, Unavailable
from backend.lanes.inference import Timing, Urgency
from backend.models.encoder import Vectors
from backend.models.vectors import normalized
from backend.search.file_reading import FileText, fact_parts
from backend.search.found_attributes import found_attributes
from backend.search.records import Scalar
from backend.serving.catalog import LoadedModel
from backend.text.classification import ClassificationService
from backend.text.embeddings import TextVectors
from backend.text.entities import EntityService
from backend.text.entity_merge import Entity
from backend.text.language import detect

# Of a class, whatever less the classifier itself answers with: as an attribute it must be more likely than not. Guides
# and forms of no class had 0.36 to 0.39, invoices and contracts 0.70 to 1.00.
_LEAST_TYPE_SCORE = 0.5
_CLASSIFIED_CHARS = 2_000  # by a model of its own, which no vectors are at hand for


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
        priority, deadline_s = urgency
        result = await self._entities.find(parts, priority=priority, deadline_s=deadline_s)
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
                priority, deadline_s = urgency
                classes = await self._classification.classify([head], priority=priority, deadline_s=deadline_s)
        except (BadInput, Unavailable):
            return None
        best = classes.rows[0]
        return best.prediction if best.score >= _LEAST_TYPE_SCORE else None
