"""A small classifier on the vectors of an encoder: what it is, its two files, and when it gives no answer. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from backend.errors import ModelUnavailable
from backend.models.calibration import sigmoid, softmax
from backend.models.features import Gate
from backend.models.grams import gram_scores
from backend.models.model_files import BUNDLED

CONFIG = "head.json"
WEIGHTS = "head.safetensors"

NONE = "(none)"  # label of examples that belong to no class; it is learnt, and never given as an answer
NO_ANSWER = -1


@dataclass(frozen=True, slots=True)
class Wider:
    """What a head reads beside the vector (``models/features``). Shapes: weight (rows, width), table (rows, places)."""

    gate: Gate
    weight: NDArray[np.float32]  # of the gated copy of the vector
    table: NDArray[np.float32]  # of the text's grams; float16 in the file

    def logits(self, vectors: NDArray[np.float32], texts: Sequence[str]) -> NDArray[np.float64]:
        """What is added to the logits of the vector alone. Shapes: (texts, width) -> (texts, rows)."""
        gated = (vectors * self.gate.open(vectors)) @ self.weight.T
        return np.asarray(gated + gram_scores(texts, self.table), np.float64)

    def rows(self, order: Sequence[int]) -> Wider:
        """The same with its rows in another order."""
        return Wider(self.gate, self.weight[list(order)], self.table[list(order)])


@dataclass(frozen=True, slots=True)
class ClassifierHead:
    """A published head. Shapes: weight (rows, width), bias (rows), float32; rows are the labels, then the background.

    Vectors are the encoder's as served: pooled and, where the model says so, normalised.
    """

    labels: tuple[str, ...]
    multiple: bool  # whether a text may have several classes
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    encoder: str  # for backend.models.model_files.resolve: "bundled" or a folder
    encoder_sha256: str  # of the weights whose vectors it was trained on
    name: str = ""
    threshold: float = 0.0  # least score at which a label is given
    info: Mapping[str, Any] = field(default_factory=dict)  # how it was made: temperature, penalty, accuracy, examples
    wider: Wider | None = None

    @property
    def reads_text(self) -> bool:
        """Whether ``probabilities`` needs the texts beside their vectors."""
        return self.wider is not None

    @property
    def version(self) -> str:
        """Digest of everything that decides its answers, 12 hexadecimal digits."""
        made = hashlib.blake2b(digest_size=6)
        said = [self.labels, self.multiple, round(self.threshold, 6), self.encoder_sha256]
        made.update(json.dumps(said, ensure_ascii=False).encode())
        for name, tensor in sorted(_tensors(self).items()):
            made.update(name.encode() + tensor.tobytes())
        return made.hexdigest()

    @property
    def has_background(self) -> bool:
        """Whether a last row stands for texts that belong to no class."""
        return len(self.weight) > len(self.labels)

    def logits(self, vectors: NDArray[np.float32], texts: Sequence[str] = ()) -> NDArray[Any]:
        """What every row says, the background's too. Shapes: (texts, width) -> (texts, rows).

        Args:
            texts: as those of ``probabilities``.
        """
        logits: NDArray[Any] = vectors @ self.weight.T + self.bias
        return logits if self.wider is None else logits + self.wider.logits(vectors, texts)

    def probabilities(self, vectors: NDArray[np.float32], texts: Sequence[str] = ()) -> NDArray[np.float64]:
        """Calibrated scores. Shapes: (texts, width) -> (texts, labels).

        Rows of one label a text sum to 1, less the share of the background where the head has one.

        Args:
            texts: those of the vectors; needed where the head ``reads_text``.
        """
        logits = self.logits(vectors, texts)
        scores: NDArray[np.float64] = sigmoid(logits) if self.multiple else softmax(logits)
        return scores[:, : len(self.labels)]

    def best(self, probabilities: NDArray[Any]) -> NDArray[np.int64]:
        """The label of each text, or ``NO_ANSWER`` where its score is below the threshold.

        Shapes: (texts, labels) -> (texts). Where labels may go together it is the likeliest of those given.
        """
        places = probabilities.argmax(axis=1)
        given = probabilities[np.arange(len(places)), places] >= self.threshold
        return np.where(given, places, NO_ANSWER).astype(np.int64)


def read_head(folder: Path) -> ClassifierHead:
    """A published head. Raises: ModelUnavailable."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        tensors = load_file(folder / WEIGHTS)
        encoder = config["encoder"]
        head = ClassifierHead(
            labels=tuple(config["labels"]),
            multiple=bool(config["multiple"]),
            weight=tensors["weight"].astype(np.float32),
            bias=tensors["bias"].astype(np.float32),
            encoder=encoder if encoder == BUNDLED else str(folder / encoder),
            encoder_sha256=config["encoder_sha256"],
            name=str(config.get("name", folder.name)),
            threshold=float(config.get("threshold", 0.0)),
            info=dict(config.get("info", {})),
            wider=_wider(tensors),
        )
        _check(head, version=config.get("version"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise ModelUnavailable(f"{folder} is no classifier head ({CONFIG}, {WEIGHTS}): {error!r}") from error
    return head


def write_head(folder: Path, head: ClassifierHead, *, encoder: str | None = None) -> None:
    """``head.json`` and ``head.safetensors`` in a folder that exists. Raises: ValueError, OSError.

    Args:
        encoder: what to write instead of ``head.encoder``, such as a folder relative to this one.
    """
    _check(head)
    (folder / WEIGHTS).write_bytes(save(_tensors(head)))  # save_file would shut out all readers but the owner
    record = {
        "task": "text-classifier",
        "name": head.name,
        "version": head.version,
        "labels": list(head.labels),
        "multiple": head.multiple,
        "background": head.has_background,
        "threshold": head.threshold,
        "encoder": encoder or head.encoder,
        "encoder_sha256": head.encoder_sha256,
        "info": dict(head.info),
    }
    (folder / CONFIG).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _tensors(head: ClassifierHead) -> dict[str, NDArray[Any]]:
    """As they are in the file."""
    tensors: dict[str, NDArray[Any]] = {"weight": head.weight, "bias": head.bias}
    if head.wider is not None:
        gate = head.wider.gate
        tensors |= {"gate.direction": gate.direction, "gate.offset": np.array([gate.offset])}
        tensors |= {"gated": head.wider.weight}
    made = {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}
    return made if head.wider is None else made | {"table": np.ascontiguousarray(head.wider.table, np.float16)}


def _wider(tensors: Mapping[str, NDArray[Any]]) -> Wider | None:
    if "table" not in tensors:
        return None
    gate = Gate(tensors["gate.direction"], float(tensors["gate.offset"][0]))
    return Wider(gate, tensors["gated"], tensors["table"].astype(np.float32))


def _check(head: ClassifierHead, *, version: str | None = None) -> None:
    """Raises: ValueError for tensors that are not of the labels, not finite, or not of the version."""
    rows, extra = len(head.labels), len(head.weight) - len(head.labels)
    if head.weight.ndim != 2 or head.bias.shape != head.weight.shape[:1]:
        raise ValueError(f"weight {head.weight.shape} and bias {head.bias.shape} do not fit together")
    if not rows or len(set(head.labels)) != rows or extra not in ({0} if head.multiple else {0, 1}):
        raise ValueError(f"{len(head.weight)} rows for {rows} labels")
    wider = head.wider
    if wider is not None and (
        wider.weight.shape != head.weight.shape
        or wider.gate.direction.shape != head.weight.shape[1:]
        or wider.table.shape != (len(head.weight), 1 << (wider.table.shape[-1].bit_length() - 1))
    ):
        raise ValueError(f"gated {wider.weight.shape} and table {wider.table.shape} do not fit the weight")
    if not all(np.isfinite(tensor).all() for tensor in _tensors(head).values()):
        raise ValueError("numbers that are not finite")
    if version not in (None, head.version):
        raise ValueError(f"{WEIGHTS} is not of the version {version} that {CONFIG} names")
