"""Lossless encoding of transcripts to bytes, for the cache."""

from __future__ import annotations

import zlib
from typing import Any

import orjson

from backend.files.speech_records import DroppedSpeech, Segment, SpokenWord, Transcript
from backend.files.spoken_language import HeardLanguage

_FAST = 1  # zlib's level: an hour of speech in a few milliseconds
_SEGMENT = (
    "start_s", "end_s", "text", "language", "avg_logprob", "compression_ratio", "no_speech_prob", "temperature",
    "is_cut",
)  # fmt: skip
_TRANSCRIPT = ("duration_s", "speech_s", "why", "model")


def pack_transcript(transcript: Transcript) -> bytes:
    """Encode a transcript; numbers are restored exactly."""
    fields: dict[str, Any] = {name: getattr(transcript, name) for name in _TRANSCRIPT}
    fields["language"] = list(transcript.language)
    fields["segments"] = [_segment_fields(segment) for segment in transcript.segments]
    fields["dropped"] = [[part.start_s, part.end_s, part.text, part.why] for part in transcript.dropped]
    return zlib.compress(orjson.dumps(fields), _FAST)


def unpack_transcript(blob: bytes) -> Transcript | None:
    """Decode a transcript; None for bytes that are none."""
    try:
        fields = orjson.loads(zlib.decompress(blob))
        return Transcript(
            language=HeardLanguage(*fields["language"]),
            segments=tuple(_segment(values) for values in fields["segments"]),
            dropped=tuple(DroppedSpeech(*values) for values in fields["dropped"]),
            **{name: fields[name] for name in _TRANSCRIPT},
        )
    except (zlib.error, ValueError, TypeError, AttributeError, KeyError):
        return None


def _segment_fields(segment: Segment) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(segment, name) for name in _SEGMENT}
    return fields | {"words": [list(word) for word in segment.words], "tokens": segment.tokens}


def _segment(fields: dict[str, Any]) -> Segment:
    words = tuple(SpokenWord(*values) for values in fields["words"])
    return Segment(words=words, tokens=tuple(fields["tokens"]), **{name: fields[name] for name in _SEGMENT})
