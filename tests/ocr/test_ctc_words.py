"""Decoding CTC columns into words: repeats, blanks, lost spaces, places."""

import numpy as np
import pytest

from backend.ocr.rapidocr_engines import COLUMN_PX, CropWord, RecognizedLine, decode_line, page_confidence

CHARACTERS = ("", "a", "b", "c", " ")


def columns(characters: str, sure: float = 0.9) -> np.ndarray:
    """Output of a network that is sure of one character a column; "-" is CTC's blank."""
    probabilities = np.full((len(characters), len(CHARACTERS)), (1 - sure) / 10, np.float32)
    for column, character in enumerate(characters):
        probabilities[column, 0 if character == "-" else CHARACTERS.index(character)] = sure
    return probabilities


def texts(line: RecognizedLine) -> list[str]:
    return [word.text for word in line.words]


@pytest.mark.parametrize(
    ("characters", "expected"),
    [
        pytest.param("-a-b-", ["ab"], id="blanks-are-nothing"),
        pytest.param("aabb", ["ab"], id="a-letter-over-two-columns-is-one"),
        pytest.param("a-a", ["aa"], id="a-blank-between-makes-two"),
        pytest.param("ab- -c", ["ab", "c"], id="a-space-ends-a-word"),
        pytest.param("- ab - ", ["ab"], id="spaces-around-are-nothing"),
        pytest.param("----", [], id="nothing"),
    ],
)
def test_words_of_a_line(characters, expected):
    assert expected == texts(decode_line(columns(characters), CHARACTERS, len(characters) * COLUMN_PX))


@pytest.mark.parametrize(
    ("space", "gap", "expected"),
    [
        pytest.param(0.3, 1, ["ab", "ca"], id="a-probabilities-space-that-lost-to-the-blank"),
        pytest.param(0.05, 4, ["ab", "ca"], id="a-faint-one-where-letters-stand-apart"),
        pytest.param(0.05, 1, ["abca"], id="a-faint-one-within-a-word"),
        pytest.param(0.0, 4, ["abca"], id="a-gap-alone-is-wide-print"),
    ],
)
def test_lost_spaces(space, gap, expected):
    probabilities = columns("a-b" + "-" * gap + "c-a")
    probabilities[:, -1] = 0
    probabilities[3, -1] = space

    assert expected == texts(decode_line(probabilities, CHARACTERS, 800))


def test_word_boxes_follow_the_columns():
    """A column is eight pixels, a letter about as wide as the letter spacing; no box leaves the crop."""
    probabilities = columns("-a-b-- -c-")
    first, second = decode_line(probabilities, CHARACTERS, 78).words

    assert (8.0 * 0.25, 8.0 * 4.75) == (first.left_px, first.right_px)
    assert 64 <= (second.left_px + second.right_px) / 2 <= 72
    assert second.right_px <= 78


def test_confidence_is_the_mean_over_letters():
    """Of the word's letters, or of all letters of the line, without spaces."""
    probabilities = columns("a- -b", sure=0.5)
    probabilities[0, 1] = 0.9
    line = decode_line(probabilities, CHARACTERS, 40)

    assert [0.9, 0.5] == pytest.approx([word.confidence for word in line.words])
    assert 0.7 == pytest.approx(line.confidence)


def test_page_confidence_weighs_by_letters():
    """Long lines count more; a page without letters has none."""
    long, short = CropWord("abcabcabc", 0, 9, 0.9), CropWord("a", 0, 1, 0.4)

    assert 0.85 == pytest.approx(page_confidence([RecognizedLine((long,), 0.9), RecognizedLine((short,), 0.4)]))
    assert page_confidence([RecognizedLine((), 0.0)]) is None
