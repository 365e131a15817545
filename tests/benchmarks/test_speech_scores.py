"""Metrics of transcripts: what counts as the same word, and when a clip of a long file is lost."""

import pytest

from benchmarks.speech_clips import Clip, Placed
from benchmarks.speech_scores import TimedText, found_by_clip, lost, misplaced, score, total, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("¿Qué hora es?", ["qué", "hora", "es"], id="punctuation"),
        pytest.param("beauty\u2019s rose, beauty's", ["beautys", "rose", "beautys"], id="apostrophes"),
        pytest.param("cafe\u0301 1.234,5 forty-two", ["café", "1", "234", "5", "forty", "two"], id="nfc-and-numbers"),
        pytest.param(" … ", [], id="nothing"),
    ],
)
def test_words(text, expected):
    """Case, marks and the way accents are encoded do not count."""
    assert expected == words(text)


def test_errors_of_a_set_weigh_clips_by_their_words():
    """One wrong word of one and none of nine is a tenth, not a half."""
    clips = [score("no", "sí"), score("a b c d e f g h i", "A b c d e f g h i.")]

    assert (1.0, 0.0) == (clips[0].wer, clips[1].wer)
    assert 0.1 == total(clips).wer
    assert 2.0 == score("a b", "c").wer, "more words than were said"


def test_a_clip_is_lost_where_its_words_are_not_in_their_place():
    """Said elsewhere in the file does not help; a clip that is misheard alone too is not lost."""
    truths = ["uno dos tres cuatro", "hola", "cinco seis siete ocho"]

    assert [1.0, 1.0, 1.0] == found_by_clip("Uno dos tres cuatro, hola. Cinco seis siete ocho.", truths)
    assert [1.0, 0.0, 1.0] == found_by_clip("uno dos tres cuatro cinco seis siete ocho", truths)
    assert [1.0, 0.0, 0.0] == found_by_clip("cinco uno dos tres cuatro", truths)
    assert [1] == lost([1.0, 0.0, 1.0], [1.0, 1.0, 1.0])
    assert [] == lost([1.0, 0.0, 0.5], [1.0, 0.0, 0.9])


def test_words_at_another_clips_time_stand_wrong(tmp_path):
    """Half a transcript shifted by a clip is half wrong; words that nobody said tell nothing of places."""
    placed = [
        Placed(Clip(tmp_path / name, "es", text, "read", 4.0), start_s, start_s + 4.0)
        for name, text, start_s in (("a", "uno dos", 0.0), ("b", "tres", 10.0), ("c", "cuatro", 20.0))
    ]
    right = [TimedText("Uno dos, ehm", 0.2, 3.0), TimedText("tres", 10.1, 12.0)]

    assert 0.0 == misplaced(right, placed)
    assert 0.25 == misplaced([*right, TimedText("cuatro", 10.1, 12.0)], placed)
