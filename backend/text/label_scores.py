"""Scores of each text for each label, and how to read them, whichever kind of classifier made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from backend.lanes.inference import Timing
from backend.models.logistic import MULTI_LABEL_THRESHOLD
from backend.models.numpy_layers import Activation
from backend.serving.catalog import LoadedModel
from backend.text.classifiers import Classifier
from backend.text.embeddings import TextVectors
from backend.text.scoring import Logits

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
