"""The in-process tier: an LRU cache within its limit of bytes."""

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.lanes.cache.redis_tier import decode, encode
from backend.lanes.cache.store import ENTRY_BYTES, FRAGMENT_BYTES, MAX_FRAGMENTS, CachedVector, MemoryTier
from tests.lanes.cache.samples import content, contents, key, value

SIZE_BYTES = ENTRY_BYTES + 8 * 4  # of one `value`


def filled(numbers, *, capacity=3):
    memory = MemoryTier(capacity * SIZE_BYTES)
    for number in numbers:
        memory.put(key(number), value(number))
    return memory


def held(memory, numbers=range(10)):
    """Which of these are held. Looking all up in order keeps their order of use."""
    return [number for number in numbers if memory.get_many([key(number)])[0] is not None]


@pytest.mark.parametrize(
    ("puts", "touched", "then", "expected"),
    [
        pytest.param([1, 2, 3], [], [4], [2, 3, 4], id="the-oldest-leaves"),
        pytest.param([1, 2, 3], [1], [4], [1, 3, 4], id="a-hit-makes-recent"),
        pytest.param([1, 2, 3], [9], [4], [2, 3, 4], id="a-miss-changes-nothing"),
        pytest.param([1, 2, 3, 1], [], [4], [1, 3, 4], id="putting-again-makes-recent"),
        pytest.param([1, 2, 3], [2, 1], [4, 5], [1, 4, 5], id="order-of-hits-counts"),
    ],
)
def test_least_recently_used_leaves_first(puts, touched, then, expected):
    """The most recently used stay."""
    memory = filled(puts)
    memory.get_many([key(number) for number in touched])
    for number in then:
        memory.put(key(number), value(number))

    assert expected == held(memory)


def test_results_follow_the_keys():
    """One result a key, in their order, repeated keys included."""
    memory = filled([1, 2])
    entries = memory.get_many([key(2), key(9), key(1), key(2)])

    assert [content(value(2)), None, content(value(1)), content(value(2))] == contents(entries)


operations = st.lists(
    st.tuples(st.just("put"), st.integers(0, 9), st.integers(1, 60))
    | st.tuples(st.just("get"), st.integers(0, 9), st.just(0))
    | st.tuples(st.just("fragment"), st.integers(0, 9), st.integers(0, 900)),
    max_size=60,
)


@given(operations, st.integers(0, 6 * SIZE_BYTES))
def test_the_count_of_bytes_is_right_and_within_the_limit(steps, limit_bytes):
    """After any operations, the counted bytes are those of the entries held, and within the limit."""
    memory = MemoryTier(limit_bytes)
    for act, number, size in steps:
        if act == "put":
            memory.put(key(number), value(number, width=size))
        elif act == "get":
            memory.get_many([key(number)])
        else:
            memory.keep_fragment(key(number), f"form{size}", bytes(size))
        assert memory.size_bytes <= limit_bytes
    entries = [entry for entry in memory.get_many([key(number) for number in range(10)]) if entry is not None]

    assert len(memory) == len(entries)
    assert memory.size_bytes == sum(
        ENTRY_BYTES + entry.vector.nbytes + sum(FRAGMENT_BYTES + len(fragment) for _, fragment in entry.wire)
        for entry in entries
    )


@pytest.mark.slow
@pytest.mark.parametrize("received", [False, True], ids=["computed", "received"])
@pytest.mark.parametrize("fragments", [0, 1, 2])
def test_counted_bytes_are_real_bytes(received, fragments):
    """The counted bytes are what Python allocates, within a quarter."""
    value(0)  # numpy.random is imported by its first use
    gc.collect()
    tracemalloc.start()
    try:
        memory = MemoryTier(2**30)
        for number in range(2000):
            name = bytes(bytearray(key(number)))
            vector = CachedVector(value(number, width=96).vector, 300 + number, truncated=False)
            memory.put(name, decode(name, encode(name, vector)) if received else vector)
            for index in range(fragments):
                memory.keep_fragment(name, ("float", "base64")[index], bytes(500))
        real, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert real == pytest.approx(memory.size_bytes, rel=0.25)
    assert real < 1.05 * memory.size_bytes


def test_a_value_over_the_limit_evicts_nothing():
    """A value that could never fit is not stored."""
    memory = filled([1, 2])
    memory.put(key(3), value(3, width=2000))
    memory.keep_fragment(key(1), "float", bytes(5000))

    assert [1, 2] == held(memory)
    assert 2 * SIZE_BYTES == memory.size_bytes


def test_the_first_value_of_a_key_stays():
    """When two requests compute the same text, later hits return the first value."""
    memory = filled([1])
    memory.put(key(1), value(5))

    assert content(value(1)) == content(memory.get_many([key(1)])[0])


def test_fragments_are_few_and_leave_with_their_vector():
    """A vector has few serialised forms, each once; all leave with it."""
    memory = MemoryTier(10 * SIZE_BYTES)
    memory.put(key(1), value(1))
    for index in range(MAX_FRAGMENTS + 2):
        memory.keep_fragment(key(1), str(index), b"first")
        memory.keep_fragment(key(1), str(index), b"second")
    memory.keep_fragment(key(2), "float", b"of no entry")
    entries = memory.get_many([key(1)])[0]

    assert tuple((str(index), b"first") for index in range(MAX_FRAGMENTS)) == entries.wire
    memory.clear()
    assert (0, 0) == (len(memory), memory.size_bytes)
