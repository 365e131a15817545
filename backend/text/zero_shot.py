"""Zero-shot classification, by labels in the request: with an NLI model where one is loaded, else by vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import InvalidField, TooLarge
from backend.lanes.inference import Timing, Urgency, offload
from backend.models.logistic import MULTI_LABEL_THRESHOLD
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.heads import CLASSIFIER
from backend.serving.engines.zero_shot import (
    TEMPLATE,
    LabelVectors,
    NliLabels,
    Reference,
    common_label_texts,
    hypotheses,
    label_texts,
    label_vectors,
    read_nli,
    reference_of,
    scores,
    template_language,
    zero_shot,
)
from backend.text.embeddings import EmbeddingService, EmbedOptions
from backend.text.language import detect
from backend.text.neutral_vectors import QUERY_PROMPTS, NeutralVectors
from backend.text.scoring import LabelScores, ScoringService

PAIRS_MAX = 20_000  # texts times labels of a request to an NLI model: a minute's work and more
# E5 wants "query: " before both sides where neither is a passage that answers the other; other models get their own.
_OPTIONS = EmbedOptions(prompts=QUERY_PROMPTS, normalize=True)


@dataclass(frozen=True, slots=True)
class ZeroShotRequest:
    """Texts, and the labels to choose from."""

    texts: Sequence[str]
    labels: Sequence[str]
    multi_label: bool  # whether several labels may be right
    template: str | None = None  # how an NLI model is asked about a label


class ZeroShotClassifier:
    """Scores texts for labels that no classifier was trained on. Belongs to the loop's thread."""

    def __init__(
        self, catalog: Catalog, embeddings: EmbeddingService, neutral: NeutralVectors, scoring: ScoringService
    ) -> None:
        self._catalog, self._embeddings, self._scoring = catalog, embeddings, scoring
        self._neutral = neutral
        self._reference: tuple[LoadedModel, Reference] | None = None  # of the embedding model used last

    def is_nli(self, model: LoadedModel) -> bool:
        """Whether it is an NLI model, which scores hypotheses about a text and has no classes of its own."""
        return read_nli(model.labels) is not None

    async def score(self, request: ZeroShotRequest, urgency: Urgency, *, model: str | None = None) -> LabelScores:
        """How far each label is true of each text. Raises: as ClassificationService.classify."""
        loaded = self._model(model)
        nli = read_nli(loaded.labels)
        if nli is not None:
            return await self._score_by_nli(loaded, nli, request, urgency)
        if request.template is not None:
            raise InvalidField(
                "hypothesis_template: is for NLI models (CLASSIFIER_MODEL); vectors compare the labels themselves",
                param="hypothesis_template",
            )
        return await self._score_by_vectors(request, urgency)

    def _model(self, name: str | None) -> LoadedModel:
        """The NLI model where there is one, else the embedding model. Raises: UnknownModel."""
        classifier, embedding = self._catalog.of(CLASSIFIER), self._catalog.embedding()
        models = [classifier, embedding] if classifier is not None and self.is_nli(classifier) else [embedding]
        for model in models:
            if name is None or name in model.names:
                return model
        raise self._catalog.unknown(str(name), [known for model in models for known in model.names])

    async def _score_by_nli(
        self, model: LoadedModel, nli: NliLabels, request: ZeroShotRequest, urgency: Urgency
    ) -> LabelScores:
        """All pairs of a request at once: the lanes cut them into batches."""
        texts, labels = request.texts, request.labels
        if len(texts) * len(labels) > PAIRS_MAX:
            raise TooLarge(
                "texts times labels",
                len(texts) * len(labels),
                PAIRS_MAX,
                "an NLI model reads each pair",
                advice="Send fewer texts or labels.",
                param="labels",
            )
        sentences = hypotheses(labels, request.template or TEMPLATE)
        pairs = [(text, sentence) for text in texts for sentence in sentences]
        logits = await self._scoring.logits(model, pairs, urgency, cut="first")
        by_text = (len(texts), len(labels))
        tokens = np.array(logits.tokens).reshape(by_text).sum(axis=1).tolist()
        truncated = [bool(row.any()) for row in np.array(logits.truncated).reshape(by_text)]
        values = zero_shot(logits.values.reshape(*by_text, -1), nli, multi_label=request.multi_label)
        return _label_scores(
            request, values, model=model.name, tokens=tokens, truncated=truncated, timing=logits.timing
        )

    async def _score_by_vectors(self, request: ZeroShotRequest, urgency: Urgency) -> LabelScores:
        texts = await self._embeddings.embed_untruncated(request.texts, prompts=QUERY_PROMPTS, urgency=urgency)
        labels, label_tokens = await self._embed_labels(texts.model, label_texts(request.labels), urgency)
        reference = await self._reference_of(texts.model, urgency)
        languages = await asyncio.to_thread(_languages_of, request.texts)
        compare = partial(scores, texts.vectors, languages, labels, reference, multi_label=request.multi_label)
        values = await offload(compare, texts.vectors.size + len(texts.vectors) * len(request.labels))
        truncated = [False] * len(request.texts)
        of_texts = _label_scores(
            request, values, model=texts.model.name, tokens=texts.tokens, truncated=truncated, timing=texts.timing
        )
        return replace(of_texts, label_tokens=label_tokens)

    async def _reference_of(self, model: LoadedModel, urgency: Urgency) -> Reference:
        """What labels and texts in general look like to a model: embedded once a model, some 170 short texts."""
        if self._reference is None or self._reference[0] is not model:
            common, _ = await self._embed_labels(model, common_label_texts(), urgency)
            self._reference = model, reference_of(common, await self._neutral.get(model, _OPTIONS, urgency))
        return self._reference[1]

    async def _embed_labels(
        self, model: LoadedModel, prompts: Sequence[Sequence[str]], urgency: Urgency
    ) -> tuple[LabelVectors, int]:
        """The labels' vectors by that model, and the tokens read. ``prompts``: the texts to embed for each label."""
        texts = [prompt for of_label in prompts for prompt in of_label]
        ends = np.cumsum([len(of_label) for of_label in prompts])
        # In chunks: a thousand labels of several names are many texts.
        embedded = await self._embeddings.embed_in_chunks(model, texts, _OPTIONS, urgency)
        vectors = embedded.vectors
        by_label = await offload(lambda: label_vectors(np.split(vectors, ends[:-1])), vectors.size)
        return by_label, sum(embedded.tokens)


def _languages_of(texts: Sequence[str]) -> list[str | None]:
    """The language of the templates for each text: a third of a millisecond a sentence."""
    codes = {text: language.code if (language := detect(text)) else None for text in dict.fromkeys(texts)}
    return [template_language(codes[text]) for text in texts]


def _label_scores(
    request: ZeroShotRequest,
    values: NDArray[Any],
    *,
    model: str,
    tokens: Sequence[int],
    truncated: Sequence[bool],
    timing: Timing,
) -> LabelScores:
    return LabelScores(
        scores=values,
        labels=tuple(request.labels),
        model=model,
        multi_label=request.multi_label,
        threshold=MULTI_LABEL_THRESHOLD if request.multi_label else 0.0,
        tokens=tuple(tokens),
        truncated=tuple(truncated),
        timing=timing,
    )
