"""An encoder's weights under one set of names, whatever the checkpoint calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import ModelUnavailable
from backend.models.checkpoint_tensors import read_table, read_tensors
from backend.models.spec import EncoderShape, ModelSpec, TokenTypes

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Linear:
    """Shapes: weight (out, in), bias (out)."""

    weight: Array
    bias: Array


@dataclass(frozen=True, slots=True)
class Norm:
    """Shapes: gain (width), bias (width)."""

    gain: Array
    bias: Array


@dataclass(frozen=True, slots=True)
class Layer:
    """One transformer block with post-normalisation, as in BERT."""

    qkv: Linear  # queries, keys and values, one under the other; queries already divided by sqrt(head width)
    attended: Linear
    attended_norm: Norm
    up: Linear
    down: Linear
    down_norm: Norm


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """Shapes: words (vocabulary, width), positions (positions, width), types (token types, width).

    ``words`` has the checkpoint's dtype and may be a view of its file: each batch takes its rows out of it.
    ``types`` is None for a model with one token type: its vector is then added to the positions.
    """

    words: NDArray[Any]
    positions: Array
    norm: Norm
    layers: tuple[Layer, ...]
    types: Array | None = None
    relative: Array | None = None  # MPNet's bias table (buckets, heads)


@dataclass(frozen=True, slots=True)
class _Names:
    """One family's names of tensors; ``{}`` is the layer's number."""

    prefixes: tuple[str, ...]
    query: str
    key: str
    value: str
    attended: str
    attended_norm: str
    up: str
    down: str
    down_norm: str


_BERT = _Names(
    ("", "bert.", "roberta.", "model."),
    "encoder.layer.{}.attention.self.query",
    "encoder.layer.{}.attention.self.key",
    "encoder.layer.{}.attention.self.value",
    "encoder.layer.{}.attention.output.dense",
    "encoder.layer.{}.attention.output.LayerNorm",
    "encoder.layer.{}.intermediate.dense",
    "encoder.layer.{}.output.dense",
    "encoder.layer.{}.output.LayerNorm",
)
_MPNET = _Names(
    ("", "mpnet."),
    "encoder.layer.{}.attention.attn.q",
    "encoder.layer.{}.attention.attn.k",
    "encoder.layer.{}.attention.attn.v",
    "encoder.layer.{}.attention.attn.o",
    "encoder.layer.{}.attention.LayerNorm",
    "encoder.layer.{}.intermediate.dense",
    "encoder.layer.{}.output.dense",
    "encoder.layer.{}.output.LayerNorm",
)
_DISTILBERT = _Names(
    ("", "distilbert."),
    "transformer.layer.{}.attention.q_lin",
    "transformer.layer.{}.attention.k_lin",
    "transformer.layer.{}.attention.v_lin",
    "transformer.layer.{}.attention.out_lin",
    "transformer.layer.{}.sa_layer_norm",
    "transformer.layer.{}.ffn.lin1",
    "transformer.layer.{}.ffn.lin2",
    "transformer.layer.{}.output_layer_norm",
)
FAMILIES: Mapping[str, _Names] = {
    "bert": _BERT, "roberta": _BERT, "xlm-roberta": _BERT, "camembert": _BERT, "mpnet": _MPNET,
    "distilbert": _DISTILBERT,
}  # fmt: skip
_WORDS = "embeddings.word_embeddings.weight"
_POSITIONS = "embeddings.position_embeddings.weight"
_TYPES = "embeddings.token_type_embeddings.weight"


def load_weights(spec: ModelSpec) -> EncoderWeights:
    """The encoder's part of the checkpoint as float32, but for the word table.

    Raises: ModelUnavailable for a family without a table here, or an absent tensor.
    """
    names = FAMILIES.get(spec.shape.family)
    if names is None:
        raise ModelUnavailable(f"no weight table for the family {spec.shape.family!r}; RUNTIME=torch serves it")
    word_names = [prefix + _WORDS for prefix in names.prefixes]
    words = read_table(spec, word_names)
    if words is None:
        raise ModelUnavailable(f"the checkpoint has no tensor {_WORDS}")
    tensors = read_tensors(spec, without=word_names)
    take = _reader(tensors, names.prefixes)
    types = take(_TYPES) if any(prefix + _TYPES in tensors for prefix in names.prefixes) else None
    typed = spec.token_types is not TokenTypes.NONE
    if typed and types is None:
        raise ModelUnavailable(f"{spec.name}: config.json promises token types, but the checkpoint has no {_TYPES}")
    positions = take(_POSITIONS)[spec.shape.position_offset :]
    return EncoderWeights(
        words=words,
        positions=positions if typed or types is None else positions + types[0],
        types=types if typed else None,
        norm=_norm(take, "embeddings.LayerNorm"),
        layers=tuple(_layer(take, names, index, spec.shape) for index in range(spec.shape.layers)),
        relative=take("encoder.relative_attention_bias.weight") if spec.shape.family == "mpnet" else None,
    )


_Take = Callable[[str], Array]


def _reader(tensors: Mapping[str, NDArray[np.generic]], prefixes: tuple[str, ...]) -> _Take:
    def take(name: str) -> Array:
        for prefix in prefixes:
            if prefix + name in tensors:
                return np.ascontiguousarray(tensors[prefix + name], dtype=np.float32)
        raise ModelUnavailable(f"the checkpoint has no tensor {name}")

    return take


def _layer(take: _Take, names: _Names, index: int, shape: EncoderShape) -> Layer:
    def linear(pattern: str) -> Linear:
        name = pattern.format(index)
        return Linear(take(f"{name}.weight"), take(f"{name}.bias"))

    scale = np.float32((shape.width // shape.heads) ** -0.5)
    query, key, value = linear(names.query), linear(names.key), linear(names.value)
    return Layer(
        qkv=Linear(
            np.concatenate([query.weight * scale, key.weight, value.weight]),
            np.concatenate([query.bias * scale, key.bias, value.bias]),
        ),
        attended=linear(names.attended),
        attended_norm=_norm(take, names.attended_norm.format(index)),
        up=linear(names.up),
        down=linear(names.down),
        down_norm=_norm(take, names.down_norm.format(index)),
    )


def _norm(take: _Take, name: str) -> Norm:
    return Norm(take(f"{name}.weight"), take(f"{name}.bias"))
