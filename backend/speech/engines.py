"""What transcription needs of a speech model: its engines, their lanes, and what a request may ask of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from backend.lanes.batcher import Batcher
from backend.lanes.engine import Engine


@dataclass(frozen=True, slots=True)
class SpeechEngines:
    """A speech model and a detector of speech. Loading them may wait for their first batch."""

    speech: Engine  # payload: SpeechPiece; result: HeardPiece
    lanes: Batcher  # of ``speech``
    activity: Engine  # payload: int16 samples; result: tuple of SpeechSpan, with some silence around each
    activity_lanes: Batcher
    names: tuple[str, ...]  # that a request may call the model by; the one in answers first
    languages: frozenset[str]  # ISO 639-1; that it knows
    fingerprint: str  # of all that decides a transcript, the same on all replicas
    encode_prompt: Callable[[str], tuple[int, ...]]  # tokens; called on a thread
    beams: int
    release: Callable[[], None]  # called on a thread while nothing is transcribed: gives memory back
    report: Callable[[], dict[str, Any]]  # for GET /v1/system
    rest_s: float = 0.0  # without work before ``release``

    @property
    def name(self) -> str:
        return self.names[0]
