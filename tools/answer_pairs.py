"""What `tools.train_answers` asks over what: pairs of a question and a text, with the tokens that answer.

Of files of SQuAD's form (``read``, ``pairs_of``): a question is asked over a part of its paragraph with the answer in
it; one in six over another paragraph of the article, one in twelve over its own without the sentence of the answer:
these have no answer, nor have SQuAD 2.0's impossible ones.

Of CoNLL files with entities (``read_types``, ``type_pairs_of``): a type is asked for by one of its names in
``own_types.toml`` over a sentence; a type that is not there is not asked for, which holds it out.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Encoding, Tokenizer

from backend.errors import BadData
from backend.serving.engines.answers import MAX_TOKENS, type_question
from backend.training.data.conll import detokenize, entity_spans, keep_types, read_conll

SIZES = (64, 80, 96, 96, 112, 128, 190)  # tokens of a part
ELSEWHERE, WITHOUT = 1 / 6, 1 / 12  # shares of questions that are made unanswerable
NAMED, ABSENT, DESCRIBED = (
    0.7,
    0.5,
    0.5,
)  # chances of a type that a sentence names, of one that it lacks, of a description
MAX_SENTENCES = 1500  # of a CoNLL file in an epoch, others each time
_MAX_QUESTION_TOKENS, _MIN_TOKENS = 64, 30
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|\n+")
_TYPES: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("own_types.toml").read_text(encoding="utf-8")
)


class Pair(NamedTuple):
    """A question over a part of a text."""

    question: list[int]  # tokens
    part: list[int]
    answers: Sequence[tuple[int, int]] = ()  # the part's first and last token of each; none where nothing answers


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph as tokens, and where its sentences begin."""

    article: int
    ids: list[int]
    starts: list[int]


@dataclass(frozen=True, slots=True)
class Question:
    """A question over ``paragraph``; its answer from token ``first`` to ``last`` of it, or -1 where there is none."""

    paragraph: int
    ids: list[int]
    first: int = -1
    last: int = -1


def read(files: Sequence[Path], tokenizer: Tokenizer) -> tuple[list[Paragraph], list[Question]]:
    """All paragraphs and questions. An answer that does not stand where it is said to, or is too long, is left out."""
    paragraphs: list[Paragraph] = []
    questions: list[Question] = []
    articles = [article for file in files for article in json.loads(file.read_text(encoding="utf-8"))["data"]]
    for number, article in enumerate(articles):
        for paragraph in article["paragraphs"]:
            text = paragraph["context"]
            tokens = tokenizer.encode(text, add_special_tokens=False)
            cuts = [0, *(end.end() for end in _SENTENCE_END.finditer(text))]
            starts = sorted({index for cut in cuts if (index := _first_after(tokens, cut)) is not None})
            paragraphs.append(Paragraph(number, tokens.ids, starts))
            questions += _questions(paragraph, len(paragraphs) - 1, tokens, tokenizer)
    return paragraphs, questions


def _first_after(tokens: Encoding, position: int) -> int | None:
    return next((index for index, (_, end) in enumerate(tokens.offsets) if end > position), None)


def _questions(paragraph: dict[str, Any], number: int, tokens: Encoding, tokenizer: Tokenizer) -> Iterator[Question]:
    for asked in paragraph["qas"]:
        ids = tokenizer.encode(asked["question"].strip(), add_special_tokens=False).ids[:_MAX_QUESTION_TOKENS]
        if asked.get("is_impossible") or not asked["answers"]:
            yield Question(number, ids)
            continue
        answer = min(asked["answers"], key=lambda one: len(one["text"]))
        start, text = answer["answer_start"], answer["text"].rstrip(" .,;")
        inside = _between(tokens, start, start + len(text))
        if paragraph["context"].startswith(text, start) and 0 < len(inside) <= MAX_TOKENS:
            yield Question(number, ids, inside[0], inside[-1])


def pairs_of(paragraphs: Sequence[Paragraph], questions: Sequence[Question], rng: random.Random) -> list[Pair]:
    """What an epoch teaches, in random order; another each time."""
    siblings: dict[int, list[int]] = {}
    for number, paragraph in enumerate(paragraphs):
        siblings.setdefault(paragraph.article, []).append(number)
    pairs = [_pair(question, paragraphs, siblings, rng) for question in questions]
    rng.shuffle(pairs)
    return pairs


def _pair(
    question: Question, paragraphs: Sequence[Paragraph], siblings: dict[int, list[int]], rng: random.Random
) -> Pair:
    paragraph, size, luck = paragraphs[question.paragraph], rng.choice(SIZES), rng.random()
    if question.first < 0:
        return Pair(question.ids, _part(paragraph, rng, max(size, 160)))
    if luck < ELSEWHERE:
        other = rng.choice(siblings[paragraph.article])
        if other != question.paragraph:
            return Pair(question.ids, _part(paragraphs[other], rng, size))
    elif luck < ELSEWHERE + WITHOUT:
        begin = max((start for start in paragraph.starts if start <= question.first), default=0)
        end = min((start for start in paragraph.starts if start > question.last), default=len(paragraph.ids))
        rest = paragraph.ids[max(0, begin - size // 2) : begin] + paragraph.ids[end : end + size // 2]
        if len(rest) >= _MIN_TOKENS:
            return Pair(question.ids, rest)
    lowest = max(0, question.last + 1 - size)
    begins = [start for start in paragraph.starts if lowest <= start <= question.first] or [question.first]
    begin = rng.choice(begins)
    return _over(question, paragraph, begin, size)


def _part(paragraph: Paragraph, rng: random.Random, size: int) -> list[int]:
    latest = max(0, len(paragraph.ids) - size // 2)
    begin = rng.choice([start for start in paragraph.starts if start <= latest] or [0])
    return paragraph.ids[begin : begin + size]


def judged(paragraphs: Sequence[Paragraph], questions: Sequence[Question]) -> Iterator[Pair]:
    """Each question that has an answer, over its own paragraph and over the next one, which has none."""
    size = max(SIZES)
    for question in questions:
        if question.first < 0:
            continue
        own = paragraphs[question.paragraph]
        yield _over(question, own, max(0, min(question.first, len(own.ids) - size)), size)
        yield Pair(question.ids, paragraphs[(question.paragraph + 1) % len(paragraphs)].ids[:size])


def _over(question: Question, paragraph: Paragraph, begin: int, size: int) -> Pair:
    part = paragraph.ids[begin : begin + size]
    return Pair(question.ids, part, [(question.first - begin, min(question.last - begin, len(part) - 1))])


@dataclass(frozen=True, slots=True)
class TypedSentence:
    """A sentence as tokens, and the entities of the types that its file marks."""

    ids: list[int]
    entities: Mapping[str, list[tuple[int, int]]]  # by type, first and last token; empty for one that it does not name


def read_types(files: Sequence[Path], tokenizer: Tokenizer) -> list[list[TypedSentence]]:
    """The sentences of each CoNLL file, with the types that the file marks and ``own_types.toml`` names."""
    return [_typed(file, tokenizer) for file in files]


def _typed(file: Path, tokenizer: Tokenizer) -> list[TypedSentence]:
    sentences = read_conll(file)
    marked = frozenset[str]().union(*(sentence.types for sentence in sentences)) & _TYPES.keys()
    if not marked:
        raise BadData(f"{file} has no type that own_types.toml names")
    typed = []
    for sentence in keep_types(sentences, marked):
        text, words = detokenize(sentence.words)
        tokens = tokenizer.encode(text, add_special_tokens=False)
        entities: dict[str, list[tuple[int, int]]] = {name: [] for name in sorted(marked)}
        for name, start, end in sorted(entity_spans(sentence.tags, words)):
            inside = _between(tokens, start, end)
            if inside and inside[-1] < max(SIZES):
                entities[name].append((inside[0], inside[-1]))
        typed.append(TypedSentence(tokens.ids[: max(SIZES)], entities))
    return typed


def type_pairs_of(files: Sequence[Sequence[TypedSentence]], tokenizer: Tokenizer, rng: random.Random) -> list[Pair]:
    """What an epoch teaches, in random order; another each time."""
    pairs = []
    for sentences in files:
        for sentence in rng.sample(sentences, min(MAX_SENTENCES, len(sentences))):
            named = [name for name, there in sentence.entities.items() if there]
            asked = [name for name in named if rng.random() < NAMED]
            absent = [name for name in sentence.entities if name not in named]
            if absent and rng.random() < ABSENT:
                asked.append(rng.choice(absent))
            for name in asked:
                ids = tokenizer.encode(_type_question(name, rng), add_special_tokens=False).ids
                pairs.append(Pair(ids[:_MAX_QUESTION_TOKENS], sentence.ids, sentence.entities[name]))
    rng.shuffle(pairs)
    return pairs


def _type_question(name: str, rng: random.Random) -> str:
    called, description = rng.choice(list(_TYPES[name].items()))
    spelt = rng.choice((called, called, called, called.capitalize(), called.upper()))
    return type_question(spelt, description if rng.random() < DESCRIBED else "")


def _between(tokens: Encoding, start: int, end: int) -> list[int]:
    """The tokens that have some of these characters."""
    return [index for index, (left, right) in enumerate(tokens.offsets) if right > start and left < end]
