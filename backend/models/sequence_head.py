"""A sequence classifier's last layers and labels, applied to the pooled vectors of any encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backend.errors import ModelUnavailable
from backend.models.checkpoint_tensors import Tensors, read_tensors
from backend.models.encoder import Vectors
from backend.models.numpy_layers import FUNCTIONS, Activation, activate, linear
from backend.models.spec import ModelSpec, Pooling, check_architecture, named_labels, read_json
from backend.models.weights import Linear, Norm

_CLASS = "ForSequenceClassification"
_UNNAMED = 2  # labels of a model whose config.json has none: transformers' default


@dataclass(frozen=True, slots=True)
class SequenceHead:
    """Two layers with a function, and in some families a norm, between them; and the labels.

    Shapes: inner weight (width, width), outer weight (labels, width).
    """

    pooling: Pooling  # which vector of a text it takes: CLS or MEAN
    inner: Linear
    function: str  # by transformers' name
    norm: Norm | None
    epsilon: float  # of the norm
    outer: Linear
    labels: tuple[str, ...]  # in the order of the outer layer's rows
    activation: Activation  # of the scores in transformers' text-classification pipeline
    relevance: Activation  # of the scores in sentence-transformers' CrossEncoder

    def logits(self, vectors: Vectors) -> Vectors:
        """One row a text: (batch, width) -> (batch, labels) float32. NaN and infinity pass through."""
        with np.errstate(invalid="ignore", over="ignore"):
            hidden = FUNCTIONS[self.function](linear(vectors, self.inner))
            if self.norm is not None:
                hidden = _normed(hidden, self.norm, self.epsilon)
            return linear(hidden, self.outer)

    def apply(self, logits: Vectors, activation: Activation | None = None) -> Vectors:
        """Scores of logits, by the model's ``activation`` unless another is given: (…, labels), the same shape."""
        return activate(logits, activation or self.activation)


@dataclass(frozen=True, slots=True)
class _Names:
    """One family's names of its last layers; of alternatives the first one present counts."""

    inner: tuple[str, ...]
    outer: str
    function: str
    function_field: str = ""  # of config.json, where it names the function
    norm: str = ""

    @property
    def tensors(self) -> list[str]:
        layers = [*self.inner, self.outer, *([self.norm] if self.norm else [])]
        return [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]


_ROBERTA = _Names(("classifier.dense",), "classifier.out_proj", "tanh")
_DEBERTA = _Names(("pooler.dense",), "classifier", "gelu", "pooler_hidden_act")
# Source: transformers, the family's modeling file, its ForSequenceClassification.
FAMILIES: Mapping[str, _Names] = {
    "albert": _Names(("albert.pooler", "pooler"), "classifier", "tanh"),
    "bert": _Names(("bert.pooler.dense", "pooler.dense"), "classifier", "tanh"),
    "camembert": _ROBERTA,
    "deberta": _DEBERTA,
    "deberta-v2": _DEBERTA,
    "distilbert": _Names(("pre_classifier",), "classifier", "relu"),
    "electra": _Names(("classifier.dense",), "classifier.out_proj", "gelu"),
    "modernbert": _Names(("head.dense",), "classifier", "gelu", "classifier_activation", "head.norm"),
    "mpnet": _ROBERTA,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}


def read_sequence_head(spec: ModelSpec) -> SequenceHead:
    """Read the layers and their labels from the folder of a ForSequenceClassification model.

    Raises: ModelUnavailable for another task, an unknown family, or tensors that do not fit the labels.
    """
    check_architecture(spec, _CLASS, "sequence classifier")
    names = FAMILIES.get(spec.shape.family)
    if names is None:
        raise ModelUnavailable(
            f"{spec.name}: sequence classifiers of the family {spec.shape.family!r} are not served; served are "
            f"{', '.join(FAMILIES)}"
        )
    tensors = read_tensors(spec, names.tensors)
    labels = _labels(spec)
    inner = next((name for name in names.inner if f"{name}.weight" in tensors), names.inner[0])
    return SequenceHead(
        pooling=_pooling(spec),
        inner=_linear(spec, tensors, inner, (spec.width, spec.width)),
        function=_function(spec, names),
        norm=_norm(spec, tensors, names.norm) if names.norm else None,
        epsilon=float(spec.config.get("norm_eps", 1e-5)),  # ModernBERT's; no other family has the norm
        outer=_linear(spec, tensors, names.outer, (len(labels), spec.width)),
        labels=labels,
        activation=_activation(spec.config, len(labels)),
        relevance=_relevance(spec, len(labels)),
    )


def _linear(spec: ModelSpec, tensors: Tensors, name: str, shape: tuple[int, int]) -> Linear:
    """ModernBERT's inner layer has no bias: zeros then."""
    weight = _tensor(spec, tensors, f"{name}.weight", shape)
    if f"{name}.bias" not in tensors:
        return Linear(weight, np.zeros(shape[0], np.float32))
    return Linear(weight, _tensor(spec, tensors, f"{name}.bias", shape[:1]))


def _norm(spec: ModelSpec, tensors: Tensors, name: str) -> Norm:
    gain = _tensor(spec, tensors, f"{name}.weight", (spec.width,))
    bias = f"{name}.bias"
    return Norm(gain, _tensor(spec, tensors, bias, (spec.width,)) if bias in tensors else np.zeros_like(gain))


def _tensor(spec: ModelSpec, tensors: Tensors, name: str, shape: tuple[int, ...]) -> Vectors:
    if name not in tensors:
        raise ModelUnavailable(f"{spec.name} has no {name} among its tensors; was it saved without its classifier?")
    if tensors[name].shape != shape:
        raise ModelUnavailable(
            f"{spec.name}: {name} has the shape {tensors[name].shape}, but the labels of config.json's id2label and "
            f"the width {spec.width} need {shape}"
        )
    return np.ascontiguousarray(tensors[name], np.float32)


def _labels(spec: ModelSpec) -> tuple[str, ...]:
    """Transformers does not write what it fills in by itself: two labels, and names LABEL_0, LABEL_1."""
    if spec.config.get("id2label") is None:
        return tuple(f"LABEL_{number}" for number in range(int(spec.config.get("num_labels") or _UNNAMED)))
    return named_labels(spec.config, spec.name)


def _pooling(spec: ModelSpec) -> Pooling:
    mode = str(spec.config.get("classifier_pooling", "cls")) if spec.shape.family == "modernbert" else "cls"
    if mode not in ("cls", "mean"):
        raise ModelUnavailable(f"{spec.name}: classifier_pooling {mode!r} is not served; served are cls and mean")
    return Pooling(mode)


def _function(spec: ModelSpec, names: _Names) -> str:
    function = str(spec.config.get(names.function_field, names.function))
    if function not in FUNCTIONS:
        raise ModelUnavailable(
            f"{spec.name}: {names.function_field} {function!r} is not served; served are {', '.join(FUNCTIONS)}"
        )
    return function


def _activation(config: Mapping[str, Any], labels: int) -> Activation:
    """Source: transformers, pipelines/text_classification.py, TextClassificationPipeline.postprocess."""
    if config.get("problem_type") == "regression":
        return Activation.IDENTITY
    if config.get("problem_type") == "multi_label_classification" or labels == 1:
        return Activation.SIGMOID
    return Activation.SOFTMAX


def _relevance(spec: ModelSpec, labels: int) -> Activation:
    """The activation named by the model's files, newest kind of file first, or by the number of labels.

    Source: sentence-transformers, cross_encoder/model.py, _parse_model_config and get_default_activation_fn.
    """
    older = spec.config.get("sentence_transformers")
    named = (
        _settings(spec.adapter or spec.folder).get("activation_fn")
        or (older.get("activation_fn") if isinstance(older, dict) else None)
        or spec.config.get("sbert_ce_default_activation_function")
    )
    if not str(named).startswith("torch."):  # none, or the model's own code, which sentence-transformers skips too
        return Activation.SIGMOID if labels == 1 else Activation.IDENTITY
    kind = str(named).rpartition(".")[2].lower()
    if kind not in set(Activation):
        raise ModelUnavailable(f"{spec.name}: activation_fn {named} is not served; served are {', '.join(Activation)}")
    return Activation(kind)


def _settings(folder: Path) -> Mapping[str, Any]:
    """sentence-transformers' settings; empty where there is no such file."""
    content = read_json(folder / "config_sentence_transformers.json", {})
    return content if isinstance(content, dict) else {}


def _normed(values: Vectors, norm: Norm, epsilon: float) -> Vectors:
    centred = values - values.mean(axis=1, keepdims=True)
    spread = np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + np.float32(epsilon))
    normed: Vectors = centred / spread * norm.gain + norm.bias
    return normed
