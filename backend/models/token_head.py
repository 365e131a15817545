"""A token classifier's last layer, and what its labels mean. The layers below it are any of our encoders'."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  # its import teaches numpy bfloat16; onnx brings it
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from backend.errors import ModelUnavailable
from backend.models.encoder import Vectors
from backend.models.spec import ModelSpec
from backend.models.weights import Linear

OUTSIDE = "O"
_CLASS = "ForTokenClassification"
_LAYER = "classifier"  # BERT's, DistilBERT's, RoBERTa's, XLM-R's, CamemBERT's and MPNet's alike
_ONE_THREAD = 1 << 18  # multiplications; OpenBLAS, interface/gemm.c: SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD
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
            logits = self._product(hidden) + self.layer.bias
            scores = np.exp(logits - logits.max(axis=1, keepdims=True))
            found: Vectors = scores / scores.sum(axis=1, keepdims=True)
        return found

    def _product(self, hidden: Vectors) -> Vectors:
        """(tokens, width) -> (tokens, labels), a block of rows at a time.

        For larger products OpenBLAS starts threads, which spin on the other lanes' cores: 512 tokens of width 384 on
        two busy cores took 5.7 ms of processor time whole and 1.1 ms in blocks.
        """
        product = np.empty((len(hidden), len(self.labels)), np.float32)
        rows = max(1, _ONE_THREAD // self.layer.weight.size)
        for start in range(0, len(hidden), rows):
            np.matmul(hidden[start : start + rows], self.layer.weight.T, out=product[start : start + rows])
        return product


def read_token_head(spec: ModelSpec) -> TokenHead:
    """Read the layer and its labels from the folder of a ForTokenClassification model.

    Raises: ModelUnavailable when the folder has no such layer, or its labels name no entities.
    """
    config = _config(spec.folder)
    architectures = [str(name) for name in config.get("architectures") or []]
    if architectures and not any(name.endswith(_CLASS) for name in architectures):
        raise ModelUnavailable(f"{spec.name} is a {architectures[0]}, not a token classifier (…{_CLASS})")
    weight, bias = _tensors(spec.folder / "model.safetensors")
    labels = _labels(config, spec.name)
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


def _config(folder: Path) -> Mapping[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{folder}/config.json cannot be read: {error}") from error
    return config if isinstance(config, dict) else {}


def _labels(config: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """``id2label`` by number. Raises: ModelUnavailable unless it names 0, 1, 2 and so on."""
    named = config.get("id2label")
    try:
        by_number = {int(number): str(label) for number, label in named.items()} if isinstance(named, dict) else {}
    except ValueError:
        by_number = {}
    if not by_number or sorted(by_number) != list(range(len(by_number))):
        raise ModelUnavailable(f"{name}: config.json has no id2label that names every label from 0 on")
    return tuple(by_number[number] for number in range(len(by_number)))


def _tensors(file: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    try:
        with safe_open(file, framework="numpy") as tensors:
            weight, bias = (tensors.get_tensor(f"{_LAYER}.{part}") for part in ("weight", "bias"))
    except (SafetensorError, OSError, KeyError, TypeError) as error:
        raise ModelUnavailable(f"{file} has no readable {_LAYER}.weight and {_LAYER}.bias: {error}") from error
    return np.ascontiguousarray(weight, np.float32), np.ascontiguousarray(bias, np.float32)
