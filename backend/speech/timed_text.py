"""Whisper's tokens as segments: a text between the two times that the model wrote around it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from backend.speech.engine_records import TimedText
from backend.speech.tokens import SpeechTokens


def split_by_times(written: Sequence[int], tokens: SpeechTokens, duration_s: float) -> tuple[TimedText, ...]:
    """The segments of what the model wrote for a piece, in order; a text without an end lasts to the piece's.

    A piece ends where nobody speaks, so that a last text without a time after it is whole, too.
    """
    segments: list[TimedText] = []
    start_s, own = 0.0, []
    has_text = False
    for token in written:
        own.append(token)
        if not tokens.is_time(token):
            has_text = has_text or token < tokens.end
            continue
        at_s = min(tokens.seconds(token), duration_s)
        if has_text:
            _append(segments, tokens, start_s, at_s, own)
            own, has_text = [], False
        else:
            own = [token]  # the time that the next text begins at
        start_s = at_s
    if has_text:
        _append(segments, tokens, start_s, duration_s, own)
    return tuple(segments)


def _append(segments: list[TimedText], tokens: SpeechTokens, start_s: float, end_s: float, own: list[int]) -> None:
    text = tokens.decode(own).strip()
    if text:
        segments.append(TimedText(start_s, max(start_s, end_s), text, tuple(own)))
