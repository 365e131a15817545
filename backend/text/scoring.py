"""Logits of sequence classifiers for texts or pairs of texts: classifiers, NLI models and cross-encoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from backend.lanes.cache.keys import CacheNamespace
from backend.lanes.engine import Engine
from backend.lanes.inference import Inference, Timing, Urgency
from backend.models.encoder import Vectors
from backend.models.pairs import Cut, PairTokenizer
from backend.models.tokenizer import Tokens, Truncate
from backend.serving.catalog import LoadedModel

TextOrPair = str | tuple[str, str]


@dataclass(frozen=True, slots=True)
class Logits:
    """Logits (inputs, labels) float32 in the order of the inputs."""

    values: Vectors
    tokens: tuple[int, ...]
    truncated: tuple[bool, ...]
    timing: Timing


@dataclass(frozen=True, slots=True)
class _ScoringPipeline:
    """A sequence classifier on texts, or on pairs; an inference.Pipeline."""

    model: LoadedModel
    cut: Cut  # which text of a pair is truncated
    truncate: Truncate  # which end of a single text is truncated
    param: str
    namespace: CacheNamespace
    uses_cache: bool = True
    digests: dict[str, str] = field(default_factory=dict)  # by first text, which occurs in many pairs
    first_ids: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # the same; slices come one after the other

    @property
    def engine(self) -> Engine:
        return self.model.engine

    def key(self, text: TextOrPair) -> bytes:
        if isinstance(text, str):
            return self.namespace.key("text", f"text:{text}")
        first, second = text
        if (digest := self.digests.get(first)) is None:
            digest = self.digests[first] = self.namespace.key("text", f"first:{first}").hex()
        return self.namespace.key("text", f"pair:{digest}:{second}")

    def characters(self, text: TextOrPair) -> int:
        return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])

    def tokenize(self, inputs: Sequence[TextOrPair], indices: Sequence[int]) -> list[Tokens]:
        singles = [(index, text) for index, text in zip(indices, inputs, strict=True) if isinstance(text, str)]
        paired = [(index, pair) for index, pair in zip(indices, inputs, strict=True) if not isinstance(pair, str)]
        tokens: dict[int, Tokens] = {}
        if singles:
            at, texts = zip(*singles, strict=True)
            tokens |= zip(at, self.model.tokenizer.encode(texts, self.truncate, indices=at), strict=True)
        if paired:
            at, pairs = zip(*paired, strict=True)
            tokenizer = PairTokenizer(self.model.tokenizer, self.model.spec.token_types)  # 60 us
            encoded = tokenizer.encode(pairs, self.cut, indices=at, param=self.param, known=self.first_ids)
            tokens |= zip(at, encoded, strict=True)
        return [tokens[index] for index in indices]

    def postprocess(self, rows: Sequence[Vectors]) -> Sequence[Vectors]:
        return rows


class ScoringService:
    """Computes logits with a loaded sequence classifier. Belongs to the loop's thread."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    async def logits(
        self,
        model: LoadedModel,
        inputs: Sequence[TextOrPair],
        urgency: Urgency,
        *,
        cut: Cut = "longest",
        truncate: Truncate = "end",
        param: str = "input",
    ) -> Logits:
        """The model's logits of each input.

        Args:
            inputs: at least one.
            cut: which text of a pair is truncated where both do not fit; "none" refuses.
            truncate: which end of a single text is truncated.
            param: the request's field, for messages.

        Raises: TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded, InferenceFailed for the service.
        """
        pipeline = _ScoringPipeline(model, cut, truncate, param, model.namespace(model.task, cut, truncate))
        result = await self._inference.run_in_chunks(pipeline, inputs, urgency)  # texts times labels may be many
        rows = result.rows
        return Logits(
            np.concatenate([row.vector for row in rows]).reshape(len(rows), -1),
            tuple(row.tokens for row in rows),
            tuple(row.truncated for row in rows),
            result.timing,
        )
