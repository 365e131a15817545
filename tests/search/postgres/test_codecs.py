"""Texts that PostgreSQL could not hold, and vectors in its binary form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.search.postgres.connections import (
    VECTOR_COMPONENTS,
    decode_text,
    encode_text,
    vector_decoder,
    vector_encoder,
)
from tests.search.samples import unit_vectors

TEXTS = st.text(st.one_of(st.sampled_from("\x00\x01\x02aé\U0001f9fe"), st.characters(exclude_categories=["Cs"])))


@given(TEXTS, TEXTS)
def test_texts_come_back_and_keep_their_order(first: str, second: str):
    """Any text without surrogates, in bytes without zero that compare as its code points do."""
    encoded = encode_text(first), encode_text(second)

    assert (first, second) == tuple(map(decode_text, encoded))
    assert b"\x00" not in encoded[0]
    assert (first < second) == (encoded[0] < encoded[1])


@pytest.mark.parametrize(("kind", "error"), [("halfvec", 5e-4), ("vector", 0.0)])
def test_vectors_come_back(kind: str, error: float):
    """Within the precision of their type; a second time to the bit."""
    (vector,) = unit_vectors(1, width=384)
    encode, decode = vector_encoder(kind), vector_decoder(kind)
    decoded = decode(encode(vector))

    assert np.abs(decoded - vector).max() <= error
    assert encode(vector) == encode(decoded)
    assert 4 + 384 * np.dtype(VECTOR_COMPONENTS[kind]).itemsize == len(encode(vector))
