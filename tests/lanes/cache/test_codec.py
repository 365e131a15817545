"""The format in Redis: values come back bit for bit, and other bytes are rejected."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.lanes.cache.redis_tier import HEADER_BYTES, decode, encode
from backend.lanes.cache.store import CachedVector
from tests.lanes.cache.samples import content, key, value

words = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40)  # any float32, NaNs of every kind included


@given(words, st.integers(0, 2**32 - 1), st.booleans())
def test_round_trip(bits, tokens, truncated):
    """Every float, count and flag survives, bit for bit."""
    original = CachedVector(np.array(bits, np.uint32).view(np.float32), tokens, truncated)

    assert content(original) == content(decode(key(1), encode(key(1), original)))


@given(st.integers(0, 8 * (HEADER_BYTES + 32) - 1))
def test_a_flipped_bit_is_rejected(bit):
    """Any single flipped bit is detected."""
    data = bytearray(encode(key(1), value(1, width=8)))
    data[bit // 8] ^= 1 << bit % 8

    assert decode(key(1), bytes(data)) is None


@given(st.integers(0, HEADER_BYTES + 32))
def test_torn_bytes_are_rejected(length):
    """A part of a value is rejected, and so is a value with bytes after it."""
    data = encode(key(1), value(1, width=8))

    assert (decode(key(1), data[:length]) is None) == (length < len(data))
    assert decode(key(1), data + data[: length + 1]) is None


@given(st.binary(max_size=200))
def test_foreign_bytes_are_rejected(data):
    """Arbitrary bytes are not a value."""
    assert decode(key(1), data) is None


@pytest.mark.parametrize("other", [key(0), key(2), key(1)[:15], b""])
def test_a_value_belongs_to_its_key(other):
    """A value under another key (a reply out of order, a renamed key) is rejected."""
    assert decode(other, encode(key(1), value(1))) is None


def test_layout():
    """The layout is a contract with other replicas and with what Redis already holds."""
    vector = CachedVector(np.array([1.0, -2.0], np.float32), tokens=5, truncated=True)
    data = encode(b"k" * 16, vector)

    assert b"FIv\x01\x01\0\0\0\x05\0\0\0" == data[:12]
    assert b"\0\0\x80\x3f\0\0\0\xc0" == data[HEADER_BYTES:]


def test_a_decoded_vector_cannot_be_written_to():
    """The vector is a read-only view of the received bytes."""
    decoded = decode(key(1), encode(key(1), value(1)))

    assert decoded.owned() is decoded
    with pytest.raises(ValueError, match="read-only"):
        decoded.vector[0] = 0
