"""Logits of sequence classifiers for texts or pairs of texts, and scores of texts for labels, whoever made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.lanes.cache.store import CacheNamespace
from backend.lanes.engine import Engine
from backend.lanes.inference import Inference, Timing, Urgency
from backend.models.encoder import Vectors
from backend.models.logistic import MULTI_LABEL_THRESHOLD
from backend.models.numpy_layers import Activation
from backend.models.pairs import Cut, PairTokenizer
from backend.models.tokenizer import Tokens, Truncate
from backend.serving.catalog import LoadedModel
from backend.text.classifiers import Classifier
from backend.text.embeddings import TextVectors

TextOrPair = str | tuple[str, str]


@dataclass(frozen=True, slots=True)
class Logits:
    """Logits (inputs, labels) float32 in the order of the inputs."""

    values: Vectors
    tokens: tuple[int, ...]
    truncated: tuple[bool, ...]
    timing: Timing


@dataclass(frozen=True, slots=True)
class _ScoringPipeline:
    """A sequence classifier on texts, or on pairs; an inference.Pipeline."""

    model: LoadedModel
    cut: Cut  # which text of a pair is truncated
    truncate: Truncate  # which end of a single text is truncated
    param: str
    namespace: CacheNamespace
    uses_cache: bool = True
    digests: dict[str, str] = field(default_factory=dict)  # by first text, which occurs in many pairs
    first_ids: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # the same; slices come one after the other

    @property
    def engine(self) -> Engine:
        return self.model.engine

    def key(self, text: TextOrPair) -> bytes:
        if isinstance(text, str):
            return self.namespace.key("text", f"text:{text}")
        first, second = text
        if (digest := self.digests.get(first)) is None:
            digest = self.digests[first] = self.namespace.key("text", f"first:{first}").hex()
        return self.namespace.key("text", f"pair:{digest}:{second}")

    def characters(self, text: TextOrPair) -> int:
        return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])

    def tokenize(self, inputs: Sequence[TextOrPair], indices: Sequence[int]) -> list[Tokens]:
        singles = [(index, text) for index, text in zip(indices, inputs, strict=True) if isinstance(text, str)]
        paired = [(index, pair) for index, pair in zip(indices, inputs, strict=True) if not isinstance(pair, str)]
        tokens: dict[int, Tokens] = {}
        if singles:
            at, texts = zip(*singles, strict=True)
            tokens |= zip(at, self.model.tokenizer.encode(texts, self.truncate, indices=at), strict=True)
        if paired:
            at, pairs = zip(*paired, strict=True)
            tokenizer = PairTokenizer(self.model.tokenizer, self.model.spec.token_types)  # 60 us
            encoded = tokenizer.encode(pairs, self.cut, indices=at, param=self.param, known=self.first_ids)
            tokens |= zip(at, encoded, strict=True)
        return [tokens[index] for index in indices]

    def postprocess(self, rows: Sequence[Vectors]) -> Sequence[Vectors]:
        return rows


class ScoringService:
    """Computes logits with a loaded sequence classifier. Belongs to the loop's thread."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    async def logits(
        self,
        model: LoadedModel,
        inputs: Sequence[TextOrPair],
        urgency: Urgency,
        *,
        cut: Cut = "longest",
        truncate: Truncate = "end",
        param: str = "input",
    ) -> Logits:
        """The model's logits of each input.

        Args:
            inputs: at least one.
            cut: which text of a pair is truncated where both do not fit; "none" refuses.
            truncate: which end of a single text is truncated.
            param: the request's field, for messages.

        Raises: TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded, InferenceFailed for the service.
        """
        pipeline = _ScoringPipeline(model, cut, truncate, param, model.namespace(model.task, cut, truncate))
        result = await self._inference.run_in_chunks(pipeline, inputs, urgency)  # texts times labels may be many
        rows = result.rows
        return Logits(
            np.concatenate([row.vector for row in rows]).reshape(len(rows), -1),
            tuple(row.tokens for row in rows),
            tuple(row.truncated for row in rows),
            result.timing,
        )


_TEXT_COST = 16_000  # numbers whose arithmetic takes as long as the n-grams of a text: 0.8 ms


@dataclass(frozen=True, slots=True)
class LabelScores:
    """Scores (texts, labels) and what is needed to turn them into predictions."""

    scores: NDArray[Any]
    labels: tuple[str, ...]
    model: str
    multi_label: bool  # whether several labels may be right
    threshold: float  # least score of a prediction that is given
    tokens: tuple[int, ...]
    truncated: tuple[bool, ...]
    timing: Timing
    label_tokens: int = 0  # of the sentences made of labels in a request, beside those of the texts


def head_scores(
    classifier: Classifier, texts: Sequence[str], vectors: TextVectors, *, raw_scores: bool = False
) -> LabelScores:
    """Scores of a head on the embedding model's vectors; its logits where raw scores are asked for."""
    head = classifier.head
    score = head.logits if raw_scores else head.probabilities
    return LabelScores(
        scores=score(vectors.vectors, texts)[:, : len(head.labels)],  # without the background's column
        labels=head.labels,
        model=classifier.name,
        multi_label=head.multiple,
        threshold=head.threshold,
        tokens=vectors.tokens,
        truncated=(False,) * len(vectors.tokens),
        timing=vectors.timing,
    )


def head_cost(classifier: Classifier, texts: Sequence[str]) -> int:
    """The cost of ``head_scores``, in numbers for ``offload``."""
    return len(texts) * (len(classifier.head.weight) + (_TEXT_COST if classifier.head.reads_text else 0))


def classifier_scores(model: LoadedModel, logits: Logits, activation: Activation | None) -> LabelScores:
    """Scores of a sequence classifier, by its own activation unless another is given."""
    assert model.head is not None
    activation = activation or model.head.activation
    multi_label = activation is Activation.SIGMOID
    return LabelScores(
        scores=model.head.apply(logits.values, activation),
        labels=model.head.labels,
        model=model.name,
        multi_label=multi_label,
        threshold=MULTI_LABEL_THRESHOLD if multi_label else 0.0,
        tokens=logits.tokens,
        truncated=logits.truncated,
        timing=logits.timing,
    )
