"""Questions over a text: the words of it that answer each, with a calibrated score, or that there are none.

Extractive: an answer is always a piece of the text. A question is read together with each window of the text by the
encoder, so what either says is data; nothing that a text says changes what is asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from backend.errors import NotFound, TooLarge, UnknownModel
from backend.lanes.inference import Inference, Timing, Urgency, UsageCounter, WindowPipeline
from backend.lanes.work_item import Priority
from backend.models.encoder import Vectors
from backend.models.numpy_layers import sigmoid
from backend.models.pairs import PairTokenizer
from backend.models.tokenizer import TokenArrays
from backend.models.windows import Window, cut
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.answers import TASK, best_span
from backend.telemetry import Telemetry

MOST_QUESTIONS, MOST_QUESTION_CHARS = 50, 1_000
_MOST_QUESTION_TOKENS = 128
_WINDOW_TOKENS, _OVERLAP = 192, 64  # question and special tokens included; scores fall beyond what was taught
_EDGES = " \t\r\n\f\v,;:.\N{NO-BREAK SPACE}"  # around an answer, of the tokens that punctuation shares with words
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

    def __init__(self, catalog: Catalog, inference: Inference, telemetry: Telemetry) -> None:
        self._catalog, self._inference = catalog, inference
        self._usage = UsageCounter(telemetry, TASK)

    async def answer(
        self,
        questions: Sequence[str],
        text: str,
        *,
        min_score: float,
        model: str | None = None,
        priority: Priority = Priority.INTERACTIVE,
        deadline_s: float = math.inf,
    ) -> AnswerResult:
        """The answer to each question in a text of any length, which is read in overlapping windows.

        Args:
            min_score: below it there is no answer.
            deadline_s: on the monotonic clock; work that would be late never reaches the device.

        Raises: UnknownModel, TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded, InferenceFailed for
            the service.
        """
        loaded, work, budget = self.require(model), self._inference.text_work, self._inference.token_budget()
        tokens = await work.read(loaded.tokenizer, text, budget)
        asked = await work.run(partial(loaded.tokenizer.read_each, questions), sum(map(len, questions)))
        _check_tokens(asked)
        pairs = await work.run_long(partial(_pairs, loaded, asked, tokens), len(text) * len(questions), inline=True)
        budget.add(sum(len(pair.window.ids) for pair in pairs) - len(tokens.ids))
        pipeline = WindowPipeline(loaded.engine, loaded.namespace(TASK))
        windows = [pair.window for pair in pairs]
        result = await self._inference.run(pipeline, windows, Urgency(priority, deadline_s))
        rows = [row.vector.reshape(-1, len(loaded.labels)) for row in result.rows]
        read = _Read(text, tokens, pairs, rows)
        decode = partial(_answers, read, len(questions), calibration_of(loaded), min_score)
        answers = await work.run_long(decode, sum(map(len, rows)), inline=True)
        total = sum(len(window.ids) for window in windows)
        self._usage.count(len(questions), total)
        return AnswerResult(tuple(answers), loaded.name, result.timing, total)

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


def _check_tokens(asked: Sequence[TokenArrays]) -> None:
    for index, question in enumerate(asked):
        if len(question.ids) > _MOST_QUESTION_TOKENS:
            raise TooLarge(
                f"questions[{index}] tokens",
                len(question.ids),
                _MOST_QUESTION_TOKENS,
                "a fixed limit",
                advice="Ask shorter questions.",
                param="questions",
            )


def _pairs(model: LoadedModel, asked: Sequence[TokenArrays], text: TokenArrays) -> list[_Pair]:
    """Each question with each window of the text."""
    pairs = PairTokenizer(model.tokenizer, model.spec.token_types)
    size = min(_WINDOW_TOKENS, model.tokenizer.max_tokens)
    ids = text.ids.astype(np.int64)
    windows = []
    for index, question in enumerate(asked):
        room = size - len(question.ids) - pairs.specials
        if room < 1:
            raise TooLarge(f"questions[{index}] tokens", size - room + 1, size, "the model's length", param="questions")
        for start, stop, _, _ in cut(len(ids), room, min(_OVERLAP, room // 2)):
            joined, place = pairs.join(question.ids.astype(np.int64), ids[start:stop])
            offsets = np.full((len(joined.ids), 2), -1, np.int64)
            offsets[place : place + stop - start] = text.offsets[start:stop]
            nowhere = np.full(len(joined.ids), -1, np.int64)
            window = Window(joined.ids, offsets, nowhere, place, place + stop - start, joined.types)
            windows.append(_Pair(index, window, start, place))
    return windows


def _answers(read: _Read, questions: int, calibration: tuple[float, float], min_score: float) -> list[Answer]:
    best: dict[int, tuple[float, int, int]] = {}
    for pair, row in zip(read.pairs, read.rows, strict=True):
        span = best_span(row, pair.place, pair.window.own_stop)
        if pair.question not in best or span.margin > best[pair.question][0]:
            best[pair.question] = span.margin, pair.first + span.first, pair.first + span.last
    slope, offset = calibration
    answers = []
    for index in range(questions):
        if index not in best:
            answers.append(Answer(0, 0, 0.0, "empty_text"))
            continue
        margin, first, last = best[index]
        score = float(sigmoid(np.array(slope * margin + offset)))
        start, end = _trimmed(read.text, int(read.tokens.offsets[first, 0]), int(read.tokens.offsets[last, 1]))
        is_there = score >= min_score and start < end
        answers.append(Answer(start, end, score) if is_there else Answer(0, 0, score, "not_there"))
    return answers


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Without blanks and commas at its edges, which tokens have along with words."""
    span = text[start:end]
    inner = span.lstrip(_EDGES)
    return end - len(inner), end - len(inner) + len(inner.rstrip(_EDGES))
