"""Questions over a text, and types of entities in the caller's words: the words of it that each means, with a score.

Extractive: an answer is always a piece of the text. A question is read together with windows of the text by the
encoder, so what either says is data; nothing that a text says changes what is asked. Of a long text a question is read
with the windows around the passages whose vectors are nearest to its own, a few first and more where these leave it
doubtful; a type, which is a question that may have many answers, with all of its sentences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.errors import NotFound, TooLarge, UnknownModel
from backend.lanes.inference import Inference, Timing, Urgency, UsageCounter, WindowPipeline
from backend.lanes.text_work import TokenBudget
from backend.models.encoder import Vectors
from backend.models.numpy_layers import sigmoid
from backend.models.pairs import PairTokenizer
from backend.models.tokenizer import TokenArrays, Window, cut
from backend.reasons import because
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.answers import LABEL_TASK, TASK, Span, best_span, best_span_within, spans, type_question
from backend.telemetry import Telemetry
from backend.text.embeddings import EmbeddingService, EmbedOptions
from backend.text.entities import EntityResult, TextEntities
from backend.text.entity_merge import MODEL, Entity, Lost
from backend.text.neutral_vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS
from backend.text.own_labels import plain_of, words_of
from backend.text.sentences import sentence_spans, trimmed
from backend.text.written_numbers import NUMBER_WORDS

MAX_QUESTIONS, MAX_QUESTION_CHARS = 50, 1_000
LABEL_MIN_SCORE = 0.45  # of an entity, unless a caller says another
_MAX_QUESTION_TOKENS = 128
_WINDOW_TOKENS, _OVERLAP = 192, 64  # question and special tokens included; scores fall beyond what was taught
# Of a text with more windows so many are read with each question, around the passages nearest to it by their vectors.
# Over 27 windows F1 is .56 so, with 16 of them too, and .51 with all (48 questions, docs/answers.md).
_MAX_WINDOWS, _PASSAGE_TOKENS = 8, 96
# The nearest are read first, the others where no answer has this score: the same F1 with 4.9 windows of the 8 (56
# questions in each language over 80 pages).
_FIRST_WINDOWS, _SURE = 2, 0.7
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
_MIN_SCORE = 0.02  # of a type's entity: a token of each is the beginning of some run
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
    """No model for questions, or for own types, is loaded, so no model name is known."""

    def __init__(self, name: str | None = None, task: str = TASK) -> None:
        what, setting = ("questions", "ANSWER_MODEL") if task == TASK else ("labels", "LABEL_MODEL")
        told = f"model: no model for {what} is loaded here; set {setting}=bundled and restart"
        NotFound.__init__(self, told, param="model")
        self.name, self.known = name or "", ()


_Part = tuple[int, int, int, int]  # start, stop, own start and own stop of a part of a text, in tokens, as `cut` has it


class _Asked(NamedTuple):
    """A question as it is read with a text."""

    text: str
    ids: NDArray[np.int64]
    room: int  # tokens of the text beside it in a window
    joiner: PairTokenizer


class _Pair(NamedTuple):
    """A question with a part of the text."""

    question: int  # its index
    window: Window
    first: int  # the part's first token, among the text's
    window_start: int  # the same, among the window's
    own_start: int  # the tokens that are this part's own, among the text's
    own_stop: int


class _Text(NamedTuple):
    """A text in pairs."""

    text: str
    tokens: TokenArrays
    pairs: Sequence[_Pair]

    @property
    def size(self) -> int:
        """Tokens that the model reads."""
        return sum(len(pair.window.ids) for pair in self.pairs)


class _Read(NamedTuple):
    """A text with what the model made of it."""

    text: _Text
    rows: Sequence[Vectors]  # probabilities of each pair's tokens


class AnswerService:
    """The use case behind ``/v1/answer`` and own types of entities. Belongs to the loop's thread."""

    def __init__(
        self, catalog: Catalog, inference: Inference, embeddings: EmbeddingService, telemetry: Telemetry
    ) -> None:
        self._catalog, self._inference, self._embeddings = catalog, inference, embeddings
        self._usage, self._label_usage = UsageCounter(telemetry, TASK), UsageCounter(telemetry, LABEL_TASK)

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
        urgency: Urgency = Urgency(),
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
        tokens = await work.read(loaded.tokenizer, text, budget)
        asked = await self._asked(loaded, questions, "questions")
        places, total = await self._places(loaded, asked, text, tokens, urgency)
        _require_room(asked, places, budget)
        reads, timing = list[_Read](), Timing()
        answers = [Answer(0, 0, 0.0, "empty_text")] * len(asked)
        for stage in (0, 1):
            more = [() if answer.score >= _SURE else own[stage] for answer, own in zip(answers, places, strict=True)]
            if not any(more):
                break
            paired = await self._paired(asked, text, tokens, more)
            read, took = await self._read(loaded, [paired], urgency)
            reads, timing, total = reads + read, timing.then(took), total + paired.size
            decode = partial(_answers, reads, questions, calibration_of(loaded), within)
            answers = await work.run_long(decode, paired.size, inline=True)
        self._usage.count(len(questions), total)
        answers = [
            one if one.score >= min_score else Answer(0, 0, one.score, one.absent or "not_there") for one in answers
        ]
        return AnswerResult(tuple(answers), loaded.name, timing, total)

    async def label(
        self,
        labels: Mapping[str, str],
        texts: Sequence[str],
        *,
        min_score: float = LABEL_MIN_SCORE,
        model: str | None = None,
        urgency: Urgency = Urgency(),
    ) -> EntityResult:
        """What each label names in each text, whatever its length; equal texts are processed once.

        Of two that overlap the likelier is kept.

        Args:
            labels: names of types, each with its description or an empty text.
            min_score: the least score of an entity, 0 to 1.
            deadline_s: as in ``answer``.

        Raises: as ``answer``.
        """
        loaded, work, budget = (
            self.require(model, LABEL_TASK),
            self._inference.text_work,
            self._inference.token_budget(),
        )
        questions = [type_question(words_of(name), description) for name, description in labels.items()]
        asked = await self._asked(loaded, questions, "labels")
        texts_paired = []
        for text in dict.fromkeys(texts):
            tokens = await work.read(loaded.tokenizer, text, budget)
            split = partial(_by_sentences, text, tokens, [one.room for one in asked])
            places = await work.run_long(split, len(text), inline=True)
            _require_room(asked, [(parts,) for parts in places], budget)
            texts_paired.append(await self._paired(asked, text, tokens, places))
        reads, timing = await self._read(loaded, texts_paired, urgency)
        rows = {}
        for read in reads:
            decode = partial(_entities, loaded, list(labels), calibration_of(loaded), min_score, read)
            rows[read.text.text] = await work.run_long(decode, read.text.size, inline=True)
        result = EntityResult(tuple(rows[text] for text in texts), loaded.name, timing)
        self._label_usage.count(len(texts), result.tokens)
        return result

    async def _asked(self, loaded: LoadedModel, questions: Sequence[str], param: str) -> list[_Asked]:
        """The questions with the room that they leave; ``param`` is their field. Raises: TooLarge."""
        read_all = partial(loaded.tokenizer.read_each, questions)
        read = await self._inference.text_work.run(read_all, sum(map(len, questions)))
        return _with_room(loaded, questions, read, param)

    async def _paired(
        self, asked: Sequence[_Asked], text: str, tokens: TokenArrays, places: Sequence[Sequence[_Part]]
    ) -> _Text:
        """A text with each question beside its parts of it."""
        length = sum(stop - start for parts in places for start, stop, *_ in parts)
        pair_up = partial(_pairs, asked, tokens, places)
        return _Text(text, tokens, await self._inference.text_work.run_long(pair_up, length, inline=True))

    async def _read(self, loaded: LoadedModel, texts: Sequence[_Text], urgency: Urgency) -> tuple[list[_Read], Timing]:
        """What the model makes of all pairs, in one request to its lane."""
        windows = [pair.window for text in texts for pair in text.pairs]
        result = await self._inference.run(WindowPipeline(loaded.engine, loaded.namespace(TASK)), windows, urgency)
        rows = (row.vector.reshape(-1, len(loaded.labels)) for row in result.rows)
        return [_Read(text, [next(rows) for _ in text.pairs]) for text in texts], result.timing

    async def _places(
        self, loaded: LoadedModel, asked: Sequence[_Asked], text: str, tokens: TokenArrays, urgency: Urgency
    ) -> tuple[list[tuple[list[_Part], list[_Part]]], int]:
        """The parts of the text to read with each question, first and if need be, and the tokens that choosing cost."""
        everywhere = {room: _everywhere(len(tokens.ids), room) for room in {one.room for one in asked}}
        if max(map(len, everywhere.values())) <= _MAX_WINDOWS:
            return [(everywhere[one.room], []) for one in asked], 0
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
            else (everywhere[one.room], [])
            for row, one in zip(cosines, asked, strict=True)
        ]
        return chosen, sum(of_text.tokens) + sum(of_questions.tokens)

    def require(self, name: str | None, task: str = TASK) -> LoadedModel:
        """The model of the task. Raises: UnknownModel where there is none of this name, or none at all."""
        loaded = self._catalog.of(task)
        if loaded is None:
            raise NoAnswerModel(name, task)
        if name is not None and name not in loaded.names:
            raise self._catalog.unknown(name, loaded.names)
        return loaded


def calibration_of(model: LoadedModel) -> tuple[float, float]:
    """Slope and offset of the logistic curve that makes a score of a margin, from the model's ``config.json``."""
    slope, offset = model.spec.config.get("answer_calibration") or (1.0, 0.0)
    return float(slope), float(offset)


def _with_room(model: LoadedModel, questions: Sequence[str], read: Sequence[TokenArrays], param: str) -> list[_Asked]:
    """The questions with the room that they leave; ``param`` is their field. Raises: TooLarge."""
    joiner = PairTokenizer(model.tokenizer, model.spec.token_types)
    size = min(_WINDOW_TOKENS, model.tokenizer.max_tokens)
    asked = []
    for index, question in enumerate(read):
        name, room = f"{param}[{index}] tokens", size - len(question.ids) - joiner.specials
        if len(question.ids) > _MAX_QUESTION_TOKENS:
            limit, advice = _MAX_QUESTION_TOKENS, "Say it shorter."
            raise TooLarge(name, len(question.ids), limit, "a fixed limit", advice=advice, param=param)
        if room < 1:
            raise TooLarge(name, size - room + 1, size, "the model's length", param=param)
        asked.append(_Asked(questions[index], question.ids.astype(np.int64), room, joiner))
    return asked


def _everywhere(tokens: int, room: int) -> list[_Part]:
    """Overlapping parts that are the whole text together."""
    return cut(tokens, room, min(_OVERLAP, room // 2))


def _by_sentences(text: str, tokens: TokenArrays, rooms: Sequence[int]) -> list[list[_Part]]:
    """For each room parts that are the whole text together: as many whole sentences as fit.

    No token is read twice, but of a sentence that does not fit: two thirds of the tokens of overlapping parts, and no
    less is found (docs/own-words.md).
    """
    ends = np.searchsorted(tokens.offsets[:, 0], sentence_spans(text)[:, 1])
    edges = np.unique([0, *ends.tolist(), len(tokens.ids)])
    parts = {room: _joined(edges, room) for room in set(rooms)}
    return [parts[room] for room in rooms]


def _joined(edges: NDArray[np.int64], room: int) -> list[_Part]:
    """The parts between edges, joined while they fit; one that is too long by itself in overlapping parts."""
    parts = list[_Part]()
    start = 0
    while start < edges[-1]:
        stop = int(edges[np.searchsorted(edges, start + room, side="right") - 1])
        if stop == start:
            stop = int(edges[np.searchsorted(edges, start, side="right")])
        for first, last, own_start, own_stop in _everywhere(stop - start, room):
            parts.append((start + first, start + last, start + own_start, start + own_stop))
        start = stop
    return parts


def _require_room(asked: Sequence[_Asked], places: Sequence[Sequence[Sequence[_Part]]], budget: TokenBudget) -> None:
    """Count all that may be read. Raises: TooLarge by ``budget``."""
    for one, stages in zip(asked, places, strict=True):
        budget.add(sum(stop - start + len(one.ids) for parts in stages for start, stop, *_ in parts))


def _around(cosines: Vectors, starts: range, size: int, tokens: int, room: int) -> tuple[list[_Part], list[_Part]]:
    """Parts around the passages nearest to a question: those to read first, and the others."""
    spare, parts = room - size, dict[_Part, int]()
    for rank, index in enumerate(np.argsort(-cosines, kind="stable")[:_MAX_WINDOWS]):
        # Beside a question of more than half a window there is no room for a passage: it is read in two parts.
        for first in {starts[index] - spare // 2} if spare >= 0 else {starts[index], starts[index] - spare}:
            begin = min(max(0, first), tokens - room)
            parts.setdefault((begin, begin + room, begin, begin + room), rank)
    return [part for part in parts if parts[part] < _FIRST_WINDOWS], [
        part for part in parts if parts[part] >= _FIRST_WINDOWS
    ]


def _pairs(asked: Sequence[_Asked], text: TokenArrays, places: Sequence[Sequence[_Part]]) -> list[_Pair]:
    """Each question with its parts of the text."""
    ids = text.ids.astype(np.int64)
    windows = []
    for index, question in enumerate(asked):
        for start, stop, *owned in places[index]:
            joined, window_start = question.joiner.join(question.ids, ids[start:stop])
            offsets = np.full((len(joined.ids), 2), -1, np.int64)
            offsets[window_start : window_start + stop - start] = text.offsets[start:stop]
            nowhere = np.full(len(joined.ids), -1, np.int64)
            window = Window(joined.ids, offsets, nowhere, window_start, window_start + stop - start, joined.types)
            windows.append(_Pair(index, window, start, window_start, *owned))
    return windows


def _answers(
    reads: Sequence[_Read],
    questions: Sequence[str],
    calibration: tuple[float, float],
    within: Mapping[int, Sequence[tuple[int, int]]],
) -> list[Answer]:
    """The best words for each question, whatever their score."""
    best: dict[int, tuple[float, int, int]] = {}
    text = reads[0].text
    places = {index: _tokens_of(text.tokens, own) for index, own in within.items()}
    for pair, row in chain.from_iterable(zip(read.text.pairs, read.rows, strict=True) for read in reads):
        length, own = pair.window.own_stop - pair.window_start, places.get(pair.question)
        span: Span | None
        if own is None:
            span = best_span(row, pair.window_start, pair.window.own_stop)
        else:
            here = [(at - pair.first, past - pair.first) for at, past in own if at < pair.first + length]
            span = best_span_within(row, pair.window_start, pair.window.own_stop, [one for one in here if one[1] > 0])
        if span is None:
            continue
        if pair.question not in best or span.margin > best[pair.question][0]:
            best[pair.question] = span.margin, pair.first + span.first, pair.first + span.last
    slope, offset = calibration
    answers = []
    for index, question in enumerate(questions):
        if index not in best:
            answers.append(Answer(0, 0, 0.0, "not_there"))
            continue
        margin, first, last = best[index]
        score = float(sigmoid(np.array(slope * margin + offset)))
        start, end = _whole_words(text, first, last)
        if _ASKS_NUMBER.search(plain_of(question)) and not _says_number(text.text[start:end]):
            score *= _WITHOUT_NUMBER
        answers.append(Answer(start, end, score) if start < end else Answer(0, 0, score, "not_there"))
    return answers


def _says_number(words: str) -> bool:
    return any(map(str.isdigit, words)) or not _NUMBERS.isdisjoint(_LETTERS.findall(plain_of(words)))


def _tokens_of(tokens: TokenArrays, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """First and past-last token of each place."""
    firsts = np.searchsorted(tokens.offsets[:, 1], [start for start, _ in places], side="right").tolist()
    lasts = np.searchsorted(tokens.offsets[:, 0], [end for _, end in places], side="left").tolist()
    return [(first, last) for first, last in zip(firsts, lasts, strict=True) if first < last]


def _whole_words(read: _Text, first: int, last: int) -> tuple[int, int]:
    """Where a run of tokens stands: whole words, without blanks and commas at its edges, which tokens have as well."""
    text, start, end = read.text, int(read.tokens.offsets[first, 0]), int(read.tokens.offsets[last, 1])
    while 0 < start < end and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while start < end < len(text) and text[end].isalnum() and text[end - 1].isalnum():
        end += 1
    return trimmed(text, start, end, _EDGES)


def _entities(
    model: LoadedModel, labels: Sequence[str], calibration: tuple[float, float], min_score: float, read: _Read
) -> TextEntities:
    """What the labels name in one text; of two that overlap the likelier."""
    (slope, offset), text = calibration, read.text.text
    candidates = []
    for pair, row in zip(read.text.pairs, read.rows, strict=True):
        lasts, margins = spans(row, pair.window_start, pair.window.own_stop)
        scores = sigmoid(slope * margins + offset)
        firsts = np.arange(pair.first, pair.first + len(lasts))
        own = (firsts >= pair.own_start) & (firsts < pair.own_stop)
        for index in np.flatnonzero(own & (scores >= max(min_score, _MIN_SCORE))).tolist():
            start, end = _whole_words(read.text, pair.first + index, pair.first + int(lasts[index]))
            if start < end:
                name = labels[pair.question]
                candidates.append(Entity(name, text[start:end], start, end, float(scores[index]), MODEL))
    kept: list[Entity] = []
    lost: list[Lost] = []
    taken = np.zeros(len(text), dtype=np.int32)  # 1 + number of the entity that is kept
    for entity in sorted(candidates, key=lambda one: (-one.score, one.start, one.end)):
        if winner := int(taken[entity.start : entity.end].max()):
            lost.append(Lost(entity, kept[winner - 1], because("score_stands")))
            continue
        kept.append(entity)
        taken[entity.start : entity.end] = len(kept)
    by_place = attrgetter("start", "end")
    lost.sort(key=lambda one: by_place(one.entity))
    coverage = model.tokenizer.cut(text, read.text.tokens, 0).coverage
    return TextEntities(tuple(sorted(kept, key=by_place)), coverage, read.text.size, tuple(lost))
