"""Hashed character n-grams: folded, bounded, and the same on every machine."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.models.features import CHARACTERS, gram_places, gram_scores

BITS = 10
GOLDEN_PLACES = [3555, 4199, 5337, 6698, 10155, 13781]  # of " luz " as FNV-1a and Fibonacci hashing give them
GOLDEN_SIGNS = [1, 1, 1, -1, 1, -1]


@given(st.text(alphabet=st.characters(), max_size=300))
def test_any_text_has_places_in_the_table(text):
    """Lone surrogates, controls and emoji included; ascending, inside, of length 1 or none."""
    places, weights = gram_places(text, BITS)

    assert (np.diff(places) > 0).all()
    assert ((places >= 0) & (places < 2**BITS)).all()
    length = np.square(weights).sum()
    assert length == pytest.approx(1.0) or (length == 0 and not len(places))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("Factura Electrónica", "factura electronica", id="case-and-accents"),
        pytest.param("niño", "nin\u0303o", id="combining-or-not"),
        pytest.param("total 123,45", "total 987,60", id="digits"),
        pytest.param("a  b\n\tcde ", "a b cde", id="blanks"),
        pytest.param("x" * CHARACTERS + " more", "x" * CHARACTERS, id="the-beginning-alone"),
    ],
)
def test_what_does_not_count(one, other):
    for left, right in zip(gram_places(one, BITS), gram_places(other, BITS), strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_hash_is_the_same_on_every_machine():
    """Heads are published: a place that moved would be another feature."""
    places, weights = gram_places("luz", 14)

    assert GOLDEN_PLACES == places.tolist()
    assert GOLDEN_SIGNS == np.sign(weights).astype(int).tolist()


def test_scores_are_products_with_the_table():
    """One row a text, in order; an empty text adds nothing."""
    table = np.random.default_rng(0).normal(size=(3, 2**BITS)).astype(np.float32)
    places, weights = gram_places("una factura", BITS)

    found = gram_scores(["una factura", ""], table)

    np.testing.assert_allclose(found, [table[:, places] @ weights, np.zeros(3)], rtol=1e-5)
