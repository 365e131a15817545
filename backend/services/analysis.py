"""One text in; its language, key phrases and sentences, classes, entities and vector out: one pass of the encoder."""

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
from backend.models.windows import Window
from backend.models.words import Offsets
from backend.services.catalog import Catalog, LoadedModel
from backend.services.classification import ClassificationService, ClassifiedText
from backend.services.embeddings import Whole
from backend.services.entities import EntityService, Found
from backend.services.inference import Inference, Timing, Urgency, Usage, calculate
from backend.services.windows import WindowRecipe
from backend.telemetry import Telemetry

FEATURES = ("language", "key_phrases", "key_sentences", "classes", "entities", "vector")
_FROM_VECTORS = frozenset({"key_phrases", "key_sentences", "classes", "vector"})
_WINDOWS_AT_ONCE = 32  # bounds the memory: a window of 256 tokens of width 384 is 0.4 MB
_NOTHING: Offsets = np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True)
class KeySentence:
    """One of the sentences that say most; ``text`` is ``caller_text[start:end]``."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was asked for of one text; the rest is empty or None."""

    language: Language | None
    key_phrases: tuple[KeyPhrase, ...]  # best first
    key_sentences: tuple[KeySentence, ...]  # in the order of the text
    classes: ClassifiedText | None
    entities: tuple[Entity, ...]
    coverage: float | None  # share of the text's characters that the entity model could read
    vector: Vectors | None  # (width), as /v1/embeddings gives it; of the whole text where that is longer than the model
    model: str
    tokens: int  # read for the vectors; where none are wanted, for the entities
    timing: Timing


@dataclass(frozen=True, slots=True)
class _Outline:
    """What the text shows by itself."""

    text: str
    model: LoadedModel
    language: Language | None
    windows: tuple[Window, ...]  # what the encoder reads; none where no vector is needed
    sentences: Offsets  # none where none are asked for
    phrases: Sequence[Candidate]

    @property
    def spans(self) -> Offsets:
        """Every stretch whose vector is wanted: the sentences, then each phrase where it comes first.

        Against all its places the first changed nothing measurable.
        """
        return np.concatenate([self.sentences, *(one.places[:1] for one in self.phrases)])


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
        """Whether classes can be told without labels in words. Raises: UnknownModel."""
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
        entities = asyncio.create_task(self._find(text, wanted, urgency))
        try:
            outline = await asyncio.to_thread(_outline, text, self._catalog.embedding(), wanted)
            sums, whole = await self._read(outline, urgency)
            classes = None
            if "classes" in wanted and (features or labels or self._classification.can_classify(classifier)):
                classes = await self._classes(text, whole, labels, classifier, urgency)
            parts = partial(_key_parts, outline, sums, whole.vectors[0])
            phrases, sentences = await asyncio.to_thread(parts, phrases=top_phrases, sentences=top_sentences)
            found = await entities
        finally:
            entities.cancel()
            await asyncio.gather(entities, return_exceptions=True)  # it has ended, and its error counts as seen
        tokens = whole.tokens[0] or (found.tokens if found else 0)
        self._usage.count(1, tokens)
        return Analysis(
            language=outline.language if "language" in wanted else None,
            key_phrases=phrases,
            key_sentences=sentences,
            classes=classes,
            entities=found.rows[0].entities if found else (),
            coverage=found.rows[0].coverage if found else None,
            vector=whole.vectors[0] if "vector" in wanted else None,
            model=whole.model.name,
            tokens=tokens,
            timing=whole.timing,
        )

    async def _find(self, text: str, wanted: frozenset[str], urgency: Urgency) -> Found | None:
        if "entities" not in wanted:
            return None
        priority, deadline_s = urgency
        return await self._entities.find([text], priority=priority, deadline_s=deadline_s)

    async def _read(self, outline: _Outline, urgency: Urgency) -> tuple[SpanSums, Whole]:
        """The one pass, some windows at a time."""
        model, windows = outline.model, outline.windows
        sums, timing = SpanSums(outline.spans, model.spec), Timing()
        # Not kept: a window's token vectors take 400 KB.
        recipe = WindowRecipe(model.token_engine, model.namespace(TASK), keeps=False)
        for first in range(0, len(windows), _WINDOWS_AT_ONCE):
            some = windows[first : first + _WINDOWS_AT_ONCE]
            inferred = await self._inference.run(recipe, some, urgency)
            timing = timing.then(inferred.timing)
            await calculate(partial(_add, sums, some, inferred.rows), sum(row.vector.size for row in inferred.rows))
        tokens = sum(len(window.ids) for window in windows)
        return sums, Whole(sums.text_vector()[None], (tokens,), timing, model)

    async def _classes(
        self, text: str, whole: Whole, labels: Sequence[str] | None, classifier: str | None, urgency: Urgency
    ) -> ClassifiedText:
        """From the vector that is there, unless labels in words or another model were asked for."""
        of_whole = partial(self._classification.of_whole, [text], whole, model=classifier)
        if labels is None and (classified := of_whole()) is not None:
            return classified.rows[0]
        priority, deadline_s = urgency
        classified = await self._classification.classify(
            [text], labels=labels, model=classifier, priority=priority, deadline_s=deadline_s
        )
        return classified.rows[0]


def _outline(text: str, model: LoadedModel, wanted: frozenset[str]) -> _Outline:
    """Some milliseconds a page; on a thread. The first call reads the language model."""
    by_phrases, by_sentences = "key_phrases" in wanted, "key_sentences" in wanted
    language = detect(text) if by_phrases or "language" in wanted else None
    cut = model.tokenizer.windows(text, 0) if _FROM_VECTORS & wanted else None
    sentences = sentence_spans(text) if by_phrases or by_sentences else _NOTHING
    code = language.code if language else None
    phrases = phrase_candidates(text, cut.words, sentences, code) if cut and by_phrases else ()
    windows = (cut.windows or (_bare(text, model),)) if cut else ()
    return _Outline(text, model, language, windows, sentences if by_sentences else _NOTHING, phrases)


def _bare(text: str, model: LoadedModel) -> Window:
    """A text without tokens: nothing but the model's special ones, which answer for it."""
    [made] = model.tokenizer.encode([text])
    nowhere = np.full(len(made.ids), -1)
    return Window(made.ids, np.stack([nowhere, nowhere], axis=1), nowhere, 0, len(made.ids))


def _add(sums: SpanSums, windows: Sequence[Window], rows: Sequence[CachedVector]) -> None:
    for window, row in zip(windows, rows, strict=True):
        sums.add(window, row.vector.reshape(len(window.ids), -1))


def _key_parts(
    outline: _Outline, sums: SpanSums, whole: Vectors, *, phrases: int, sentences: int
) -> tuple[tuple[KeyPhrase, ...], tuple[KeySentence, ...]]:
    """Shapes: sums of the outline's spans, whole (width)."""
    vectors = sums.span_vectors()
    places, own = outline.sentences.tolist(), len(outline.sentences)
    texts = [outline.text[start:stop] for start, stop in places]
    chosen = select_key_sentences(texts, vectors[:own], whole, count=sentences)
    summary = tuple(
        KeySentence(texts[one.index], places[one.index][0], places[one.index][1], one.score) for one in chosen
    )
    return tuple(rank_phrases(outline.phrases, vectors[own:], whole, top=phrases)), summary
