"""The parts of transcription that decide: languages of files, times of segments, who is admitted, what is kept."""

import pytest

from backend.errors import Overloaded
from backend.files.speech_records import DroppedSpeech, Segment, SpokenLanguage, SpokenWord, Transcript
from backend.lanes.work_queue import SETTLED_BATCHES, Priority
from backend.speech.piece_runs import LanguageTally, is_doubtful, segments_of
from backend.speech.records import DecodedPiece, TimedText, TimedWord
from backend.speech.transcription import audio_backlog, expected_s, pack_transcript, unpack_transcript
from tests.fakes import ManualClock


def tally(*pieces: tuple[str, float, str, float]) -> LanguageTally:
    """Of (own language, its score, that of the text, seconds)."""
    counted = LanguageTally()
    for own, score, taken, seconds in pieces:
        counted.add(SpokenLanguage(own, score), taken, seconds)
    return counted


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([], (None, 0.0), id="nothing-heard"),
        pytest.param([("es", 0.9, "es", 10), ("es", 0.5, "es", 30)], ("es", 0.6), id="weighted-by-seconds"),
        pytest.param([("es", 0.9, "es", 11), ("en", 0.9, "en", 10)], ("es", 0.9), id="two-languages-do-not-blur"),
        pytest.param([("es", 0.9, "es", 10), ("pt", 0.4, "es", 10)], (None, 0.45), id="pieces-that-say-otherwise"),
        pytest.param([("cy", 0.3, "cy", 10)], (None, 0.3), id="too-unsure"),
    ],
)
def test_language_of_a_file(pieces: list[tuple[str, float, str, float]], expected: tuple[str | None, float]) -> None:
    """The mean score of the language that most of the speech is in."""
    assert expected == tuple(tally(*pieces).found())


def test_a_piece_that_was_written_anew_counts_for_the_other_language() -> None:
    """Its seconds do, its score does not."""
    counted = tally(("pt", 0.6, "pt", 10), ("es", 0.9, "es", 30))
    counted.move("pt", "es", 10)

    assert ("es", 0.675) == tuple(counted.found())
    assert 40 == counted.spoken_s


def test_only_unsure_pieces_follow_their_file() -> None:
    """A sure one may be in another language, and nobody follows what is not known."""
    assert is_doubtful(SpokenLanguage("pt", 0.5), "es")
    assert not is_doubtful(SpokenLanguage("pt", 0.9), "es")
    assert not is_doubtful(SpokenLanguage("es", 0.2), "es")
    assert not is_doubtful(SpokenLanguage("pt", 0.5), None)


def test_times_are_within_the_piece_and_in_order() -> None:
    """Whatever the model wrote: segments and words never overlap, and none lies outside its piece."""
    words = (TimedWord(" uno", -0.5, 3.0, 0.9), TimedWord(" dos", 2.0, 4.0, 0.8), TimedWord("  ", 3.0, 2.5, 0.8))
    texts = (
        TimedText(-1.0, 5.0, " uno dos ", (1,), (*words[:1], words[2], words[1])),
        TimedText(3.0, 99.0, "tres", (2,)),
        TimedText(5.0, 6.0, "  ", (3,)),
    )
    decoded = DecodedPiece(texts, SpokenLanguage("es", 0.9), -0.2, 0.1, 1.2, 0.4)
    first, second = segments_of(decoded, 100.0, 110.0)

    assert (100.0, 104.0, "uno dos", "es", -0.2, 0.4) == (
        first.start_s,
        first.end_s,
        first.text,
        first.language,
        first.avg_logprob,
        first.temperature,
    )
    assert (SpokenWord("uno", 100.0, 103.0, 0.9), SpokenWord("dos", 103.0, 104.0, 0.8)) == first.words
    assert (104.0, 110.0) == (second.start_s, second.end_s)


def test_words_are_joined_as_their_text_is() -> None:
    """Japanese has no spaces between words; a word that the text does not have keeps one."""
    words = [TimedWord(text, at, at + 1.0, 0.9) for at, text in enumerate(["東京", "です", "。", "x", " OK"])]
    text = TimedText(0.0, 5.0, "東京です。 OK", (1,), tuple(words))
    decoded = DecodedPiece((text,), SpokenLanguage("ja", 0.9), -0.2, 0.1, 1.2, 0.0)
    [segment] = segments_of(decoded, 0.0, 5.0)

    assert [False, True, True, False, False] == [word.is_joined for word in segment.words]


def test_a_transcript_survives_its_codec() -> None:
    """Exactly; foreign bytes are a miss."""
    word = SpokenWord("año", 0.1, 0.30000000000000004, 0.5)
    segment = Segment(0.1, 0.7, "año", (word,), (1, 2), "es", -0.1, 1.1, 0.01, 0.2)
    transcript = Transcript(
        1.5, SpokenLanguage("es", 0.9), (segment,), (DroppedSpeech(1.0, 1.5, "x", "y"),), 0.6, "why", "model"
    )

    assert transcript == unpack_transcript(pack_transcript(transcript))
    assert unpack_transcript(b"x") is None


@pytest.mark.parametrize(
    ("declared_s", "size_bytes", "expected"),
    [
        pytest.param(60.0, 1_000_000, 60.0, id="as-it-says"),
        pytest.param(2e9, 4000, 8.0, id="a-lie-is-bounded-by-the-bytes"),
        pytest.param(None, 400_000, 100.0, id="by-the-bytes"),
        pytest.param(None, 4_000_000_000, 600.0, id="by-the-limit"),
    ],
)
def test_expected_seconds(declared_s: float | None, size_bytes: int, expected: float) -> None:
    """How long a recording may be, before it is decoded."""
    assert expected == expected_s(declared_s, size_bytes, limit_s=600.0)


def test_recordings_that_would_be_late_are_refused() -> None:
    """Behind others, for interactive work, once a speed is known."""
    clock = ManualClock()
    backlog = audio_backlog(lambda: 2, clock=clock)
    unknown = backlog.admit(10_000.0, Priority.INTERACTIVE, clock.now_s + 1)
    unknown.close()
    for _ in range(SETTLED_BATCHES):
        backlog.measured(10.0, 2.0)
    first = backlog.admit(500.0, Priority.INTERACTIVE, clock.now_s + 10)
    bulk = backlog.admit(500.0, Priority.BULK, clock.now_s + 10)
    with pytest.raises(Overloaded) as refused:
        backlog.admit(100.0, Priority.INTERACTIVE, clock.now_s + 60)
    first.done(400.0)
    backlog.admit(100.0, Priority.INTERACTIVE, clock.now_s + 60)
    first.close()
    bulk.close()

    assert 10.0 == backlog.rate
    assert 50.0 == refused.value.retry_after_s
    assert 100.0 == backlog.left
