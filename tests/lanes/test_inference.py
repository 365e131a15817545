"""Inference by itself: what is computed, cached and shared, and what a failure leaves behind."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from backend.errors import InferenceFailed, Overloaded, Unavailable
from backend.lanes.cache.store import CacheNamespace
from backend.lanes.inference import InferenceResult, Timing, Urgency, offload
from backend.lanes.work_queue import Priority
from backend.models.tokenizer import Tokens
from tests.fakes import turns
from tests.text.service_stack import GatedVectorEngine, ServiceStack, VectorEngine, vector_of

NOW = Urgency()
WORDS = ["one", "three", "", "three", "fourteen"]


@dataclass(frozen=True)
class Letters:
    """A pipeline whose tokens are a word's letters, and whose values are twice the engine's."""

    engine: Any
    uses_cache: bool = True
    name: str = "letters"
    tokenized: list[tuple[str, int]] = field(default_factory=list)  # word and its position in the request
    threads: list[str] = field(default_factory=list)

    def key(self, text: str) -> bytes:
        return CacheNamespace(self.name).key("text", text)

    def characters(self, text: str) -> int:
        return len(text)

    def tokenize(self, inputs: Sequence[str], indices: Sequence[int]) -> list[Tokens]:
        self.tokenized.extend(zip(inputs, indices, strict=True))
        self.threads.append(threading.current_thread().name)
        return [Tokens(ids_of(word), truncated=len(word) > 10) for word in inputs]

    def postprocess(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [2 * row for row in rows]


def ids_of(word: str) -> np.ndarray:
    return np.array([ord(letter) for letter in word] or [0], np.int64)


def expected(words: Sequence[str]) -> np.ndarray:
    return np.stack([2 * vector_of(ids_of(word)) for word in words])


def vectors(result: InferenceResult) -> np.ndarray:
    return np.array([row.vector for row in result.rows])


async def test_values_come_in_the_order_of_the_inputs(build):
    """Order does not depend on the batches; tokens and truncation are per input."""
    stack: ServiceStack = build(VectorEngine(budget=8), lanes=2)

    result = await stack.inference.run(Letters(stack.engine), [*WORDS, "a" * 11], NOW)

    np.testing.assert_array_equal(expected([*WORDS, "a" * 11]), vectors(result))
    assert [3, 5, 1, 5, 8, 11] == [row.tokens for row in result.rows]
    assert [False] * 5 + [True] == [row.truncated for row in result.rows]


async def test_a_hit_is_the_miss_bit_for_bit(build):
    """Nothing is tokenised or run again."""
    stack = build(VectorEngine())
    pipeline = Letters(stack.engine)

    miss = await stack.inference.run(pipeline, WORDS, NOW)
    hit = await stack.inference.run(pipeline, WORDS, NOW)

    assert vectors(miss).tobytes() == vectors(hit).tobytes()
    assert [(row.tokens, row.truncated) for row in miss.rows] == [(row.tokens, row.truncated) for row in hit.rows]
    assert (frozenset(miss.keys), frozenset()) == (miss.computed, hit.computed)
    assert 4 == len(stack.computed) == len(pipeline.tokenized)
    assert (0.0, 0.0, 0.0) == hit.timing[1:]


async def test_chunks_keep_order_and_positions(build, monkeypatch):
    """Each chunk is admitted by itself, hits what earlier ones computed, and has positions in the whole request."""
    monkeypatch.setattr("backend.lanes.inference.CHUNK_INPUTS", 2)
    stack = build(VectorEngine(budget=8))
    pipeline = Letters(stack.engine)

    result = await stack.inference.run_in_chunks(pipeline, WORDS, NOW)

    np.testing.assert_array_equal(expected(WORDS), vectors(result))
    assert [("one", 0), ("three", 1), ("", 2), ("fourteen", 4)] == pipeline.tokenized
    assert [pipeline.key(word) for word in WORDS] == list(result.keys)
    assert frozenset(result.keys) == result.computed
    assert (await stack.inference.run_in_chunks(pipeline, [], NOW)).rows == []


async def test_equal_inputs_are_computed_once(build):
    """The pipeline gets the position of the first of them in the request."""
    stack = build(VectorEngine())
    pipeline = Letters(stack.engine)
    await stack.inference.run(pipeline, ["one"], NOW)
    pipeline.tokenized.clear()

    await stack.inference.run(pipeline, WORDS, NOW)

    assert [("three", 1), ("", 2), ("fourteen", 4)] == pipeline.tokenized
    assert sorted(tuple(ids_of(word)) for word in set(WORDS)) == sorted(stack.computed)


async def test_a_pipeline_may_bypass_the_cache(build):
    """Nothing is looked up, stored or counted; the values are the same."""
    stack = build(VectorEngine())
    pipeline = Letters(stack.engine, uses_cache=False)

    first = await stack.inference.run(pipeline, WORDS, NOW)
    again = await stack.inference.run(pipeline, WORDS, NOW)

    np.testing.assert_array_equal(expected(WORDS), vectors(first))
    np.testing.assert_array_equal(expected(WORDS), vectors(again))
    assert 8 == len(stack.computed)  # equal inputs of one request still are one
    assert 0 == stack.cache.status().memory_entries
    lookups = [stack.metric("cache_hits_total", tier="memory"), stack.metric("cache_misses_total")]
    assert [0.0, 0.0] == lookups


async def test_concurrent_requests_share_equal_inputs(build):
    """Also of a pipeline without cache; a later request computes anew."""
    stack = build(GatedVectorEngine())
    pipeline = Letters(stack.engine, uses_cache=False)
    first = asyncio.create_task(stack.inference.run(pipeline, ["one", "two"], NOW))
    await stack.entered()
    second = asyncio.create_task(stack.inference.run(replace(pipeline), ["two", "six", "one"], NOW))
    await turns()
    stack.engine.gate.set()

    result = await asyncio.gather(first, second)
    third = await stack.inference.run(pipeline, ["one"], NOW)

    np.testing.assert_array_equal(expected(["two", "six", "one"]), vectors(result[1]))
    np.testing.assert_array_equal(expected(["one"]), vectors(third))
    assert 4 == len(stack.computed)
    assert 2.0 == stack.metric("jobs_coalesced_total")
    assert 0 == stack.in_flight


async def test_a_stopped_service_answers_hits_only(build):
    """Hits need no lane."""
    stack = build(VectorEngine())
    pipeline = Letters(stack.engine)
    await stack.inference.run(pipeline, ["one"], NOW)
    stack.batcher.stop()

    np.testing.assert_array_equal(expected(["one"]), vectors(await stack.inference.run(pipeline, ["one"], NOW)))
    with pytest.raises(Unavailable):
        await stack.inference.run(pipeline, ["two"], NOW)


@pytest.mark.parametrize(("characters", "on"), [(4_000, "MainThread"), (4_001, "tokenize_0")])
async def test_long_inputs_are_tokenised_off_the_loop(build, characters, on):
    """Together they count."""
    stack = build(VectorEngine())
    pipeline = Letters(stack.engine)

    await stack.inference.run(pipeline, ["a" * 2_000, "b" * (characters - 2_000)], NOW)

    assert [on] == pipeline.threads


@pytest.mark.parametrize(("numbers", "inline"), [(0, True), (20_000, True), (20_001, False)])
async def test_arithmetic_on_large_tables_leaves_the_loop(numbers, inline):
    """A small one is not worth the hop."""
    thread = await offload(threading.current_thread, numbers)

    assert inline == (thread is threading.main_thread())


def test_stages_one_after_the_other_add_up():
    """Of a request in several parts."""
    assert Timing(1, 2, 3, 4) == Timing(0.5, 2, 1, 0).then(Timing(0.5, 0, 2, 4))


# Sharing work items in flight


class DyingEngine(VectorEngine):
    """Ends the lane of a batch that holds ``poison``, so many times."""

    def __init__(self, poison: int, times: int) -> None:
        super().__init__()
        self.poison, self.times, self.deaths = poison, times, 0

    def forward(self, prepared: Any) -> Any:
        if self.deaths < self.times and any(self.poison in ids for ids in prepared):
            self.deaths += 1
            raise SystemExit("a library ended the thread")
        return super().forward(prepared)


BULK = Urgency(Priority.BULK)


async def test_bulk_work_over_the_queues_limit_goes_in_parts(build):
    """A document's chunks may be more than LIMIT_QUEUE_TOKENS for ever; the values are those of any request."""
    stack = build(VectorEngine(), queue_tokens=20)
    words = [f"word{number}" for number in range(12)]

    result = await stack.inference.run(Letters(stack.engine), words, BULK)

    np.testing.assert_array_equal(expected(words), vectors(result))
    assert 0 == stack.in_flight


async def test_bulk_work_waits_while_the_queue_is_full(build):
    """A request is refused at once; an accepted job has no caller who could come back."""
    stack = build(GatedVectorEngine(budget=4), queue_tokens=20)
    pipeline = Letters(stack.engine)
    running = asyncio.create_task(stack.inference.run(pipeline, ["aaaa"], NOW))
    await stack.entered()
    queued = asyncio.create_task(stack.inference.run(pipeline, ["bbbbbbbbbb", "cccccccccc"], NOW))
    await turns()
    bulk = asyncio.create_task(stack.inference.run(pipeline, ["dddd"], BULK))
    with pytest.raises(Overloaded):
        await stack.inference.run(pipeline, ["eeee"], NOW)
    stack.engine.gate.set()

    np.testing.assert_array_equal(expected(["dddd"]), vectors(await bulk))
    await asyncio.gather(running, queued)
    assert 0 == stack.in_flight


async def test_bulk_work_survives_a_lane(build):
    """The lane that replaces it computes the same; a request gets 503, and its caller asks again."""
    stack = build(DyingEngine(ord("x"), times=2), lanes=2)
    pipeline = Letters(stack.engine)

    with pytest.raises(Unavailable, match="try again"):
        await stack.inference.run(pipeline, ["x-request"], NOW)
    result = await stack.inference.run(pipeline, ["one", "x-job"], BULK)

    np.testing.assert_array_equal(expected(["one", "x-job"]), vectors(result))
    assert 2 == stack.engine.deaths


async def test_an_input_that_ends_lanes_is_given_up(build):
    """Before it has ended all of them: others are still answered."""
    stack = build(DyingEngine(ord("x"), times=100), lanes=2)
    pipeline = Letters(stack.engine)

    with pytest.raises(InferenceFailed, match="died 2 times"):
        await stack.inference.run(pipeline, ["x"], BULK)

    np.testing.assert_array_equal(expected(["one"]), vectors(await stack.inference.run(pipeline, ["one"], NOW)))
