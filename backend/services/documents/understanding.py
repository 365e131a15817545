"""What the text of a document says, and where on its pages. Names are looked for while other pages are still read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from backend.documents.entities import PATTERN, Entity
from backend.documents.ocr_confusions import SuggestedRepair, suggest_repairs
from backend.documents.pages import Document, Page
from backend.documents.sentences import chunk_spans, sentence_spans
from backend.documents.text_locations import locate
from backend.models.words import Offsets
from backend.services.analysis import Analysis, AnalysisService
from backend.services.catalog import Catalog, LoadedModel
from backend.services.documents.records import FEATURES, Chunk, DocumentOptions, PlacedEntity, Understood
from backend.services.embeddings import EmbeddingService
from backend.services.entities import EntityService, FoundIn
from backend.services.inference import Urgency

_CHUNK_TOKENS = 256  # of a chunk at most: what retrieval is measured with, also where the model takes more
_SPECIAL_TOKENS = 2
_ANALYSED = frozenset({"language", "classes", "key_phrases", "key_sentences", "vector"})


@dataclass(frozen=True, slots=True)
class TextServices:
    """Who understands text."""

    catalog: Catalog
    embeddings: EmbeddingService
    entities: EntityService
    analysis: AnalysisService


class Understanding:
    """The understanding of one document: told of its pages as they come, asked for everything when all are there."""

    def __init__(self, services: TextServices, options: DocumentOptions, urgency: Urgency) -> None:
        self._services, self._options, self._urgency = services, options, urgency
        self._found: dict[int, asyncio.Task[tuple[FoundIn, Sequence[SuggestedRepair]]]] = {}

    def add(self, page: Page) -> None:
        """Look for a page's entities in the background. A name does not go over the end of a page."""
        if "entities" in self._options.features and page.text:
            self._found[page.number] = asyncio.create_task(self._find(page))

    async def finish(self, document: Document, text: str) -> Understood:
        """Everything that was asked for.

        Args:
            text: of the document.

        Raises: as the services that do it.
        """
        analysis, chunks, found = await asyncio.gather(self._analyse(text), self._chunks(document, text), self._all())
        entities = await asyncio.to_thread(_placed, document, found)
        understood = Understood(entities=entities, coverage=_coverage(document, found), chunks=chunks)
        if analysis is None:
            tokens = sum(one.tokens for one, _ in found.values()) or sum(chunk.tokens for chunk in chunks)
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
        """End what still runs; an error that nobody asked for any more counts as seen."""
        for task in self._found.values():
            task.cancel()
        await asyncio.gather(*self._found.values(), return_exceptions=True)

    async def _find(self, page: Page) -> tuple[FoundIn, Sequence[SuggestedRepair]]:
        priority, deadline_s = self._urgency
        found = await self._services.entities.find([page.text], priority=priority, deadline_s=deadline_s)
        row = found.rows[0]
        if page.source != "ocr":  # in a text layer a wrong number is a wrong number
            return row, ()
        return row, await asyncio.to_thread(partial(suggest_repairs, page.text, row.entities))

    async def _all(self) -> dict[int, tuple[FoundIn, Sequence[SuggestedRepair]]]:
        found = await asyncio.gather(*self._found.values())
        return dict(zip(self._found, found, strict=True))

    async def _analyse(self, text: str) -> Analysis | None:
        options, (priority, deadline_s) = self._options, self._urgency
        wanted = _ANALYSED & options.features
        if options.features.issuperset(FEATURES) and not (
            options.labels or self._services.analysis.can_classify(options.classifier)
        ):
            wanted -= {"classes"}  # everything was asked for, not just this
        if not wanted or not text:
            return None
        return await self._services.analysis.analyze(
            text,
            features=wanted,
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
        cut = await asyncio.to_thread(_cut, text, self._services.catalog.embedding())
        priority, deadline_s = self._urgency
        texts = [text[start:end] for start, end in cut]
        whole = await self._services.embeddings.embed_whole(texts, priority=priority, deadline_s=deadline_s)
        return tuple(
            Chunk(start, end, _pages_of(document, start, end), tokens, vector)
            for (start, end), tokens, vector in zip(cut, whole.tokens, whole.vectors, strict=True)
        )


def _cut(text: str, model: LoadedModel) -> list[tuple[int, int]]:
    """Some milliseconds a page; on a thread."""
    windows = model.tokenizer.windows(text, 0).windows
    own: list[Offsets] = [window.places[window.own_start : window.own_stop] for window in windows]
    starts = np.concatenate(own)[:, 0] if own else np.empty(0, np.int64)
    most_tokens = min(model.spec.max_tokens, _CHUNK_TOKENS) - _SPECIAL_TOKENS
    cut = chunk_spans(starts[starts >= 0], sentence_spans(text), most_tokens)
    return cut or [(0, len(text))]


def _pages_of(document: Document, start: int, end: int) -> tuple[int, ...]:
    rows = zip(document.pages, document.page_starts, strict=True)
    return tuple(page.number for page, first in rows if first < end and start < first + len(page.text))


def _placed(
    document: Document, found: Mapping[int, tuple[FoundIn, Sequence[SuggestedRepair]]]
) -> tuple[PlacedEntity, ...]:
    """The entities of all pages, their places counted from the start of the document."""
    placed: list[PlacedEntity] = []
    for page, first in zip(document.pages, document.page_starts, strict=True):
        if page.number in found:
            row, offered = found[page.number]
            for one in _with_offers(page, row.entities, offered):
                entity = replace(one.entity, start=one.entity.start + first, end=one.entity.end + first)
                where = tuple(locate(document, entity.start, entity.end))
                placed.append(replace(one, entity=entity, places=where))
    return tuple(placed)


def _with_offers(page: Page, entities: Sequence[Entity], offered: Sequence[SuggestedRepair]) -> list[PlacedEntity]:
    """Each entity with its repair; what is nearly an id, found as none or in parts, is one that is not valid."""
    plain = [PlacedEntity(one, ()) for one in entities if not any(_overlap(one, offer) for offer in offered)]
    mended = [PlacedEntity(_misread(page, offer, entities), (), offer.repair) for offer in offered]
    return sorted([*plain, *mended], key=lambda one: one.entity.start)


def _overlap(entity: Entity, offer: SuggestedRepair) -> bool:
    return entity.start < offer.end and offer.start < entity.end


def _misread(page: Page, offer: SuggestedRepair, entities: Sequence[Entity]) -> Entity:
    for one in entities:
        if (one.type, one.start, one.end) == (offer.type, offer.start, offer.end):
            return one
    text = page.text[offer.start : offer.end]
    return Entity(offer.type, text, offer.start, offer.end, offer.repair.score, PATTERN, None, False)


def _coverage(document: Document, found: Mapping[int, tuple[FoundIn, Sequence[SuggestedRepair]]]) -> float | None:
    """Share of the characters that the entity model could read; None where none was asked."""
    if not found:
        return None
    weights = {page.number: len(page.text) for page in document.pages if page.number in found}
    return sum(found[number][0].coverage * weight for number, weight in weights.items()) / sum(weights.values())
