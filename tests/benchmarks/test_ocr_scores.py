"""Character error rate and word recall."""

import pytest

from benchmarks.ocr_scores import score, summed, words


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


def test_a_mean_of_pages():
    """A short page that was not read weighs as much as a long one."""
    means = summed([score("", "ab cd"), score("x" * 95, "x" * 95)])

    assert 0.5 == means["cer"] == means["recall"]
