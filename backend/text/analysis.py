"""Analyses a text in one pass of the encoder: language, key phrases and sentences, classes, entities, vector."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from backend.abandoned import end_tasks, require_wanted
from backend.lanes.cache.store import CachedVector, CacheNamespace
from backend.lanes.engine import Engine
from backend.lanes.inference import Inference, Timing, Urgency, UsageCounter, offload
from backend.models.encoder import Vectors
from backend.models.tokenizer import Tokens, Window, Windows
from backend.models.words import Offsets
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.heads import ANALYSIS, SpannedWindow, SpanSums, spanned
from backend.telemetry import Telemetry
from backend.text.classification import ClassificationService, ClassifiedText
from backend.text.embeddings import TextVectors
from backend.text.entities import EntityResult, EntityService
from backend.text.entity_merge import Entity
from backend.text.key_phrases import Candidate, KeyPhrase, phrase_candidates, rank_phrases
from backend.text.key_sentences import KeySentence as RankedSentence
from backend.text.key_sentences import (
    SummaryCandidates,
    SummaryLength,
    select_key_sentences,
    select_summary,
    summary_candidates,
)
from backend.text.language import Language, detect
from backend.text.sentences import sentence_spans

FEATURES = ("language", "key_phrases", "key_sentences", "classes", "entities", "vector")
_FROM_VECTORS = frozenset({"key_phrases", "key_sentences", "classes", "vector"})
_SUMMARY = "summary"  # beside FEATURES, where one is requested
_WINDOWS_AT_ONCE = 32  # bounds the memory: a window of 256 tokens of width 384 is 0.4 MB where the head runs here
_NO_SPANS: Offsets = np.empty((0, 2), np.int64)
_NO_CANDIDATES = SummaryCandidates(np.empty(0, np.int64), np.empty(0, np.int64))


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
    tokens: int  # processed for the vectors, where none are wanted for the entities, and for classes by another model
    timing: Timing
    summary: tuple[KeySentence, ...] = ()  # in the order of the text
    shortest_candidate: int | None = (
        None  # tokens of the shortest sentence that may be in a summary; None: there is none
    )


@dataclass(frozen=True, slots=True)
class _SpanPipeline:
    """Windows with their spans; a Pipeline. Not cached: the same window has other spans in another text."""

    engine: Engine
    namespace: CacheNamespace
    uses_cache: bool = False

    def key(self, part: SpannedWindow) -> bytes:
        """Of ids and spans: what equal keys in flight share is computed once."""
        numbers = ([len(part.spans)], part.spans.ravel(), part.window.payload.ravel())
        return self.namespace.key("ids", np.concatenate(numbers))

    def characters(self, part: SpannedWindow) -> int:  # noqa: ARG002 - the protocol's argument
        return 0

    def tokenize(self, inputs: Sequence[SpannedWindow], indices: Sequence[int]) -> list[Tokens]:  # noqa: ARG002 - the same
        return [Tokens(part.window.ids, truncated=False, types=part.window.types, spans=part.spans) for part in inputs]

    def postprocess(self, rows: Sequence[Vectors]) -> list[Vectors]:
        return [row.ravel() for row in rows]


@dataclass(frozen=True, slots=True)
class _TextStructure:
    """What is found in the text without a model."""

    text: str
    model: LoadedModel
    language: Language | None
    windows: tuple[Window, ...]  # input of the encoder; none where no vector is needed
    sentences: Offsets  # none where none are requested
    phrases: Sequence[Candidate]
    candidates: SummaryCandidates  # none where no summary is requested
    candidate_spans: Offsets

    @property
    def spans(self) -> Offsets:
        """Every span whose vector is needed: the sentences, the summary's, then the first occurrence of each phrase.

        All occurrences instead of the first changed nothing measurable.
        """
        return np.concatenate([self.sentences, self.candidate_spans, *(phrase.places[:1] for phrase in self.phrases)])

    def candidate_tokens(self) -> NDArray[np.int64]:
        """The tokens of each candidate. Shape: (candidates)."""
        own = [window.offsets[window.own_start : window.own_stop, 0] for window in self.windows]
        starts = np.concatenate(own) if own else np.empty(0, np.int64)
        first, last = (np.searchsorted(starts[starts >= 0], self.candidate_spans[:, side]) for side in (0, 1))
        return last - first


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
        self._usage = UsageCounter(telemetry, ANALYSIS)

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
        summary: SummaryLength | None = None,
        urgency: Urgency = Urgency(),
    ) -> Analysis:
        """What a text is about, however long it is.

        Args:
            features: of ``FEATURES``; unset: all, classes only where a classifier fits the embedding model.
            summary: how long the summary of its own sentences may be; None: there is none.
            labels, classifier: for the classes, as ``labels`` and ``model`` of ClassificationService.classify.

        Raises: UnknownModel, InvalidField, TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded,
            InferenceFailed for the service.
        """
        wanted = frozenset(features or FEATURES)
        entities = asyncio.create_task(self._find_entities(text, wanted, urgency))
        try:
            structure = await self._structure(text, wanted, with_summary=summary is not None)
            sums, vectors = await self._encode(structure, urgency)
            classes, class_tokens = None, 0
            if "classes" in wanted and (features or labels or self._classification.can_classify(classifier)):
                classes, class_tokens = await self._classes(text, vectors, labels, classifier, urgency)
            select = partial(_selected, structure, sums, vectors.vectors[0], summary)
            phrases, sentences, extract = await self._inference.text_work.run_long(
                partial(select, phrases=top_phrases, sentences=top_sentences), len(text)
            )
            found = await entities
        finally:
            await end_tasks(entities)
        tokens = vectors.tokens[0] or (found.tokens if found else 0)
        self._usage.count(1, tokens)  # those of classes count there
        return Analysis(
            language=structure.language if "language" in wanted else None,
            key_phrases=phrases,
            key_sentences=sentences,
            classes=classes,
            entities=found.rows[0].entities if found else (),
            coverage=found.rows[0].coverage if found else None,
            vector=vectors.vectors[0] if "vector" in wanted else None,
            summary=extract,
            shortest_candidate=min(structure.candidate_tokens().tolist(), default=None),
            model=vectors.model.name,
            tokens=tokens + class_tokens,
            timing=vectors.timing,
        )

    async def _structure(self, text: str, wanted: frozenset[str], *, with_summary: bool) -> _TextStructure:
        """Some milliseconds a page, on threads. The first call reads the language model."""
        model, text_work = self._catalog.embedding(), self._inference.text_work
        with_language = with_summary or "key_phrases" in wanted or "language" in wanted
        language = await text_work.run_long(partial(detect, text), len(text)) if with_language else None
        with_vectors = with_summary or _FROM_VECTORS & wanted
        tokenized = await text_work.windows(model.tokenizer, text, 0) if with_vectors else None
        features = wanted | {_SUMMARY} if with_summary else wanted
        found = partial(_structure_of, text, model, wanted=features, language=language, tokenized=tokenized)
        return await text_work.run_long(found, len(text))

    async def _find_entities(self, text: str, wanted: frozenset[str], urgency: Urgency) -> EntityResult | None:
        if "entities" not in wanted:
            return None
        return await self._entities.find([text], urgency=urgency)

    async def _encode(self, structure: _TextStructure, urgency: Urgency) -> tuple[SpanSums, TextVectors]:
        """The one pass of the encoder, some windows at a time."""
        model, windows = structure.model, structure.windows
        spans = structure.spans
        sums, timing = SpanSums(len(spans), model.spec), Timing()
        pipeline = _SpanPipeline(model.token_engine, model.namespace(ANALYSIS))
        for first in range(0, len(windows), _WINDOWS_AT_ONCE):
            chunk = windows[first : first + _WINDOWS_AT_ONCE]
            parts = await offload(partial(_spanned, chunk, spans), len(chunk) * spans.size)
            result = await self._inference.run(pipeline, parts, urgency)
            timing = timing.then(result.timing)
            await offload(partial(_add, sums, parts, result.rows), sum(row.vector.size for row in result.rows))
        tokens = sum(len(window.ids) for window in windows)
        return sums, TextVectors(sums.text_vector()[None], (tokens,), timing, model)

    async def _classes(
        self, text: str, vectors: TextVectors, labels: Sequence[str] | None, classifier: str | None, urgency: Urgency
    ) -> tuple[ClassifiedText, int]:
        """The classes, from the vector at hand unless the request has labels or names another model.

        Also the tokens that were read for them.
        """
        from_vectors = partial(self._classification.classify_vectors, [text], vectors, model=classifier)
        if labels is None and (classified := from_vectors()) is not None:
            return classified.rows[0], 0
        classified = await self._classification.classify([text], labels=labels, model=classifier, urgency=urgency)
        return classified.rows[0], classified.tokens


def _structure_of(
    text: str, model: LoadedModel, *, wanted: frozenset[str], language: Language | None, tokenized: Windows | None
) -> _TextStructure:
    with_phrases, with_sentences, with_summary = (
        feature in wanted for feature in ("key_phrases", "key_sentences", _SUMMARY)
    )
    sentences = sentence_spans(text) if with_phrases or with_sentences or with_summary else _NO_SPANS
    require_wanted()
    code = language.code if language else None
    phrases: Sequence[Candidate] = ()
    if tokenized and with_phrases:
        phrases = phrase_candidates(text, tokenized.words, sentences, code)
    candidates = _NO_CANDIDATES
    if with_summary:
        candidates = summary_candidates(_texts(text, sentences), code, pages=_pages(text, sentences))
    windows = (tokenized.windows or (_window_without_tokens(text, model),)) if tokenized else ()
    return _TextStructure(
        text,
        model,
        language,
        windows,
        sentences if with_sentences else _NO_SPANS,
        phrases,
        candidates,
        sentences[candidates.indexes],
    )


def _window_without_tokens(text: str, model: LoadedModel) -> Window:
    """The window of a text without tokens: only the model's special ones, from which its vector is made."""
    [tokens] = model.tokenizer.encode([text])
    nowhere = np.full(len(tokens.ids), -1)
    return Window(tokens.ids, np.stack([nowhere, nowhere], axis=1), nowhere, 0, len(tokens.ids))


def _spanned(windows: Sequence[Window], spans: Offsets) -> list[SpannedWindow]:
    return [spanned(window, spans) for window in windows]


def _add(sums: SpanSums, parts: Sequence[SpannedWindow], rows: Sequence[CachedVector]) -> None:
    for part, row in zip(parts, rows, strict=True):
        sums.add(part, row.vector.reshape(1 + len(part.spans), -1))


def _selected(
    structure: _TextStructure,
    sums: SpanSums,
    text_vector: Vectors,
    summary: SummaryLength | None,
    *,
    phrases: int,
    sentences: int,
) -> tuple[tuple[KeyPhrase, ...], tuple[KeySentence, ...], tuple[KeySentence, ...]]:
    """Key phrases, key sentences and summary. Shapes: sums of the structure's spans, text_vector (width)."""
    vectors, spans = sums.span_vectors(), structure.candidate_spans
    count, first_phrase = len(structure.sentences), len(structure.sentences) + len(spans)
    texts = _texts(structure.text, structure.sentences)
    chosen = select_key_sentences(texts, vectors[:count], text_vector, count=sentences)
    extract = select_summary(
        _texts(structure.text, spans),
        structure.candidates.before,
        vectors[count:first_phrase],
        text_vector,
        length=summary or SummaryLength(),
        tokens=structure.candidate_tokens(),
    )
    return (
        tuple(rank_phrases(structure.phrases, vectors[first_phrase:], text_vector, top=phrases)),
        _placed(structure.text, structure.sentences, chosen),
        _placed(structure.text, spans, extract),
    )


def _pages(text: str, spans: Offsets) -> list[int]:
    """The page of each span, counted from 0: a form feed ends one."""
    ends = np.array([page_end.start() for page_end in re.finditer("\f", text)], np.int64)
    pages: list[int] = np.searchsorted(ends, spans[:, 0]).tolist()
    return pages


def _texts(text: str, spans: Offsets) -> list[str]:
    return [text[start:stop] for start, stop in spans.tolist()]


def _placed(text: str, spans: Offsets, chosen: Sequence[RankedSentence]) -> tuple[KeySentence, ...]:
    places = [(*spans[ranked.index].tolist(), ranked.score) for ranked in chosen]
    return tuple(KeySentence(text[start:stop], start, stop, score) for start, stop, score in places)
