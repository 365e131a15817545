"""Analyses the text of a document, and finds where its entities are on the pages.

Entities are searched page by page while other pages are still being extracted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from backend.documents.entities import PATTERN, Entity
from backend.documents.ocr_confusions import SuggestedRepair, suggest_repairs
from backend.documents.pages import Document, Page
from backend.documents.sentences import chunk_spans, sentence_spans
from backend.documents.text_locations import locate
from backend.models.windows import Windows
from backend.models.words import Offsets
from backend.services.analysis import Analysis, AnalysisService
from backend.services.catalog import Catalog
from backend.services.documents.records import FEATURES, Chunk, DocumentOptions, PlacedEntity, Understood
from backend.services.embeddings import EmbeddingService
from backend.services.entities import EntityService, TextEntities
from backend.services.idle_trim import IdleTrim
from backend.services.inference import Urgency

_CHUNK_TOKENS = 256  # of a chunk at most: retrieval was measured with it, also for models that take more
_SPECIAL_TOKENS = 2
_ANALYSED = frozenset({"language", "classes", "key_phrases", "key_sentences", "vector"})


@dataclass(frozen=True, slots=True)
class TextServices:
    catalog: Catalog
    embeddings: EmbeddingService
    entities: EntityService
    analysis: AnalysisService
    idle_trim: IdleTrim = field(default_factory=IdleTrim)  # of the process


class Understanding:
    """The analysis of one document: `add` takes each page as it is extracted, `finish` returns everything."""

    def __init__(self, services: TextServices, options: DocumentOptions, urgency: Urgency) -> None:
        self._services, self._options, self._urgency = services, options, urgency
        self._entity_tasks: dict[int, asyncio.Task[tuple[TextEntities, Sequence[SuggestedRepair]]]] = {}

    def add(self, page: Page) -> None:
        """Search a page for entities in the background. Entities do not cross pages."""
        if "entities" in self._options.features and page.text:
            self._entity_tasks[page.number] = asyncio.create_task(self._find(page))

    async def finish(self, document: Document, text: str) -> Understood:
        """Every requested feature of the text. Raises: what the services raise.

        Args:
            text: of the document.
        """
        analysis, chunks, by_page = await asyncio.gather(
            self._analyse(text), self._chunks(document, text), self._page_entities()
        )
        entities = await asyncio.to_thread(_placed, document, by_page)
        understood = Understood(entities=entities, coverage=_coverage(document, by_page), chunks=chunks)
        if analysis is None:
            tokens = sum(row.tokens for row, _ in by_page.values()) or sum(chunk.tokens for chunk in chunks)
            return replace(understood, tokens=tokens, model=self._services.catalog.embedding().name if chunks else "")
        return replace(
            understood,
            language=analysis.language,
            classes=analysis.classes,
            key_phrases=analysis.key_phrases,
            key_sentences=analysis.key_sentences,
            vector=analysis.vector,
            model=analysis.model,
            tokens=analysis.tokens,
        )

    async def stop(self) -> None:
        """Cancel what still runs, and drop its errors."""
        for task in self._entity_tasks.values():
            task.cancel()
        await asyncio.gather(*self._entity_tasks.values(), return_exceptions=True)

    async def _find(self, page: Page) -> tuple[TextEntities, Sequence[SuggestedRepair]]:
        priority, deadline_s = self._urgency
        entities = await self._services.entities.find([page.text], priority=priority, deadline_s=deadline_s)
        row = entities.rows[0]
        if page.source != "ocr":  # a wrong number in a text layer is not a confusion of OCR
            return row, ()
        return row, await asyncio.to_thread(partial(suggest_repairs, page.text, row.entities))

    async def _page_entities(self) -> dict[int, tuple[TextEntities, Sequence[SuggestedRepair]]]:
        results = await asyncio.gather(*self._entity_tasks.values())
        return dict(zip(self._entity_tasks, results, strict=True))

    async def _analyse(self, text: str) -> Analysis | None:
        options, (priority, deadline_s) = self._options, self._urgency
        features = _ANALYSED & options.features
        if options.features.issuperset(FEATURES) and not (
            options.labels or self._services.analysis.can_classify(options.classifier)
        ):
            features -= {"classes"}  # "all features" means those there are; classes asked for by name would be an error
        if not features or not text:
            return None
        return await self._services.analysis.analyze(
            text,
            features=features,
            top_phrases=options.top_phrases,
            top_sentences=options.top_sentences,
            labels=options.labels,
            classifier=options.classifier,
            priority=priority,
            deadline_s=deadline_s,
        )

    async def _chunks(self, document: Document, text: str) -> tuple[Chunk, ...]:
        if "chunks" not in self._options.features or not text.strip():
            return ()
        model, windows = await self._services.embeddings.windows(text)
        max_tokens = min(model.spec.max_tokens, _CHUNK_TOKENS) - _SPECIAL_TOKENS
        spans = await asyncio.to_thread(_chunk_spans, text, windows, max_tokens)
        priority, deadline_s = self._urgency
        texts = [text[start:end] for start, end in spans]
        embedded = await self._services.embeddings.embed_untruncated(texts, priority=priority, deadline_s=deadline_s)
        return tuple(
            Chunk(start, end, _pages_of(document, start, end), tokens, vector)
            for (start, end), tokens, vector in zip(spans, embedded.tokens, embedded.vectors, strict=True)
        )


def _chunk_spans(text: str, windows: Windows, max_tokens: int) -> list[tuple[int, int]]:
    """Start and end of each chunk in the text. Takes milliseconds a page: runs on a thread."""
    own_places: list[Offsets] = [window.places[window.own_start : window.own_stop] for window in windows.windows]
    starts = np.concatenate(own_places)[:, 0] if own_places else np.empty(0, np.int64)
    spans = chunk_spans(starts[starts >= 0], sentence_spans(text), max_tokens)
    return spans or [(0, len(text))]


def _pages_of(document: Document, start: int, end: int) -> tuple[int, ...]:
    rows = zip(document.pages, document.page_starts, strict=True)
    return tuple(page.number for page, first in rows if first < end and start < first + len(page.text))


def _placed(
    document: Document, by_page: Mapping[int, tuple[TextEntities, Sequence[SuggestedRepair]]]
) -> tuple[PlacedEntity, ...]:
    """The entities of all pages, with offsets from the start of the document."""
    placed: list[PlacedEntity] = []
    for page, first in zip(document.pages, document.page_starts, strict=True):
        if page.number in by_page:
            row, offers_of_page = by_page[page.number]
            for page_entity in _with_offers(page, row.entities, offers_of_page):
                entity = replace(
                    page_entity.entity, start=page_entity.entity.start + first, end=page_entity.entity.end + first
                )
                boxes = tuple(locate(document, entity.start, entity.end))
                placed.append(replace(page_entity, entity=entity, places=boxes))
    return tuple(placed)


def _with_offers(
    page: Page, entities: Sequence[Entity], offers_of_page: Sequence[SuggestedRepair]
) -> list[PlacedEntity]:
    """Entities with their repairs. A near-id that was found in parts, or not at all, becomes one invalid entity."""
    plain = [
        PlacedEntity(entity, ()) for entity in entities if not any(_overlap(entity, offer) for offer in offers_of_page)
    ]
    repaired = [PlacedEntity(_misread(page, offer, entities), (), offer.repair) for offer in offers_of_page]
    return sorted([*plain, *repaired], key=lambda placed: placed.entity.start)


def _overlap(entity: Entity, offer: SuggestedRepair) -> bool:
    return entity.start < offer.end and offer.start < entity.end


def _misread(page: Page, offer: SuggestedRepair, entities: Sequence[Entity]) -> Entity:
    for entity in entities:
        if (entity.type, entity.start, entity.end) == (offer.type, offer.start, offer.end):
            return entity
    text = page.text[offer.start : offer.end]
    return Entity(offer.type, text, offer.start, offer.end, offer.repair.score, PATTERN, None, False)


def _coverage(
    document: Document, by_page: Mapping[int, tuple[TextEntities, Sequence[SuggestedRepair]]]
) -> float | None:
    """Share of the characters that the entity model covered; None where entities were not requested."""
    if not by_page:
        return None
    weights = {page.number: len(page.text) for page in document.pages if page.number in by_page}
    return sum(by_page[number][0].coverage * weight for number, weight in weights.items()) / sum(weights.values())
