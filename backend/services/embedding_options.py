"""What a request for vectors may choose, and what it gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from backend.cache.store import CachedVector, VectorCache
from backend.models.encoder import Vectors
from backend.models.tokenizer import Truncate
from backend.services.catalog import LoadedModel
from backend.services.inference import Timing


# A named tuple: made for every request, at half the cost of a frozen dataclass.
class EmbedOptions(NamedTuple):
    """What a request may choose. ``None`` leaves the model's own way."""

    truncate: Truncate = "end"
    prompt_name: str | None = None
    normalize: bool | None = None
    dimensions: int | None = None


@dataclass(slots=True)
class Embedded:
    """The answer, in the order of the inputs."""

    rows: Sequence[CachedVector] = field(repr=False)  # never in a log or a task's name: asyncio prints results
    timing: Timing
    model: LoadedModel
    keys: Sequence[bytes] = field(
        default=(), repr=False
    )  # the rows' own in the cache; none where nothing is to be kept
    computed: Collection[bytes] = field(default=(), repr=False)  # keys that the cache did not have
    cache: VectorCache | None = field(default=None, repr=False)

    @property
    def cache_hits(self) -> int:
        """Inputs that were not computed for this request."""
        return len([key for key in self.keys if key not in self.computed])

    @property
    def vectors(self) -> Vectors:
        """(inputs, width) float32, C-contiguous; made anew at each call."""
        return np.array([row.vector for row in self.rows])

    @property
    def tokens(self) -> list[int]:
        """Tokens of each input, special tokens included."""
        return [row.tokens for row in self.rows]

    @property
    def truncated(self) -> list[bool]:
        """Which inputs were cut at the model's length."""
        return [row.truncated for row in self.rows]

    def written(self, index: int, form: str, write: Callable[[Vectors], bytes]) -> bytes:
        """One vector as bytes in a form such as "float": what the cache kept, else ``write``'s.

        The second time a text is asked for its written form is kept beside its vector: formatting 384 floats takes
        as long as finding them. A text asked for once is not worth the memory.
        """
        row = self.rows[index]
        fragment = row.fragment(form)
        if fragment is None:
            fragment = write(row.vector)
            if self.cache is not None and self.keys[index] not in self.computed:
                self.cache.keep_fragment(self.keys[index], form, fragment)
        return fragment
