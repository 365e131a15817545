"""Answers about recordings, in OpenAI's shapes with more beside them, and the events of their streams."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from backend.files.speech_records import DroppedSpeech, Segment, SpeechTask, SpokenWord, Transcript, gap
from backend.reasons import ReasonAnswer, reasons_in
from backend.speech.languages import language_name

_TIME_DIGITS = 3
_SCORE_DIGITS = 4
_SEEK_PER_S = 100  # OpenAI's seek counts frames of 10 ms
_TOKENS_PER_S = 50  # positions of Whisper's encoder
_MIN_CONFIDENCE = 1e-4  # so that every log-probability is finite


class DurationUsage(TypedDict):
    """What was heard."""

    type: Literal["duration"]
    seconds: float


class InputTokenDetails(TypedDict):
    """Of what kind the input was."""

    audio_tokens: int
    text_tokens: int


class TokenUsage(TypedDict):
    """What was heard, in the unit that OpenAI's streams count in."""

    type: Literal["tokens"]
    input_tokens: Annotated[int, Field(description="50 a second: positions of Whisper's encoder.")]
    output_tokens: int
    total_tokens: int
    input_token_details: InputTokenDetails
    seconds: Annotated[float, Field(description="Ours.")]


class HeardLanguageAnswer(TypedDict):
    """A language."""

    code: Annotated[str, Field(description="ISO 639-1.")]


class LogprobAnswer(TypedDict):
    """A word with the logarithm of its confidence."""

    token: str
    bytes: list[int]
    logprob: float


class SpokenWordAnswer(TypedDict):
    """OpenAI's word, and how sure it is."""

    word: str
    start: Annotated[float, Field(description="Seconds from the beginning of the file.")]
    end: float
    confidence: Annotated[float, Field(description="Ours, 0 to 1.")]


class SegmentAnswer(TypedDict):
    """OpenAI's segment, which is a sentence here. Joined, the texts are the transcript."""

    id: int
    seek: Annotated[int, Field(description="Its beginning in hundredths of a second.")]
    start: Annotated[float, Field(description="Seconds from the beginning of the file.")]
    end: float
    text: str
    tokens: list[int]
    temperature: Annotated[float, Field(description="That it was sampled with.")]
    avg_logprob: Annotated[float, Field(description="Below -1 the text is doubtful.")]
    compression_ratio: Annotated[float, Field(description="Above 2.4 the text repeats itself.")]
    no_speech_prob: float
    language: Annotated[str | None, Field(description="Ours: ISO 639-1 of what is spoken here.")]
    cut: Annotated[
        bool,
        Field(description="Ours: it begins or ends where speech without a pause was cut; the word there may be wrong."),
    ]


class DroppedAnswer(TypedDict):
    """A stretch whose text was not kept; or empty, where the model made no words of speech."""

    start: float
    end: float
    text: str
    why: str
    reasons: list[ReasonAnswer]


class TranscriptionAnswer(TypedDict):
    """`response_format: json`."""

    text: str
    languages: Annotated[list[HeardLanguageAnswer], Field(description="That were heard, most of it first.")]
    logprobs: NotRequired[Annotated[list[LogprobAnswer], Field(description="Of words, where `include` asks for it.")]]
    usage: DurationUsage
    model: Annotated[str, Field(description="As language: what Mistral's clients need.")]
    language: Annotated[str | None, Field(description="ISO 639-1, of most of it; null where nobody speaks.")]
    why: Annotated[str, Field(description="Ours: why the text is empty or not whole; empty where all is well.")]
    reasons: Annotated[list[ReasonAnswer], Field(description="`why` as codes with parameters (docs/reasons.md).")]


class VerboseTranscriptionAnswer(TypedDict):
    """`response_format: verbose_json`."""

    task: Literal["transcribe", "translate"]
    language: Annotated[str, Field(description="English name of the answer's language, as OpenAI's; or unknown.")]
    duration: Annotated[float, Field(description="Seconds that were decoded.")]
    text: str
    segments: NotRequired[Annotated[list[SegmentAnswer], Field(description="Unless words alone were asked for.")]]
    words: NotRequired[Annotated[list[SpokenWordAnswer], Field(description="Where they were asked for.")]]
    usage: DurationUsage
    languages: list[HeardLanguageAnswer]
    language_score: Annotated[float, Field(description="Ours, as are the fields below: 0 to 1, of what is spoken.")]
    speech_s: Annotated[float, Field(description="Seconds in which somebody speaks.")]
    dropped: Annotated[list[DroppedAnswer], Field(description="Heard by the model, and not said.")]
    why: Annotated[str, Field(description="Why the text is empty or not whole; empty where all is well.")]
    reasons: list[ReasonAnswer]
    model: str


class SpeakerSegmentAnswer(TypedDict):
    """OpenAI's segment of who says what."""

    type: Literal["transcript.text.segment"]
    id: str
    start: Annotated[float, Field(description="Seconds from the beginning of the file.")]
    end: float
    text: str
    speaker: Annotated[str, Field(description="A, B, …, as they first speak.")]


class DiarizedTranscriptionAnswer(TypedDict):
    """`response_format: diarized_json`."""

    task: Literal["transcribe"]
    duration: float
    text: str
    segments: list[SpeakerSegmentAnswer]
    usage: DurationUsage
    why: str


def diarized_answer(transcript: Transcript) -> DiarizedTranscriptionAnswer:
    return {
        "task": "transcribe",
        "duration": round(transcript.duration_s, _TIME_DIGITS),
        "text": transcript.text,
        "segments": [
            {
                "type": "transcript.text.segment",
                "id": f"seg_{index}",
                "start": round(segment.start_s, _TIME_DIGITS),
                "end": round(segment.end_s, _TIME_DIGITS),
                "text": segment.text,
                "speaker": chr(ord("A") + (segment.speaker or 0)),
            }
            for index, segment in enumerate(transcript.segments)
        ],
        "usage": _duration_usage(transcript),
        "why": transcript.why,
    }


def json_answer(transcript: Transcript, *, with_logprobs: bool) -> TranscriptionAnswer:
    answer: TranscriptionAnswer = {
        "text": transcript.text,
        "languages": languages_answer(transcript),
        "usage": _duration_usage(transcript),
        "model": transcript.model,
        "language": transcript.language.code or None,
        "why": transcript.why,
        "reasons": reasons_in(transcript.why),
    }
    if with_logprobs:
        answer["logprobs"] = logprobs_answer(transcript.segments)
    return answer


def verbose_answer(
    transcript: Transcript, task: SpeechTask, granularities: frozenset[str]
) -> VerboseTranscriptionAnswer:
    language = transcript.language
    answer: VerboseTranscriptionAnswer = {
        "task": task,
        "language": "english" if task == "translate" else language_name(language.code),
        "duration": round(transcript.duration_s, _TIME_DIGITS),
        "text": transcript.text,
        "usage": _duration_usage(transcript),
        "languages": languages_answer(transcript),
        "language_score": round(language.score, _SCORE_DIGITS),
        "speech_s": round(transcript.speech_s, _TIME_DIGITS),
        "dropped": [_dropped_answer(dropped) for dropped in transcript.dropped],
        "why": transcript.why,
        "reasons": reasons_in(transcript.why),
        "model": transcript.model,
    }
    if "segment" in granularities:
        texts = ["", *(segment.text for segment in transcript.segments)]
        answer["segments"] = [
            segment_answer(index, segment, texts[index]) for index, segment in enumerate(transcript.segments)
        ]
    if "word" in granularities:
        answer["words"] = [word_answer(word) for segment in transcript.segments for word in segment.words]
    return answer


def segment_answer(index: int, segment: Segment, before: str) -> SegmentAnswer:
    """One segment; its text begins with the space that parts it from the text ``before``, as OpenAI's do."""
    return {
        "id": index,
        "seek": round(segment.start_s * _SEEK_PER_S),
        "start": round(segment.start_s, _TIME_DIGITS),
        "end": round(segment.end_s, _TIME_DIGITS),
        "text": gap(before or " ", segment.text) + segment.text,
        "tokens": list(segment.tokens),
        "temperature": round(segment.temperature, _SCORE_DIGITS),
        "avg_logprob": _finite(segment.avg_logprob),
        "compression_ratio": _finite(segment.compression_ratio),
        "no_speech_prob": _finite(segment.no_speech_prob),
        "language": segment.language,
        "cut": segment.is_cut,
    }


def word_answer(word: SpokenWord) -> SpokenWordAnswer:
    return {
        "word": word.text,
        "start": round(word.start_s, _TIME_DIGITS),
        "end": round(word.end_s, _TIME_DIGITS),
        "confidence": round(word.confidence, _SCORE_DIGITS),
    }


def logprobs_answer(segments: Iterable[Segment]) -> list[LogprobAnswer]:
    """The words of segments; each but the first of all begins with its space, as tokens do, where there is one."""
    tokens: list[LogprobAnswer] = []
    before = ""
    for word in (word for segment in segments for word in segment.words):
        token = ("" if word.is_joined else gap(before, word.text)) + word.text
        logprob = round(math.log(max(_MIN_CONFIDENCE, word.confidence)), _SCORE_DIGITS)
        tokens.append({"token": token, "bytes": list(token.encode()), "logprob": logprob})
        before = word.text
    return tokens


def delta_event(
    segment: Segment, *, before: str, total_s: float | None, with_logprobs: bool, with_words: bool
) -> dict[str, Any]:
    """OpenAI's event of a segment that is final; joined, the deltas are the text.

    Args:
        before: the text of the segment before it; empty for the first.
        total_s: of the recording; None while it is not known.
    """
    event: dict[str, Any] = {
        "type": "transcript.text.delta",
        "delta": gap(before, segment.text) + segment.text,
        "start": round(segment.start_s, _TIME_DIGITS),
        "end": round(segment.end_s, _TIME_DIGITS),
        "language": segment.language,
        "duration": None if total_s is None else round(total_s, _TIME_DIGITS),
    }
    if with_logprobs:
        event["logprobs"] = logprobs_answer([segment])
    if with_words:
        event["words"] = [word_answer(word) for word in segment.words]
    return event


def done_event(transcript: Transcript, rest: VerboseTranscriptionAnswer | TranscriptionAnswer) -> dict[str, Any]:
    """OpenAI's last event of a stream, with the members of the answer that would have come without one."""
    output = sum(len(segment.tokens) for segment in transcript.segments)
    heard = math.ceil(transcript.duration_s * _TOKENS_PER_S)
    usage: TokenUsage = {
        "type": "tokens",
        "input_tokens": heard,
        "output_tokens": output,
        "total_tokens": heard + output,
        "input_token_details": {"audio_tokens": heard, "text_tokens": 0},
        "seconds": round(transcript.duration_s, _TIME_DIGITS),
    }
    return {"type": "transcript.text.done", **rest, "usage": usage}


def languages_answer(transcript: Transcript) -> list[HeardLanguageAnswer]:
    """The languages of the segments, by their seconds; that of the whole first."""
    seconds: dict[str, float] = {}
    for segment in transcript.segments:
        if segment.language:
            seconds[segment.language] = seconds.get(segment.language, 0.0) + segment.end_s - segment.start_s
    codes: Sequence[str] = sorted(seconds, key=lambda code: -seconds[code])
    first = transcript.language.code
    if first is not None:
        codes = [first, *(code for code in codes if code != first)]
    return [{"code": code} for code in codes]


def _duration_usage(transcript: Transcript) -> DurationUsage:
    return {"type": "duration", "seconds": round(transcript.duration_s, _TIME_DIGITS)}


def _dropped_answer(dropped: DroppedSpeech) -> DroppedAnswer:
    return {
        "start": round(dropped.start_s, _TIME_DIGITS),
        "end": round(dropped.end_s, _TIME_DIGITS),
        "text": dropped.text,
        "why": dropped.why,
        "reasons": reasons_in(dropped.why),
    }


def _finite(score: float) -> float:
    """The score rounded; JSON has no NaN and no infinity."""
    return round(score, _SCORE_DIGITS) if math.isfinite(score) else 0.0
