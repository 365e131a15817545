"""What a model that writes summaries reads of a text: all of it where that fits, else an extract of its sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from backend.lanes.inference import Urgency
from backend.summaries.records import Method, SummaryOptions
from backend.text.analysis import KeySentence
from backend.text.language import Language
from backend.text.sentences import sentence_spans

_MAX_CHARS_A_TOKEN = 12  # a text with more characters than this a token is not tried whole


@dataclass(frozen=True, slots=True)
class Reading:
    """What the model reads."""

    text: str
    places: tuple[tuple[int, int], ...]  # first and past-last code point of each sentence, in the caller's text
    sentences: tuple[str, ...]  # at these places
    coverage: float  # share of the text's characters, blanks aside


@dataclass(frozen=True, slots=True)
class Written:
    """What a model wrote."""

    text: str
    model: str
    tokens: int  # read and written


class Writer(Protocol):
    """A model that writes a summary of sentences."""

    @property
    def method(self) -> Method: ...

    @property
    def name(self) -> str:
        """The model's."""

    @property
    def most_read_tokens(self) -> int:
        """How many tokens it reads at once; an extract of the embedding model's tokens aims at it."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text as it counts them, special ones aside. On a thread."""

    async def write(
        self, reading: Reading, options: SummaryOptions, language: Language | None, urgency: Urgency
    ) -> Written:
        """Raises: UpstreamFailed, Overloaded, Unavailable, DeadlineExceeded, InferenceFailed."""


async def reading_of(text: str, extract: Sequence[KeySentence], writer: Writer) -> Reading:
    """The whole text where the writer can read it, else those sentences of the extract that fit, in their order.

    Of a long text without an extract, a form for one, its beginning. The writer cuts a lone sentence that is too long.

    Args:
        extract: of at most about as many tokens as the writer reads; those of the lowest score go first.
    """
    return await asyncio.to_thread(partial(_reading, text, extract, writer))


def _reading(text: str, extract: Sequence[KeySentence], writer: Writer) -> Reading:
    limit = writer.most_read_tokens
    spans = [(int(start), int(end)) for start, end in sentence_spans(text)]
    if len(text) <= limit * _MAX_CHARS_A_TOKEN and sum(writer.count_tokens([text])) <= limit:
        return _of_places(text, spans)
    if not extract:
        extract = [KeySentence(text[start:end], start, end, -start) for start, end in spans[:limit]]
    tokens = dict(zip(extract, writer.count_tokens([sentence.text for sentence in extract]), strict=True))
    kept, total = list(extract), sum(tokens.values()) + len(extract)
    for sentence in sorted(extract, key=lambda candidate: candidate.score)[:-1]:
        if total <= limit:
            break
        kept.remove(sentence)
        total -= tokens[sentence] + 1
    return _of_places(text, [(sentence.start, sentence.end) for sentence in kept])


def _of_places(text: str, places: Sequence[tuple[int, int]]) -> Reading:
    sentences = tuple(" ".join(text[start:end].split()) for start, end in places)
    read, whole = (len("".join(part.split())) for part in ("".join(sentences), text))
    return Reading(" ".join(sentences), tuple(places), sentences, read / whole if whole else 1.0)
