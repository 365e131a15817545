"""Pieces that were heard as segments of the file: times from its beginning, none overlapping another. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.files.speech_records import Segment, SpokenWord
from backend.speech.engine_records import HeardPiece, TimedText, TimedWord


def segments_of(heard: HeardPiece, start_s: float, end_s: float) -> tuple[Segment, ...]:
    """The segments of a piece, in order.

    Args:
        start_s, end_s: of the piece, from the file's beginning. No time lies beyond them.
    """
    segments, after_s = list[Segment](), start_s
    for timed in heard.segments:
        text = " ".join(timed.text.split())
        if not text:
            continue
        first_s, last_s = _times(timed)
        first_s = _within(start_s + first_s, after_s, end_s)
        last_s = _within(start_s + last_s, first_s, end_s)
        segments.append(
            Segment(
                round(first_s, 3),
                round(last_s, 3),
                text,
                words=tuple(_words(timed.words, text, start_s, (first_s, last_s))),
                tokens=tuple(timed.tokens),
                language=heard.language.code,
                avg_logprob=heard.avg_logprob,
                compression_ratio=heard.compression_ratio,
                no_speech_prob=heard.no_speech_prob,
                temperature=heard.temperature,
            )
        )
        after_s = last_s
    return tuple(segments)


def _times(timed: TimedText) -> tuple[float, float]:
    """Of a segment: those of its words, which are finer, where it has any."""
    if not timed.words:
        return timed.start_s, timed.end_s
    return timed.words[0].start_s, max(timed.words[0].start_s, timed.words[-1].end_s)


def _words(
    words: Sequence[TimedWord], whole: str, start_s: float, around_s: tuple[float, float]
) -> Iterator[SpokenWord]:
    """Words in order, within their segment, none beginning before the one before it has ended.

    Args:
        whole: the text of the segment, which says where there are spaces.
    """
    (least_s, most_s), end = around_s, 0
    for word in words:
        text = " ".join(word.text.split())
        if not text:
            continue
        first_s = _within(start_s + word.start_s, least_s, most_s)
        last_s = _within(start_s + word.end_s, first_s, most_s)
        at = whole.find(text, end)
        is_joined = 0 < end == at
        end = end if at < 0 else at + len(text)
        yield SpokenWord(text, round(first_s, 3), round(last_s, 3), word.confidence, is_joined)
        least_s = last_s


def _within(value: float, least: float, most: float) -> float:
    return max(least, min(value, most))
