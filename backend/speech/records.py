"""What transcription and the speech engines take and give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from backend.files.speech_records import Segment, SpeechTask, SpokenLanguage, Transcript
from backend.lanes.batcher import Batcher
from backend.lanes.engine import Engine
from backend.speech.sentences import SplitTokens

if TYPE_CHECKING:
    from numpy import int16
    from numpy.typing import NDArray


WHOLE_WINDOW = 3000  # frames of 0.01 s: the 30 s that Whisper was trained with
# Frames of silence after the piece. Of pieces without silence around them one in 70 was said twice with 100, none with
# 200; with 50 one clip of 35 looped. Of 70 clips 100 has more words wrong than 200: Spanish 19.2 % and 18.4 %, English
# 6.5 % and 6.3 % (whole service, one beam), for as much CPU time. A piece with its own silence at the end may still be
# said twice: the hallucination filter decodes it again with the whole window.
MARGIN = 200
_STEP = 100  # pieces of the same step share a call, with the same result as alone


def window_frames(samples: int, *, whole: bool) -> int:
    """Frames that the encoder hears of a piece of so many samples.

    Pieces of one batch are padded to their own step, never to their neighbours': what a piece becomes does not depend
    on its company.
    """
    if whole:
        return WHOLE_WINDOW
    frames = -(-samples // 160) + MARGIN
    return min(WHOLE_WINDOW, -(-frames // _STEP) * _STEP)


MAX_PIECE_S = 30.0  # what Whisper hears at once
SPEECH_TASKS = ("speech_activity", "speech")  # names of the engines in metrics
# Samples in which speech is looked for in the time that a millisecond of them takes to be written: a 30th of it.
_ACTIVITY_SAMPLES = 480


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How a piece is decoded."""

    task: SpeechTask = "transcribe"
    language: str | None = None  # ISO 639-1; None: each piece's own is looked for
    prompt: tuple[int, ...] = ()  # tokens of what was said before, or of names to expect
    beams: int = 5
    temperature: float = 0.0  # above 0: sampled, without beams
    with_words: bool = False
    whole_window: bool = False  # the encoder hears 30 s, the rest silence, as it was trained; else the piece's length


@dataclass(frozen=True, slots=True, eq=False)
class SpeechPiece:
    """At most `MAX_PIECE_S` of audio: the payload of the speech engine."""

    samples: NDArray[int16]  # 16 kHz, mono
    options: DecodingOptions
    written: DecodedPiece | None = None  # the text that it was decoded as before: its words alone are looked for

    @property
    def cost(self) -> int:
        """What it counts in the queue: milliseconds that the encoder hears.

        The lanes are shared with pages, of which one weighs 30,000 for about as much work as 30 s of speech.
        """
        return 10 * window_frames(len(self.samples), whole=self.options.whole_window)


def activity_cost(samples: int) -> int:
    """What looking for speech in so much audio counts in the queue, in the unit of `SpeechPiece.cost`."""
    return max(1, samples // _ACTIVITY_SAMPLES)


class TimedWord(NamedTuple):
    """A word in a piece; seconds from the piece's beginning. ``text`` keeps its leading space."""

    text: str
    start_s: float
    end_s: float
    confidence: float


class TimedText(NamedTuple):
    """A segment of a piece; seconds from the piece's beginning."""

    start_s: float
    end_s: float
    text: str
    tokens: tuple[int, ...]
    words: tuple[TimedWord, ...] = ()


class LanguageRun(NamedTuple):
    """A stretch of a piece in one language; seconds from the piece's beginning, to about a second."""

    code: str
    start_s: float
    end_s: float
    score: float = 1.0  # 0 to 1, the mean of its windows


@dataclass(frozen=True, slots=True)
class DecodedPiece:
    """What the model made of a piece."""

    segments: tuple[TimedText, ...]
    language: SpokenLanguage
    avg_logprob: float
    no_speech_prob: float
    compression_ratio: float
    temperature: float
    runs: tuple[LanguageRun, ...] = ()  # all of the piece, where more than one language is spoken in it


class SpeechSpan(NamedTuple):
    """A stretch in which somebody speaks; samples from the beginning of the audio that was looked at."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SpeechEngines:
    """A speech model and a detector of speech. Loading them may wait for their first batch."""

    speech: Engine  # payload: SpeechPiece; result: DecodedPiece
    lanes: Batcher  # of ``speech``
    activity: Engine  # payload: int16 samples; result: tuple of SpeechSpan, with some silence around each
    activity_lanes: Batcher
    names: tuple[str, ...]  # that a request may call the model by; the one in answers first
    languages: frozenset[str]  # ISO 639-1; that it knows
    fingerprint: str  # of all that decides a transcript, the same on all replicas
    encode_prompt: Callable[[str], tuple[int, ...]]  # tokens; called on a thread
    split_tokens: SplitTokens
    beams: int
    release: Callable[[], None]  # called on a thread while nothing is transcribed: gives memory back
    report: Callable[[], dict[str, Any]]  # for GET /v1/system
    rest_s: float = 0.0  # without work before ``release``
    voices: Engine | None = None  # payload: int16 samples; result: a voice's vector; on ``activity_lanes``

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True, slots=True)
class TranscriptionOptions:
    """What a caller asks for."""

    task: SpeechTask = "transcribe"
    language: str | None = None  # ISO 639-1; None: it is found, also where it changes within the file
    prompt: str = ""  # names and words to expect, or what was said before
    temperature: float = 0.0  # 0: the most likely text, sampled only where that is doubtful
    with_words: bool = False  # seconds and confidence of every word
    with_speakers: bool = False

    def key(self) -> str:
        """A digest that is equal for equal options in every process."""
        return blake2b(orjson.dumps(astuple(self)), digest_size=16).hexdigest()


class TranscriptionEvent(NamedTuple):
    """Progress. Segments come in order, each once, as soon as it and all before it are final.

    Where speakers are told apart none comes: who speaks is known at the end.
    """

    done_s: float  # of audio whose segments all came, or in which nobody speaks
    total_s: float | None  # None until the end of the file was decoded
    segments: tuple[Segment, ...] = ()  # new ones
    language: SpokenLanguage | None = None  # of most of the speech so far, once it is known; more may change it
    expected_s: float | None = None  # what the file says it lasts, as far as that is plausible


TranscriptionCallback = Callable[[TranscriptionEvent], None]  # called on the loop; must not block


@dataclass(frozen=True, slots=True)
class Transcription:
    """A transcript, and what it took."""

    transcript: Transcript
    decode_s: float  # of the file, in worker processes
    lane_s: float  # of models on lanes
    total_s: float


def ignore_event(event: TranscriptionEvent) -> None:
    """A `TranscriptionCallback` that does nothing."""
