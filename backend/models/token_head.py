"""A token classifier's last layer and its BIO labels, applied to the token vectors of any encoder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from backend.errors import ModelUnavailable
from backend.models.checkpoint_tensors import read_tensors
from backend.models.encoder import Vectors
from backend.models.numpy_layers import linear, softmax
from backend.models.spec import ModelSpec, check_architecture, named_labels
from backend.models.weights import Linear

OUTSIDE = "O"
_CLASS = "ForTokenClassification"
_LAYER = "classifier"  # BERT's, DistilBERT's, RoBERTa's, XLM-R's, CamemBERT's and MPNet's alike
_PREFIXED = re.compile(r"([BIESLU])[-_](\S.*)")


class TagPrefix(StrEnum):
    """A word's position in an entity, by its label's prefix; BILOU's L and U are BIOES' E and S."""

    OUTSIDE = "O"
    BEGIN = "B"
    INSIDE = "I"
    END = "E"
    SINGLE = "S"


_PREFIXES = {**{prefix.value: prefix for prefix in TagPrefix}, "L": TagPrefix.END, "U": TagPrefix.SINGLE}


@dataclass(frozen=True, slots=True)
class Tag:
    """One label, parsed."""

    prefix: TagPrefix
    type: str  # PER, ORG, …; "" outside


@dataclass(frozen=True, slots=True)
class TokenHead:
    """The layer and its labels. Shapes: weight (labels, width), bias (labels)."""

    layer: Linear
    labels: tuple[str, ...]  # "O", "B-PER", …; in the order of the layer's rows

    def probabilities(self, hidden: Vectors) -> Vectors:
        """Softmax in float32: (tokens, width) -> (tokens, labels). NaN and infinity pass through."""
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
    """Parse labels: BIO, BIOES and BILOU by their prefixes, IO without any.

    Raises: ModelUnavailable for labels that name no entities.
    """
    entity_labels = [label for label in labels if label != OUTSIDE]
    if OUTSIDE not in labels or not entity_labels:
        shown = ", ".join(labels[:5])
        raise ModelUnavailable(f"the labels ({shown}, …) lack O or any entity; name them in config.json's id2label")
    if any(_PREFIXED.fullmatch(label) for label in entity_labels):
        return tuple(_prefixed(label) for label in labels)
    return tuple(Tag(TagPrefix.OUTSIDE, "") if label == OUTSIDE else Tag(TagPrefix.INSIDE, label) for label in labels)


def types_of(tags: Sequence[Tag]) -> tuple[str, ...]:
    """The types of entities, each once, in alphabetical order."""
    return tuple(sorted({tag.type for tag in tags if tag.prefix is not TagPrefix.OUTSIDE}))


def _prefixed(label: str) -> Tag:
    match = _PREFIXED.fullmatch(label)
    if match:
        return Tag(_PREFIXES[match[1]], match[2])
    return Tag(TagPrefix.OUTSIDE, "")  # O, and labels of pieces and special tokens: X, [CLS], <pad>


def _tensors(spec: ModelSpec) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    names = [f"{_LAYER}.weight", f"{_LAYER}.bias"]
    tensors = read_tensors(spec, names)
    if absent := [name for name in names if name not in tensors]:
        raise ModelUnavailable(f"{spec.name} has no {' and no '.join(absent)} among its tensors")
    weight, bias = (np.ascontiguousarray(tensors[name], np.float32) for name in names)
    return weight, bias
