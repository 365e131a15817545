"""Texts in, classes out: by a head on the embedding model's vectors, by a loaded classifier, or zero-shot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from backend.callers.callers import ANYBODY, Caller
from backend.errors import InvalidField, UnknownModel
from backend.lanes.inference import Timing, Urgency, UsageCounter, offload
from backend.models.logistic import MULTI_LABEL_THRESHOLD
from backend.models.numpy_layers import Activation
from backend.models.tokenizer import Truncate
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.heads import CLASSIFIER, EMBEDDINGS
from backend.telemetry import Telemetry
from backend.text.classifier_files import Example
from backend.text.classifier_store import ClassifierStore
from backend.text.classifier_training import ClassifierTrainer
from backend.text.classifiers import Classifier, is_name
from backend.text.embeddings import EmbeddingService, TextVectors
from backend.text.neutral_vectors import NeutralVectors
from backend.text.scoring import LabelScores, ScoringService, TextOrPair, classifier_scores, head_cost, head_scores
from backend.text.zero_shot import ZeroShotClassifier, ZeroShotRequest

DEFAULT = "document-type"  # the bundled head that answers where neither labels nor a classifier are named


@dataclass(frozen=True, slots=True)
class Prediction:
    """A label and its score, 0 to 1 (a logit where raw scores were requested)."""

    label: str
    score: float


@dataclass(frozen=True, slots=True)
class ClassifiedText:
    """The predictions for one text."""

    predictions: tuple[Prediction, ...]  # best first
    prediction: str | None  # the best, or None where its score is too low to say
    score: float  # of the best, given or not
    tokens: int
    truncated: bool
    multi_label: bool = False  # each label is scored by itself: the scores are no shares of 1


@dataclass(frozen=True, slots=True)
class ClassificationResult:
    """The predictions for each text, in the order of the texts."""

    rows: tuple[ClassifiedText, ...]
    model: str
    multi_label: bool
    timing: Timing
    label_tokens: int = 0  # of the sentences made of the request's labels, where they are read by themselves

    @property
    def tokens(self) -> int:
        """Tokens of the whole request."""
        return sum(row.tokens for row in self.rows) + self.label_tokens

    @property
    def prediction_count(self) -> int:
        """Predictions of all texts together."""
        return sum(len(row.predictions) for row in self.rows)


@dataclass(frozen=True, slots=True)
class ClassifierInfo:
    """A classifier that requests may name."""

    name: str
    kind: Literal["bundled", "configured", "learnt", "model"]
    labels: tuple[str, ...]
    multi_label: bool
    examples: int | None
    threshold: float
    accuracy: float | None  # cross-validated, where known
    created_s: float | None
    tokens: int = 0  # of its examples; 0 where it was not trained here
    status: Literal["ready", "pending"] = "ready"  # pending: it is being learnt for the embedding model


class ClassificationService:
    """The use case behind every route that classifies. Belongs to the loop's thread."""

    def __init__(
        self,
        catalog: Catalog,
        store: ClassifierStore,
        embeddings: EmbeddingService,
        scoring: ScoringService,
        telemetry: Telemetry,
        *,
        neutral: NeutralVectors,
    ) -> None:
        self._catalog, self._registry, self.store = catalog, store.registry, store
        self._embeddings, self._scoring = embeddings, scoring
        self._zero_shot = ZeroShotClassifier(catalog, embeddings, neutral, scoring)
        self._trainer = ClassifierTrainer(store, embeddings)
        self._usage = UsageCounter(telemetry, CLASSIFIER)
        self.retraining: asyncio.Task[None] | None = None  # learns classifiers again for the model that serves now
        self._retrain_again = False
        self.store.watch(self._learn_waiting)

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
        urgency: Urgency = Urgency(),
    ) -> ClassificationResult:
        """The class of each text; heads and zero-shot by vectors read texts of any length untruncated.

        Args:
            labels: zero-shot labels for this request; unset: a classifier's own.
            model: a classifier's name, or a model's; unset: the one configured, else ``DEFAULT``.
            multi_label: whether several labels may be right; unset: as the classifier was trained, else one.
            top_k: predictions to answer with; unset: all.
            min_score: below it no prediction is given; unset: the classifier's own threshold.
            hypothesis_template: how an NLI model is asked about a label.

        Raises: UnknownModel, InvalidField, TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded,
            InferenceFailed for the service.
        """
        if labels is not None:
            request = ZeroShotRequest(texts, labels, bool(multi_label), hypothesis_template)
            scores = await self._zero_shot.score(request, urgency, model=model)
        else:
            await self.look_for(model)
            scores = await self._score(texts, model, multi_label, urgency)
        return self._counted(await offload(partial(predictions_of, scores, top_k, min_score), scores.scores.size))

    async def classify_by_examples(
        self,
        texts: Sequence[str],
        examples: Sequence[Example],
        *,
        urgency: Urgency = Urgency(),
    ) -> ClassificationResult:
        """The class of each text, by a head that is learnt from the examples for this request alone.

        Raises: InvalidField, TooLarge for the examples; as ``classify``.
        """
        classifier = await self._trainer.learn_once(examples, urgency=urgency)
        scores = await self._score_by_head(classifier, texts, urgency)
        scores = replace(scores, label_tokens=classifier.head.info["tokens"])
        return self._counted(await offload(partial(predictions_of, scores, None, None), scores.scores.size))

    def can_classify(self, model: str | None = None) -> bool:
        """Whether texts can be classified without labels in the request. Raises: UnknownModel."""
        return model is not None or self._default() is not None or DEFAULT in self._registry.pending()

    def classify_vectors(
        self, texts: Sequence[str], vectors: TextVectors, *, model: str | None = None
    ) -> ClassificationResult | None:
        """The classes of texts that are embedded already; None where another model would have to run."""
        classifier = self._find(model)
        if not isinstance(classifier, Classifier) or not vectors.model.spec.identity.accepts(
            classifier.head.trained_on
        ):
            return None
        return predictions_of(head_scores(classifier, texts, vectors), None, None)

    async def predict(
        self,
        inputs: Sequence[TextOrPair],
        *,
        model: str | None = None,
        raw_scores: bool = False,
        truncate: Truncate = "end",
        urgency: Urgency = Urgency(),
    ) -> ClassificationResult:
        """Scores of every label for each text or pair of texts, by the classifier or model named, else the default one.

        Raises: as ``classify``; InvalidField for a pair where no model for pairs is configured.
        """
        await self.look_for(model)
        classifier = self._for_predict(inputs, model)
        if isinstance(classifier, LoadedModel):
            cut: Literal["none", "longest"] = "none" if truncate == "none" else "longest"
            logits = await self._scoring.logits(classifier, inputs, urgency, cut=cut, truncate=truncate, param="inputs")
            scores = classifier_scores(classifier, logits, Activation.IDENTITY if raw_scores else None)
        else:
            texts = [text for text in inputs if isinstance(text, str)]
            if len(texts) < len(inputs):
                raise InvalidField(
                    f"inputs: {classifier.name} classifies single texts; set CLASSIFIER_MODEL to a model for pairs",
                    param="inputs",
                )
            scores = await self._score_by_head(classifier, texts, urgency, raw_scores=raw_scores)
        return self._counted(await offload(partial(predictions_of, scores, None, None), scores.scores.size))

    async def train_classifier(
        self,
        name: str,
        examples: Mapping[str, Sequence[str]],
        *,
        caller: Caller = ANYBODY,
        urgency: Urgency = Urgency(),
    ) -> ClassifierInfo:
        """Train a classifier on texts of each label and save it; one of the same name is replaced.

        Texts of the label ``(none)`` are examples of what belongs to no class.

        Raises: InvalidField, TooLarge for the examples; Forbidden where another caller has one of this name;
            Unavailable when the disk refuses; as ``classify``.
        """
        return _info(await self._trainer.train(name, examples, caller=caller, urgency=urgency))

    def on_model_swap(self, model: LoadedModel) -> None:
        """At the start and after a swap: train in the background what has no head for the embedding model."""
        if model.task != EMBEDDINGS:
            return
        self._registry.use_encoder(model.spec.identity)
        self.stop_learning()
        self.retraining = asyncio.get_running_loop().create_task(self._retrain())

    async def close(self) -> None:
        """Cancel retraining in the background, and leave the store."""
        self.stop_learning()
        await self.store.close()

    def report(self) -> dict[str, object]:
        """Which classifiers are usable, and the faults of the others."""
        registry = self._registry
        pending = [*registry.pending(), *registry.waiting()]
        return {"names": registry.names(), "pending": pending, "faults": registry.faults, **self.store.report()}

    async def delete_classifier(self, name: str, caller: Caller = ANYBODY) -> None:
        """Delete a trained classifier.

        Raises: NotFound; InvalidField for one that was not trained here; Forbidden for another caller's.
        """
        await self._trainer.delete(name, caller)

    def classifiers(self) -> list[ClassifierInfo]:
        """Every classifier that a request's ``model`` may name, now or once it has been learnt."""
        heads = [_info(self._registry.find(name)) for name in self._registry.names()]
        heads += [_pending_info(name, "bundled", self._registry.labels(name)) for name in self._registry.pending()]
        heads += [_pending_info(name, "learnt", self._registry.labels(name)) for name in self._registry.waiting()]
        model = self._catalog.of(CLASSIFIER)
        return heads if model is None else [*heads, _model_info(model)]

    async def look_for(self, name: str | None) -> None:
        """Ask the other replicas for a classifier that is not known here. Raises: Unavailable where they are away."""
        if name is None or self._registry.knows(name) or not is_name(name):
            return
        if not any(name in model.names for model in self._catalog.models()):
            await self.store.refresh()

    def stop_learning(self) -> None:
        """Cancel retraining in the background; requests are answered on."""
        if self.retraining is not None:
            self.retraining.cancel()

    def _learn_waiting(self) -> None:
        """Another replica has taught what must be learnt for this embedding model."""
        if self.retraining is None or self.retraining.done():
            self.retraining = asyncio.get_running_loop().create_task(self._retrain())
        else:
            self._retrain_again = True

    async def _retrain(self) -> None:
        self._retrain_again = True
        while self._retrain_again:
            self._retrain_again = False
            await self._trainer.retrain_stale()

    async def _score(
        self, texts: Sequence[str], name: str | None, multi_label: bool | None, urgency: Urgency
    ) -> LabelScores:
        classifier = self._find(name)
        if isinstance(classifier, LoadedModel):
            logits = await self._scoring.logits(classifier, texts, urgency)
            activation = {None: None, True: Activation.SIGMOID, False: Activation.SOFTMAX}[multi_label]
            return classifier_scores(classifier, logits, activation)
        if multi_label not in (None, classifier.head.multiple):
            kind = "any number of its labels" if classifier.head.multiple else "one of its labels"
            raise InvalidField(
                f"multi_label: {classifier.name} was made to give a text {kind}; leave multi_label out",
                param="multi_label",
            )
        return await self._score_by_head(classifier, texts, urgency)

    async def _score_by_head(
        self, classifier: Classifier, texts: Sequence[str], urgency: Urgency, *, raw_scores: bool = False
    ) -> LabelScores:
        vectors = await self._embeddings.embed_untruncated(texts, urgency=urgency)
        score = partial(head_scores, classifier, texts, vectors, raw_scores=raw_scores)
        return await offload(score, head_cost(classifier, texts))

    def _counted(self, result: ClassificationResult) -> ClassificationResult:
        rows = result.rows
        self._usage.count(len(rows), result.tokens, sum(row.truncated for row in rows))
        return result

    def _for_predict(self, inputs: Sequence[TextOrPair], name: str | None) -> Classifier | LoadedModel:
        """The one named; else for pairs the loaded model, NLI or not, and for single texts the default classifier."""
        model = self._catalog.of(CLASSIFIER)
        of_pairs = name is None and any(not isinstance(text, str) for text in inputs)
        return model if model is not None and of_pairs else self._find(name)

    def _find(self, name: str | None) -> Classifier | LoadedModel:
        """Raises: UnknownModel with the known names; InvalidField where labels are needed."""
        model = self._catalog.of(CLASSIFIER)
        if model is not None and name in model.names:
            if self._zero_shot.is_nli(model):
                raise InvalidField(f"labels: {model.name} needs labels to choose from; none were given", param="labels")
            return model
        if name is None:
            default = self._default()
            if default is None and DEFAULT in self._registry.pending():
                return self._registry.find(DEFAULT)
            if default is None:
                raise InvalidField(
                    "labels: no classifier was made for the embedding model that is loaded; give labels to choose "
                    "from, learn a classifier (PUT /v1/classifiers/{name}) or set CLASSIFIER_MODEL",
                    param="labels",
                )
            return default
        try:
            return self._registry.find(name)
        except UnknownModel as error:
            raise self._catalog.unknown(error.name, [*error.known, *(model.names if model else ())]) from None

    def _default(self) -> Classifier | LoadedModel | None:
        """The configured model or head, else the bundled head; None where that is of another encoder."""
        model = self._catalog.of(CLASSIFIER)
        if model is not None and not self._zero_shot.is_nli(model):
            return model
        heads = [self._registry.find(name) for name in self._registry.names()]
        configured = [head for head in heads if head.source == "configured"]
        return next(iter(configured), next((head for head in heads if head.name == DEFAULT), None))


def predictions_of(scores: LabelScores, top_k: int | None, min_score: float | None) -> ClassificationResult:
    """The labels of each text with their scores, best first; no prediction below ``min_score``."""
    threshold = scores.threshold if min_score is None else min_score
    rows = []
    for text_scores, tokens, truncated in zip(scores.scores, scores.tokens, scores.truncated, strict=True):
        order = np.argsort(-text_scores, kind="stable")[:top_k]
        best_first = zip(order.tolist(), text_scores[order].tolist(), strict=True)
        predictions = tuple(Prediction(scores.labels[index], score) for index, score in best_first)
        best = predictions[0]
        prediction = best.label if best.score >= threshold else None
        rows.append(ClassifiedText(predictions, prediction, best.score, tokens, truncated, scores.multi_label))
    return ClassificationResult(tuple(rows), scores.model, scores.multi_label, scores.timing, scores.label_tokens)


def _info(classifier: Classifier) -> ClassifierInfo:
    head, info = classifier.head, classifier.head.info
    figures = (info.get("examples"), head.threshold, info.get("accuracy_on_folds"), info.get("created_s"))
    tokens = int(info.get("tokens", 0))
    return ClassifierInfo(classifier.name, classifier.source, head.labels, head.multiple, *figures, tokens)


def _pending_info(name: str, kind: Literal["bundled", "learnt"], labels: tuple[str, ...]) -> ClassifierInfo:
    return ClassifierInfo(name, kind, labels, False, None, 0.0, None, None, status="pending")


def _model_info(model: LoadedModel) -> ClassifierInfo:
    multi_label = model.head is not None and model.head.activation is Activation.SIGMOID
    return ClassifierInfo(
        model.name,
        "model",
        model.labels,
        multi_label,
        None,
        MULTI_LABEL_THRESHOLD if multi_label else 0.0,
        None,
        model.created_s,
    )
