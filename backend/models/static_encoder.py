"""An encoder that is a table: a text's vector is the weighted mean of its tokens' rows, as model2vec publishes them.

The file has ``embeddings`` (rows, width) in float32, float16 or int8; it may have ``weights`` (tokens), what each token
counts, and ``mapping`` (tokens), the row of each token where tokens share rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backend.errors import ModelUnavailable
from backend.models.checkpoint_tensors import read_table, read_tensors
from backend.models.encoder import Ids, TokenBatch, Vectors, pack_rows, pool
from backend.models.spec import STATIC_MAPPING, STATIC_TABLE, ModelSpec, Pooling, read_json

WEIGHTS = "weights"
# What a special or unknown token counts: nothing beside a token of the text, as in model2vec, and yet a text of unknown
# tokens alone has a direction and not the vector of zeros, of which no cosine can be computed.
_SPECIAL_SHARE = 1e-6


class StaticEncoder:
    """The table, mapped from its file where that never changes. No layers: every device and arithmetic is numpy."""

    runtime, dtype = "static", "fp32"
    padding_cost = 0.0

    def __init__(self, spec: ModelSpec) -> None:
        """Raises: ModelUnavailable for a file without a table, or with one that does not fit the tokenizer."""
        table = read_table(spec, [STATIC_TABLE])
        tensors = read_tensors(spec, [WEIGHTS, STATIC_MAPPING])
        if table is None:
            raise ModelUnavailable(f"{spec.name} has no tensor {STATIC_TABLE}; is it a model of model2vec?")
        tokens = spec.shape.vocabulary_size
        self._table = table
        self._rows = tensors.get(STATIC_MAPPING, np.arange(tokens)).astype(np.int64)
        self._weights = tensors.get(WEIGHTS, np.ones(tokens)).astype(np.float32)
        if self._weights.shape != (tokens,) or self._rows.max(initial=0) >= len(table):
            raise ModelUnavailable(f"{spec.name}: its {WEIGHTS} or {STATIC_MAPPING} do not fit its {STATIC_TABLE}")
        self._weights[_special_tokens(spec, tokens)] *= _SPECIAL_SHARE

    def prepare(self, ids: Sequence[Ids]) -> TokenBatch:
        return pack_rows(ids, lambda tokens: tokens)

    def forward(self, batch: TokenBatch) -> Vectors:
        """Each token's row times its weight: (tokens, width)."""
        weighted: Vectors = np.multiply(
            self._table[self._rows[batch.ids]], self._weights[batch.ids, None], dtype=np.float32
        )
        return weighted

    def hidden(self, output: Vectors, batch: TokenBatch) -> Vectors:  # noqa: ARG002 - there are no rows of padding
        return output

    def pooled(self, output: Vectors, batch: TokenBatch, pooling: Pooling) -> Vectors:
        return pool(output, batch, pooling)


def _special_tokens(spec: ModelSpec, tokens: int) -> list[int]:
    tokenizer = read_json(spec.folder / "tokenizer.json", {})
    model = tokenizer.get("model", {})
    unknown = model["unk_id"] if "unk_id" in model else model.get("vocab", {}).get(model.get("unk_token"))
    special = [token["id"] for token in tokenizer.get("added_tokens", []) if token["special"]]
    return sorted(number for number in {*special, unknown} if number is not None and number < tokens)
