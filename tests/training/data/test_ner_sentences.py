"""Sentences in other capitals: the words change, their number and tags do not."""

import pytest

from backend.training.data.conll import Sentence
from backend.training.tasks.ner import RECASINGS, in_capitals, in_small_letters, names_in_capitals

SENTENCE = Sentence(("El", "señor", "Weiß", "viene"), ("O", "O", "B-PER", "O"), "here:1")


@pytest.mark.parametrize(
    ("recase", "expected"),
    [
        pytest.param(in_capitals, "EL SEÑOR WEISS VIENE", id="headings"),
        pytest.param(names_in_capitals, "El señor WEISS viene", id="deeds"),
        pytest.param(in_small_letters, "el señor weiß viene", id="searches"),
    ],
)
def test_recasings(recase, expected):
    """A word of another length is a word still."""
    recased = recase(SENTENCE)

    assert recase in RECASINGS
    assert expected == " ".join(recased.words)
    assert (SENTENCE.tags, SENTENCE.location) == (recased.tags, recased.location)
