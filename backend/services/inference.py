"""The one request loop behind every task: cache, then tokenizer, then lanes, and equal inputs computed once."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from backend.batching.batcher import Batcher
from backend.batching.work_item import Priority
from backend.cache.store import CachedVector, VectorCache
from backend.engines.engine import Engine
from backend.errors import DeadlineExceeded
from backend.models.encoder import Vectors
from backend.models.tokenizer import Tokens
from backend.services.coalescing import Flight, Flights
from backend.telemetry import Telemetry

# Below this the tokenizer is faster than a hop to another thread and back (30 us a sentence, about 90 us the hop).
_INLINE_CHARS = 4_000
_PART = 2048  # inputs: as many as a request may have, so that a part holds the loop no longer than one
_INLINE_NUMBERS = 20_000  # of a table: about a millisecond's work
_Made = TypeVar("_Made")


class Timing(NamedTuple):
    """Seconds a request spent in each stage; of jobs run apart, the longest."""

    cache_s: float = 0.0
    tokenize_s: float = 0.0
    queue_s: float = 0.0
    inference_s: float = 0.0

    def then(self, later: Timing) -> Timing:
        """Of two parts of a request, one after the other."""
        return Timing(*(mine + theirs for mine, theirs in zip(self, later, strict=True)))


class Urgency(NamedTuple):
    """How soon a request wants its answer."""

    priority: Priority = Priority.INTERACTIVE
    deadline_s: float = math.inf  # on the monotonic clock; work that would be late never reaches the device


class Usage:
    """What a task's callers sent, for the metrics: as usage tells it them, cached and equal ones included."""

    def __init__(self, telemetry: Telemetry, task: str) -> None:
        self._inputs, self._tokens = telemetry.inputs_total.labels(task), telemetry.tokens_total.labels(task)
        self._truncated = telemetry.truncated_total

    def count(self, inputs: int, tokens: int, truncated: int = 0) -> None:
        """One request more."""
        self._inputs.inc(inputs)
        self._tokens.inc(tokens)
        if truncated:
            self._truncated.inc(truncated)


class Recipe(Protocol):
    """A task on one loaded model: how its inputs get keys, tokens and values."""

    @property
    def engine(self) -> Engine: ...

    @property
    def keeps(self) -> bool:
        """Whether the cache is asked and given; not for what is larger than it is worth."""

    def key(self, one: Any) -> bytes:
        """The cache key of an input. Raises: what is wrong with it."""

    def characters(self, one: Any) -> int:
        """Characters to tokenise; 0 for an input that comes as ids."""

    def encode(self, inputs: Sequence[Any], places: Sequence[int]) -> list[Tokens]:
        """Their tokens; ``places`` in the request, for messages. May run on a thread."""

    def finish(self, rows: Sequence[Vectors]) -> Sequence[Vectors]:
        """What is kept and answered of the engine's results: (n) float32 each."""


async def calculate(work: Callable[[], _Made], numbers: int) -> _Made:
    """Arithmetic on so many numbers: here where it is short, on a thread where it would hold the loop."""
    return work() if numbers <= _INLINE_NUMBERS else await asyncio.to_thread(work)


@dataclass(slots=True)
class Inferred:
    """The answer, in the order of the inputs."""

    rows: Sequence[CachedVector] = field(repr=False)  # never in a log or a task's name: asyncio prints results
    timing: Timing
    keys: Sequence[bytes] = field(default=(), repr=False)
    computed: frozenset[bytes] = field(default=frozenset(), repr=False)  # keys that the cache did not have


@dataclass(slots=True)
class _Work:
    """One request's distinct inputs by key; done when every key has a value."""

    recipe: Recipe
    keys: list[bytes]  # of every input, in order
    inputs: dict[bytes, Any]  # distinct ones
    urgency: Urgency
    values: dict[bytes, CachedVector]  # those found or computed so far
    first: int  # where the inputs begin in the request

    def missing(self) -> list[bytes]:
        return [key for key in self.inputs if key not in self.values]

    def places(self, keys: list[bytes]) -> list[int]:
        """Where in the request each of ``keys`` stands first, for messages about it."""
        if len(keys) == len(self.keys):
            return list(range(self.first, self.first + len(keys)))
        firsts = {key: index for index, key in reversed(list(enumerate(self.keys, self.first)))}
        return [firsts[key] for key in keys]


class Inference:
    """Inputs of any task in, values out. Belongs to the loop's thread."""

    def __init__(self, batcher: Batcher, cache: VectorCache, telemetry: Telemetry) -> None:
        self._batcher, self._cache = batcher, cache
        self._flights = Flights(telemetry)
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokenize")

    async def run(self, recipe: Recipe, inputs: Sequence[Any], urgency: Urgency, *, first: int = 0) -> Inferred:
        """One value an input; equal inputs, in this request and in others under way, are computed once.

        They are admitted all or none.

        Args:
            first: where the inputs begin in their request, for messages.

        Raises: what the recipe finds wrong with an input; Overloaded, Unavailable, DeadlineExceeded, InferenceFailed.
        """
        started = time.perf_counter()
        keys = [recipe.key(one) for one in inputs]
        found = self._cache.lookup_local(keys) if recipe.keeps else [None] * len(keys)
        rows = [row for row in found if row is not None]
        cache_s = time.perf_counter() - started
        if len(rows) == len(keys):  # nothing to wait for
            return Inferred(rows, Timing(cache_s), keys)
        hits = {key: row for key, row in zip(keys, found, strict=True) if row is not None}
        work = _Work(recipe, keys, dict(zip(keys, inputs, strict=True)), urgency, hits, first)
        return await self._work(work, started)

    async def run_in_parts(self, recipe: Recipe, inputs: Sequence[Any], urgency: Urgency) -> Inferred:
        """The same for more inputs than a request may have: a part after the other, each admitted by itself."""
        rows, keys, computed, timing = list[CachedVector](), list[bytes](), set[bytes](), Timing()
        for first in range(0, len(inputs), _PART):
            part = await self.run(recipe, inputs[first : first + _PART], urgency, first=first)
            rows += part.rows
            keys += part.keys
            computed |= part.computed
            timing = timing.then(part.timing)
        return Inferred(rows, timing, keys, frozenset(computed))

    async def off_loop(self, work: Callable[[], _Made], characters: int) -> _Made:
        """Work on so many characters: here where it is short, on a thread where it would hold the loop."""
        if characters <= _INLINE_CHARS:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _work(self, work: _Work, started: float) -> Inferred:
        if work.recipe.keeps:
            missing = work.missing()
            fetched = await self._cache.lookup(missing)
            work.values |= {key: row for key, row in zip(missing, fetched, strict=True) if row is not None}
        timing = Timing(time.perf_counter() - started)
        missing = work.missing()
        if missing:
            timing = await self._compute(work, missing, timing)
        rows = [work.values[key] for key in work.keys]
        return Inferred(rows, timing, work.keys, frozenset(missing))

    async def _compute(self, work: _Work, keys: list[bytes], timing: Timing) -> Timing:
        started = time.perf_counter()
        tokens = await self._tokenize(work, keys)
        tokenize_s = time.perf_counter() - started
        flights = self._board(work, keys, tokens)
        try:
            results = [await flight.landing() for flight in flights]
        except DeadlineExceeded:
            if all(flight.job.deadline_s >= work.urgency.deadline_s for flight in flights):
                raise
            return await self._compute(work, keys, timing)  # it was the deadline of a caller whose job we shared
        finally:
            self._flights.leave(flights)
        self._keep(work, keys, tokens, work.recipe.finish(results))
        queue_s, inference_s = (max(stage) for stage in zip(*(flight.stages() for flight in flights), strict=True))
        return Timing(timing.cache_s, tokenize_s, queue_s, inference_s)

    async def _tokenize(self, work: _Work, keys: list[bytes]) -> list[Tokens]:
        recipe, inputs = work.recipe, [work.inputs[key] for key in keys]
        encode = partial(recipe.encode, inputs, work.places(keys))
        return await self.off_loop(encode, sum(map(recipe.characters, inputs)))

    def _board(self, work: _Work, keys: list[bytes], tokens: list[Tokens]) -> list[Flight]:
        priority, deadline_s = work.urgency
        submit = partial(self._batcher.submit, work.recipe.engine, priority=priority, deadline_s=deadline_s)
        flights = self._flights.board(keys, tokens, submit)
        for flight in flights:
            self._batcher.promote(flight.job, priority)
        return flights

    def _keep(self, work: _Work, keys: list[bytes], tokens: list[Tokens], results: Sequence[Vectors]) -> None:
        rows = zip(results, tokens, strict=True)
        values = [CachedVector(vector, len(one.ids), one.truncated) for vector, one in rows]
        work.values.update(zip(keys, values, strict=True))
        if work.recipe.keeps:
            self._cache.store(keys, values)
