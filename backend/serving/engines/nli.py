"""Zero-shot labels by natural language inference: does a text entail the sentence "This example is LABEL"?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.errors import InvalidField
from backend.models.encoder import Vectors
from backend.models.numpy_layers import sigmoid, softmax

TEMPLATE = "This example is {}."  # transformers' default
_PLACE = "{}"


@dataclass(frozen=True, slots=True)
class NliLabels:
    """The indices of an NLI model's logits."""

    entailment: int
    contradiction: int  # models of two labels: "not entailment"
    neutral: int | None


def read_nli(labels: Sequence[str]) -> NliLabels | None:
    """Which label of a model has which meaning, in any order and case; None when it is no NLI model."""
    by_meaning: dict[str, list[int]] = {}
    for number, label in enumerate(labels):
        by_meaning.setdefault(_meaning(label), []).append(number)
    against = by_meaning.get("contradiction") or by_meaning.get("otherwise") or []
    if any(len(numbers) > 1 for numbers in by_meaning.values()) or "" in by_meaning:
        return None
    if len(by_meaning.get("entailment", [])) != 1 or len(against) != 1:
        return None
    return NliLabels(by_meaning["entailment"][0], against[0], by_meaning.get("neutral", [None])[0])


def hypotheses(labels: Sequence[str], template: str = TEMPLATE) -> list[str]:
    """The sentence of each label. Raises: InvalidField for a template without ``{}``.

    Only ``{}`` is replaced: str.format would let a template read attributes.
    """
    if _PLACE not in template:
        raise InvalidField(
            f"hypothesis_template: {template!r} has no {_PLACE} where the label goes, as {TEMPLATE!r} has",
            param="hypothesis_template",
        )
    return [template.replace(_PLACE, label) for label in labels]


def zero_shot(logits: Vectors, nli: NliLabels, *, multi_label: bool) -> Vectors:
    """Score of each label for a text.

    Labels that exclude each other: softmax of their entailments. Labels that do not, or a single one: entailment
    against contradiction, each label by itself; neutral is ignored.

    Shapes: (labels, classes) -> (labels), or (texts, labels, classes) -> (texts, labels), float32.
    Source: transformers, pipelines/zero_shot_classification.py, ZeroShotClassificationPipeline.postprocess.
    """
    entailed = logits[..., nli.entailment]
    if multi_label or logits.shape[-2] == 1:
        with np.errstate(invalid="ignore"):
            margin: Vectors = entailed - logits[..., nli.contradiction]
        return sigmoid(margin)
    return softmax(entailed)


def _meaning(label: str) -> str:
    """One of "entailment", "contradiction", "neutral" and "otherwise" (not entailed); "" for any other label."""
    name = label.strip().lower().replace("-", "_").replace(" ", "_")
    if name.startswith("entail"):
        return "entailment"
    if name.startswith("contradict"):
        return "contradiction"
    if name.startswith(("not_entail", "non_entail", "no_entail")):
        return "otherwise"
    return "neutral" if name == "neutral" else ""
