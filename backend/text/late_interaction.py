"""Compares a query with documents token by token: each token of the query counts with the one nearest to it.

No training is needed where an encoder's vector is the mean of its token vectors: these then mean what the text around
them means. For the bundled encoder a layer was learnt that turns the query's towards what answers it
(`query_layer`). Source: Khattab and Zaharia 2020, "ColBERT"; the weights of tokens are not learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from backend.lanes.inference import Urgency, offload
from backend.models.calibration import Array, relevance_by_tokens, relevance_by_turned_tokens
from backend.models.encoder import Vectors, normalized
from backend.models.model_files import BUNDLED_ADAPTERS
from backend.models.numpy_layers import linear
from backend.models.spec import ModelSpec, Pooling
from backend.models.tokenizer import InputName, numbered_input
from backend.models.weights import Linear
from backend.serving.catalog import LoadedModel
from backend.text.embeddings import EmbeddingService, EmbedOptions, TokenVectorsResult

# Vocabularies are in the order of frequency, so the logarithm of an id is what its token tells, but for a constant:
# of XLM-R's the first twenty are marks. Over equal weights it gives .015 of MRR@10 in TAT-QA, .004 in XQuAD.
_MARKS = 20
_MIN_WEIGHT = 0.3
LEARNT_LAYER = BUNDLED_ADAPTERS / "token-ranker" / "query.safetensors"
_LONGEST_TOKENS = 1_024  # of a text that the model reads; a score of longer ones would be over MAX_TOKEN_VECTORS


@dataclass(frozen=True, slots=True)
class OwnTokens:
    """A text's tokens without special ones and without the prompt's. Shapes: ids (tokens), vectors (tokens, width)."""

    ids: NDArray[np.int64]
    vectors: Vectors  # of length 1


def has_token_meanings(model: LoadedModel) -> bool:
    """Whether a model's token vectors can be compared: they make its vectors, know their text, and are few."""
    spec = model.spec
    return spec.pooling is Pooling.MEAN and not spec.is_static and spec.max_tokens <= _LONGEST_TOKENS


async def read_tokens(
    embeddings: EmbeddingService,
    model: LoadedModel,
    texts: Sequence[str],
    options: EmbedOptions,
    urgency: Urgency,
    *,
    named: InputName = numbered_input,
) -> tuple[list[OwnTokens], TokenVectorsResult]:
    """The tokens of each text, and how they were read. Raises: as ``EmbeddingService.token_vectors_with_model``."""
    read = await embeddings.token_vectors_with_model(model, texts, options, urgency, named=named)
    before, after = map(len, model.tokenizer.special_pieces())
    prompt = embeddings.prompt(model, options).rstrip()
    if prompt:
        before = len(model.tokenizer.encode([prompt])[0].ids) - after
    rows = list(zip(read.ids, read.rows, strict=True))

    def own() -> list[OwnTokens]:
        return [_own(ids, vectors, before, after) for ids, vectors in rows]

    return await offload(own, sum(vectors.size for vectors in read.rows)), read


def asking(query: OwnTokens, model: LoadedModel) -> OwnTokens:
    """The query's tokens turned towards what answers them (of any length), where that was learnt; else as they are."""
    layer = query_layer(model.spec)
    return query if layer is None else replace(query, vectors=linear(query.vectors, layer))


def token_cosines(query: OwnTokens, documents: Sequence[OwnTokens]) -> Vectors:
    """The weighted mean, over the query's tokens, of the cosine with the document's nearest one. Shape: (documents)."""
    weights = weights_of(query.ids)
    nearest = [(query.vectors @ document.vectors.T).max(axis=1) for document in documents]
    return np.array([cosines @ weights for cosines in nearest], np.float32)


def relevance_of(scores: Vectors, unrelated: float, model: LoadedModel) -> Array:
    """How likely each document answers, 0 to 1, by its score and that of unrelated texts."""
    calibrated = relevance_by_tokens if query_layer(model.spec) is None else relevance_by_turned_tokens
    return calibrated(scores, unrelated)


def weights_of(ids: NDArray[np.int64]) -> Vectors:
    """How much each token of a query counts, float32; their sum is 1."""
    weights: Vectors = np.maximum(np.log(np.maximum(ids, 1) / _MARKS), _MIN_WEIGHT).astype(np.float32)
    weights /= weights.sum()
    return weights


def _own(ids: NDArray[np.int64], vectors: Vectors, before: int, after: int) -> OwnTokens:
    """Of a text without any token of its own, all."""
    own = slice(before, len(ids) - after) if len(ids) > before + after else slice(None)
    return OwnTokens(ids[own], normalized(vectors[own]))


def query_layer(spec: ModelSpec) -> Linear | None:
    """The layer that turns a query's tokens, for this encoder; None for any but the one it was learnt on.

    Shapes: weight (width, width).
    """
    encoder_sha256, layer = _learnt_layer()
    return layer if spec.sha256 == encoder_sha256 and spec.adapter is None else None


@cache
def _learnt_layer() -> tuple[str, Linear]:
    with safe_open(LEARNT_LAYER, framework="numpy") as tensors:
        weight, bias = (tensors.get_tensor(name).astype(np.float32) for name in ("weight", "bias"))
        return tensors.metadata()["encoder_sha256"], Linear(weight, bias)
