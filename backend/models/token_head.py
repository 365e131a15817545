"""A token classifier's last layer, and what its labels mean. The layers below it are any of our encoders'."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from backend.errors import ModelUnavailable
from backend.models.activations import softmax
from backend.models.checkpoint_tensors import read_tensors
from backend.models.encoder import Vectors
from backend.models.labels import check_architecture, named_labels
from backend.models.numpy_linear import linear
from backend.models.spec import ModelSpec
from backend.models.weights import Linear

OUTSIDE = "O"
_CLASS = "ForTokenClassification"
_LAYER = "classifier"  # BERT's, DistilBERT's, RoBERTa's, XLM-R's, CamemBERT's and MPNet's alike
_PREFIXED = re.compile(r"([BIESLU])[-_](\S.*)")


class Mark(StrEnum):
    """What a label says of its word's place in an entity; BILOU's L and U are BIOES' E and S."""

    OUTSIDE = "O"
    BEGIN = "B"
    INSIDE = "I"
    END = "E"
    SINGLE = "S"


_MARKS = {**{mark.value: mark for mark in Mark}, "L": Mark.END, "U": Mark.SINGLE}


@dataclass(frozen=True, slots=True)
class Tag:
    """One label, understood."""

    mark: Mark
    type: str  # PER, ORG, …; "" outside


@dataclass(frozen=True, slots=True)
class TokenHead:
    """The layer and its labels. Shapes: weight (labels, width), bias (labels)."""

    layer: Linear
    labels: tuple[str, ...]  # "O", "B-PER", …; in the order of the layer's rows

    def probabilities(self, hidden: Vectors) -> Vectors:
        """Softmax in float32: (tokens, width) -> (tokens, labels). What is not finite going in is not coming out."""
        with np.errstate(invalid="ignore", over="ignore"):
            return softmax(linear(hidden, self.layer))


def read_token_head(spec: ModelSpec) -> TokenHead:
    """Read the layer and its labels from the folder of a ForTokenClassification model.

    Raises: ModelUnavailable when the folder has no such layer, or its labels name no entities.
    """
    check_architecture(spec, _CLASS, "token classifier")
    weight, bias = _tensors(spec)
    labels = named_labels(spec.config, spec.name)
    if weight.shape != (len(labels), spec.width) or bias.shape != (len(labels),):
        raise ModelUnavailable(
            f"{spec.name}: {_LAYER} has the shapes {weight.shape} and {bias.shape}, but {len(labels)} labels of a "
            f"model of width {spec.width} need {(len(labels), spec.width)} and {(len(labels),)}"
        )
    read_tags(labels)
    return TokenHead(Linear(weight, bias), labels)


def read_tags(labels: Sequence[str]) -> tuple[Tag, ...]:
    """What each label means: BIO, BIOES and BILOU by their prefixes, IO without any.

    Raises: ModelUnavailable for labels that name no entities.
    """
    named = [label for label in labels if label != OUTSIDE]
    if OUTSIDE not in labels or not named:
        shown = ", ".join(labels[:5])
        raise ModelUnavailable(f"the labels ({shown}, …) lack O or any entity; name them in config.json's id2label")
    if any(_PREFIXED.fullmatch(label) for label in named):
        return tuple(_prefixed(label) for label in labels)
    return tuple(Tag(Mark.OUTSIDE, "") if label == OUTSIDE else Tag(Mark.INSIDE, label) for label in labels)


def types_of(tags: Sequence[Tag]) -> tuple[str, ...]:
    """The kinds of entities, each once, in alphabetical order."""
    return tuple(sorted({tag.type for tag in tags if tag.mark is not Mark.OUTSIDE}))


def _prefixed(label: str) -> Tag:
    found = _PREFIXED.fullmatch(label)
    if found:
        return Tag(_MARKS[found[1]], found[2])
    return Tag(Mark.OUTSIDE, "")  # O, and what some add for pieces and marks that name nothing: X, [CLS], <pad>


def _tensors(spec: ModelSpec) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    names = [f"{_LAYER}.weight", f"{_LAYER}.bias"]
    tensors = read_tensors(spec, names)
    if absent := [name for name in names if name not in tensors]:
        raise ModelUnavailable(f"{spec.name} has no {' and no '.join(absent)} among its tensors")
    weight, bias = (np.ascontiguousarray(tensors[name], np.float32) for name in names)
    return weight, bias
