"""Texts in, classes out: by a head on the embedding model's vectors, by a classifier, or by labels in words."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from backend.batching.work_item import Priority
from backend.engines.embeddings import TASK as EMBEDDINGS
from backend.engines.scoring import CLASSIFIER
from backend.errors import InvalidField, UnknownModel
from backend.models.logistic import MULTI_LABEL_THRESHOLD
from backend.models.numpy_layers import Activation
from backend.models.tokenizer import Truncate
from backend.services.catalog import Catalog, LoadedModel
from backend.services.classifier_training import Learner
from backend.services.classifiers import Classifier, Classifiers
from backend.services.embeddings import EmbeddingService, Whole
from backend.services.inference import Timing, Urgency, Usage, calculate
from backend.services.label_scores import Judged, by_head, by_model, work_of
from backend.services.scoring import Scorable, ScoringService
from backend.services.zero_shot import Question, ZeroShot
from backend.telemetry import Telemetry

DEFAULT = "document-type"  # the bundled head that answers where neither labels nor a classifier are named


@dataclass(frozen=True, slots=True)
class Prediction:
    """A label and how sure it is, 0 to 1 (a logit where raw scores were asked for)."""

    label: str
    score: float


@dataclass(frozen=True, slots=True)
class ClassifiedText:
    """What one text is."""

    predictions: tuple[Prediction, ...]  # best first
    prediction: str | None  # the best, or None where its score is too low to say
    score: float  # of the best, given or not
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class Classified:
    """The answer, in the order of the texts."""

    rows: tuple[ClassifiedText, ...]
    model: str
    multi_label: bool
    timing: Timing

    @property
    def tokens(self) -> int:
        """Tokens of the whole request."""
        return sum(row.tokens for row in self.rows)


@dataclass(frozen=True, slots=True)
class ClassifierInfo:
    """One classifier that can be asked by name."""

    name: str
    kind: Literal["bundled", "configured", "learnt", "model"]
    labels: tuple[str, ...]
    multi_label: bool
    examples: int | None
    threshold: float
    accuracy: float | None  # cross-validated, where known
    created_s: float | None


class ClassificationService:
    """The use case behind every route that names classes. Belongs to the loop's thread."""

    def __init__(
        self,
        catalog: Catalog,
        classifiers: Classifiers,
        embeddings: EmbeddingService,
        scoring: ScoringService,
        telemetry: Telemetry,
    ) -> None:
        self._catalog, self._classifiers = catalog, classifiers
        self._embeddings, self._scoring = embeddings, scoring
        self._zero_shot = ZeroShot(catalog, embeddings, scoring)
        self._learner = Learner(classifiers, embeddings)
        self._usage = Usage(telemetry, CLASSIFIER)
        self._relearning: asyncio.Task[None] | None = None

    async def classify(
        self,
        texts: Sequence[str],
        *,
        labels: Sequence[str] | None = None,
        model: str | None = None,
        multi_label: bool | None = None,
        top_k: int | None = None,
        min_score: float | None = None,
        hypothesis_template: str | None = None,
        priority: Priority = Priority.INTERACTIVE,
        deadline_s: float = math.inf,
    ) -> Classified:
        """The class of each text, however long it is where vectors decide.

        Args:
            labels: classes in words, for this request alone; unset: a classifier's own.
            model: a classifier's name, or a model's; unset: the one configured, else ``DEFAULT``.
            multi_label: whether several labels may be right; unset: as the classifier was made, else one.
            top_k: predictions to answer with; unset: all.
            min_score: below it no prediction is given; unset: the classifier's own threshold.
            hypothesis_template: how an NLI model is asked about a label.

        Raises: UnknownModel, InvalidField, TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded,
            InferenceFailed for the service.
        """
        urgency = Urgency(priority, deadline_s)
        if labels is not None:
            question = Question(texts, labels, bool(multi_label), hypothesis_template)
            judged = await self._zero_shot.judge(question, urgency, model=model)
        else:
            judged = await self._by_classifier(texts, model, multi_label, urgency)
        classified = await calculate(partial(_classified, judged, top_k, min_score), judged.scores.size)
        return self._counted(classified)

    def can_classify(self, model: str | None = None) -> bool:
        """Whether texts can be classified without labels in words. Raises: UnknownModel."""
        return model is not None or self._default() is not None

    def of_whole(self, texts: Sequence[str], whole: Whole, *, model: str | None = None) -> Classified | None:
        """The classes of texts whose vectors are there; None where another model would have to read them."""
        found = self._find(model)
        if not isinstance(found, Classifier) or found.head.encoder_sha256 != whole.model.spec.sha256:
            return None
        return _classified(by_head(found, texts, whole), None, None)

    async def predict(
        self,
        inputs: Sequence[Scorable],
        *,
        raw_scores: bool = False,
        truncate: Truncate = "end",
        priority: Priority = Priority.INTERACTIVE,
        deadline_s: float = math.inf,
    ) -> Classified:
        """Every label of each text or pair of texts, by the default classifier.

        Raises: as ``classify``; InvalidField for a pair where no model for pairs is configured.
        """
        found, urgency = self._for_predict(inputs), Urgency(priority, deadline_s)
        if isinstance(found, LoadedModel):
            cut: Literal["none", "longest"] = "none" if truncate == "none" else "longest"
            scored = await self._scoring.logits(found, inputs, urgency, cut=cut, truncate=truncate, param="inputs")
            judged = by_model(found, scored, Activation.IDENTITY if raw_scores else None)
        else:
            texts = [one for one in inputs if isinstance(one, str)]
            if len(texts) < len(inputs):
                raise InvalidField(
                    f"inputs: {found.name} classifies single texts; set CLASSIFIER_MODEL to a model for pairs",
                    param="inputs",
                )
            judged = await self._by_head(found, texts, urgency, raw_scores=raw_scores)
        return self._counted(await calculate(partial(_classified, judged, None, None), judged.scores.size))

    async def learn(
        self, name: str, examples: Mapping[str, Sequence[str]], *, deadline_s: float = math.inf
    ) -> ClassifierInfo:
        """A classifier of these labels from texts of each, kept across restarts; the same name replaces the old one.

        Texts of the label ``(none)`` are examples of what belongs to no class.

        Raises: InvalidField, TooLarge for the examples; Unavailable when they cannot be kept; as ``classify``.
        """
        return _info(await self._learner.learn(name, examples, deadline_s=deadline_s))

    def follow(self, model: LoadedModel) -> None:
        """A model serves now. After another embedding model, learn again in the background what was learnt before."""
        if model.task != EMBEDDINGS:
            return
        self._classifiers.use_encoder(model.spec.sha256)
        self.close()
        self._relearning = asyncio.get_running_loop().create_task(self._learner.relearn())

    def close(self) -> None:
        """Let the background go."""
        if self._relearning is not None:
            self._relearning.cancel()

    def report(self) -> dict[str, object]:
        """Which classifiers answer, and what is wrong with others."""
        return {"names": self._classifiers.names(), "faults": self._classifiers.faults}

    async def forget(self, name: str) -> None:
        """Take a learnt classifier away. Raises: NotFound; InvalidField for one that was not learnt here."""
        await self._learner.forget(name)

    def classifiers(self) -> list[ClassifierInfo]:
        """Everything that ``model`` may name."""
        heads = [_info(self._classifiers.find(name)) for name in self._classifiers.names()]
        model = self._catalog.of(CLASSIFIER)
        return heads if model is None else [*heads, _model_info(model)]

    async def _by_classifier(
        self, texts: Sequence[str], name: str | None, multi_label: bool | None, urgency: Urgency
    ) -> Judged:
        found = self._find(name)
        if isinstance(found, LoadedModel):
            scored = await self._scoring.logits(found, texts, urgency)
            chosen = {None: None, True: Activation.SIGMOID, False: Activation.SOFTMAX}[multi_label]
            return by_model(found, scored, chosen)
        if multi_label not in (None, found.head.multiple):
            kind = "any number of its labels" if found.head.multiple else "one of its labels"
            raise InvalidField(
                f"multi_label: {found.name} was made to give a text {kind}; leave multi_label out", param="multi_label"
            )
        return await self._by_head(found, texts, urgency)

    async def _by_head(
        self, found: Classifier, texts: Sequence[str], urgency: Urgency, *, raw_scores: bool = False
    ) -> Judged:
        priority, deadline_s = urgency
        whole = await self._embeddings.embed_whole(texts, priority=priority, deadline_s=deadline_s)
        judge = partial(by_head, found, texts, whole, raw_scores=raw_scores)
        return await calculate(judge, work_of(found, texts))

    def _counted(self, classified: Classified) -> Classified:
        rows = classified.rows
        self._usage.count(len(rows), classified.tokens, sum(row.truncated for row in rows))
        return classified

    def _for_predict(self, inputs: Sequence[Scorable]) -> Classifier | LoadedModel:
        """Pairs go to the model that is loaded, an NLI model too; texts alone to what classifies texts."""
        model = self._catalog.of(CLASSIFIER)
        return model if model is not None and any(not isinstance(one, str) for one in inputs) else self._find(None)

    def _find(self, name: str | None) -> Classifier | LoadedModel:
        """Raises: UnknownModel with every name; InvalidField where nothing can be asked without labels."""
        model = self._catalog.of(CLASSIFIER)
        if model is not None and name in model.names:
            if self._zero_shot.asks(model):
                raise InvalidField(f"labels: {model.name} needs labels to choose from; none were given", param="labels")
            return model
        if name is None:
            found = self._default()
            if found is None:
                raise InvalidField(
                    "labels: no classifier was made for the embedding model that is loaded; give labels to choose "
                    "from, learn a classifier (PUT /v1/classifiers/{name}) or set CLASSIFIER_MODEL",
                    param="labels",
                )
            return found
        try:
            return self._classifiers.find(name)
        except UnknownModel as error:
            raise UnknownModel(error.name, [*error.known, *(model.names if model else ())]) from None

    def _default(self) -> Classifier | LoadedModel | None:
        """The model or the head that was configured, else the bundled one; None where it is of another encoder."""
        model = self._catalog.of(CLASSIFIER)
        if model is not None and not self._zero_shot.asks(model):
            return model
        heads = [self._classifiers.find(name) for name in self._classifiers.names()]
        configured = [head for head in heads if head.source == "configured"]
        return next(iter(configured), next((head for head in heads if head.name == DEFAULT), None))


def _classified(judged: Judged, top_k: int | None, min_score: float | None) -> Classified:
    threshold = judged.threshold if min_score is None else min_score
    rows = []
    for scores, tokens, truncated in zip(judged.scores, judged.tokens, judged.truncated, strict=True):
        order = np.argsort(-scores, kind="stable")[:top_k]
        best_first = zip(order.tolist(), scores[order].tolist(), strict=True)
        predictions = tuple(Prediction(judged.labels[place], score) for place, score in best_first)
        best = predictions[0]
        given = best.label if best.score >= threshold else None
        rows.append(ClassifiedText(predictions, given, best.score, tokens, truncated))
    return Classified(tuple(rows), judged.model, judged.several, judged.timing)


def _info(one: Classifier) -> ClassifierInfo:
    head, info = one.head, one.head.info
    known = (info.get("examples"), head.threshold, info.get("accuracy_on_folds"), info.get("created_s"))
    return ClassifierInfo(one.name, one.source, head.labels, head.multiple, *known)


def _model_info(model: LoadedModel) -> ClassifierInfo:
    several = model.head is not None and model.head.activation is Activation.SIGMOID
    return ClassifierInfo(
        model.name,
        "model",
        model.labels,
        several,
        None,
        MULTI_LABEL_THRESHOLD if several else 0.0,
        None,
        model.created_s,
    )
