"""The one path every task's inputs take: cache, tokenizer, lanes. Equal inputs in flight are computed once.

Background work tries again what may succeed later; a request fails at once, as its caller can ask elsewhere.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from backend.errors import DeadlineExceeded, FinanciaError, InferenceFailed, Unavailable
from backend.lanes.batcher import record_items
from backend.lanes.cache.store import CachedVector, CacheNamespace, VectorCache
from backend.lanes.engine import Engine
from backend.lanes.loop_turns import LARGE_INPUTS, loop_turn
from backend.lanes.text_work import TextWork, TokenBudget
from backend.lanes.work_queue import Priority, WorkItem, owner_of_work, portions
from backend.models.encoder import Payload, Vectors
from backend.models.tokenizer import Tokens, Window
from backend.retry import Backoff
from backend.telemetry import Telemetry
from backend.tracing.spans import record_last, sampled, span

Result = TypeVar("Result")
_WAIT = Backoff(0.25, 10.0)  # a queue has room again long before it is empty, which is what Retry-After tells
_STARVED_TRIES = 5  # each takes three times LIMIT_PAGE_S; a file that hangs its reader does so each time
_LANE_DEATHS = 2  # under one input: one may be somebody else's, a third in a row would end the lane for good
CHUNK_INPUTS = 2048  # as many as a request may have, so that a chunk blocks the loop no longer than a request
_INLINE_NUMBERS = 20_000  # array elements: about a millisecond of arithmetic
Submit = Callable[[Sequence[Payload], Sequence[int]], list[WorkItem]]


class Submitter(Protocol):
    """What takes work items: a `Batcher`, or in an HTTP worker the way to another process's. On the loop's thread."""

    @property
    def limit_tokens(self) -> int:
        """LIMIT_QUEUE_TOKENS: more of them are never admitted together."""

    @property
    def bulk_tokens(self) -> int:
        """How many tokens bulk work should submit at once, so that it fits beside what already waits."""

    def submit(
        self,
        engine: Engine,
        payloads: Sequence[Any],
        costs: Sequence[int],
        *,
        priority: Priority = ...,
        deadline_s: float = ...,
    ) -> list[WorkItem]:
        """Queue one work item per payload, all of them or none, and return at once.

        What `Batcher.submit` raises is raised here, or ends the items' futures.
        """

    def promote(self, items: Sequence[WorkItem], priority: Priority) -> None:
        """Raise queued items to the priority of a caller that has joined them."""


class Timing(NamedTuple):
    """Seconds a request spent in each stage; of items that ran concurrently, the longest."""

    cache_s: float = 0.0
    tokenize_s: float = 0.0
    queue_s: float = 0.0
    inference_s: float = 0.0

    def then(self, later: Timing) -> Timing:
        """The sum of two sequential parts of a request."""
        return Timing(*(first + second for first, second in zip(self, later, strict=True)))


class Urgency(NamedTuple):
    """Priority and deadline of a request."""

    priority: Priority = Priority.INTERACTIVE
    deadline_s: float = math.inf  # on the monotonic clock; work that would be late never reaches the device

    @property
    def worker_deadline_s(self) -> float | None:
        """The deadline as worker processes take it; None: no deadline."""
        return None if math.isinf(self.deadline_s) else self.deadline_s


async def retry_bulk(
    urgency: Urgency,
    attempt: Callable[[], Awaitable[Result]],
    *,
    also: tuple[type[FinanciaError], ...] = (),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
    jitter: Callable[[], float] = random.random,
) -> Result:
    """The result of ``attempt``; of bulk work what fails for now is tried again until the deadline.

    Waits as long as the error's ``retry_after_s``, longer with every try, and a random part less so that the pages of
    many jobs do not come back at once.

    Args:
        also: errors that other work waits for too: a part of something large, of which the rest is done.

    Raises: what ``attempt`` raises, for other priorities (but ``also``), for errors that waiting does not cure, and the
        fifth time for want of a core; InferenceFailed when lanes died under the input; DeadlineExceeded.
    """
    (priority, deadline_s), tries, kinds = urgency, 0, Counter[str]()
    while True:
        try:
            return await attempt()
        except FinanciaError as error:
            if not (priority is Priority.BULK or isinstance(error, also)) or not _may_pass(error):
                raise
            if isinstance(error, Unavailable):
                kinds[error.kind] += 1
                if kinds["lane_died"] >= _LANE_DEATHS:
                    raise InferenceFailed(
                        f"the lane that ran this input died {_LANE_DEATHS} times; it is not tried again, as the input "
                        "itself may be the cause. Tell the operator, whose log has the reason"
                    ) from error
                if kinds["starved"] >= _STARVED_TRIES:
                    raise
            left_s = deadline_s - clock()
            if left_s <= 0:
                raise DeadlineExceeded(0.0, f"its time was over while it waited, at last for this: {error}") from error
            tries += 1
            wait_s = min(left_s, _wait_s(error, tries) * (1 - jitter() / 2))
        await sleep(wait_s)


def _may_pass(error: FinanciaError) -> bool:
    """Whether the same work may succeed in this process before its deadline."""
    if isinstance(error, DeadlineExceeded) or (isinstance(error, Unavailable) and error.kind == "for_good"):
        return False
    return error.retryable


def _wait_s(error: FinanciaError, tries: int) -> float:
    return min(max(_WAIT.wait_s(tries), error.retry_after_s or 0.0), _WAIT.most_s)


async def run_one(
    lanes: Submitter,
    engine: Engine,
    payload: Any,
    cost: int,
    urgency: Urgency,
    *,
    also: tuple[type[FinanciaError], ...] = (),
    ended: Callable[[WorkItem], None] = lambda _: None,
) -> Any:
    """The result of one payload; when the caller leaves, it is dropped before it reaches the device.

    Args:
        also: as of `retry_bulk`, which tries again what is refused for now.
        ended: gets the item of each try when it has ended, with its times.
    """

    async def attempt() -> Any:
        [item] = lanes.submit(engine, [payload], [cost], priority=urgency.priority, deadline_s=urgency.deadline_s)
        try:
            return await item.future
        finally:
            ended(item)
            item.abandon()

    return await retry_bulk(urgency, attempt, also=also)


class StartedWork:
    """Tokens that lanes began to compute for a caller: what a request costs that never got its answer.

    An HTTP worker hears of some when the request has ended: they go to ``charge``.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.charge: Callable[[int], None] = lambda _tokens: None

    def add(self, tokens: int) -> None:
        self.tokens += tokens
        self.charge(tokens)

    def charge_to(self, charge: Callable[[int], None]) -> None:
        """Charge all that began, and what is yet to be heard of."""
        charge(self.tokens)
        self.charge = charge


_started_work: ContextVar[StartedWork | None] = ContextVar("started_work", default=None)


@contextmanager
def count_started(owner: str = "") -> Iterator[StartedWork]:
    """Count the tokens that lanes begin to compute for this task, and those that it starts meanwhile.

    Args:
        owner: for whom; owners take turns on the lanes.
    """
    started = StartedWork()
    token, owner_token = _started_work.set(started), owner_of_work.set(owner)
    try:
        yield started
    finally:
        owner_of_work.reset(owner_token)
        _started_work.reset(token)


def _count(started: StartedWork, items: Sequence[WorkItem]) -> None:
    started.add(sum(item.cost for item in items if item.started_s))
    for item in items:
        if not item.started_s:
            item.tell_begun = started.add


class UsageCounter:
    """Counts what a task's callers sent, as ``usage`` in answers does: cached and repeated inputs included."""

    def __init__(self, telemetry: Telemetry, task: str) -> None:
        self._inputs, self._tokens = telemetry.inputs_total.labels(task), telemetry.tokens_total.labels(task)
        self._truncated = telemetry.truncated_total

    def count(self, inputs: int, tokens: int, truncated: int = 0) -> None:
        """Add one request."""
        self._inputs.inc(inputs)
        self._tokens.inc(tokens)
        if truncated:
            self._truncated.inc(truncated)


class Pipeline(Protocol):
    """A task on one loaded model: how its inputs become cache keys, tokens and values."""

    @property
    def engine(self) -> Engine: ...

    @property
    def uses_cache(self) -> bool:
        """False for values that take more memory than they save time."""

    def key(self, text: Any) -> bytes:
        """The cache key of an input. Raises: BadInput for an input that is wrong."""

    def characters(self, text: Any) -> int:
        """Characters to tokenise; 0 for an input that comes as ids."""

    def tokenize(self, inputs: Sequence[Any], indices: Sequence[int]) -> list[Tokens]:
        """The inputs' tokens. ``indices``: their positions in the request, for messages. May run on a thread."""

    def postprocess(self, rows: Sequence[Vectors]) -> Sequence[Vectors]:
        """The values to cache and answer, from the engine's results: (n) float32 each."""


@dataclass(frozen=True, slots=True)
class WindowPipeline:
    """An engine's output for windows of texts, which are cut and tokenised already; a Pipeline."""

    engine: Engine
    namespace: CacheNamespace
    uses_cache: bool = True

    def key(self, window: Window) -> bytes:
        return self.namespace.key("ids", window.payload)

    def characters(self, window: Window) -> int:  # noqa: ARG002 - the protocol's argument
        return 0

    def tokenize(self, inputs: Sequence[Window], indices: Sequence[int]) -> list[Tokens]:  # noqa: ARG002 - the same
        return [Tokens(window.ids, truncated=False, types=window.types) for window in inputs]

    def postprocess(self, rows: Sequence[Vectors]) -> list[Vectors]:
        return [row.ravel() for row in rows]


async def offload(work: Callable[[], Result], size: int, inline: int = _INLINE_NUMBERS) -> Result:
    """What ``work`` returns: run here up to the size ``inline``, on a thread where it would block the loop."""
    return work() if size <= inline else await asyncio.to_thread(work)


@dataclass(slots=True)
class InferenceResult:
    """One value an input, in the order of the inputs."""

    rows: Sequence[CachedVector] = field(repr=False)  # never in a log or a task's name: asyncio prints results
    timing: Timing
    keys: Sequence[bytes] = field(default=(), repr=False)
    computed: frozenset[bytes] = field(default=frozenset(), repr=False)  # keys that the cache did not have


class InFlight:
    """The work items in flight by cache key, so that equal inputs share one. Loop only: nothing here waits."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._items: dict[bytes, WorkItem] = {}
        self._coalesced = telemetry.jobs_coalesced_total

    def join(self, keys: Sequence[bytes], tokens: Sequence[Tokens], submit: Submit) -> dict[bytes, WorkItem]:
        """Join the item that already computes each key, else submit a new one.

        An item's deadline stays its first caller's: a caller that joined with a later one computes anew if it passes.
        Raises: what ``submit`` raises; then nothing is joined.
        """
        joined = {key: item for key in keys if (item := self._items.get(key)) is not None and item.join()}
        new = [(key, text) for key, text in zip(keys, tokens, strict=True) if key not in joined]
        try:
            items = submit([text.payload for _, text in new], [len(text.ids) for _, text in new]) if new else []
        except BaseException:
            for item in joined.values():
                item.abandon()
            raise
        if joined:
            self._coalesced.inc(len(joined))
        submitted = {key: item for (key, _), item in zip(new, items, strict=True)}
        self._items |= submitted
        return {key: joined.get(key) or submitted[key] for key in keys}

    def leave(self, pending: Mapping[bytes, WorkItem]) -> None:
        """Stop waiting; an item without other waiters is dropped before it reaches the device."""
        for key, item in pending.items():
            item.abandon()
            if item.future.done() and self._items.get(key) is item:
                del self._items[key]


@dataclass(slots=True)
class _Request:
    """One request's distinct inputs by key; done when every key has a value."""

    pipeline: Pipeline
    keys: list[bytes]  # of every input, in order
    inputs: dict[bytes, Any]  # distinct ones
    urgency: Urgency
    values: dict[bytes, CachedVector]  # cached or computed so far
    first: int  # position of the first input, for messages

    def missing(self) -> list[bytes]:
        return [key for key in self.inputs if key not in self.values]

    def indices(self, keys: list[bytes]) -> list[int]:
        """Where in the request each of ``keys`` occurs first, for messages about it."""
        if len(keys) == len(self.keys):
            return list(range(self.first, self.first + len(keys)))
        firsts = {key: index for index, key in reversed(list(enumerate(self.keys, self.first)))}
        return [firsts[key] for key in keys]


class Inference:
    """Inputs of any task in, values out. Belongs to the loop's thread."""

    def __init__(
        self, batcher: Submitter, cache: VectorCache, telemetry: Telemetry, text_work: TextWork | None = None
    ) -> None:
        self._batcher, self._cache = batcher, cache
        self._in_flight = InFlight(telemetry)
        self.text_work = text_work or TextWork(telemetry)

    async def run(
        self, pipeline: Pipeline, inputs: Sequence[Any], urgency: Urgency, *, first: int = 0
    ) -> InferenceResult:
        """One value an input; equal inputs, in this request and in others in flight, are computed once.

        All inputs are admitted, or none; of bulk work, part by part, and what is refused for now is tried again.

        Args:
            first: the position of the first input in the whole request, for messages.

        Raises: BadInput from the pipeline; Overloaded, Unavailable, DeadlineExceeded, InferenceFailed.
        """
        if len(inputs) > LARGE_INPUTS:
            await loop_turn()
        started = time.perf_counter()
        keys = [pipeline.key(text) for text in inputs]
        cached = self._cache.lookup_local(keys) if pipeline.uses_cache else [None] * len(keys)
        rows = [row for row in cached if row is not None]
        cache_s = time.perf_counter() - started
        if len(rows) == len(keys):  # nothing to wait for
            record_last("cache", cache_s, {"financia.inputs": len(keys), "financia.hits": len(keys)})
            return InferenceResult(rows, Timing(cache_s), keys)
        hits = {key: row for key, row in zip(keys, cached, strict=True) if row is not None}
        request = _Request(pipeline, keys, dict(zip(keys, inputs, strict=True)), urgency, hits, first)
        return await self._complete(request, started)

    async def run_in_chunks(self, pipeline: Pipeline, inputs: Sequence[Any], urgency: Urgency) -> InferenceResult:
        """The same for more inputs than a request may have: chunk after chunk, each admitted by itself."""
        rows, keys, computed, timing = list[CachedVector](), list[bytes](), set[bytes](), Timing()
        for first in range(0, len(inputs), CHUNK_INPUTS):
            chunk = await self.run(pipeline, inputs[first : first + CHUNK_INPUTS], urgency, first=first)
            rows += chunk.rows
            keys += chunk.keys
            computed |= chunk.computed
            timing = timing.then(chunk.timing)
        return InferenceResult(rows, timing, keys, frozenset(computed))

    def token_budget(self) -> TokenBudget:
        """Refuses a request's tokens while they are read, once they are more than the queue would ever admit."""
        return TokenBudget(
            self._batcher.limit_tokens, "tokens of the request", "LIMIT_QUEUE_TOKENS", "Send fewer or shorter texts."
        )

    def close(self) -> None:
        """End the threads that work on texts."""
        self.text_work.close()

    async def _complete(self, request: _Request, started: float) -> InferenceResult:
        if request.pipeline.uses_cache:
            with span("cache", {"financia.inputs": len(request.keys)}) as traced:
                missing = request.missing()
                cached = await self._cache.lookup(missing)
                request.values |= {key: row for key, row in zip(missing, cached, strict=True) if row is not None}
                traced.set("financia.hits", len(request.values))
        timing = Timing(time.perf_counter() - started)
        missing = request.missing()
        if missing:
            timing = await self._compute(request, missing, timing)
        rows = [request.values[key] for key in request.keys]
        return InferenceResult(rows, timing, request.keys, frozenset(missing))

    async def _compute(self, request: _Request, keys: list[bytes], timing: Timing) -> Timing:
        started = time.perf_counter()
        with span("tokenize", {"financia.inputs": len(keys)}):
            tokens = await self._tried(request, partial(self._tokenize, request, keys))
        timing = timing._replace(tokenize_s=time.perf_counter() - started)
        for part in self._parts(request.urgency, tokens):
            infer = partial(self._infer, request, keys[part], tokens[part])
            timing = timing.then(await self._tried(request, infer))
        return timing

    async def _tried(self, request: _Request, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Of bulk work what is refused for now is tried again."""
        is_bulk = request.urgency.priority is Priority.BULK
        return await retry_bulk(request.urgency, attempt) if is_bulk else await attempt()

    def _parts(self, urgency: Urgency, tokens: list[Tokens]) -> list[slice]:
        """A request is admitted whole or not at all; bulk work part by part, however long it is."""
        if urgency.priority is not Priority.BULK:
            return [slice(0, len(tokens))]
        return portions([len(text.ids) for text in tokens], self._batcher.bulk_tokens)

    async def _infer(self, request: _Request, keys: list[bytes], tokens: list[Tokens]) -> Timing:
        pending = self._submit(request, keys, tokens)
        items = list(pending.values())
        try:
            results = [await asyncio.shield(item.future) for item in items]  # others may wait for it still
        except DeadlineExceeded:
            if all(item.deadline_s >= request.urgency.deadline_s for item in items):
                raise
            return await self._infer(request, keys, tokens)  # it was the deadline of a caller whose item we shared
        finally:
            self._in_flight.leave(pending)
            if (started := _started_work.get()) is not None:
                _count(started, items)
        if sampled() is not None:
            record_items(items)
        if len(keys) > LARGE_INPUTS:
            await loop_turn()
        self._store(request, keys, tokens, request.pipeline.postprocess(results))
        return Timing(queue_s=max(item.queue_s for item in items), inference_s=max(item.inference_s for item in items))

    async def _tokenize(self, request: _Request, keys: list[bytes]) -> list[Tokens]:
        pipeline, inputs = request.pipeline, [request.inputs[key] for key in keys]

        def tokenize(part: Sequence[tuple[Any, int]]) -> list[Tokens]:
            texts, indices = zip(*part, strict=True)
            return pipeline.tokenize(texts, indices)

        items = list(zip(inputs, request.indices(keys), strict=True))
        return await self.text_work.run_slices(tokenize, items, [pipeline.characters(text) for text in inputs])

    def _submit(self, request: _Request, keys: list[bytes], tokens: list[Tokens]) -> dict[bytes, WorkItem]:
        priority, deadline_s = request.urgency
        submit = partial(self._batcher.submit, request.pipeline.engine, priority=priority, deadline_s=deadline_s)
        pending = self._in_flight.join(keys, tokens, submit)
        self._batcher.promote(list(pending.values()), priority)
        return pending

    def _store(self, request: _Request, keys: list[bytes], tokens: list[Tokens], results: Sequence[Vectors]) -> None:
        rows = zip(results, tokens, strict=True)
        values = [CachedVector(vector, len(text.ids), text.truncated) for vector, text in rows]
        request.values.update(zip(keys, values, strict=True))
        if request.pipeline.uses_cache:
            self._cache.store(keys, values)
