"""What a judgement needs, and what it says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from backend.bootstrap.services import Services

_One = TypeVar("_One")
_QUICK = 60  # examples of a set in a quick run


class Unmeasured(Exception):
    """A set that is not here, or a model that cannot be asked; the message says which."""


@dataclass(frozen=True, slots=True)
class Row:
    """How good the answers on one set are."""

    task: str  # what was asked for: classes, names, patterns, ranking, …
    set: str  # as tables show it
    language: str  # ISO 639-1, several with commas between
    measure: str
    score: float  # 0 to 1, higher is better
    examples: int  # texts, sentences, queries or pairs
    target: float | None = None  # what the bundled models are to reach
    model: str = ""  # what answered
    parts: Mapping[str, float] = field(default_factory=dict)  # what else these answers show
    notes: str = ""  # by language, where the row has several

    @property
    def is_short(self) -> bool:
        """Whether it misses its target."""
        return self.target is not None and self.score < self.target


@dataclass(frozen=True, slots=True)
class Bench:
    """The running service, and the sets."""

    services: Services
    data: Path
    is_quick: bool = False

    def file(self, *parts: str) -> Path:
        """A file of the sets. Raises: Unmeasured when it is not here."""
        found = self.data.joinpath(*parts)
        if not found.is_file():
            raise Unmeasured(f"{'/'.join(parts)} is not in the folder of sets")
        return found

    def some(self, examples: Sequence[_One], at_most: int | None = None) -> list[_One]:
        """All examples, or so many of them, evenly from all over the set; a quick run takes few."""
        count = min([len(examples), *([at_most] if at_most else ()), *([_QUICK] if self.is_quick else ())])
        return [examples[index * len(examples) // count] for index in range(count)]


@dataclass(frozen=True, slots=True)
class Judge:
    """One measurement that can be asked for by name."""

    name: str
    task: str  # may be asked for too: all judges of it
    run: Callable[[Bench], Awaitable[list[Row]]]  # raises Unmeasured
