"""Analyses the text of a document, and finds where its entities are on the pages.

Entities are searched page by page while other pages are still being extracted.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import orjson

from backend.abandoned import end_tasks, together
from backend.documents.chunks import SPECIAL_TOKENS, text_chunks
from backend.documents.own_fields import OwnFields
from backend.documents.page_classes import DocumentImages, ImagePart, combine
from backend.documents.records import (
    DEFAULT_FEATURES,
    Chunk,
    DocumentOptions,
    OwnField,
    PlacedEntity,
    SkippedFeature,
    Understood,
)
from backend.errors import InferenceFailed
from backend.files.pages import Document, Page, locate
from backend.invoices.ocr_confusions import SuggestedRepair, suggest_repairs
from backend.invoices.records import ExtractedFields, Validity
from backend.invoices.structure import fields_of, tables_of
from backend.invoices.taught.examples import SupplierExample
from backend.lanes.inference import Urgency
from backend.lanes.text_work import TextWork
from backend.reasons import because
from backend.serving.catalog import Catalog
from backend.speech.pages import KIND as RECORDING
from backend.summaries.records import Summary
from backend.summaries.service import SummaryService
from backend.tables.records import Table
from backend.text.analysis import Analysis, AnalysisService
from backend.text.answers import AnswerService
from backend.text.classification import DEFAULT
from backend.text.embeddings import EmbeddingService
from backend.text.entities import EntityService, TextEntities
from backend.text.entity_merge import PATTERN, Entity

Found = TypeVar("Found")

_OF_LAYOUT = ("fields", "tables")
_ANALYSED = frozenset({"language", "classes", "key_phrases", "key_sentences", "vector"})


@dataclass(frozen=True, slots=True)
class TextServices:
    catalog: Catalog
    embeddings: EmbeddingService
    entities: EntityService
    analysis: AnalysisService
    summaries: SummaryService
    answers: AnswerService
    text_work: TextWork  # of the process


class Understanding:
    """The analysis of one document: `add` takes each page as it is extracted, `finish` returns everything.

    Args:
        images: looks at the document; None where no image model takes part in its classes.
    """

    def __init__(
        self,
        services: TextServices,
        options: DocumentOptions,
        urgency: Urgency,
        *,
        images: DocumentImages | None = None,
    ) -> None:
        self._services, self._options, self._urgency = services, options, urgency
        self._images = images
        self.examples: Sequence[SupplierExample] = ()  # that fields are read with
        self.faults: list[str] = []  # features of ours that could not be read
        self._entity_tasks: dict[int, asyncio.Task[tuple[TextEntities, Sequence[SuggestedRepair]]]] = {}

    def add(self, page: Page) -> None:
        """Search a page for entities in the background. Entities do not cross pages."""
        if "entities" in self._options.features and page.text:
            self._entity_tasks[page.number] = asyncio.create_task(self._find(page))

    async def finish(
        self, document: Document, text: str, on_fields: Callable[[ExtractedFields], None] = lambda _: None
    ) -> Understood:
        """Every requested feature of the text. Raises: what the services raise.

        Args:
            text: of the document.
            on_fields: called with the fields as soon as they are read, before entities, vectors and the summary are.
        """
        # What one of them raises ends the others: none is to wait for a lane when nobody waits for it.
        (analysis, skipped, fields, tables), chunks, by_page, seen = await together(
            self._analysed(document, text, on_fields),
            self._chunks(document, text),
            self._page_entities(),
            self._look(document),
        )
        summary = await self._summary(text, analysis)
        entities = await self._services.text_work.run_long(partial(_placed, document, by_page), len(text))
        custom, own_tokens = await self._custom(document)
        understood = Understood(
            entities=entities,
            coverage=_coverage(document, by_page),
            chunks=chunks,
            fields=fields,
            tables=tables,
            skipped=skipped,
            custom=custom,
        )
        if seen is not None:
            classes, parts = combine(analysis.classes if analysis else None, seen, self._options.labels)
            understood = replace(understood, classes=classes, class_parts=parts)
        if analysis is None:
            tokens = sum(row.tokens for row, _ in by_page.values()) or sum(chunk.tokens for chunk in chunks)
            tokens += own_tokens
            return replace(understood, tokens=tokens, model=self._services.catalog.embedding().name if chunks else "")
        return replace(
            understood,
            language=analysis.language,
            classes=understood.classes if understood.class_parts else analysis.classes,
            key_phrases=analysis.key_phrases,
            key_sentences=analysis.key_sentences,
            vector=analysis.vector,
            summary=summary,
            model=analysis.model,
            tokens=analysis.tokens + own_tokens + (summary.tokens if summary else 0),
        )

    async def stop(self) -> None:
        """Cancel what still runs, and drop its errors."""
        await end_tasks(*self._entity_tasks.values())

    async def _find(self, page: Page) -> tuple[TextEntities, Sequence[SuggestedRepair]]:
        if self._options.entity_labels:
            labels = orjson.loads(self._options.entity_labels)
            named = await self._services.answers.label(labels, [page.text], urgency=self._urgency)
            return named.rows[0], ()
        entities = await self._services.entities.find([page.text], urgency=self._urgency)
        row = entities.rows[0]
        if page.source != "ocr":  # a wrong number in a text layer is not a confusion of OCR
            return row, ()
        repairs = partial(suggest_repairs, page.text, row.entities)
        return row, await self._services.text_work.run_long(repairs, len(page.text))

    async def _page_entities(self) -> dict[int, tuple[TextEntities, Sequence[SuggestedRepair]]]:
        results = await asyncio.gather(*self._entity_tasks.values())
        return dict(zip(self._entity_tasks, results, strict=True))

    async def _analysed(
        self, document: Document, text: str, on_fields: Callable[[ExtractedFields], None]
    ) -> tuple[Analysis | None, tuple[SkippedFeature, ...], ExtractedFields | None, tuple[Table, ...]]:
        """What is said of the text, what is skipped, and the fields and tables, which the class of the text helps."""
        analysis = await self._analyse(text)
        skipped = _skipped(document, self._options.features)
        fields, tables = (None, ()) if skipped else await self._structured(document, analysis)
        if fields is not None:
            on_fields(fields)
        return analysis, skipped, fields, tables

    async def _analyse(self, text: str) -> Analysis | None:
        options = self._options
        features = _ANALYSED & options.features
        length = self._services.summaries.length(options.summary) if "summary" in options.features else None
        if self._images is not None and options.classifier is not None:
            features -= {"classes"}  # it names the image model
        elif (self._images is not None or options.features.issuperset(DEFAULT_FEATURES)) and not (
            options.labels or self._services.analysis.can_classify(options.classifier)
        ):
            features -= {"classes"}  # "all features" means those there are; classes asked for by name would be an error
        if not text or not (features or length):
            return None
        return await self._services.analysis.analyze(
            text,
            features=features or {"language"},
            summary=length,
            top_phrases=options.top_phrases,
            top_sentences=options.top_sentences,
            labels=options.labels,
            classifier=options.classifier,
            urgency=self._urgency,
        )

    async def _look(self, document: Document) -> ImagePart | None:
        return None if self._images is None else await self._images.look(document, self._options, self._urgency)

    async def _summary(self, text: str, analysis: Analysis | None) -> Summary | None:
        if analysis is None or "summary" not in self._options.features:
            return None
        return await self._services.summaries.finish(text, analysis, self._options.summary, self._urgency)

    async def _custom(self, document: Document) -> tuple[tuple[OwnField, ...], int]:
        """What the caller's schema asks for, and the tokens that were read for it."""
        if not self._options.schema:
            return (), 0
        own_fields = OwnFields(self._services.embeddings, self._services.text_work, self._services.answers)
        return await own_fields.asked(document, self._options.schema, self._options.lessons, self._urgency)

    async def _structured(
        self, document: Document, analysis: Analysis | None
    ) -> tuple[ExtractedFields | None, tuple[Table, ...]]:
        """Fields and tables, from words and lines alone. On a thread: milliseconds a page.

        Raises: InferenceFailed for a fault in reading what alone was asked for; else the answer lacks it, and says so.
        """
        features, kind = self._options.features, self._document_type(analysis)
        characters = document.characters
        tables: tuple[Table, ...] = ()
        fields: ExtractedFields | None = None
        if "tables" in features:
            tables = await self._read("tables", partial(tables_of, document), lambda _: (), characters)
        if "fields" in features:
            fields = await self._read(
                "fields", partial(fields_of, document, kind, self.examples, self._options.split), _no_fields, characters
            )
        return fields, tables

    async def _read(
        self, feature: str, read: Callable[[], Found], instead: Callable[[InferenceFailed], Found], characters: int
    ) -> Found:
        try:
            return await self._services.text_work.run_long(read, characters)
        except InferenceFailed as error:
            self.faults.append(feature)
            if self._options.features == {feature}:
                raise
            return instead(error)

    def _document_type(self, analysis: Analysis | None) -> str | None:
        """The class of the document, where the bundled classifier of document types gave it."""
        asked_otherwise = self._options.labels or self._options.classifier not in (None, DEFAULT)
        if analysis is None or analysis.classes is None or asked_otherwise:
            return None
        return analysis.classes.prediction

    async def _chunks(self, document: Document, text: str) -> tuple[Chunk, ...]:
        if "chunks" not in self._options.features or not text.strip():
            return ()
        model, token_starts = await self._services.embeddings.token_starts(text)
        max_tokens = min(model.spec.max_tokens, self._options.chunk_tokens) - SPECIAL_TOKENS
        cut = partial(text_chunks, text, token_starts, max_tokens)
        spans = await self._services.text_work.run_long(cut, len(text))
        texts = [text[start:end] for start, end in spans]
        embedded = await self._services.embeddings.embed_untruncated(texts, urgency=self._urgency)
        rows = zip(spans, _pages_of(document, spans), embedded.tokens, embedded.vectors, strict=True)
        return tuple(Chunk(*span, pages, tokens, vector) for span, pages, tokens, vector in rows)


def _skipped(document: Document, features: Collection[str]) -> tuple[SkippedFeature, ...]:
    """What needs to be seen on paper, and is not found in what is said."""
    if document.kind != RECORDING:
        return ()
    wanted = [feature for feature in _OF_LAYOUT if feature in features]
    return tuple(SkippedFeature(feature, because("no_layout", feature=feature)) for feature in wanted)


def _no_fields(error: InferenceFailed) -> ExtractedFields:
    return ExtractedFields((), Validity(), str(error))


def _pages_of(document: Document, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """The numbers of the pages that each span of the document's text is on."""
    starts = document.page_starts
    ends = [first + len(page.text) for page, first in zip(document.pages, starts, strict=True)]
    for start, end in spans:
        yield tuple(page.number for page in document.pages[bisect_right(ends, start) : bisect_left(starts, end)])


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
