"""A transcript as pages of a document, a page a minute, and back.

A minute ends where a segment does. A word's box lies on the axis of time: left and right are seconds from the beginning
of the file, top and bottom are 0 and 1. A page is as wide as the file is long up to its end, and of height 0, which no
printed page is. Lines are segments; a block ends at a pause.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from backend.files.pages import Box, Document, Page, RawWord, Word, blocks_of, make_page
from backend.files.speech_records import Segment, SpokenLanguage, SpokenWord, Transcript
from backend.reasons import because

KIND = "audio"  # of a `Document`
PAGE_S = 60.0
TIME_HEIGHT = 0.0  # of a page whose boxes lie on the axis of time
_PARAGRAPH_PAUSE_S = 2.0  # after which a new thought is likely; a sentence then does not go on
_NEAR_S = 1e-6


def time_box(start_s: float, end_s: float) -> Box:
    """Where a spoken word stands on the axis of time."""
    return Box(start_s, 0.0, end_s, 1.0)


def minutes_of(duration_s: float) -> int:
    """Pages that a recording counts: a begun minute is one."""
    return math.ceil(duration_s / PAGE_S - _NEAR_S)


def seconds_of(box: Box) -> tuple[float, float]:
    """When the words of a box are spoken: from and to, in seconds from the beginning of the file."""
    return box.left, box.right


@dataclass(slots=True)
class MinutePages:
    """Makes the pages of a recording while it is transcribed: each as soon as its minute is final.

    Args:
        engine: the name of the model.
    """

    engine: str
    _segments: list[Segment] = field(default_factory=list)  # of the next page
    _pages: int = 0
    _end_s: float = 0.0  # of the last page

    def add(self, segments: Iterable[Segment], done_s: float) -> list[Page]:
        """The pages that are final once everything before ``done_s`` is."""
        self._segments += segments
        pages: list[Page] = []
        while done_s >= (self._pages + 1) * PAGE_S:
            border_s = (self._pages + 1) * PAGE_S
            spoken = [segment for segment in self._segments if segment.start_s < border_s]
            self._segments = self._segments[len(spoken) :]
            end_s = max(border_s, spoken[-1].end_s if spoken else 0.0)
            pages.append(self._page(spoken, end_s))
        return pages

    def finish(self, transcript: Transcript) -> list[Page]:
        """The pages that are left, and where there was no sound at all an empty one. ``transcript``: the whole."""
        pages = self.add((), transcript.duration_s)
        if self._segments or transcript.duration_s > self._end_s + _NEAR_S or not self._pages:
            end_s = max(transcript.duration_s, self._segments[-1].end_s if self._segments else 0.0)
            pages.append(self._page(self._segments, end_s, transcript.why))
            self._segments = []
        return pages

    def _page(self, segments: Sequence[Segment], end_s: float, incomplete: str = "") -> Page:
        self._pages, self._end_s = self._pages + 1, end_s
        words = [_words(segment) for segment in segments]
        return make_page(
            _blocks(segments, words),
            number=self._pages,
            width=end_s,
            height=TIME_HEIGHT,
            source="speech",
            why="; ".join(filter(None, [_why(segments, self.engine), incomplete])),
            engine=self.engine,
            confidence=_confidence([word for line in words for word in line]),
            language=_language(segments),
            incomplete=bool(incomplete and segments),
        )


def pages_of(transcript: Transcript) -> list[Page]:
    """The pages of a whole transcript."""
    minutes = MinutePages(transcript.model)
    return [*minutes.add(transcript.segments, 0.0), *minutes.finish(transcript)]


def transcript_of(document: Document) -> Transcript:
    """The transcript that a document of `MinutePages` was made of; numbers of the model's doubt are not in it."""
    segments = tuple(segment for page in document.pages for segment in _segments(page))
    codes = [page.language for page in document.pages if page.language]
    language = max(codes, key=codes.count) if codes else None
    return Transcript(
        duration_s=max((page.width for page in document.pages), default=0.0),
        language=SpokenLanguage(language, 1.0 if language else 0.0),
        segments=segments,
        speech_s=sum(segment.end_s - segment.start_s for segment in segments),
        model=document.pages[0].engine if document.pages else "",
    )


def _words(segment: Segment) -> list[RawWord]:
    return [
        RawWord(word.text, time_box(word.start_s, word.end_s), word.confidence, word.is_joined)
        for word in segment.timed_words()
    ]


def _blocks(segments: Sequence[Segment], words: Sequence[list[RawWord]]) -> list[list[list[RawWord]]]:
    blocks: list[list[list[RawWord]]] = []
    end_s = -math.inf
    for segment, line in zip(segments, words, strict=True):
        if segment.start_s - end_s > _PARAGRAPH_PAUSE_S:
            blocks.append([])
        blocks[-1].append(line)
        end_s = segment.end_s
    return blocks


def _confidence(words: Sequence[RawWord]) -> float | None:
    letters = sum(len(word.text) for word in words)
    return sum(word.confidence * len(word.text) for word in words) / letters if letters else None


def _language(segments: Sequence[Segment]) -> str | None:
    """Of most of the page."""
    seconds: dict[str, float] = {}
    for segment in segments:
        if segment.language:
            seconds[segment.language] = seconds.get(segment.language, 0.0) + segment.end_s - segment.start_s
    return max(seconds, key=seconds.__getitem__, default=None)


def _why(segments: Sequence[Segment], engine: str) -> str:
    return because("transcribed", model=engine) if segments else because("nobody_here")


def _segments(page: Page) -> Iterator[Segment]:
    for block in blocks_of(page):
        for line in block:
            yield _segment(line, page)


def _segment(line: Sequence[Word], page: Page) -> Segment:
    ends = (-1, *(word.end for word in line))
    words = tuple(
        SpokenWord(word.text, word.box.left, word.box.right, word.confidence, is_joined=word.start == end)
        for word, end in zip(line, ends, strict=False)
    )
    text = page.text[line[0].start : line[-1].end]
    return Segment(words[0].start_s, words[-1].end_s, text, words, language=page.language)
