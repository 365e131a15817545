"""Questions over a text: the words of it that answer each, with a calibrated score, or that there are none.

Extractive: an answer is always a piece of the text. A question is read together with windows of the text by the
encoder, so what either says is data; nothing that a text says changes what is asked. Of a long text a question is read
with the windows around the passages whose vectors are nearest to its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.errors import NotFound, TooLarge, UnknownModel
from backend.lanes.inference import Inference, Timing, Urgency, UsageCounter, WindowPipeline
from backend.lanes.work_item import Priority
from backend.models.encoder import Vectors
from backend.models.numpy_layers import sigmoid
from backend.models.pairs import PairTokenizer
from backend.models.tokenizer import TokenArrays
from backend.models.windows import Window, cut
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.answers import TASK, Span, best_span, best_span_within
from backend.telemetry import Telemetry
from backend.text.embeddings import EmbeddingService, EmbedOptions
from backend.text.neutral_vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS
from backend.text.own_values import plain_of
from backend.text.sentences import trimmed
from backend.text.written_numbers import NUMBER_WORDS

MAX_QUESTIONS, MAX_QUESTION_CHARS = 50, 1_000
_MAX_QUESTION_TOKENS = 128
_WINDOW_TOKENS, _OVERLAP = 192, 64  # question and special tokens included; scores fall beyond what was taught
# Of a text with more windows so many are read with each question, around the passages nearest to it by their vectors.
# Over 27 windows F1 is .56 so, with 16 of them too, and .51 with all (48 questions, docs/answers.md).
_MAX_WINDOWS, _PASSAGE_TOKENS = 8, 96
_EDGES = " \t\r\n\f\v,;:.\N{NO-BREAK SPACE}"  # around an answer, of the tokens that punctuation shares with words
# How many, how much, which year; but not how long or how often, which words answer that are no numbers.
_ASKS_NUMBER = re.compile(
    r"\b(?:how (?:much|many|old)|(?<!cada )cuant[oa]s?(?! (?:tiempo|dura))|(?:what|which) (?:year|percentage)"
    r"|que (?:ano|porcentaje))\b"
)
_NUMBERS = NUMBER_WORDS - {"a"} | {
    "zero", "none", "nothing", "free", "half", "both", "twice", "double", "dozen", "dozens", "hundreds", "thousands",
    "billion", "many", "several", "few", "all", "cero", "nada", "gratis", "gratuito", "gratuita", "ninguno", "ninguna",
    "medio", "media", "mitad", "ambos", "ambas", "doble", "docena", "cientos", "miles", "muchos", "muchas", "varios",
    "varias", "pocos", "pocas", "todos", "todas",
}  # fmt: skip
_LETTERS = re.compile(r"[a-z]+")
_WITHOUT_NUMBER = 0.2  # of 8 such answers to XQuAD's questions and a stranger's 2 were right
NO_PLACES: Mapping[int, Sequence[tuple[int, int]]] = {}
Absence = Literal["not_there", "empty_text"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What answers one question."""

    start: int  # code points of the text; both 0 where nothing does
    end: int
    score: float  # 0 to 1: how likely the best words of the text are the right answer
    absent: Absence | None = None  # why there is no answer


@dataclass(frozen=True, slots=True)
class AnswerResult:
    """The answer to each question, in the order of the questions."""

    answers: tuple[Answer, ...]
    model: str
    timing: Timing
    tokens: int  # processed by the model: the question's with every window


class NoAnswerModel(UnknownModel):
    """No model for questions is loaded, so no model name is known."""

    def __init__(self, name: str | None = None) -> None:
        NotFound.__init__(
            self,
            "model: no model for questions is loaded here; set ANSWER_MODEL=bundled and restart",
            param="model",
        )
        self.name, self.known = name or "", ()


class _Asked(NamedTuple):
    """A question as it is read with a text."""

    text: str
    ids: NDArray[np.int64]
    room: int  # tokens of the text beside it in a window


class _Pair(NamedTuple):
    """A question with a part of the text."""

    question: int  # its index
    window: Window
    first: int  # the part's first token, among the text's
    place: int  # the same, among the window's


class _Read(NamedTuple):
    """A text with what the model made of it."""

    text: str
    tokens: TokenArrays
    pairs: Sequence[_Pair]
    rows: Sequence[Vectors]  # probabilities of each pair's tokens


class AnswerService:
    """The use case behind ``/v1/answer``. Belongs to the loop's thread."""

    def __init__(
        self, catalog: Catalog, inference: Inference, embeddings: EmbeddingService, telemetry: Telemetry
    ) -> None:
        self._catalog, self._inference, self._embeddings = catalog, inference, embeddings
        self._usage = UsageCounter(telemetry, TASK)

    @property
    def is_loaded(self) -> bool:
        """Whether questions can be answered now."""
        return self._catalog.of(TASK) is not None

    async def answer(
        self,
        questions: Sequence[str],
        text: str,
        *,
        min_score: float,
        within: Mapping[int, Sequence[tuple[int, int]]] = NO_PLACES,
        model: str | None = None,
        priority: Priority = Priority.INTERACTIVE,
        deadline_s: float = math.inf,
    ) -> AnswerResult:
        """The answer to each question in a text of any length, which is read in overlapping windows.

        Of a text with more than ``_MAX_WINDOWS`` windows those most like the question are read.

        Args:
            min_score: below it there is no answer.
            within: by the index of a question, places of the text of which its answer has one or a part of one.
            deadline_s: on the monotonic clock; work that would be late never reaches the device.

        Raises: UnknownModel, TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded, InferenceFailed for
            the service.
        """
        loaded, work, budget = self.require(model), self._inference.text_work, self._inference.token_budget()
        urgency = Urgency(priority, deadline_s)
        tokens = await work.read(loaded.tokenizer, text, budget)
        joiner = PairTokenizer(loaded.tokenizer, loaded.spec.token_types)
        read_all = partial(loaded.tokenizer.read_each, questions)
        asked = _asked(loaded, joiner, questions, await work.run(read_all, sum(map(len, questions))))
        places, embedding_tokens = await self._places(loaded, asked, text, tokens, urgency)
        length = sum(stop - start for parts in places for start, stop in parts)
        budget.add(length + sum(len(one.ids) * len(parts) for one, parts in zip(asked, places, strict=True)))
        pairs = await work.run_long(partial(_pairs, joiner, asked, tokens, places), length, inline=True)
        pipeline = WindowPipeline(loaded.engine, loaded.namespace(TASK))
        windows = [pair.window for pair in pairs]
        result = await self._inference.run(pipeline, windows, urgency)
        rows = [row.vector.reshape(-1, len(loaded.labels)) for row in result.rows]
        read = _Read(text, tokens, pairs, rows)
        decode = partial(_answers, read, questions, calibration_of(loaded), min_score, within)
        answers = await work.run_long(decode, sum(map(len, rows)), inline=True)
        total = sum(len(window.ids) for window in windows) + embedding_tokens
        self._usage.count(len(questions), total)
        return AnswerResult(tuple(answers), loaded.name, result.timing, total)

    async def _places(
        self, loaded: LoadedModel, asked: Sequence[_Asked], text: str, tokens: TokenArrays, urgency: Urgency
    ) -> tuple[list[list[tuple[int, int]]], int]:
        """First and past-last token of the parts of the text to read with each question; tokens that choosing cost."""
        everywhere = {room: _everywhere(len(tokens.ids), room) for room in {one.room for one in asked}}
        if max(map(len, everywhere.values())) <= _MAX_WINDOWS:
            return [everywhere[one.room] for one in asked], 0
        size = min(_PASSAGE_TOKENS, loaded.tokenizer.max_tokens // 2)
        starts = range(0, len(tokens.ids), size)
        ends = tokens.offsets[[min(start + size, len(tokens.ids)) - 1 for start in starts], 1]
        passages = [text[begin:end] for begin, end in zip(tokens.offsets[starts, 0], ends, strict=True)]
        model = self._catalog.embedding()
        options = EmbedOptions(prompts=DOCUMENT_PROMPTS, normalize=True)
        of_text = await self._embeddings.embed_in_chunks(model, passages, options, urgency)
        options = options._replace(prompts=QUERY_PROMPTS)
        of_questions = await self._embeddings.embed_in_chunks(model, [one.text for one in asked], options, urgency)
        cosines = of_questions.vectors @ of_text.vectors.T
        chosen = [
            _around(row, starts, size, len(tokens.ids), one.room)
            if len(everywhere[one.room]) > _MAX_WINDOWS
            else everywhere[one.room]
            for row, one in zip(cosines, asked, strict=True)
        ]
        return chosen, sum(of_text.tokens) + sum(of_questions.tokens)

    def require(self, name: str | None) -> LoadedModel:
        """The model that answers. Raises: UnknownModel where there is none of this name, or none at all."""
        loaded = self._catalog.of(TASK)
        if loaded is None:
            raise NoAnswerModel(name)
        if name is not None and name not in loaded.names:
            raise self._catalog.unknown(name, loaded.names)
        return loaded


def calibration_of(model: LoadedModel) -> tuple[float, float]:
    """Slope and offset of the logistic curve that makes a score of a margin, from the model's ``config.json``."""
    slope, offset = model.spec.config.get("answer_calibration") or (1.0, 0.0)
    return float(slope), float(offset)


def _asked(
    model: LoadedModel, joiner: PairTokenizer, questions: Sequence[str], read: Sequence[TokenArrays]
) -> list[_Asked]:
    """The questions with the room that they leave. Raises: TooLarge."""
    size = min(_WINDOW_TOKENS, model.tokenizer.max_tokens)
    asked = []
    for index, question in enumerate(read):
        name, room = f"questions[{index}] tokens", size - len(question.ids) - joiner.specials
        if len(question.ids) > _MAX_QUESTION_TOKENS:
            limit, advice = _MAX_QUESTION_TOKENS, "Ask shorter questions."
            raise TooLarge(name, len(question.ids), limit, "a fixed limit", advice=advice, param="questions")
        if room < 1:
            raise TooLarge(name, size - room + 1, size, "the model's length", param="questions")
        asked.append(_Asked(questions[index], question.ids.astype(np.int64), room))
    return asked


def _everywhere(tokens: int, room: int) -> list[tuple[int, int]]:
    """Overlapping parts that are the whole text together."""
    return [(start, stop) for start, stop, _, _ in cut(tokens, room, min(_OVERLAP, room // 2))]


def _around(cosines: Vectors, starts: range, size: int, tokens: int, room: int) -> list[tuple[int, int]]:
    """Parts around the passages nearest to a question, in the order of the text."""
    spare, firsts = room - size, set[int]()
    for index in np.argsort(-cosines, kind="stable")[:_MAX_WINDOWS]:
        # Beside a question of more than half a window there is no room for a passage: it is read in two parts.
        firsts |= {starts[index] - spare // 2} if spare >= 0 else {starts[index], starts[index] - spare}
    within = {min(max(0, first), tokens - room) for first in firsts}
    return [(first, first + room) for first in sorted(within)]


def _pairs(
    joiner: PairTokenizer, asked: Sequence[_Asked], text: TokenArrays, places: Sequence[Sequence[tuple[int, int]]]
) -> list[_Pair]:
    """Each question with its parts of the text."""
    ids = text.ids.astype(np.int64)
    windows = []
    for index, question in enumerate(asked):
        for start, stop in places[index]:
            joined, place = joiner.join(question.ids, ids[start:stop])
            offsets = np.full((len(joined.ids), 2), -1, np.int64)
            offsets[place : place + stop - start] = text.offsets[start:stop]
            nowhere = np.full(len(joined.ids), -1, np.int64)
            window = Window(joined.ids, offsets, nowhere, place, place + stop - start, joined.types)
            windows.append(_Pair(index, window, start, place))
    return windows


def _answers(
    read: _Read,
    questions: Sequence[str],
    calibration: tuple[float, float],
    min_score: float,
    within: Mapping[int, Sequence[tuple[int, int]]],
) -> list[Answer]:
    best: dict[int, tuple[float, int, int]] = {}
    places = {index: _tokens_of(read.tokens, own) for index, own in within.items()}
    for pair, row in zip(read.pairs, read.rows, strict=True):
        length, own = pair.window.own_stop - pair.place, places.get(pair.question)
        span: Span | None
        if own is None:
            span = best_span(row, pair.place, pair.window.own_stop)
        else:
            here = [(at - pair.first, past - pair.first) for at, past in own if at < pair.first + length]
            span = best_span_within(row, pair.place, pair.window.own_stop, [one for one in here if one[1] > 0])
        if span is None:
            continue
        if pair.question not in best or span.margin > best[pair.question][0]:
            best[pair.question] = span.margin, pair.first + span.first, pair.first + span.last
    slope, offset = calibration
    answers = []
    for index, question in enumerate(questions):
        if index not in best:
            answers.append(Answer(0, 0, 0.0, "not_there" if read.pairs else "empty_text"))
            continue
        margin, first, last = best[index]
        score = float(sigmoid(np.array(slope * margin + offset)))
        start, end = _whole_words(read.text, int(read.tokens.offsets[first, 0]), int(read.tokens.offsets[last, 1]))
        if _ASKS_NUMBER.search(plain_of(question)) and not _says_number(read.text[start:end]):
            score *= _WITHOUT_NUMBER
        is_there = score >= min_score and start < end
        answers.append(Answer(start, end, score) if is_there else Answer(0, 0, score, "not_there"))
    return answers


def _says_number(words: str) -> bool:
    return any(map(str.isdigit, words)) or not _NUMBERS.isdisjoint(_LETTERS.findall(plain_of(words)))


def _tokens_of(tokens: TokenArrays, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """First and past-last token of each place."""
    firsts = np.searchsorted(tokens.offsets[:, 1], [start for start, _ in places], side="right").tolist()
    lasts = np.searchsorted(tokens.offsets[:, 0], [end for _, end in places], side="left").tolist()
    return [(first, last) for first, last in zip(firsts, lasts, strict=True) if first < last]


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Whole words, without blanks and commas at the edges, which tokens have along with words."""
    while 0 < start < end and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while start < end < len(text) and text[end].isalnum() and text[end - 1].isalnum():
        end += 1
    return trimmed(text, start, end, _EDGES)
