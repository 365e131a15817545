"""Subtitles of a transcript, as SubRip (SRT) and as WebVTT.

A cue has at most two lines of 42 columns, lasts one to seven seconds, and is read at 20 columns a second, as guides for
subtitles ask (Netflix's Timed Text Style Guide), as far as what is said allows: one that is too short stays on in the
pause after it, or goes with its neighbour. It is cut between words where words have times; else the time of a segment
is shared out by characters. Cues never overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from backend.files.pages import printable_line
from backend.files.speech_records import Segment, SpokenWord, width

LINE_CHARS, CUE_LINES, CUE_S = 42, 2, 7.0
MIN_CUE_MS, MS_PER_CHAR = 1000, 50  # 20 columns a second
_SHORTEST_CUE_MS = 1  # a cue of no length is shown by no player
_JOINED_PAUSE_MS = 2000  # up to which two phrases may share a cue
_CLAUSE_ENDS = (",", ";", ":", "…", "、", "\uff0c", "\uff1b", "\uff1a")
_CLAUSE_CHARS = LINE_CHARS // 2  # a cue this long ends with its clause
_CLAUSE_WORTH = 10  # columns by which the parts of a phrase may differ more, for the sake of an end of a clause
_Words = Sequence[SpokenWord]


class Cue(NamedTuple):
    """One subtitle; times are whole milliseconds."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]


def srt(segments: Iterable[Segment]) -> str:
    """SubRip: numbered cues with commas in their times."""
    return "".join(
        f"{number}\n{_time(cue.start_ms, ',')} --> {_time(cue.end_ms, ',')}\n{_text(cue.lines)}\n\n"
        for number, cue in enumerate(cues(segments), 1)
    )


def webvtt(segments: Iterable[Segment]) -> str:
    """WebVTT, with what has a meaning in it escaped."""
    blocks = (
        f"{_time(cue.start_ms, '.')} --> {_time(cue.end_ms, '.')}\n{_escaped(cue.lines)}\n\n" for cue in cues(segments)
    )
    return "WEBVTT\n\n" + "".join(blocks)


def cues(segments: Iterable[Segment]) -> Iterator[Cue]:
    """The subtitles of segments in their order; each begins at the end of the one before or later."""
    runs = _joined([words for segment in segments for words in _cut(_timed_words(segment))])
    last_ms = 0
    for index, words in enumerate(runs):
        start_ms = max(last_ms, _start_ms(words))
        free_ms = _start_ms(runs[index + 1]) if index + 1 < len(runs) else math.inf
        end_ms = max(_end_ms(words), min(start_ms + _needed_ms(words), free_ms))
        last_ms = max(start_ms + _SHORTEST_CUE_MS, int(min(end_ms, start_ms + CUE_S * 1000)))
        yield Cue(start_ms, last_ms, _balanced(words))


def _joined(runs: Sequence[_Words]) -> list[_Words]:
    """The same, but one that has too little time shares a cue with the one that it stands next to."""
    joined: list[_Words] = []
    for index, words in enumerate(runs):
        after = runs[index + 1] if index + 1 < len(runs) else ()
        if joined and (_is_cramped(joined[-1], words) or _is_cramped(words, after)) and _may_join(joined[-1], words):
            is_nearer = after and _may_join(words, after) and _pause_ms(words, after) < _pause_ms(joined[-1], words)
            if _is_cramped(joined[-1], words) or not is_nearer:
                joined[-1] = (*joined[-1], *words)
                continue
        joined.append(words)
    return joined


def _is_cramped(words: _Words, after: _Words) -> bool:
    """Whether a cue cannot be read before the next one begins."""
    return bool(after) and _start_ms(after) - _start_ms(words) < _needed_ms(words)


def _may_join(words: _Words, after: _Words) -> bool:
    both = (*words, *after)
    return (
        _pause_ms(words, after) <= _JOINED_PAUSE_MS
        and _end_ms(both) - _start_ms(both) <= CUE_S * 1000
        and len(_lines(both)) <= CUE_LINES
    )


def _pause_ms(words: _Words, after: _Words) -> int:
    return _start_ms(after) - _end_ms(words)


def _needed_ms(words: _Words) -> int:
    """For whoever reads it."""
    return max(MIN_CUE_MS, MS_PER_CHAR * _columns(words))


def _start_ms(words: _Words) -> int:
    return round(words[0].start_s * 1000)


def _end_ms(words: _Words) -> int:
    return round(words[-1].end_s * 1000)


def _columns(words: _Words) -> int:
    """Of a line that holds them all."""
    return sum(width(word.text) for word in words) + sum(not word.is_joined for word in words[1:])


def _timed_words(segment: Segment) -> list[SpokenWord]:
    """Words of at most a line, each with its time."""
    return [part for word in segment.timed_words() for part in _within_line(word)]


def _within_line(word: SpokenWord) -> Iterator[SpokenWord]:
    """The word, or pieces of one that is longer than a line: of a language that writes no spaces."""
    text = printable_line(word.text)
    most = LINE_CHARS if width(text) == len(text) else LINE_CHARS // 2
    pieces = [text[start : start + most] for start in range(0, len(text), most)]
    each_s = (word.end_s - word.start_s) / max(1, len(pieces))
    for index, piece in enumerate(pieces):
        start_s = word.start_s + index * each_s
        yield SpokenWord(piece, start_s, start_s + each_s, word.confidence, is_joined=index > 0 or word.is_joined)


def _cut(words: _Words) -> Iterator[_Words]:
    """Runs of words that fit a cue: the whole segment where it does, else up to an end of a clause.

    Where that would leave a rest too short to be read, the two are made about equal.
    """
    first = 0
    while first < len(words):
        most = _fitting(words, first)
        end = most if most == len(words) else _good_end(words, first, most)
        if end < len(words) and _end_ms(words) - _start_ms(words[end:]) < MIN_CUE_MS:
            end = _middle(words, first, most)
        yield words[first:end]
        first = end


def _fitting(words: _Words, first: int) -> int:
    """The index after the last word that still fits into a cue from ``first``; one word always does."""
    end = first + 1
    while (
        end < len(words)
        and words[end].end_s - words[first].start_s <= CUE_S
        and len(_lines(words[first : end + 1])) <= CUE_LINES
    ):
        end += 1
    return end


def _good_end(words: _Words, first: int, most: int) -> int:
    """Where to end a cue that cannot hold the rest: after a clause, else where it is full."""
    for end in range(most, first, -1):
        if _columns(words[first:end]) >= _CLAUSE_CHARS and words[end - 1].text.endswith(_CLAUSE_ENDS):
            return end
    return most


def _middle(words: _Words, first: int, most: int) -> int:
    """Where what is left is cut in two about equal parts, rather after a clause."""
    whole = _columns(words[first:])

    def unequal(end: int) -> int:
        worth = _CLAUSE_WORTH if words[end - 1].text.endswith(_CLAUSE_ENDS) else 0
        return abs(2 * _columns(words[first:end]) - whole) - 2 * worth

    return min(range(first + 1, most + 1), key=unequal)


def _lines(words: _Words, most: int = LINE_CHARS) -> list[str]:
    """The words in lines, each as full as it can be."""
    lines: list[str] = []
    for word in words:
        space = "" if word.is_joined else " "
        if lines and width(lines[-1]) + len(space) + width(word.text) <= most:
            lines[-1] += space + word.text
        else:
            lines.append(word.text)
    return lines


def _balanced(words: _Words) -> tuple[str, ...]:
    """The lines of a cue, two of them about equally long."""
    lines = _lines(words)
    if len(lines) != CUE_LINES:
        return tuple(lines)
    length = sum(map(width, lines)) + 1
    for most in range(length // CUE_LINES, LINE_CHARS):
        narrower = _lines(words, most)
        if len(narrower) == CUE_LINES and max(map(width, narrower)) <= LINE_CHARS:
            return tuple(narrower)
    return tuple(lines)


def _text(lines: Iterable[str]) -> str:
    """Lines of SubRip, which has no escapes: an arrow alone would be taken for times."""
    return "\n".join(line.replace("-->", "→") for line in lines)


def _escaped(lines: Iterable[str]) -> str:
    return "\n".join(line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for line in lines)


def _time(milliseconds: int, separator: str) -> str:
    seconds, thousandths = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{separator}{thousandths:03d}"
