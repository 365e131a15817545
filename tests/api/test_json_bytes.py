"""JSON in pieces is the JSON of the whole."""

from __future__ import annotations

import json
import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backend.api.responses import json_bytes
from backend.api.responses.json_bytes import JsonBytes, JsonPieces, json_pieces, written_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=60,
)


@given(value=VALUES)
def test_pieces_together_are_the_whole(value: Any) -> None:
    """Whatever is long in it: lists of lists, lists in objects, the last and the first member."""
    longest, json_bytes._PIECE_ITEMS = json_bytes._PIECE_ITEMS, 2
    try:
        pieces = list(json_pieces(value))
    finally:
        json_bytes._PIECE_ITEMS = longest

    assert value == json.loads(b"".join(pieces))


def test_a_long_list_is_written_in_parts() -> None:
    """None of them is long, so other threads get their turn."""
    pieces = list(json_pieces({"object": "list", "data": [{"index": index} for index in range(10_000)]}))

    assert max(map(len, pieces)) < 20_000
    assert 10_000 == len(json.loads(b"".join(pieces))["data"])


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
