"""Which sentences sum a text up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from backend.documents.key_sentences import choose

PROSE = "The tenant pays the rent of number {} in the first days of each month."


def texts(count: int) -> list[str]:
    return [PROSE.format(number) for number in range(count)]


def rows(*values: tuple[float, ...]) -> np.ndarray:
    return np.array(values, np.float32)


def test_the_nearest_to_the_whole_are_chosen_in_the_texts_order():
    """Two of four; the better one stands later and stays later."""
    vectors = rows((0, 1, 0), (0.8, 0.6, 0), (0, 0, 1), (1, 0, 0.1))

    found = choose(texts(4), vectors, rows((1, 0.1, 0))[0], count=2)

    assert [1, 3] == [sentence.index for sentence in found]


def test_what_is_said_twice_is_chosen_once():
    """A sentence on every page counts once, however near it is; the next unlike one takes its place."""
    vectors = rows((1, 0, 0), (1, 0, 0), (1, 0, 0), (0.5, 0.8, 0))

    found = choose(texts(4), vectors, rows((1, 0.2, 0))[0], count=3)

    assert [0, 3] == [sentence.index for sentence in found]


def test_diversity_prefers_the_unlike():
    """Without it the two best alike ones; with it the best and another."""
    vectors = rows((1, 0, 0), (0.97, 0.24, 0), (0.6, 0, 0.8))
    whole = rows((1, 0.1, 0.1))[0]

    assert [0, 1] == [sentence.index for sentence in choose(texts(3), vectors, whole, count=2, diversity=0.0)]
    assert [0, 2] == [sentence.index for sentence in choose(texts(3), vectors, whole, count=2, diversity=0.7)]


def test_of_equals_the_first():
    """The start of a text says more than its middle."""
    found = choose(texts(5), np.tile(rows((1, 0)), (5, 1)), rows((1, 0))[0], count=1)

    assert [(0, 1.0)] == [(sentence.index, sentence.score) for sentence in found]


@pytest.mark.parametrize(
    "unfit",
    [
        pytest.param("FACTURA", id="a-heading"),
        pytest.param("Yes, we do.", id="too-short"),
        pytest.param("The tenant pays the rent. " * 40, id="too-long"),
        pytest.param("Total 1.200,00 3.400,00 5.600,00 7.800,00 9.100,00 a b c d.", id="figures"),
        pytest.param("(In millions) (In millions) (In millions) (In millions)", id="the-same-words"),
        pytest.param("The tenant is hereby obliged to do what follows below:", id="a-colon"),
        pytest.param("123 Madison Drive, Seattle, Washington State", id="an-address"),
    ],
)
def test_some_sentences_cannot_stand_alone(unfit):
    """However near their vector is to the whole."""
    found = choose([unfit, PROSE], rows((1, 0), (0, 1)), rows((1, 0))[0], count=2)

    assert [1] == [sentence.index for sentence in found]


def test_a_text_of_fields_has_a_summary_too():
    """When nothing can stand alone, what has words is taken; what has none never is."""
    found = choose(["Hola mundo", "12/03/2024", "x"], rows((1, 0), (1, 0), (1, 0)), rows((1, 0))[0], count=3)

    assert [0] == [sentence.index for sentence in found]


@pytest.mark.parametrize("given_texts", [[], ["", "..."], ["12", "€"]])
def test_nothing_to_choose_from(given_texts):
    """An empty answer, no error."""
    assert [] == choose(given_texts, np.ones((len(given_texts), 4), np.float32), np.ones(4, np.float32), count=3)


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 12), st.just(4)), elements=st.floats(-5, 5, width=32)),
    st.integers(0, 15),
)
def test_any_vectors_are_chosen_from(vectors, count):
    """In order, each once, no more than asked for, scores within 0 and 1; the same again for the same input."""
    sentences = texts(len(vectors))
    found = choose(sentences, vectors, vectors.mean(axis=0), count=count)

    indices = [sentence.index for sentence in found]
    assert sorted(set(indices)) == indices
    assert len(indices) <= count
    assert all(0 <= sentence.score <= 1 + 1e-9 for sentence in found)
    assert found == choose(sentences, vectors, vectors.mean(axis=0), count=count)
