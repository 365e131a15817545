"""Texts in, named entities out: windows to the lanes, labels of words back, places in the caller's own text."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol, TypeVar

import numpy as np

from backend.batching.batcher import Batcher
from backend.batching.job import Job, Priority
from backend.errors import InvalidField, NotFound, UnknownModel
from backend.ml.engine import Engine
from backend.ml.ner import TASK, decode
from backend.models.encoder import Vectors
from backend.models.token_head import Tag, read_tags, types_of
from backend.models.tokens import TextTokenizer
from backend.models.windows import Windows
from backend.services.embedded import Timing
from backend.telemetry import Telemetry

# As for embeddings: below this a hop to another thread and back costs more than the work.
_INLINE_CHARS = 4_000
_OVERLAP = 128  # tokens; each word then has 64 of context on its cut side, where the window has room for that
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Entity:
    """One name in a text; ``text`` is ``caller_text[start:end]``, in Unicode code points."""

    type: str  # as the model's labels have it: PER, ORG, LOC, …
    text: str
    start: int
    end: int
    score: float  # mean probability of its words' labels, 0 to 1


@dataclass(frozen=True, slots=True)
class FoundIn:
    """What one text holds."""

    entities: tuple[Entity, ...]  # in the order of the text; they never overlap
    coverage: float  # share of its characters, blanks aside, that the model could read
    tokens: int  # read for it: special tokens and the windows' overlaps included


@dataclass(frozen=True, slots=True)
class Found:
    """The answer, in the order of the texts."""

    rows: tuple[FoundIn, ...]
    model: str  # the served name
    timing: Timing

    @property
    def tokens(self) -> int:
        """Tokens of the whole request."""
        return sum(row.tokens for row in self.rows)


class EntityModel(Protocol):
    """What a loaded token classifier must show; ``catalog.LoadedModel`` with its labels does."""

    @property
    def name(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def tokenizer(self) -> TextTokenizer: ...

    @property
    def engine(self) -> Engine:
        """Gives probabilities (tokens, labels) a payload."""

    @property
    def labels(self) -> tuple[str, ...]:
        """In the order of the probabilities."""


class EntityModels(Protocol):
    """The part of the catalog that this service asks."""

    def ner(self) -> EntityModel | None:
        """The token classifier that serves now; None where none is loaded."""


class NoEntityModel(UnknownModel):
    """No token classifier is loaded, so no name would be known."""

    def __init__(self, name: str | None = None) -> None:
        NotFound.__init__(
            self,
            "model: no model for entities is loaded here; set NER_MODEL to a folder or a hub id of a token classifier "
            "(python -m backend.training ner makes one) and restart",
            param="model",
        )
        self.name, self.known = name or "", ()


class EntityService:
    """The use case behind ``/v1/entities``. Belongs to the loop's thread."""

    def __init__(self, models: EntityModels, batcher: Batcher, telemetry: Telemetry) -> None:
        self._models, self._batcher = models, batcher
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="entities")
        self._inputs = telemetry.inputs_total.labels(TASK)
        self._tokens = telemetry.tokens_total.labels(TASK)

    async def find(
        self,
        texts: Sequence[str],
        *,
        types: Collection[str] | None = None,
        min_score: float = 0.0,
        model: str | None = None,
        priority: Priority = Priority.INTERACTIVE,
        deadline_s: float = math.inf,
    ) -> Found:
        """The entities of each text, whatever its length; equal texts are read once.

        Args:
            types: the kinds to answer with; unset: all.
            min_score: the least score of an entity, 0 to 1.
            deadline_s: on the monotonic clock; work that would be late never reaches the device.

        Raises: UnknownModel, InvalidField, TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded,
            InferenceFailed for the service.
        """
        loaded = self._model(model)
        tags = _tags(loaded.labels)
        wanted = _wanted(types, tags)
        distinct = list(dict.fromkeys(texts))
        characters = sum(map(len, distinct))
        started = time.perf_counter()
        cut = await self._run(partial(_cut, loaded.tokenizer, distinct), characters)
        tokenize_s = time.perf_counter() - started
        jobs, probabilities = await self._infer(loaded.engine, cut, priority, deadline_s)
        read_all = partial(_read, distinct, cut, probabilities, tags=tags, wanted=wanted, min_score=min_score)
        read = await self._run(read_all, characters)
        by_text = dict(zip(distinct, read, strict=True))
        timing = Timing(0.0, tokenize_s, *(max(stage) for stage in zip((0.0, 0.0), *map(_stages, jobs), strict=True)))
        found = Found(tuple(by_text[text] for text in texts), loaded.name, timing)
        self._inputs.inc(len(found.rows))
        self._tokens.inc(found.tokens)
        return found

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _model(self, name: str | None) -> EntityModel:
        loaded = self._models.ner()
        if loaded is None:
            raise NoEntityModel(name)
        if name is not None and name not in loaded.names:
            raise UnknownModel(name, loaded.names)
        return loaded

    async def _infer(
        self, engine: Engine, cut: Sequence[Windows], priority: Priority, deadline_s: float
    ) -> tuple[list[Job], list[Vectors]]:
        """The jobs, and (tokens, labels) of every window of every text, one after the other."""
        ids = [window.ids for text in cut for window in text.windows]
        costs = [len(one) for one in ids]
        jobs = self._batcher.submit(engine, ids, costs, priority=priority, deadline_s=deadline_s)
        try:
            return jobs, [await job.future for job in jobs]
        finally:
            for job in jobs:
                job.abandon()

    async def _run(self, work: Callable[[], _Made], characters: int) -> _Made:
        """Here where it is short, on a thread where it would hold the loop."""
        if characters <= _INLINE_CHARS:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


@lru_cache(maxsize=16)
def _tags(labels: tuple[str, ...]) -> tuple[Tag, ...]:
    return read_tags(labels)


def _wanted(types: Collection[str] | None, tags: Sequence[Tag]) -> frozenset[str]:
    """The kinds to answer with. Raises: InvalidField for one that the model does not know."""
    known = types_of(tags)
    for name in types or ():
        if name not in known:
            raise InvalidField(
                f"types: {name!r} is not one of this model's entity types ({', '.join(known)})", param="types"
            )
    return frozenset(known if types is None else types)


def _cut(tokenizer: TextTokenizer, texts: Sequence[str]) -> list[Windows]:
    overlap = min(_OVERLAP, tokenizer.max_tokens // 4)
    return [tokenizer.windows(text, overlap) for text in texts]


def _read(
    texts: Sequence[str],
    cut: Sequence[Windows],
    probabilities: Sequence[Vectors],
    *,
    tags: Sequence[Tag],
    wanted: Collection[str],
    min_score: float,
) -> list[FoundIn]:
    rest = iter(probabilities)
    found = []
    for text, windows in zip(texts, cut, strict=True):
        entities = _entities(text, windows, [next(rest) for _ in windows.windows], tags)
        kept = tuple(one for one in entities if one.type in wanted and one.score >= min_score)
        found.append(FoundIn(kept, windows.coverage, windows.tokens))
    return found


def _entities(text: str, cut: Windows, probabilities: Sequence[Vectors], tags: Sequence[Tag]) -> list[Entity]:
    """The entities of one text.

    Each token is taken from the window that answers for it, and of each word's tokens the first, whose label decides.
    """
    if not cut.windows:
        return []
    own = [slice(window.own_start, window.own_stop) for window in cut.windows]
    words = np.concatenate([window.words[part] for window, part in zip(cut.windows, own, strict=True)])
    stops = np.concatenate([window.places[part, 1] for window, part in zip(cut.windows, own, strict=True)])
    scores = np.concatenate([rows[part] for rows, part in zip(probabilities, own, strict=True)])
    pieces = np.flatnonzero(words >= 0)  # a piece of blanks is of no word
    if not len(pieces):
        return []
    numbers, firsts = np.unique(words[pieces], return_index=True)
    starts = cut.words[numbers, 0]
    # A piece may reach over words that have none of their own, such as the second half of an ideogram's compound.
    ends = np.maximum(cut.words[numbers, 1], np.maximum.reduceat(stops[pieces], firsts))
    spans = decode(scores[pieces[firsts]], tags)
    opens = starts[[span.first for span in spans]].tolist()
    closes = ends[[span.last for span in spans]].tolist()
    return [
        _entity(span.type, text, start, end, span.score) for span, start, end in zip(spans, opens, closes, strict=True)
    ]


def _entity(kind: str, text: str, start: int, end: int, score: float) -> Entity:
    spelt = text[start:end].rstrip()
    return Entity(kind, spelt, start, start + len(spelt), score)


def _stages(job: Job) -> tuple[float, float]:
    return job.queue_s, job.inference_s
