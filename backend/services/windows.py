"""Windows of texts through the request loop: cut and tokenised already, they need a key and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.cache.keys import CacheNamespace
from backend.engines.engine import Engine
from backend.models.encoder import Vectors
from backend.models.tokenizer import Tokens
from backend.models.windows import Window


@dataclass(frozen=True, slots=True)
class WindowRecipe:
    """What an engine makes of windows, a row of numbers each; inference.Recipe."""

    engine: Engine
    namespace: CacheNamespace
    keeps: bool = True  # not where a window's numbers take more memory than they save time

    def key(self, one: Window) -> bytes:
        return self.namespace.key("ids", one.payload.ravel().tolist())

    def characters(self, one: Window) -> int:  # noqa: ARG002 - the protocol's argument; a window is tokenised already
        return 0

    def encode(self, inputs: Sequence[Window], places: Sequence[int]) -> list[Tokens]:  # noqa: ARG002 - the same
        return [Tokens(one.ids, truncated=False, types=one.types) for one in inputs]

    def finish(self, rows: Sequence[Vectors]) -> list[Vectors]:
        return [row.ravel() for row in rows]
