"""Analyses a text in one pass of the encoder: language, key phrases and sentences, classes, entities, vector."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from backend.batching.work_item import Priority
from backend.cache.store import CachedVector
from backend.documents.entities import Entity
from backend.documents.key_phrases import Candidate, KeyPhrase, phrase_candidates, rank_phrases
from backend.documents.key_sentences import select_key_sentences
from backend.documents.language import Language, detect
from backend.documents.sentences import sentence_spans
from backend.engines.analysis import TASK, SpanSums
from backend.models.encoder import Vectors
from backend.models.windows import Window, Windows
from backend.models.words import Offsets
from backend.services.abandoned import Check
from backend.services.catalog import Catalog, LoadedModel
from backend.services.classification import ClassificationService, ClassifiedText
from backend.services.embeddings import TextVectors
from backend.services.entities import EntityResult, EntityService
from backend.services.inference import Inference, Timing, Urgency, Usage, WindowPipeline, offload_math
from backend.telemetry import Telemetry

FEATURES = ("language", "key_phrases", "key_sentences", "classes", "entities", "vector")
_FROM_VECTORS = frozenset({"key_phrases", "key_sentences", "classes", "vector"})
_WINDOWS_AT_ONCE = 32  # bounds the memory: a window of 256 tokens of width 384 is 0.4 MB
_NO_SPANS: Offsets = np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True)
class KeySentence:
    """A sentence of the extractive summary; ``text`` is ``caller_text[start:end]``."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """The requested features of one text; the others are empty or None."""

    language: Language | None
    key_phrases: tuple[KeyPhrase, ...]  # best first
    key_sentences: tuple[KeySentence, ...]  # in the order of the text
    classes: ClassifiedText | None
    entities: tuple[Entity, ...]
    coverage: float | None  # share of the text's characters that the entity model covers
    vector: Vectors | None  # (width), as /v1/embeddings gives it; of the whole text where that is longer than the model
    model: str
    tokens: int  # processed for the vectors; where none are wanted, for the entities
    timing: Timing


@dataclass(frozen=True, slots=True)
class _TextStructure:
    """What is found in the text without a model."""

    text: str
    model: LoadedModel
    language: Language | None
    windows: tuple[Window, ...]  # input of the encoder; none where no vector is needed
    sentences: Offsets  # none where none are requested
    phrases: Sequence[Candidate]

    @property
    def spans(self) -> Offsets:
        """Every span whose vector is needed: the sentences, then the first occurrence of each phrase.

        All occurrences instead of the first changed nothing measurable.
        """
        return np.concatenate([self.sentences, *(phrase.places[:1] for phrase in self.phrases)])


class AnalysisService:
    """The use case behind ``/v1/analyze``. Belongs to the loop's thread."""

    def __init__(
        self,
        catalog: Catalog,
        inference: Inference,
        classification: ClassificationService,
        entities: EntityService,
        telemetry: Telemetry,
    ) -> None:
        self._catalog, self._inference = catalog, inference
        self._classification, self._entities = classification, entities
        self._usage = Usage(telemetry, TASK)

    def can_classify(self, classifier: str | None = None) -> bool:
        """Whether classification works without labels in the request. Raises: UnknownModel."""
        return self._classification.can_classify(classifier)

    async def analyze(
        self,
        text: str,
        *,
        features: Collection[str] | None = None,
        top_phrases: int = 10,
        top_sentences: int = 3,
        labels: Sequence[str] | None = None,
        classifier: str | None = None,
        priority: Priority = Priority.INTERACTIVE,
        deadline_s: float = math.inf,
    ) -> Analysis:
        """What a text is about, however long it is.

        Args:
            features: of ``FEATURES``; unset: all, classes only where a classifier fits the embedding model.
            labels, classifier: for the classes, as ``labels`` and ``model`` of ClassificationService.classify.

        Raises: UnknownModel, InvalidField, TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded,
            InferenceFailed for the service.
        """
        wanted, urgency = frozenset(features or FEATURES), Urgency(priority, deadline_s)
        entities = asyncio.create_task(self._find_entities(text, wanted, urgency))
        try:
            structure = await self._structure(text, wanted)
            sums, vectors = await self._encode(structure, urgency)
            classes = None
            if "classes" in wanted and (features or labels or self._classification.can_classify(classifier)):
                classes = await self._classes(text, vectors, labels, classifier, urgency)
            summarise = partial(_key_phrases_and_sentences, structure, sums, vectors.vectors[0])
            phrases, sentences = await asyncio.to_thread(summarise, phrases=top_phrases, sentences=top_sentences)
            found = await entities
        finally:
            entities.cancel()
            await asyncio.gather(entities, return_exceptions=True)  # wait for its end, and retrieve its error
        tokens = vectors.tokens[0] or (found.tokens if found else 0)
        self._usage.count(1, tokens)
        return Analysis(
            language=structure.language if "language" in wanted else None,
            key_phrases=phrases,
            key_sentences=sentences,
            classes=classes,
            entities=found.rows[0].entities if found else (),
            coverage=found.rows[0].coverage if found else None,
            vector=vectors.vectors[0] if "vector" in wanted else None,
            model=vectors.model.name,
            tokens=tokens,
            timing=vectors.timing,
        )

    async def _structure(self, text: str, wanted: frozenset[str]) -> _TextStructure:
        """Some milliseconds a page, on threads. The first call reads the language model."""
        model, text_work = self._catalog.embedding(), self._inference.text_work
        with_language = "key_phrases" in wanted or "language" in wanted
        language = await asyncio.to_thread(detect, text) if with_language else None
        tokenized = await text_work.windows(model.tokenizer, text, 0) if _FROM_VECTORS & wanted else None
        found = partial(_structure_of, text, model, wanted=wanted, language=language, tokenized=tokenized)
        return await text_work.run_long(found)

    async def _find_entities(self, text: str, wanted: frozenset[str], urgency: Urgency) -> EntityResult | None:
        if "entities" not in wanted:
            return None
        priority, deadline_s = urgency
        return await self._entities.find([text], priority=priority, deadline_s=deadline_s)

    async def _encode(self, structure: _TextStructure, urgency: Urgency) -> tuple[SpanSums, TextVectors]:
        """The one pass of the encoder, some windows at a time."""
        model, windows = structure.model, structure.windows
        sums, timing = SpanSums(structure.spans, model.spec), Timing()
        # Not cached: a window's token vectors take 400 KB.
        pipeline = WindowPipeline(model.token_engine, model.namespace(TASK), uses_cache=False)
        for first in range(0, len(windows), _WINDOWS_AT_ONCE):
            chunk = windows[first : first + _WINDOWS_AT_ONCE]
            result = await self._inference.run(pipeline, chunk, urgency)
            timing = timing.then(result.timing)
            await offload_math(partial(_add, sums, chunk, result.rows), sum(row.vector.size for row in result.rows))
        tokens = sum(len(window.ids) for window in windows)
        return sums, TextVectors(sums.text_vector()[None], (tokens,), timing, model)

    async def _classes(
        self, text: str, vectors: TextVectors, labels: Sequence[str] | None, classifier: str | None, urgency: Urgency
    ) -> ClassifiedText:
        """From the vector at hand, unless the request has labels or names another model."""
        from_vectors = partial(self._classification.classify_vectors, [text], vectors, model=classifier)
        if labels is None and (classified := from_vectors()) is not None:
            return classified.rows[0]
        priority, deadline_s = urgency
        classified = await self._classification.classify(
            [text], labels=labels, model=classifier, priority=priority, deadline_s=deadline_s
        )
        return classified.rows[0]


def _structure_of(
    text: str,
    model: LoadedModel,
    check: Check,
    *,
    wanted: frozenset[str],
    language: Language | None,
    tokenized: Windows | None,
) -> _TextStructure:
    with_phrases, with_sentences = "key_phrases" in wanted, "key_sentences" in wanted
    sentences = sentence_spans(text) if with_phrases or with_sentences else _NO_SPANS
    check()
    code = language.code if language else None
    phrases: Sequence[Candidate] = ()
    if tokenized and with_phrases:
        phrases = phrase_candidates(text, tokenized.words, sentences, code, check=check)
    windows = (tokenized.windows or (_window_without_tokens(text, model),)) if tokenized else ()
    return _TextStructure(text, model, language, windows, sentences if with_sentences else _NO_SPANS, phrases)


def _window_without_tokens(text: str, model: LoadedModel) -> Window:
    """The window of a text without tokens: only the model's special ones, from which its vector is made."""
    [tokens] = model.tokenizer.encode([text])
    nowhere = np.full(len(tokens.ids), -1)
    return Window(tokens.ids, np.stack([nowhere, nowhere], axis=1), nowhere, 0, len(tokens.ids))


def _add(sums: SpanSums, windows: Sequence[Window], rows: Sequence[CachedVector]) -> None:
    for window, row in zip(windows, rows, strict=True):
        sums.add(window, row.vector.reshape(len(window.ids), -1))


def _key_phrases_and_sentences(
    structure: _TextStructure, sums: SpanSums, text_vector: Vectors, *, phrases: int, sentences: int
) -> tuple[tuple[KeyPhrase, ...], tuple[KeySentence, ...]]:
    """Shapes: sums of the structure's spans, text_vector (width)."""
    vectors = sums.span_vectors()
    places, count = structure.sentences.tolist(), len(structure.sentences)
    texts = [structure.text[start:stop] for start, stop in places]
    chosen = select_key_sentences(texts, vectors[:count], text_vector, count=sentences)
    summary = tuple(
        KeySentence(texts[key.index], places[key.index][0], places[key.index][1], key.score) for key in chosen
    )
    return tuple(rank_phrases(structure.phrases, vectors[count:], text_vector, top=phrases)), summary
