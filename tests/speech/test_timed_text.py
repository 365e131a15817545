"""Whisper's tokens as segments."""

import pytest

from backend.speech.model_files import SpeechTokens
from backend.speech.transcribe import split_by_times
from tests.tiny_whispers import bundled_folder


@pytest.fixture(scope="module")
def tokens() -> SpeechTokens:
    """The bundled model's."""
    return SpeechTokens.read((bundled_folder() / "tokenizer.json").read_bytes(), "here", is_multilingual=True)


def t(seconds: float) -> int:
    """The token of a time."""
    return 50364 + round(seconds / 0.02)


ONE, TWO = 1485, 732  # " One", " two"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([t(0), t(2)], [], id="no-text"),
        pytest.param([t(0), ONE, t(2)], [(0.0, 2.0, "One")], id="one-segment"),
        pytest.param([t(0), ONE, t(2), t(3), TWO, t(4)], [(0.0, 2.0, "One"), (3.0, 4.0, "two")], id="two-segments"),
        pytest.param([t(0), ONE, t(2), TWO, t(4)], [(0.0, 2.0, "One"), (2.0, 4.0, "two")], id="one-time-between"),
        pytest.param([t(0.5), ONE], [(0.5, 5.0, "One")], id="no-end"),
        pytest.param([ONE, TWO], [(0.0, 5.0, "One two")], id="no-times"),
        pytest.param([t(0), ONE, t(29)], [(0.0, 5.0, "One")], id="an-end-beyond-the-piece"),
        pytest.param([t(20), ONE, t(29)], [(5.0, 5.0, "One")], id="wholly-beyond"),
    ],
)
def test_split(tokens: SpeechTokens, written: list[int], expected: list[tuple[float, float, str]]) -> None:
    """Every text gets the times around it, within the piece, and no text is lost."""
    assert expected == [(part.start_s, part.end_s, part.text) for part in split_by_times(written, tokens, 5.0)]
