"""What hours of audio need: progress as it is made, lanes that are full for a while, and a true measure of speed."""

from typing import Any

import pytest

from backend.errors import Overloaded
from backend.files.speech_records import SAMPLE_RATE, SpokenLanguage
from backend.speech import recording_run
from backend.speech.recording_run import _PlacedPiece
from tests.speech.conftest import PIECES_AT_ONCE, SpeechFixture, said, words

MINUTES = 5


class Anything(dict[int, str]):
    """One text for every level."""

    def __contains__(self, _level: object) -> bool:
        return True

    def __missing__(self, _level: int) -> str:
        return "Thanks for watching!"


@pytest.mark.parametrize("is_silent", [True, False], ids=["silence", "sound-without-words"])
async def test_progress_is_told_where_nobody_speaks(speech: SpeechFixture, is_silent: bool) -> None:
    """No language has to be known for that; nothing is held until the end."""
    speech.whisper.phantoms = Anything()
    await speech.transcribe(*([(0, 60.0 * MINUTES)] if is_silent else words(60 * MINUTES)))
    early = [event.done_s for event in speech.events if event.total_s is None]

    assert len(early) >= MINUTES - 1
    assert 60.0 * MINUTES == speech.events[-1].done_s


async def test_a_sure_piece_is_told_at_once(speech: SpeechFixture) -> None:
    """Before twenty seconds of speech were decoded."""
    await speech.transcribe((100, 2.0), (0, 60.0 * MINUTES))
    early = [segment.text for event in speech.events if event.total_s is None for segment in event.segments]

    assert [said(100)] == early


async def test_a_doubtful_piece_waits_for_a_while(speech: SpeechFixture) -> None:
    """Not for the end of an hour in which nobody says more."""
    speech.whisper.scores = {50: SpokenLanguage("de", 0.4)}
    await speech.transcribe((50, 2.0), (0, 60.0 * MINUTES))
    first = next(event for event in speech.events if event.segments)

    assert (said(50), None) == (first.segments[0].text, first.total_s)


async def test_full_lanes_end_no_recording(speech: SpeechFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was admitted, and half of it may have been told: a piece that is refused waits."""
    submit, refusals = speech.lanes.submit, [Overloaded(9, 8, 0.0)]

    def sometimes_full(engine: Any, *args: Any, **options: Any) -> Any:
        if engine is speech.whisper and speech.whisper.pieces and refusals:
            raise refusals.pop()
        return submit(engine, *args, **options)

    monkeypatch.setattr(speech.lanes, "submit", sometimes_full)
    result = await speech.transcribe(*words(150))

    assert [] == refusals
    assert said(*range(100, 250)) == result.transcript.text


async def test_speed_is_measured_of_what_was_heard(speech: SpeechFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence and pieces of the cache take no lane, and tell nothing of its speed."""
    measured = list[tuple[float, float]]()
    monkeypatch.setattr(speech.service.backlog, "measured", lambda *times: measured.append(times))
    await speech.transcribe(*words(60), (0, 120.0), name="one")
    pieces_s = sum(len(piece.samples) for piece in speech.whisper.pieces) / SAMPLE_RATE
    await speech.transcribe(name="other")
    [(decoded_s, decoding_s), from_cache] = measured

    assert pieces_s == pytest.approx(decoded_s)
    assert 70.0 > decoded_s > 50.0
    assert decoding_s > 0
    assert (0.0, 0.0) == from_cache


async def test_pieces_without_words_are_let_go(speech: SpeechFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their audio is not held until somebody speaks: an hour of music would be 113 MB."""
    speech.whisper.phantoms = Anything()
    live, held = list[None](), list[int]()

    class Counted(_PlacedPiece):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            live.append(None)
            held.append(len(live))

        def __del__(self) -> None:
            live.pop()

    monkeypatch.setattr(recording_run, "_PlacedPiece", Counted)
    await speech.transcribe(*words(600))

    assert len(speech.whisper.pieces) > 20
    assert 2 * PIECES_AT_ONCE + 2 >= max(held)
