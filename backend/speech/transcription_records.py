"""Records of transcription: what is asked for, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import NamedTuple

import orjson

from backend.files.speech_records import Segment, SpeechTask, SpokenLanguage, Transcript


@dataclass(frozen=True, slots=True)
class TranscriptionOptions:
    """What a caller asks for."""

    task: SpeechTask = "transcribe"
    language: str | None = None  # ISO 639-1; None: it is found, also where it changes within the file
    prompt: str = ""  # names and words to expect, or what was said before
    temperature: float = 0.0  # 0: the most likely text, sampled only where that is doubtful
    with_words: bool = False  # seconds and confidence of every word

    def key(self) -> str:
        """A digest that is equal for equal options in every process."""
        return blake2b(orjson.dumps(astuple(self)), digest_size=16).hexdigest()


class TranscriptionEvent(NamedTuple):
    """Progress. Segments come in order, each once, as soon as all before it are final."""

    done_s: float  # of audio that is transcribed or silent
    total_s: float | None  # None until the end of the file was decoded
    segments: tuple[Segment, ...] = ()  # new ones
    language: SpokenLanguage | None = None  # of most of the speech so far, once it is known; more may change it
    expected_s: float | None = None  # what the file says it lasts, as far as that is plausible


TranscriptionCallback = Callable[[TranscriptionEvent], None]  # called on the loop; must not block


@dataclass(frozen=True, slots=True)
class Transcription:
    """A transcript, and what it took."""

    transcript: Transcript
    from_cache: bool
    decode_s: float  # of the file, in worker processes
    lane_s: float  # of models on lanes
    total_s: float


def ignore_event(event: TranscriptionEvent) -> None:
    """A `TranscriptionCallback` that does nothing."""
