"""One text to write from another, as a sequence-to-sequence model takes it. Imports no runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from backend.errors import FinanciaError
from backend.models.encoder import Ids


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """What to read, and how much to write."""

    ids: Ids  # (tokens), the source's, special ones included
    max_tokens: int
    min_tokens: int = 0
    beams: int = 1  # 1: greedy
    is_wanted: Callable[[], bool] = lambda: True  # asked on the lane at every token; False ends it

    @property
    def cost(self) -> int:
        """Tokens that it reads and may write, as the queue counts them."""
        return len(self.ids) + self.max_tokens * self.beams


class Generator(Protocol):
    """A model that writes. Safe to call from several lanes at once."""

    @property
    def padding_cost(self) -> float:
        """Time of a padded token as a share of a real one's."""

    def generate(self, tasks: Sequence[Generation]) -> list[Ids | FinanciaError]:
        """What it writes for each task, in their order: token ids without the end token."""
