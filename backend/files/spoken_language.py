"""What all of speech agrees on: the rate of samples, the tasks, and a language that was heard."""

from __future__ import annotations

from typing import Literal, NamedTuple

SAMPLE_RATE = 16_000  # Hz, mono: what the models hear
SpeechTask = Literal["transcribe", "translate"]  # translate: into English


class HeardLanguage(NamedTuple):
    """A language with its score, 0 to 1, over the pieces it was looked for in."""

    code: str | None  # ISO 639-1; None where it is unknown
    score: float
