"""Records of the quality benchmark, and the task names that results and tables share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # the tables import this module and need no service
    from backend.bootstrap.services import Services

CLASSES = "classes"  # by bundled heads
TRAINED = "learnt-classes"  # by heads trained while the service runs
ZERO_SHOT = "zero-shot"  # by labels alone
ENTITIES = "names"
PATTERNS = "patterns"
RANKING = "ranking"
SIMILARITY = "likeness"
LANGUAGE = "language"
OWN_WORDS = "own-words"
SEARCH = "search"

_Example = TypeVar("_Example")
_QUICK_EXAMPLES = 60  # examples of a set in a quick run


class NotMeasured(Exception):
    """A data set or a model is missing; the message says which."""


@dataclass(frozen=True, slots=True)
class Row:
    """The score of one task on one data set."""

    task: str  # classes, names, patterns, ranking, …
    set: str  # name of the data set in tables
    language: str  # ISO 639-1, several with commas between
    measure: str
    score: float  # 0 to 1, higher is better
    examples: int  # texts, sentences, queries or pairs
    target: float | None = None  # for the bundled models
    model: str = ""  # name of the model that was evaluated
    parts: Mapping[str, float] = field(default_factory=dict)  # further metrics
    notes: str = ""  # scores by language, where the row has several

    @property
    def is_short(self) -> bool:
        """Whether the score is below its target."""
        return self.target is not None and self.score < self.target


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """The running service, and the folder of data sets."""

    services: Services
    data: Path
    is_quick: bool = False

    def file(self, *parts: str) -> Path:
        """A file of the data sets. Raises: NotMeasured when it does not exist."""
        file = self.data.joinpath(*parts)
        if not file.is_file():
            raise NotMeasured(f"{'/'.join(parts)} is not in the folder of sets")
        return file

    def some(self, examples: Sequence[_Example], at_most: int | None = None) -> list[_Example]:
        """At most ``at_most`` examples, evenly spaced over the data set; fewer in a quick run."""
        count = min([len(examples), *([at_most] if at_most else ()), *([_QUICK_EXAMPLES] if self.is_quick else ())])
        return [examples[index * len(examples) // count] for index in range(count)]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A measurement that can be selected by name."""

    name: str
    task: str  # selects all evaluations of the task
    run: Callable[[EvaluationContext], Awaitable[list[Row]]]  # raises NotMeasured
