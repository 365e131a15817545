"""From the recogniser's columns to words: doubles, blanks, lost spaces, places."""

from __future__ import annotations

import numpy as np
import pytest

from backend.engines.ocr.ctc_words import COLUMN_PX, CropWord, ReadLine, page_confidence, read_line

CHARACTERS = ("", "a", "b", "c", " ")


def columns(said: str, sure: float = 0.9) -> np.ndarray:
    """What a network would give that says one character a column; "-" is CTC's blank."""
    likely = np.full((len(said), len(CHARACTERS)), (1 - sure) / 10, np.float32)
    for column, character in enumerate(said):
        likely[column, 0 if character == "-" else CHARACTERS.index(character)] = sure
    return likely


def texts(line: ReadLine) -> list[str]:
    return [word.text for word in line.words]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param("-a-b-", ["ab"], id="blanks-are-nothing"),
        pytest.param("aabb", ["ab"], id="a-letter-over-two-columns-is-one"),
        pytest.param("a-a", ["aa"], id="a-blank-between-makes-two"),
        pytest.param("ab- -c", ["ab", "c"], id="a-space-ends-a-word"),
        pytest.param("- ab - ", ["ab"], id="spaces-around-are-nothing"),
        pytest.param("----", [], id="nothing"),
    ],
)
def test_words_of_a_line(said, expected):
    """CTC's rules, then spaces."""
    assert expected == texts(read_line(columns(said), CHARACTERS, len(said) * COLUMN_PX))


@pytest.mark.parametrize(
    ("space", "gap", "expected"),
    [
        pytest.param(0.3, 1, ["ab", "ca"], id="a-likely-space-that-lost-to-the-blank"),
        pytest.param(0.05, 4, ["ab", "ca"], id="a-faint-one-where-letters-stand-apart"),
        pytest.param(0.05, 1, ["abca"], id="a-faint-one-within-a-word"),
        pytest.param(0.0, 4, ["abca"], id="a-gap-alone-is-wide-print"),
    ],
)
def test_lost_spaces(space, gap, expected):
    """A space that the recogniser nearly saw is put back."""
    likely = columns("a-b" + "-" * gap + "c-a")
    likely[:, -1] = 0
    likely[3, -1] = space

    assert expected == texts(read_line(likely, CHARACTERS, 800))


def test_a_word_lies_where_its_columns_are():
    """A column is eight pixels, a letter as wide as letters stand apart and a little; nothing leaves the crop."""
    likely = columns("-a-b-- -c-")
    first, second = read_line(likely, CHARACTERS, 78).words

    assert (8.0 * 0.25, 8.0 * 4.75) == (first.left_px, first.right_px)
    assert 64 <= (second.left_px + second.right_px) / 2 <= 72
    assert second.right_px <= 78


def test_confidence_is_of_letters():
    """A word's is its letters', a line's all letters'; spaces do not count."""
    likely = columns("a- -b", sure=0.5)
    likely[0, 1] = 0.9
    line = read_line(likely, CHARACTERS, 40)

    assert [0.9, 0.5] == pytest.approx([word.confidence for word in line.words])
    assert 0.7 == pytest.approx(line.confidence)


def test_page_confidence_weighs_by_letters():
    """A long line counts more; a page without letters has none."""
    long, short = CropWord("abcabcabc", 0, 9, 0.9), CropWord("a", 0, 1, 0.4)

    assert 0.85 == pytest.approx(page_confidence([ReadLine((long,), 0.9), ReadLine((short,), 0.4)]))
    assert page_confidence([ReadLine((), 0.0)]) is None
