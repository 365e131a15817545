"""Texts and pairs of texts in, logits out: what classifiers, NLI models and cross-encoders are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from backend.cache.keys import CacheNamespace
from backend.engines.engine import Engine
from backend.models.encoder import Vectors
from backend.models.pairs import Cut, PairTokenizer
from backend.models.tokenizer import Tokens, Truncate
from backend.services.catalog import LoadedModel
from backend.services.inference import Inference, Timing, Urgency

Scorable = str | tuple[str, str]


@dataclass(frozen=True, slots=True)
class Scored:
    """Logits (inputs, labels) float32 in the order of the inputs, and how each was read."""

    logits: Vectors
    tokens: tuple[int, ...]
    truncated: tuple[bool, ...]
    timing: Timing


@dataclass(frozen=True, slots=True)
class _Recipe:
    """A sequence classifier on texts, or on pairs; inference.Recipe."""

    model: LoadedModel
    cut: Cut  # which text of a pair loses its end
    truncate: Truncate  # which end a text alone loses
    param: str
    namespace: CacheNamespace
    keeps: bool = True
    digests: dict[str, str] = field(default_factory=dict)  # of the first texts: one is in many pairs

    @property
    def engine(self) -> Engine:
        return self.model.engine

    def key(self, one: Scorable) -> bytes:
        if isinstance(one, str):
            return self.namespace.key("text", f"text:{one}")
        first, second = one
        if (digest := self.digests.get(first)) is None:
            digest = self.digests[first] = self.namespace.key("text", f"first:{first}").hex()
        return self.namespace.key("text", f"pair:{digest}:{second}")

    def characters(self, one: Scorable) -> int:
        return len(one) if isinstance(one, str) else len(one[0]) + len(one[1])

    def encode(self, inputs: Sequence[Scorable], places: Sequence[int]) -> list[Tokens]:
        alone = [(place, one) for place, one in zip(places, inputs, strict=True) if isinstance(one, str)]
        paired = [(place, one) for place, one in zip(places, inputs, strict=True) if not isinstance(one, str)]
        made: dict[int, Tokens] = {}
        if alone:
            at, texts = zip(*alone, strict=True)
            made |= zip(at, self.model.tokenizer.encode(texts, self.truncate, places=at), strict=True)
        if paired:
            at, both = zip(*paired, strict=True)
            pairs = PairTokenizer(self.model.tokenizer, self.model.spec.token_types)  # 60 us
            made |= zip(at, pairs.encode(both, self.cut, places=at, param=self.param), strict=True)
        return [made[place] for place in places]

    def finish(self, rows: Sequence[Vectors]) -> Sequence[Vectors]:
        return rows


class ScoringService:
    """One request of logits to a loaded sequence classifier. Belongs to the loop's thread."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    async def logits(
        self,
        model: LoadedModel,
        inputs: Sequence[Scorable],
        urgency: Urgency,
        *,
        cut: Cut = "longest",
        truncate: Truncate = "end",
        param: str = "input",
    ) -> Scored:
        """The model's logits of each input.

        Args:
            inputs: at least one.
            cut: which text of a pair loses its end where both do not fit; "none" refuses.
            truncate: the same of a text alone.
            param: the request's field, for messages.

        Raises: TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded, InferenceFailed for the service.
        """
        recipe = _Recipe(model, cut, truncate, param, model.namespace(model.task, cut, truncate))
        inferred = await self._inference.run_in_parts(recipe, inputs, urgency)  # texts times labels may be many
        rows = inferred.rows
        return Scored(
            np.concatenate([row.vector for row in rows]).reshape(len(rows), -1),
            tuple(row.tokens for row in rows),
            tuple(row.truncated for row in rows),
            inferred.timing,
        )
