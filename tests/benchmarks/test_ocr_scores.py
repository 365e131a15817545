"""Character error rate and word recall."""

import pytest

from benchmarks.ocr_scores import order_free_edits, score, summed, words


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param("", "abc", 3, id="nothing-was-read"),
        pytest.param("coffee tea 3.00 1.50", "coffee 3.00 tea 1.50", 0, id="prices-below-articles"),
        pytest.param("left column right", "right left column", 0, id="columns-in-the-wrong-order"),
        pytest.param("xtotal 12.50", "12.50 totalx", 1, id="a-wrong-letter-is-wrong-anywhere"),
        pytest.param("again", "again again", 6, id="a-passage-counts-once"),
        pytest.param("abcab", "ab", 5, id="two-letters-are-no-passage"),
    ],
)
def test_order_free_edits(first, second, expected):
    """What is left when passages may stand anywhere, both ways; a space may move with either neighbour."""
    assert expected == order_free_edits(first, second) == order_free_edits(second, first)


def test_no_order_is_worse_than_the_one_it_was_read_in():
    """Letters between two mistakes are in no passage, but are right where they stand."""
    result = score("a1b2c3d4", "axbxcxdx")

    assert (4, 4) == (result.edits, result.order_free_edits)
    assert 0.5 == result.cer == result.order_free_cer


def test_white_space_and_composition_count_for_nothing():
    """Lines, double spaces and a combining tilde are no mistakes."""
    assert 0.0 == score("El  an\u0303o\nnuevo ", "El año nuevo").cer


@pytest.mark.parametrize(("folds_case", "expected"), [(False, 5 / 10), (True, 0.0)])
def test_case_counts_unless_the_truth_has_none(folds_case, expected):
    """Words are found without case either way."""
    result = score("Total 1,50", "TOTAL 1,50", folds_case=folds_case)

    assert result.cer == pytest.approx(expected - 0.1 if expected else 0.0)
    assert 1.0 == result.recall


def test_words_are_counted_as_often_as_both_have_them():
    """Punctuation at the ends is not part of a word; what was read once counts once."""
    result = score('"Total": de de nada', "(total) de de de 1.284,50")

    assert {"total": 1, "de": 3, "1.284,50": 1} == dict(words("(total) de de de 1.284,50"))
    assert (3, 5) == (result.found_words, result.words)


def test_a_mean_of_pages_and_one_of_characters():
    """A short page that was not read weighs as much as a long one, and less beside it."""
    means = summed([score("", "ab cd"), score("x" * 95, "x" * 95)])

    assert 0.5 == means["cer"] == means["recall"]
    assert 0.05 == means["cer_micro"]
    assert pytest.approx(1 / 3) == means["recall_micro"]
