"""A linear classifier on the vectors of an encoder: scores, its files or the same as bytes, abstention. No torch."""

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
from safetensors.numpy import load, load_file, save

from backend.errors import ModelUnavailable
from backend.models.calibration import sigmoid, softmax
from backend.models.features import Gate, gram_scores
from backend.models.fingerprint import EncoderIdentity
from backend.models.logistic import FittedHead
from backend.models.model_files import BUNDLED_SOURCES

CONFIG = "head.json"
WEIGHTS = "head.safetensors"

NONE = "(none)"  # label of training examples that belong to no class; never an answer
NO_ANSWER = -1


@dataclass(frozen=True, slots=True)
class WideWeights:
    """Weights of the features beside the vector (features.py). Shapes: weight (rows, width), table (rows, places)."""

    gate: Gate
    weight: NDArray[np.float32]  # of the gated copy of the vector
    table: NDArray[np.float32]  # of the text's n-grams; float16 in the file

    def logits(self, vectors: NDArray[np.float32], texts: Sequence[str]) -> NDArray[np.float64]:
        """Added to the logits of the vector alone. Shapes: (texts, width) -> (texts, rows)."""
        gated = (vectors * self.gate.open(vectors)) @ self.weight.T
        return np.asarray(gated + gram_scores(texts, self.table), np.float64)

    def rows(self, order: Sequence[int]) -> WideWeights:
        """The same weights with their rows reordered."""
        return WideWeights(self.gate, self.weight[list(order)], self.table[list(order)])


@dataclass(frozen=True, slots=True)
class ClassifierHead:
    """A published classifier head. Rows are the labels, then the background. float32.

    Shapes: weight (rows, width), bias (rows). Vectors are the encoder's as served: pooled, normalised if the model is.
    """

    labels: tuple[str, ...]
    multiple: bool  # whether a text may have several classes
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    encoder: str  # for backend.models.model_files.resolve: "bundled" or a folder
    encoder_sha256: str  # of the weights whose vectors it was trained on
    name: str = ""
    threshold: float = 0.0  # least score at which a label is given
    info: Mapping[str, Any] = field(default_factory=dict)  # from training: temperature, penalty, accuracy, examples
    wide: WideWeights | None = None
    encoder_fingerprint: str = ""  # of all that decides those vectors; "" in heads older than fingerprints

    @property
    def trained_on(self) -> EncoderIdentity:
        """The encoder whose vectors it reads."""
        return EncoderIdentity(self.encoder_sha256, self.encoder_fingerprint)

    @property
    def reads_text(self) -> bool:
        """Whether ``probabilities`` needs the texts beside their vectors."""
        return self.wide is not None

    @property
    def version(self) -> str:
        """Digest of everything that its answers depend on, 12 hexadecimal digits."""
        digest = hashlib.blake2b(digest_size=6)
        settings = [self.labels, self.multiple, round(self.threshold, 6), self.encoder_sha256]
        digest.update(json.dumps(settings, ensure_ascii=False).encode())
        for name, tensor in sorted(_tensors(self).items()):
            digest.update(name.encode() + tensor.tobytes())
        return digest.hexdigest()

    @property
    def has_background(self) -> bool:
        """Whether a last row stands for texts that belong to no class."""
        return len(self.weight) > len(self.labels)

    def logits(self, vectors: NDArray[np.float32], texts: Sequence[str] = ()) -> NDArray[Any]:
        """Logits of every row, the background's too. Shapes: (texts, width) -> (texts, rows).

        Args:
            texts: as those of ``probabilities``.
        """
        logits: NDArray[Any] = vectors @ self.weight.T + self.bias
        return logits if self.wide is None else logits + self.wide.logits(vectors, texts)

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

        Shapes: (texts, labels) -> (texts). With several labels a text it is the likeliest of those given.
        """
        best = probabilities.argmax(axis=1)
        is_given = probabilities[np.arange(len(best)), best] >= self.threshold
        return np.where(is_given, best, NO_ANSWER).astype(np.int64)


def read_head(folder: Path) -> ClassifierHead:
    """Read a published head. Raises: ModelUnavailable."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return _head_of(config, load_file(folder / WEIGHTS), folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise ModelUnavailable(f"{folder} is no classifier head ({CONFIG}, {WEIGHTS}): {error!r}") from error


def pack_head(head: ClassifierHead) -> bytes:
    """Both files as one value: the length of ``head.json`` in four bytes, ``head.json``, ``head.safetensors``."""
    _check(head)
    config = json.dumps(_config(head), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return len(config).to_bytes(4, "little") + config + save(_tensors(head))


def unpack_head(packed: bytes) -> ClassifierHead:
    """What ``pack_head`` has packed. Raises: ModelUnavailable."""
    try:
        end = 4 + int.from_bytes(packed[:4], "little")
        config = json.loads(packed[4:end].decode("utf-8", "surrogatepass"))
        return _head_of(config, load(packed[end:]), Path())
    except (ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise ModelUnavailable(f"{len(packed)} bytes are no classifier head: {error!r}") from error


def write_head(folder: Path, head: ClassifierHead, *, encoder: str | None = None) -> None:
    """Write ``head.json`` and ``head.safetensors`` into an existing folder. Raises: ValueError, OSError.

    Args:
        encoder: what to write instead of ``head.encoder``, such as a folder relative to this one.
    """
    _check(head)
    (folder / WEIGHTS).write_bytes(save(_tensors(head)))  # save_file would make it readable by the owner only
    record = _config(head) | {"encoder": encoder or head.encoder}
    (folder / CONFIG).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def wide_weights(fitted: FittedHead) -> WideWeights | None:
    """The weights of gated vectors and n-grams in their serving form; None where the fit did without."""
    if fitted.gate is None or fitted.gated is None or fitted.table is None:
        return None
    return WideWeights(fitted.gate, fitted.gated.astype(np.float32), fitted.table.astype(np.float32))


def _config(head: ClassifierHead) -> dict[str, Any]:
    return {
        "task": "text-classifier",
        "name": head.name,
        "version": head.version,
        "labels": list(head.labels),
        "multiple": head.multiple,
        "background": head.has_background,
        "threshold": head.threshold,
        "encoder": head.encoder,
        "encoder_sha256": head.encoder_sha256,
        "encoder_fingerprint": head.encoder_fingerprint,
        "info": dict(head.info),
    }


def _head_of(config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], folder: Path) -> ClassifierHead:
    encoder = config["encoder"]
    head = ClassifierHead(
        labels=tuple(config["labels"]),
        multiple=bool(config["multiple"]),
        weight=tensors["weight"].astype(np.float32),
        bias=tensors["bias"].astype(np.float32),
        encoder=encoder if encoder in BUNDLED_SOURCES else str(folder / encoder),
        encoder_sha256=config["encoder_sha256"],
        name=str(config.get("name", folder.name)),
        threshold=float(config.get("threshold", 0.0)),
        info=dict(config.get("info", {})),
        wide=_wide_weights(tensors),
        encoder_fingerprint=str(config.get("encoder_fingerprint", "")),
    )
    _check(head, version=config.get("version"))
    return head


def _tensors(head: ClassifierHead) -> dict[str, NDArray[Any]]:
    """The head's tensors by their names in the file."""
    tensors: dict[str, NDArray[Any]] = {"weight": head.weight, "bias": head.bias}
    if head.wide is not None:
        gate = head.wide.gate
        tensors |= {"gate.direction": gate.direction, "gate.offset": np.array([gate.offset])}
        tensors |= {"gated": head.wide.weight}
    stored = {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}
    return stored if head.wide is None else stored | {"table": np.ascontiguousarray(head.wide.table, np.float16)}


def _wide_weights(tensors: Mapping[str, NDArray[Any]]) -> WideWeights | None:
    if "table" not in tensors:
        return None
    gate = Gate(tensors["gate.direction"], float(tensors["gate.offset"][0]))
    return WideWeights(gate, tensors["gated"], tensors["table"].astype(np.float32))


def _check(head: ClassifierHead, *, version: str | None = None) -> None:
    """Raises: ValueError for tensors that do not fit the labels, are not finite, or have another version."""
    rows, extra = len(head.labels), len(head.weight) - len(head.labels)
    if head.weight.ndim != 2 or head.bias.shape != head.weight.shape[:1]:
        raise ValueError(f"weight {head.weight.shape} and bias {head.bias.shape} do not fit together")
    if not rows or len(set(head.labels)) != rows or extra not in ({0} if head.multiple else {0, 1}):
        raise ValueError(f"{len(head.weight)} rows for {rows} labels")
    wide = head.wide
    if wide is not None and (
        wide.weight.shape != head.weight.shape
        or wide.gate.direction.shape != head.weight.shape[1:]
        or wide.table.shape != (len(head.weight), 1 << (wide.table.shape[-1].bit_length() - 1))
    ):
        raise ValueError(f"gated {wide.weight.shape} and table {wide.table.shape} do not fit the weight")
    if not all(np.isfinite(tensor).all() for tensor in _tensors(head).values()):
        raise ValueError("numbers that are not finite")
    if version not in (None, head.version):
        raise ValueError(f"{WEIGHTS} is not of the version {version} that {CONFIG} names")
