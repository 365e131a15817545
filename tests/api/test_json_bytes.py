"""JSON in pieces is the JSON of the whole."""

import asyncio
import json
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.api import json_io
from backend.api.json_io import (
    VECTOR_ENCODINGS,
    JsonBytes,
    JsonPieces,
    WrittenJson,
    joined_pieces,
    json_pieces,
    written_json,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=60,
)


@given(value=VALUES)
def test_pieces_together_are_the_whole(value: Any) -> None:
    """Whatever is long in it: lists of lists, lists in objects, the last and the first member."""
    longest, json_io.PIECE_ITEMS = json_io.PIECE_ITEMS, 2
    try:
        pieces = list(json_pieces(value))
    finally:
        json_io.PIECE_ITEMS = longest

    assert value == json.loads(b"".join(pieces))


def test_a_long_list_is_written_in_parts() -> None:
    """None of them is long, so other threads get their turn."""
    pieces = list(json_pieces({"object": "list", "data": [{"index": index} for index in range(10_000)]}))

    assert max(map(len, pieces)) < 20_000
    assert 10_000 == len(json.loads(b"".join(pieces))["data"])


def test_what_is_written_elsewhere_has_its_place() -> None:
    """Piece by piece, wherever it stands."""
    content = {"a": 1, "b": [WrittenJson([b"[1", b",2]"])], "c": WrittenJson(iter([b"{}"]))}

    assert b'{"a":1,"b":[[1,2]],"c":{}}' == b"".join(json_pieces(content))


def test_an_iterator_is_a_list() -> None:
    """Whose items are made as they are written, wherever it stands."""
    made = [0]

    def words() -> Iterator[dict[str, int]]:
        for index in range(2_500):
            made[0] += 1
            yield {"index": index}

    pieces = json_pieces({"pages": [{"words": words()}, {"words": iter([])}]})
    begun = [next(pieces) for _ in range(6)]
    made_by_then = made[0]

    answer = json.loads(b"".join([*begun, *pieces]))
    assert [[{"index": index} for index in range(2_500)], []] == [page["words"] for page in answer["pages"]]
    assert made_by_then < 2_500


def test_few_pieces_of_many() -> None:
    """The same bytes; an empty answer has one."""
    pieces = [b"x" * 1000] * 1000

    joined = joined_pieces(pieces)

    assert b"".join(pieces) == b"".join(joined)
    assert 4 == len(joined)
    assert [b""] == joined_pieces([])


async def test_a_large_answer_is_made_off_the_loop() -> None:
    """A small one on it: a hop to a thread takes longer."""
    threads: list[bool] = []

    def make() -> list[int]:
        threads.append(threading.current_thread() is threading.main_thread())
        return [1] * 3_000

    small, large = await written_json(make, 10), await written_json(make, 10_000, {"X-Compute-Tokens": "7"})

    assert [True, False] == threads
    assert isinstance(small, JsonBytes)
    assert isinstance(large, JsonPieces)
    assert small.body == b"".join(large.pieces)
    assert (str(len(small.body)), "7") == (large.headers["content-length"], large.headers["x-compute-tokens"])


def numbers(form: str, vector: np.ndarray) -> list[int]:
    """A vector as it is written in a form of whole numbers."""
    written: list[int] = json.loads(VECTOR_ENCODINGS[form](np.asarray(vector, np.float32)))
    return written


@pytest.mark.parametrize("width", [64, 1024])
def test_int8_keeps_cosines_and_dot_products(width: int) -> None:
    """One step for all vectors: the product of two is that of their directions, within a hundredth."""
    random = np.random.default_rng(15)
    vectors = random.standard_normal((20, width)) + random.standard_normal(width)  # close to each other, as texts are
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    whole = np.array([numbers("int8", vector) for vector in vectors], np.float64)
    step = 5 / (127 * np.sqrt(width))

    np.testing.assert_allclose(directions @ directions.T, whole @ whole.T * step**2, atol=0.01)
    np.testing.assert_array_equal(whole, [numbers("int8", 7 * vector) for vector in vectors])


def test_int8_ends() -> None:
    """A number that is too large is the largest there is; zeros stay zeros."""
    lonely = np.zeros(384, np.float32)
    lonely[0], lonely[1] = -1.0, 1e-9

    assert [-127, 0, 0] == numbers("int8", lonely)[:3]
    assert [1, 128, 128] == numbers("uint8", lonely)[:3]
    assert [0] * 384 == numbers("int8", np.zeros(384))


def test_signs() -> None:
    """Eight a number, the first is its highest bit; zero counts as negative, and zeros fill the last number."""
    vector = [1, -1, 0, 2, -3, 4, 5, 6, 1, 1]

    assert [0b10010111, 0b11000000] == numbers("ubinary", vector)
    assert [0b10010111 - 128, 0b11000000 - 128] == numbers("binary", vector)


async def test_a_large_answer_is_let_go_while_it_is_sent() -> None:
    """So that one that nobody reads costs what its client has not read."""
    held: list[int] = []

    async def send(_: Any) -> None:
        held.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        await JsonBytes(b"x" * 8_000_000)({"type": "http"}, asyncio.Queue().get, send)
    finally:
        tracemalloc.stop()

    assert 7_000_000 < held[0]
    assert held[-1] < 1_000_000
