"""Selection of key sentences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from backend.text.key_sentences import select_key_sentences

PROSE = "The tenant pays the rent of number {} in the first days of each month."


def texts(count: int) -> list[str]:
    return [PROSE.format(number) for number in range(count)]


def rows(*values: tuple[float, ...]) -> np.ndarray:
    return np.array(values, np.float32)


def indexes(*arguments, **options) -> list[int]:
    return [sentence.index for sentence in select_key_sentences(*arguments, **options)]


def test_the_most_similar_are_returned_in_the_texts_order():
    """Two of four; the better one comes later in the text and in the result."""
    vectors = rows((0, 1, 0), (0.8, 0.6, 0), (0, 0, 1), (1, 0, 0.1))

    assert [1, 3] == indexes(texts(4), vectors, rows((1, 0.1, 0))[0], count=2)


def test_duplicates_are_selected_once():
    """A sentence repeated on every page is selected once, then a different one, however alike their vectors are."""
    vectors = rows((1, 0, 0), (1, 0, 0), (1, 0, 0), (1, 0.02, 0))
    first, _, _, other = texts(4)

    assert [0, 3] == indexes([first, first.upper(), first, other], vectors, rows((1, 0, 0))[0], count=3)


def test_of_equal_sentences_the_first_is_selected():
    """By position in the text."""
    found = select_key_sentences(texts(5), np.tile(rows((1, 0)), (5, 1)), rows((1, 0))[0], count=1)

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
    """However similar their vector is to the text."""
    assert [1] == indexes([unfit, PROSE], rows((1, 0), (0, 1)), rows((1, 0))[0], count=2)


def test_a_text_of_fields_has_a_summary_too():
    """If no sentence can stand alone, those with words are eligible."""
    found = select_key_sentences(
        ["Hola mundo", "12/03/2024", "x"], rows((1, 0), (1, 0), (1, 0)), rows((1, 0))[0], count=3
    )

    assert [0] == [sentence.index for sentence in found]


@pytest.mark.parametrize("given_texts", [[], ["", "..."], ["12", "€"]])
def test_nothing_to_choose_from(given_texts):
    """An empty answer, no error."""
    assert [] == select_key_sentences(
        given_texts, np.ones((len(given_texts), 4), np.float32), np.ones(4, np.float32), count=3
    )


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 12), st.just(4)), elements=st.floats(-5, 5, width=32)),
    st.integers(0, 15),
)
def test_any_vectors_are_accepted(vectors, count):
    """In order, without repetition, at most ``count``, scores within 0 and 1, deterministic."""
    sentences = texts(len(vectors))
    found = select_key_sentences(sentences, vectors, vectors.mean(axis=0), count=count)

    indices = [sentence.index for sentence in found]
    assert sorted(set(indices)) == indices
    assert len(indices) <= count
    assert all(0 <= sentence.score <= 1 + 1e-9 for sentence in found)
    assert found == select_key_sentences(sentences, vectors, vectors.mean(axis=0), count=count)
