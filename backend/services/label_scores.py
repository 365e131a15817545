"""What a judge of texts says: a score for each text and label, whichever kind of classifier it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from backend.models.logistic import MULTI_LABEL_THRESHOLD
from backend.models.numpy_layers import Activation
from backend.services.catalog import LoadedModel
from backend.services.classifiers import Classifier
from backend.services.embeddings import Whole
from backend.services.inference import Timing
from backend.services.scoring import Scored

_TEXT_WORK = 16_000  # numbers that take as long as the grams of a text: 0.8 ms


@dataclass(frozen=True, slots=True)
class Judged:
    """Scores (texts, labels) and what they mean, whoever judged."""

    scores: NDArray[Any]
    labels: tuple[str, ...]
    model: str
    several: bool  # whether several labels may be right
    threshold: float  # least score of a prediction that is given
    tokens: tuple[int, ...]
    truncated: tuple[bool, ...]
    timing: Timing


def by_head(found: Classifier, texts: Sequence[str], whole: Whole, *, raw_scores: bool = False) -> Judged:
    """What a head says of texts and their vectors; its logits where raw scores are asked for."""
    head = found.head
    judge = head.logits if raw_scores else head.probabilities
    return Judged(
        scores=judge(whole.vectors, texts)[:, : len(head.labels)],  # no logit of the background's
        labels=head.labels,
        model=found.name,
        several=head.multiple,
        threshold=head.threshold,
        tokens=whole.tokens,
        truncated=(False,) * len(whole.tokens),
        timing=whole.timing,
    )


def work_of(found: Classifier, texts: Sequence[str]) -> int:
    """How much ``by_head`` has to do, in numbers of ``calculate``."""
    return len(texts) * (len(found.head.weight) + (_TEXT_WORK if found.head.reads_text else 0))


def by_model(model: LoadedModel, scored: Scored, activation: Activation | None) -> Judged:
    """What a sequence classifier's logits say, by its own activation unless another is given."""
    assert model.head is not None
    chosen = activation or model.head.activation
    several = chosen is Activation.SIGMOID
    return Judged(
        scores=model.head.apply(scored.logits, chosen),
        labels=model.head.labels,
        model=model.name,
        several=several,
        threshold=MULTI_LABEL_THRESHOLD if several else 0.0,
        tokens=scored.tokens,
        truncated=scored.truncated,
        timing=scored.timing,
    )
