"""Classes that are given with the request, in words: by an NLI model where one is configured, else by vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.engines.nli import TEMPLATE, NliLabels, hypotheses, read_nli, zero_shot
from backend.engines.scoring import CLASSIFIER
from backend.engines.zero_shot import COMMON_LABELS, LabelVectors, label_texts, label_vectors, scores
from backend.errors import InvalidField, TooLarge, UnknownModel
from backend.models.logistic import MULTI_LABEL_THRESHOLD
from backend.services.catalog import Catalog, LoadedModel
from backend.services.embedding_options import EmbedOptions
from backend.services.embeddings import EmbeddingService
from backend.services.inference import Timing, Urgency, calculate
from backend.services.label_scores import Judged
from backend.services.scoring import ScoringService

PAIRS_MAX = 20_000  # texts times labels of a request to an NLI model: a minute's work and more


@dataclass(frozen=True, slots=True)
class Question:
    """Which of these labels fit each of these texts."""

    texts: Sequence[str]
    labels: Sequence[str]
    several: bool  # whether several may be right
    template: str | None = None  # how an NLI model is asked about a label


class ZeroShot:
    """Belongs to the loop's thread."""

    def __init__(self, catalog: Catalog, embeddings: EmbeddingService, scoring: ScoringService) -> None:
        self._catalog, self._embeddings, self._scoring = catalog, embeddings, scoring
        self._common: tuple[tuple[str, str, str], LabelVectors] | None = None  # by the model that served last

    def asks(self, model: LoadedModel) -> bool:
        """Whether it is an NLI model, which judges sentences about a text and has no classes of its own."""
        return read_nli(model.labels) is not None

    async def judge(self, question: Question, urgency: Urgency, *, model: str | None = None) -> Judged:
        """How far each label is true of each text. Raises: as ClassificationService.classify."""
        asked = self._model(model)
        nli = read_nli(asked.labels)
        if nli is not None:
            return await self._by_nli(asked, nli, question, urgency)
        if question.template is not None:
            raise InvalidField(
                "hypothesis_template: is for NLI models (CLASSIFIER_MODEL); vectors compare the labels themselves",
                param="hypothesis_template",
            )
        return await self._by_vectors(question, urgency)

    def _model(self, name: str | None) -> LoadedModel:
        """The NLI model where there is one, else the embedding model. Raises: UnknownModel."""
        classifier, embedding = self._catalog.of(CLASSIFIER), self._catalog.embedding()
        able = [classifier, embedding] if classifier is not None and self.asks(classifier) else [embedding]
        for one in able:
            if name is None or name in one.names:
                return one
        raise UnknownModel(str(name), [known for one in able for known in one.names])

    async def _by_nli(self, model: LoadedModel, nli: NliLabels, question: Question, urgency: Urgency) -> Judged:
        """All pairs of a request at once: the lanes cut them into batches."""
        texts, labels = question.texts, question.labels
        if len(texts) * len(labels) > PAIRS_MAX:
            raise TooLarge(
                "texts times labels",
                len(texts) * len(labels),
                PAIRS_MAX,
                "an NLI model reads each pair",
                advice="Send fewer texts or labels.",
                param="labels",
            )
        sentences = hypotheses(labels, question.template or TEMPLATE)
        pairs = [(text, sentence) for text in texts for sentence in sentences]
        scored = await self._scoring.logits(model, pairs, urgency, cut="first")
        by_text = (len(texts), len(labels))
        tokens = np.array(scored.tokens).reshape(by_text).sum(axis=1).tolist()
        cut = [bool(row.any()) for row in np.array(scored.truncated).reshape(by_text)]
        found = zero_shot(scored.logits.reshape(*by_text, -1), nli, multi_label=question.several)
        return _judged(question, found, model=model.name, tokens=tokens, cut=cut, timing=scored.timing)

    async def _by_vectors(self, question: Question, urgency: Urgency) -> Judged:
        priority, deadline_s = urgency
        whole = await self._embeddings.embed_whole(question.texts, priority=priority, deadline_s=deadline_s)
        about = await self._names(whole.model, question.labels, urgency)
        common = await self._common_of(whole.model, urgency) if question.several else about
        compare = partial(scores, whole.vectors, about, common, multi_label=question.several)
        found = await calculate(compare, whole.vectors.size + len(whole.vectors) * len(about.vectors))
        none_cut = [False] * len(question.texts)
        return _judged(question, found, model=whole.model.name, tokens=whole.tokens, cut=none_cut, timing=whole.timing)

    async def _common_of(self, model: LoadedModel, urgency: Urgency) -> LabelVectors:
        """The labels that others are held against, made once a model."""
        made_by = (model.spec.sha256, model.runtime, model.dtype)
        if self._common is None or self._common[0] != made_by:
            self._common = made_by, await self._names(model, COMMON_LABELS, urgency)
        return self._common[1]

    async def _names(self, model: LoadedModel, labels: Sequence[str], urgency: Urgency) -> LabelVectors:
        """The labels' vectors by that model."""
        prompts = label_texts(labels)
        texts, ends = [prompt for own in prompts for prompt in own], np.cumsum([len(own) for own in prompts])
        # A thousand labels of several names are many.
        embedded = await self._embeddings.embed_in_parts(model, texts, EmbedOptions(normalize=True), urgency)
        vectors = embedded.vectors
        return await calculate(lambda: label_vectors(np.split(vectors, ends[:-1])), vectors.size)


def _judged(
    question: Question,
    found: NDArray[Any],
    *,
    model: str,
    tokens: Sequence[int],
    cut: Sequence[bool],
    timing: Timing,
) -> Judged:
    return Judged(
        scores=found,
        labels=tuple(question.labels),
        model=model,
        several=question.several,
        threshold=MULTI_LABEL_THRESHOLD if question.several else 0.0,
        tokens=tuple(tokens),
        truncated=tuple(cut),
        timing=timing,
    )
