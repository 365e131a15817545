"""The request loop by itself: what is computed, what is kept, what is shared, and what a failure leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from backend.batching.work_item import Priority
from backend.cache.keys import CacheNamespace
from backend.errors import DeadlineExceeded, InferenceFailed, TooLarge, Unavailable
from backend.models.tokenizer import Tokens
from backend.services.inference import Inferred, Timing, Urgency, calculate
from tests.services.house import (
    FailingVectorEngine,
    GatedVectorEngine,
    House,
    VectorEngine,
    vector_of,
)

NOW = Urgency()
WORDS = ["one", "three", "", "three", "fourteen"]


@dataclass(frozen=True)
class Letters:
    """A task whose tokens are a word's letters; what it answers with is twice what the engine gave."""

    engine: Any
    keeps: bool = True
    name: str = "letters"
    encoded: list[tuple[str, int]] = field(default_factory=list)  # word and its place in the request
    threads: list[str] = field(default_factory=list)

    def key(self, one: str) -> bytes:
        return CacheNamespace(self.name).key("text", one)

    def characters(self, one: str) -> int:
        return len(one)

    def encode(self, inputs: Sequence[str], places: Sequence[int]) -> list[Tokens]:
        self.encoded.extend(zip(inputs, places, strict=True))
        self.threads.append(threading.current_thread().name)
        return [Tokens(ids_of(one), truncated=len(one) > 10) for one in inputs]

    def finish(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [2 * row for row in rows]


def ids_of(word: str) -> np.ndarray:
    return np.array([ord(letter) for letter in word] or [0], np.int64)


def expected(words: Sequence[str]) -> np.ndarray:
    return np.stack([2 * vector_of(ids_of(word)) for word in words])


def vectors(found: Inferred) -> np.ndarray:
    return np.array([row.vector for row in found.rows])


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_values_come_in_the_order_of_the_inputs(build):
    """Whatever the batches were; tokens and cuts are each input's own."""
    house: House = build(VectorEngine(budget=8), lanes=2)

    found = await house.inference.run(Letters(house.engine), [*WORDS, "a" * 11], NOW)

    np.testing.assert_array_equal(expected([*WORDS, "a" * 11]), vectors(found))
    assert [3, 5, 1, 5, 8, 11] == [row.tokens for row in found.rows]
    assert [False] * 5 + [True] == [row.truncated for row in found.rows]


async def test_a_hit_is_the_miss_bit_for_bit(build):
    """And nothing is tokenised or run again."""
    house = build(VectorEngine())
    recipe = Letters(house.engine)

    miss = await house.inference.run(recipe, WORDS, NOW)
    hit = await house.inference.run(recipe, WORDS, NOW)

    assert vectors(miss).tobytes() == vectors(hit).tobytes()
    assert [(row.tokens, row.truncated) for row in miss.rows] == [(row.tokens, row.truncated) for row in hit.rows]
    assert (frozenset(miss.keys), frozenset()) == (miss.computed, hit.computed)
    assert 4 == len(house.computed) == len(recipe.encoded)
    assert (0.0, 0.0, 0.0) == hit.timing[1:]


async def test_parts_of_a_request_keep_order_and_places(build, monkeypatch):
    """Each part is admitted by itself; what another part had is a hit, and messages name places in the whole."""
    monkeypatch.setattr("backend.services.inference._PART", 2)
    house = build(VectorEngine(budget=8))
    recipe = Letters(house.engine)

    found = await house.inference.run_in_parts(recipe, WORDS, NOW)

    np.testing.assert_array_equal(expected(WORDS), vectors(found))
    assert [("one", 0), ("three", 1), ("", 2), ("fourteen", 4)] == recipe.encoded
    assert [recipe.key(word) for word in WORDS] == list(found.keys)
    assert frozenset(found.keys) == found.computed
    assert (await house.inference.run_in_parts(recipe, [], NOW)).rows == []


async def test_equal_inputs_are_computed_once_and_named_by_their_first_place(build):
    """The messages of a recipe speak of places in the request, hits and repeats left out or not."""
    house = build(VectorEngine())
    recipe = Letters(house.engine)
    await house.inference.run(recipe, ["one"], NOW)
    recipe.encoded.clear()

    await house.inference.run(recipe, WORDS, NOW)

    assert [("three", 1), ("", 2), ("fourteen", 4)] == recipe.encoded
    assert sorted(tuple(ids_of(word)) for word in set(WORDS)) == sorted(house.computed)


async def test_what_is_not_kept_neither_asks_nor_stores(build):
    """The cache is not even counted; the values are the same."""
    house = build(VectorEngine())
    recipe = Letters(house.engine, keeps=False)

    first = await house.inference.run(recipe, WORDS, NOW)
    again = await house.inference.run(recipe, WORDS, NOW)

    np.testing.assert_array_equal(expected(WORDS), vectors(first))
    np.testing.assert_array_equal(expected(WORDS), vectors(again))
    assert 8 == len(house.computed)  # equal inputs of one request still are one
    assert 0 == house.cache.status().memory_entries
    asked = [house.metric("cache_hits_total", tier="memory"), house.metric("cache_misses_total")]
    assert [0.0, 0.0] == asked


async def test_requests_under_way_share_their_equal_inputs(build):
    """Also of a recipe that keeps nothing; a third who comes later computes anew."""
    house = build(GatedVectorEngine())
    recipe = Letters(house.engine, keeps=False)
    first = asyncio.create_task(house.inference.run(recipe, ["one", "two"], NOW))
    await house.entered()
    second = asyncio.create_task(house.inference.run(replace(recipe), ["two", "six", "one"], NOW))
    await turns()
    house.engine.gate.set()

    found = await asyncio.gather(first, second)
    third = await house.inference.run(recipe, ["one"], NOW)

    np.testing.assert_array_equal(expected(["two", "six", "one"]), vectors(found[1]))
    np.testing.assert_array_equal(expected(["one"]), vectors(third))
    assert 4 == len(house.computed)
    assert 2.0 == house.metric("jobs_coalesced_total")
    assert 0 == house.flights


async def test_two_tasks_never_share(build):
    """Keys of another namespace are other work, though the inputs are equal."""
    house = build(VectorEngine())

    for name in ("letters", "sounds"):
        await house.inference.run(Letters(house.engine, name=name), ["one"], NOW)

    assert 2 == len(house.computed)


async def test_nothing_asked_is_nothing_done(build):
    """A text without windows has no inputs."""
    house = build(VectorEngine())

    assert ([], 0) == ((await house.inference.run(Letters(house.engine), [], NOW)).rows, len(house.engine.batches))


async def test_a_request_over_the_queues_limit_takes_no_seat(build):
    """413, before any of it runs; a smaller one is answered."""
    house = build(VectorEngine(), queue_tokens=20)
    recipe = Letters(house.engine)

    with pytest.raises(TooLarge, match="LIMIT_QUEUE_TOKENS"):
        await house.inference.run(recipe, ["fourteen", "thirteen", "fifteen"], NOW)

    assert ([], 0) == (house.engine.batches, house.flights)
    np.testing.assert_array_equal(expected(WORDS[:2]), vectors(await house.inference.run(recipe, WORDS[:2], NOW)))


async def test_a_deadline_ends_the_wait(build, clock):
    """Behind a lane that hangs too; no seat is left, and what waited never runs."""
    house = build(GatedVectorEngine(budget=4))
    recipe = Letters(house.engine)
    task = asyncio.create_task(
        house.inference.run(recipe, ["one", "two"], Urgency(Priority.BULK, deadline_s=clock() + 5))
    )
    await house.entered()

    clock.advance(6)
    house.batcher.expire()

    with pytest.raises(DeadlineExceeded):
        await task
    assert 0 == house.flights
    house.engine.gate.set()
    await house.batcher.drain(5.0)
    assert 1 == len(house.computed)


async def test_one_failure_leaves_no_seat_and_stores_nothing(build):
    """Its neighbours of the request are given up; asked for alone they are answered."""
    house = build(FailingVectorEngine(poison=ord("x")))
    recipe = Letters(house.engine)

    with pytest.raises(InferenceFailed):
        await house.inference.run(recipe, ["one", "x", "two"], NOW)

    assert (0, 0) == (house.flights, house.cache.status().memory_entries)
    np.testing.assert_array_equal(
        expected(["one", "two"]), vectors(await house.inference.run(recipe, ["one", "two"], NOW))
    )


async def test_a_stopped_service_answers_hits_only(build):
    """What memory holds needs no lane."""
    house = build(VectorEngine())
    recipe = Letters(house.engine)
    await house.inference.run(recipe, ["one"], NOW)
    house.batcher.stop()

    np.testing.assert_array_equal(expected(["one"]), vectors(await house.inference.run(recipe, ["one"], NOW)))
    with pytest.raises(Unavailable):
        await house.inference.run(recipe, ["two"], NOW)


@pytest.mark.parametrize(("characters", "on"), [(4_000, "MainThread"), (4_001, "tokenize_0")])
async def test_long_inputs_are_tokenised_off_the_loop(build, characters, on):
    """Together they count."""
    house = build(VectorEngine())
    recipe = Letters(house.engine)

    await house.inference.run(recipe, ["a" * 2_000, "b" * (characters - 2_000)], NOW)

    assert [on] == recipe.threads


@pytest.mark.parametrize(("numbers", "inline"), [(0, True), (20_000, True), (20_001, False)])
async def test_arithmetic_on_large_tables_leaves_the_loop(numbers, inline):
    """A small one is not worth the hop."""
    thread = await calculate(threading.current_thread, numbers)

    assert inline == (thread is threading.main_thread())


def test_stages_one_after_the_other_add_up():
    """Of a request in several parts."""
    assert Timing(1, 2, 3, 4) == Timing(0.5, 2, 1, 0).then(Timing(0.5, 0, 2, 4))
