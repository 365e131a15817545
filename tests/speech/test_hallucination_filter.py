"""What is kept of a piece's text, what is decoded again, and what is dropped."""

from dataclasses import dataclass

import pytest

from backend.speech.hallucination_filter import MAX_ATTEMPTS, MAX_LOOPS, Attempt, has_loop, judge, undecoded


@dataclass(frozen=True)
class Segment:
    """A segment of a piece."""

    text: str
    start_s: float = 0.0
    end_s: float = 2.0


@dataclass(frozen=True)
class Heard:
    """What the model made of a piece."""

    segments: tuple[Segment, ...]
    avg_logprob: float = -0.3
    no_speech_prob: float = 0.05
    compression_ratio: float = 1.2


SOUND = Heard((Segment("El perro come."),))
DOUBTFUL = Heard((Segment("El pero kome."),), avg_logprob=-1.3)
LOOP = Heard((Segment("y y y y y y y y y y y y y"),), avg_logprob=-0.2, compression_ratio=4.0)
ASKED = Attempt()


def test_a_sound_text_is_kept_at_once() -> None:
    """Nothing is decoded twice without a reason."""
    judgement = judge([SOUND], ASKED)

    assert judgement.again is None
    assert {} == dict(judgement.dropped)


@pytest.mark.parametrize(
    ("bad", "temperatures"),
    [
        pytest.param(DOUBTFUL, [0.0, 0.2, 0.4, 0.6], id="doubtful"),
        pytest.param(LOOP, [0.0, 0.2], id="loop"),  # each takes longer than any text
    ],
)
def test_attempts(bad: Heard, temperatures: list[float]) -> None:
    """First the window that the model was trained with, then warmer, and no more than the limit."""
    tried, attempts = [bad], []
    while (again := judge(tried, ASKED).again) is not None:
        attempts.append(again)
        tried.append(bad)

    assert Attempt(0.0, whole_window=True) == attempts[0]
    assert temperatures == [attempt.temperature for attempt in attempts]
    assert all(attempt.whole_window for attempt in attempts)
    assert (MAX_LOOPS if bad is LOOP else MAX_ATTEMPTS) == len(tried)


def test_a_temperature_that_was_asked_for_is_not_undercut() -> None:
    """Later attempts are warmer than the first."""
    assert Attempt(0.5, whole_window=True) == judge([DOUBTFUL], Attempt(0.5)).again
    assert 0.6 == _temperature(judge([DOUBTFUL, DOUBTFUL], Attempt(0.5)).again)


def _temperature(attempt: Attempt | None) -> float:
    return -1.0 if attempt is None else attempt.temperature


def test_the_best_attempt_counts_in_the_end() -> None:
    """A text without a loop before one that is more likely; then the most likely."""
    tried = [LOOP, DOUBTFUL, Heard(DOUBTFUL.segments, avg_logprob=-1.1), LOOP, DOUBTFUL]

    assert 2 == judge(tried, ASKED).best


def test_a_loop_that_stays_is_dropped_and_the_rest_kept() -> None:
    """Only the segment that repeats itself goes, with the reason."""
    mixed = Heard((Segment("Buenos días."), Segment("no sé no sé no sé no sé no sé no sé")), compression_ratio=2.0)

    judgement = judge([mixed] * MAX_ATTEMPTS, ASKED)

    assert [1] == list(judgement.dropped)
    assert "repeated itself" in judgement.dropped[1]


def test_silence_is_not_decoded_again() -> None:
    """A doubtful text where the model hears nobody costs one attempt."""
    judgement = judge([Heard(DOUBTFUL.segments, avg_logprob=-1.3, no_speech_prob=0.8)], ASKED)

    assert judgement.again is None
    assert "nobody speaks" in judgement.dropped[0]


@pytest.mark.parametrize(
    ("text", "decoded", "dropped"),
    [
        pytest.param("¡Gracias por ver el vídeo!", {"no_speech_prob": 0.5}, True, id="nobody-may-speak"),
        pytest.param("Subtítulos realizados por la comunidad de Amara.org", {"avg_logprob": -0.8}, True, id="doubted"),
        pytest.param("Thanks for watching!", {}, False, id="somebody-says-it"),
        pytest.param("Thanks for watching the bridge.", {"no_speech_prob": 0.5}, False, id="another-sentence"),
        pytest.param("Thank you.", {"no_speech_prob": 0.1}, False, id="thanks"),
    ],
)
def test_phrases_of_subtitles(text: str, decoded: dict[str, float], dropped: bool) -> None:
    """They are dropped only where more than the words speaks against them."""
    assert dropped == bool(judge([Heard((Segment(text),), **decoded)], ASKED).dropped)


def test_phrases_at_a_speed_that_nobody_has() -> None:
    """A short phrase over a long stretch, or a long one in an instant."""
    slow, fast = Segment("Thank you.", 0.0, 25.0), Segment("Thanks for watching!", 0.0, 0.2)

    assert {0, 1} == set(judge([Heard((slow, fast))], ASKED).dropped)


@pytest.mark.parametrize(
    ("text", "seconds"), [("Bye.", 1.5), ("You.", 1.5), ("Thank you.", 3.6), ("Bye!", 0.1), ("Thank you.", 8.0)]
)
def test_courtesies_are_said(text: str, seconds: float) -> None:
    """A goodbye with the pause after it is kept where the model is sure; where it doubts, it goes."""
    said = (Segment("See you on Monday, then.", 0.0, 3.0), Segment(text, 4.0, 4.0 + seconds))
    sure, doubted = Heard(said, avg_logprob=-0.2, no_speech_prob=0.02), Heard(said, avg_logprob=-0.8)

    assert {} == dict(judge([sure], ASKED).dropped)
    assert {1} == set(judge([doubted], ASKED).dropped)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("no, no, no, no", False, id="said-four-times"),
        pytest.param("la la la la la la la la la la", True, id="one-word"),
        pytest.param("muy bien, muy bien, muy bien", False, id="said-three-times"),
        pytest.param("the man is the man is the man is the man is", True, id="a-phrase"),
        pytest.param("uno dos tres cuatro cinco seis siete ocho nueve diez", False, id="counting"),
        pytest.param("", False, id="nothing"),
        pytest.param("a " * 8 + "b c d e f g h i j k l m n o p q r s t u", False, id="a-small-part"),
        pytest.param("it was the best of times it was the worst of times it was the age", False, id="rhetoric"),
    ],
)
def test_loops(text: str, expected: bool) -> None:
    """A loop is a phrase more often in a row than anybody says it, over most of the text."""
    assert expected == has_loop(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("La luz roja significa alto, la luz roja significa alto.", True, id="twice"),
        pytest.param("La luz roja significa que pare. La luz roja significa que", True, id="cut-off"),
        pytest.param(
            "al señor Manuel Baus de la Academia al señor Manuel Bous de la Academia", True, id="nearly-twice"
        ),
        pytest.param("La luz roja significa que pare. La luz", False, id="a-beginning-alone"),
        pytest.param("no, no, no, no", False, id="one-word"),
        pytest.param("La luz roja significa que debes parar.", False, id="once"),
    ],
)
def test_a_text_that_starts_over_is_heard_with_the_whole_window(text: str, expected: bool) -> None:
    """A window that ends too soon makes the model say everything twice; in the whole window twice is twice."""
    decoded = Heard((Segment(text, 0.0, 4.0),))

    assert expected == (judge([decoded], ASKED).again == Attempt(0.0, whole_window=True))
    assert judge([decoded, decoded], ASKED).again is None
    assert {} == dict(judge([decoded, decoded], ASKED).dropped)


def test_a_segment_of_no_length_is_heard_again_and_dropped_in_the_end() -> None:
    """What the model writes after the end of the audio is clamped to it."""
    decoded = Heard((Segment("El perro come.", 0.0, 5.0), Segment("El gato duerme.", 5.0, 5.0)))

    assert Attempt(0.0, whole_window=True) == judge([decoded], ASKED).again
    assert [1] == list(judge([decoded, decoded], ASKED).dropped)
    assert "after the end" in judge([decoded, decoded], ASKED).dropped[1]


def test_a_text_that_nobody_can_say_in_that_time() -> None:
    """Too many letters a second are decoded again, too."""
    assert judge([Heard((Segment("a b c d e f g h i j k l m n o p q r", 0.0, 0.4),))], ASKED).again is not None


def test_speech_without_a_text_is_found() -> None:
    """Where the model stopped early, or left a stretch out."""
    decoded = Heard((Segment("a", 0.0, 4.0), Segment("b", 9.0, 12.0)))

    assert [(4.0, 8.5), (12.0, 20.0)] == undecoded(decoded, [(0.0, 8.5), (9.0, 20.0)])
    assert [] == undecoded(decoded, [(0.2, 4.8), (9.1, 12.9)])
    assert [(0.0, 5.0)] == undecoded(Heard(()), [(0.0, 5.0)])
    assert [(4.0, 8.5)] == undecoded(decoded, [(0.0, 5.0), (5.5, 6.0), (7.0, 8.5), (9.0, 12.0)])
