"""Segments by sentence: the model's own are cut where a sentence ends within them, and joined where one goes on.

Whisper ends a segment where it wrote a time, which may be amid a sentence or after several. Pure; the text of all
segments together stays as it is.

Source of the idea: whisperX, alignment.py; stable-ts, `regroup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from backend.files.speech_records import Segment, SpokenWord, gap
from backend.text.sentences import sentence_spans

JOINED_PAUSE_S = 1.0  # a pause from here on ends a segment
_MOST_S = 30.0  # of a segment that is joined: speech without full stops must not become one of minutes

SplitTokens = Callable[[Sequence[int], Sequence[str]], list[tuple[int, ...]]]  # tokens of each of a text's pieces


class _Cut(NamedTuple):
    """A border between sentences: places in a segment's text, and the index of the first word after it."""

    end: int
    start: int
    word: int


def cut_at_sentences(segment: Segment, split_tokens: SplitTokens) -> tuple[Segment, ...]:
    """The sentences of a segment, with the times of their words, or by characters where there are none."""
    cuts = list(_cuts(segment))
    if not cuts:
        return (segment,)
    text, words = segment.text, segment.words
    borders = [_Cut(0, 0, 0), *cuts, _Cut(len(text), len(text), len(words))]
    parts = [
        replace(
            segment,
            start_s=_start_s(segment, before),
            end_s=_end_s(segment, after),
            text=text[before.start : after.end],
            words=_unjoined(words[before.word : after.word]),
        )
        for before, after in pairwise(borders)
    ]
    tokens = split_tokens(segment.tokens, [part.text for part in parts])
    return tuple(replace(part, tokens=own) for part, own in zip(parts, tokens, strict=True))


@dataclass(slots=True)
class SentenceJoiner:
    """Joins segments of one sentence each, or a part of one, that come in order."""

    _open: Segment | None = None  # may go on in the next one

    def add(self, segments: Iterable[Segment]) -> list[Segment]:
        """Those that are final now."""
        final = list[Segment]()
        for segment in segments:
            if self._open is not None and _goes_on(self._open, segment):
                self._open = _joined(self._open, segment)
                continue
            final += self.finish()
            self._open = segment
        return final

    def finish(self) -> list[Segment]:
        """The last one: nothing follows, or after a pause."""
        final, self._open = [] if self._open is None else [self._open], None
        return final

    def final_s(self, done_s: float) -> float:
        """Up to where nothing more comes, once everything before ``done_s`` was added."""
        return done_s if self._open is None else min(done_s, self._open.start_s)


def _cuts(segment: Segment) -> Iterator[_Cut]:
    """Only where a word begins, and where the texts of two segments are joined as the text is."""
    text, starts = segment.text, _word_starts(segment)
    for (_, end), (start, _) in pairwise(sentence_spans(text).tolist()):
        if gap(text[:end], text[start:]) == text[end:start] and (start in starts or not segment.words):
            yield _Cut(end, start, starts.get(start, 0))


def _word_starts(segment: Segment) -> dict[int, int]:
    """Where each word but the first begins in the text: its index."""
    starts, end = dict[int, int](), 0
    for index, word in enumerate(segment.words):
        at = segment.text.find(word.text, end)
        if at < 0:
            continue
        end = at + len(word.text)
        if index:
            starts[at] = index
    return starts


def _start_s(segment: Segment, cut: _Cut) -> float:
    if not cut.start:
        return segment.start_s
    return segment.words[cut.word].start_s if segment.words else round(segment.second_at(cut.start), 3)


def _end_s(segment: Segment, cut: _Cut) -> float:
    if cut.end == len(segment.text):
        return segment.end_s
    return segment.words[cut.word - 1].end_s if segment.words else round(segment.second_at(cut.start), 3)


def _unjoined(words: tuple[SpokenWord, ...]) -> tuple[SpokenWord, ...]:
    """The words of a segment of their own."""
    return (words[0]._replace(is_joined=False), *words[1:]) if words else ()


def _goes_on(segment: Segment, after: Segment) -> bool:
    """Whether two segments are parts of one sentence."""
    return (
        after.start_s - segment.end_s < JOINED_PAUSE_S
        and after.end_s - segment.start_s <= _MOST_S
        and (after.language, after.speaker, bool(after.words))
        == (segment.language, segment.speaker, bool(segment.words))
        and not (segment.is_cut and after.is_cut)
        and not _ends(segment.text, after.text)
    )


def _ends(text: str, after: str) -> bool:
    """Whether a sentence ends between two texts."""
    return len(text) in sentence_spans(text + gap(text, after) + after)[:, 1]


def _joined(segment: Segment, after: Segment) -> Segment:
    between = gap(segment.text, after.text)
    words = after.words and (after.words[0]._replace(is_joined=not between), *after.words[1:])
    return replace(
        segment,
        end_s=max(segment.end_s, after.end_s),
        text=segment.text + between + after.text,
        words=(*segment.words, *words),
        tokens=(*segment.tokens, *after.tokens),
        avg_logprob=_mean(segment, after, lambda one: one.avg_logprob),
        compression_ratio=_mean(segment, after, lambda one: one.compression_ratio),
        no_speech_prob=_mean(segment, after, lambda one: one.no_speech_prob),
        temperature=max(segment.temperature, after.temperature),
        is_cut=segment.is_cut or after.is_cut,
    )


def _mean(segment: Segment, after: Segment, number: Callable[[Segment], float]) -> float:
    """A number of both, by their tokens; exactly theirs where it is the same, as within a piece."""
    if number(segment) == number(after):
        return number(segment)
    weights = max(1, len(segment.tokens)), max(1, len(after.tokens))
    return (weights[0] * number(segment) + weights[1] * number(after)) / sum(weights)
