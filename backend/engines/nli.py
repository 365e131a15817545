"""Labels that no model has learnt, by one that tells whether a text entails a sentence about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.errors import InvalidField
from backend.models.activations import sigmoid, softmax
from backend.models.encoder import Vectors

TEMPLATE = "This example is {}."  # transformers' default
_PLACE = "{}"


@dataclass(frozen=True, slots=True)
class NliLabels:
    """Which logit says what."""

    entailment: int
    contradiction: int  # models of two labels: "not entailment"
    neutral: int | None


def read_nli(labels: Sequence[str]) -> NliLabels | None:
    """What the labels of a model mean, in any order and case; None when it is no NLI model."""
    found: dict[str, list[int]] = {}
    for number, label in enumerate(labels):
        found.setdefault(_meaning(label), []).append(number)
    against = found.get("contradiction") or found.get("otherwise") or []
    if any(len(numbers) > 1 for numbers in found.values()) or "" in found:
        return None
    if len(found.get("entailment", [])) != 1 or len(against) != 1:
        return None
    return NliLabels(found["entailment"][0], against[0], found.get("neutral", [None])[0])


def hypotheses(labels: Sequence[str], template: str = TEMPLATE) -> list[str]:
    """The sentence of each label. Raises: InvalidField for a template without ``{}``.

    The label is put in place of every ``{}``; no other field is: str.format would let a template read attributes.
    """
    if _PLACE not in template:
        raise InvalidField(
            f"hypothesis_template: {template!r} has no {_PLACE} where the label goes, as {TEMPLATE!r} has",
            param="hypothesis_template",
        )
    return [template.replace(_PLACE, label) for label in labels]


def zero_shot(logits: Vectors, nli: NliLabels, *, multi_label: bool) -> Vectors:
    """How far each label is true of a text.

    Several labels of which one is right: softmax of their entailments. Labels that may all be right, or a lone one:
    entailment against contradiction, each by itself; neutral says nothing.

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
    """One of "entailment", "contradiction", "neutral" and "otherwise" (not entailed); "" for what is none of NLI."""
    name = label.strip().lower().replace("-", "_").replace(" ", "_")
    if name.startswith("entail"):
        return "entailment"
    if name.startswith("contradict"):
        return "contradiction"
    if name.startswith(("not_entail", "non_entail", "no_entail")):
        return "otherwise"
    return "neutral" if name == "neutral" else ""
