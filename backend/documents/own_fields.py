"""Fields in the caller's words on the pages of a document, by the names that are printed beside their values.

A printed name is a label's where it is spelt like it, or where a small network finds so by vectors, spelling and the
value (`own_matches`). What stands beside it is the value if it can be read as the kind that was asked for. What no name
tells is asked of the sentences of a page, where a model for questions is loaded; a label that they do not answer has no
value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import orjson
from rapidfuzz import fuzz

from backend.abandoned import require_wanted
from backend.documents import own_matches
from backend.documents.own_examples import (
    Lessons,
    PageRuns,
    Run,
    Seen,
    Taught,
    choose,
    lessons_from,
    page_runs,
    read_run,
)
from backend.documents.printed_names import Beside, PrintedName, Segment, content_of, printed_names
from backend.documents.records import OwnField, OwnValue
from backend.errors import TooLarge
from backend.files.pages import Document, Page, locate
from backend.lanes.inference import Urgency
from backend.lanes.text_work import TextWork
from backend.models.encoder import Vectors, normalized
from backend.reasons import because
from backend.text.answers import MAX_QUESTIONS, Answer, AnswerService
from backend.text.embeddings import EmbeddingService
from backend.text.entity_merge import Entity
from backend.text.own_labels import BOOLEAN, STRING, OwnLabel, Path, read_labels, words_of
from backend.text.own_values import ReadValue, places_of, read_value, read_values, without_article
from backend.text.patterns import find_patterns
from backend.text.sentences import sentence_spans

_SPELT = 86.0  # of 100: how like two spellings of one name are
_LIKELY = 0.3  # least likelihood that a name is a label's: where F1 of made papers was best
_BY_SPELLING, _BY_MEANING = 0.97, 0.95  # of such fields are right, at most
_MAX_NAMES = 400  # of a page whose meaning is looked at
_MAX_NAME_CHARS = 60
# Least score of an answer, and how many of 1 are right where it is near 0; fitted on eight letters made for it.
_BY_ANSWER = {STRING: (0.15, 0.4), BOOLEAN: (0.15, 0.7)}
_BY_ANSWER_OF_ITS_KIND = 0.05, 0.7  # of numbers, dates, amounts, addresses
_SENTENCE_WORDS, _STOPS = 6, ".!?\N{HORIZONTAL ELLIPSIS}"  # at least, and at its end
_MAX_ASKED_CHARS = 20_000  # of a document whose sentences are asked: ten labels over more would take minutes
_MAX_PROMPT_CHARS = 300  # of a label that is asked for: questions take 128 tokens
_ASKED = {
    "money": "How much is the {}?",
    "date": "When is the {}?",
    "integer": "How many: {}?",
    "percent": "What percentage: {}?",
}  # by kind
NO_LESSONS: Lessons = {}
_WHO = re.compile(
    r"\b(?:who|whom|whose|person|qui[eé]n|quienes|persona|personas|quem|pessoa|qui|personne)\b", re.IGNORECASE
)
_WORD = re.compile(r"(?:\w{1,3}\.|\w[\w'\u2019-]*)(?=[\s,;:).]|$)")
_TITLES = re.compile(r"don|doña|(?:[Dd]r|[Ss]r|Ms|Mr|Mrs|Prof)a?\.?|señora?|D\.ª?")
_ONE_OF_ITS_KIND = ("email", "phone", "iban", "url")  # of which a page has few: a lone one is what was asked for
_LONE = 0.9
_CLAUSE = re.compile(r"[.;:!?](?=\s|$)|,\s")
_DENIED = re.compile(
    r"\b(?:no|not|nor|never|cannot|nobody|neither|ni|nunca|jamás|nadie|tampoco|ning[uú]n[oa]?|prohib\w+|forbidden|refus\w+"
    r"|excluded|excluid[oa]s?|não|nem|ninguém|nenhuma?|ne|pas|aucune?|jamais|interdite?s?)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
_COMMON = (
    "fecha", "date", "nombre", "name", "número", "number", "importe", "amount", "dirección", "address", "tipo", "type",
    "observaciones", "remarks", "referencia", "reference", "estado", "status", "cantidad", "quantity", "descripción",
    "description", "teléfono", "phone", "empresa", "company", "total", "hora", "time", "lugar", "place", "código",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _NameMatch:
    """A printed name and the label that it means."""

    label: int
    name: PrintedName
    score: float  # 0 to 1
    read: own_matches.Read  # the value, or those of a list; none where nothing of its kind stands there


@dataclass(frozen=True, slots=True)
class _PageNames:
    """What is printed on a page."""

    page: Page
    prose: str  # of `_prose`
    prose_surplus: int  # how many words stand in sentences more than elsewhere
    patterns: Sequence[Entity]
    spelt: Sequence[_NameMatch] = ()  # names that are spelt as labels
    others: Sequence[PrintedName] = ()  # in which names of the other labels are looked for by their meaning

    @property
    def taken(self) -> set[Segment]:
        """The names that are spelt as labels, and the values beside them, which are no names."""
        return {one.name.segment for one in self.spelt} | {place.segment for one in self.spelt for _, place in one.read}

    def in_prose(self, name: PrintedName) -> bool:
        """Whether what stands beside a name begins in a sentence."""
        return bool(self.prose[name.beside[0].words[0].start].strip())


@dataclass(frozen=True, slots=True)
class OwnFields:
    """Finds what a caller's labels ask for on paper."""

    embeddings: EmbeddingService
    text_work: TextWork
    answers: AnswerService | None = None  # asks the sentences of a page; None: they are not read

    async def asked(
        self, document: Document, schema: str, lessons: str, urgency: Urgency
    ) -> tuple[tuple[OwnField, ...], int]:
        """`find` for ``schema`` and ``lessons`` of `DocumentOptions` that ask for something."""
        known = lessons_from(orjson.loads(lessons)) if lessons else {}
        return await self.find(document, read_labels(orjson.loads(schema)), urgency, known)

    async def find(
        self, document: Document, labels: Sequence[OwnLabel], urgency: Urgency, lessons: Lessons = NO_LESSONS
    ) -> tuple[tuple[OwnField, ...], int]:
        """The fields that were found, in the labels' order, and the tokens that were read for them.

        Args:
            lessons: what examples taught; a label that they lack, or that nothing is like, is looked for by its name.

        Raises: what `EmbeddingService.embed` and, but for TooLarge, `AnswerService.answer` raise.
        """
        taught = [label for label in labels if label.path in lessons]
        found, tokens = await self._as_taught(document, taught, lessons, urgency) if taught else ({}, 0)
        rest = [label for label in labels if label.path not in found]
        taken = _Taken(len(document.text), found)
        seen: list[tuple[_PageNames, int]] = []
        for page, first in zip(document.pages, document.page_starts, strict=True) if rest else ():
            names = await self.text_work.run_long(partial(names_on, page, rest), len(page.text))
            seen.append((names, first))
            meant, spent = await self._meant(names, rest, urgency)
            tokens += spent
            read = partial(_values, document, first, names, rest, [*names.spelt, *meant])
            for path, values in (await self.text_work.run_long(read, len(page.text))).items():
                fitting = [value for value in values if _fits(value, lessons.get(path)) and not taken.has(value)]
                found.setdefault(path, []).extend(fitting)
        is_short = document.characters <= _MAX_ASKED_CHARS
        missing = [label for label in rest if is_short and not found.get(label.path)]
        taken = _Taken(len(document.text), found)
        for names, first in seen if missing else ():
            answered, spent = await self._answered(document, names, first, missing, urgency)
            tokens += spent
            for path, value in answered:
                if _fits(value, lessons.get(path)) and not taken.has(value):
                    found.setdefault(path, []).append(value)
        fields = []
        for label in labels:
            if values := found.get(label.path, []):
                best = max(values, key=lambda value: value.score)
                fields.append(OwnField(label.path, tuple(values) if label.many else (best,), label.many))
        return tuple(fields), tokens

    async def _answered(
        self, document: Document, names: _PageNames, first: int, labels: Sequence[OwnLabel], urgency: Urgency
    ) -> tuple[list[tuple[Path, OwnValue]], int]:
        """What a page's sentences answer to labels, the surest of those that overlap; and the tokens that were read."""
        asked = [label for label in labels if len(label.prompt) <= _MAX_PROMPT_CHARS][:MAX_QUESTIONS]
        if self.answers is None or not self.answers.is_loaded or not asked or not names.prose.strip():
            return [], 0
        read_places = partial(_places, names, asked)
        text, pairs = await self.text_work.run_long(read_places, len(names.page.text))
        if not pairs:
            return [], 0
        asked = [label for label, _ in pairs]
        within = {index: places for index, (_, places) in enumerate(pairs) if places is not None}
        questions = [_question(label) for label in asked]
        try:
            result = await self.answers.answer(questions, text, min_score=0.0, within=within, urgency=urgency)
        except TooLarge:  # for the model or the queue: what is beside printed names is answered all the same
            return [], 0
        read = partial(_answers_read, document, names, first, asked, result.answers)
        return await self.text_work.run_long(read, len(names.page.text)), result.tokens

    async def _as_taught(
        self, document: Document, labels: Sequence[OwnLabel], lessons: Lessons, urgency: Urgency
    ) -> tuple[dict[Path, list[OwnValue]], int]:
        """Values that are like those of examples, by label; and the tokens that were read."""
        tokens, found = 0, dict[Path, list[OwnValue]]()
        for at in range(len(document.pages)):
            values, spent = await self._on_page_as_taught(document, at, labels, lessons, urgency)
            tokens += spent
            for path, own in values.items():
                found.setdefault(path, []).extend(own)
        return found, tokens

    async def _on_page_as_taught(
        self, document: Document, at: int, labels: Sequence[OwnLabel], lessons: Lessons, urgency: Urgency
    ) -> tuple[dict[Path, list[OwnValue]], int]:
        after = {seen.after for label in labels for seen in lessons[label.path]} - {""}
        page = document.pages[at]
        on_page = await self.text_work.run_long(partial(page_runs, page, after), len(page.text))
        printed = dict.fromkeys(
            beside.name.text for run in on_page.runs for beside in run.names if beside.name.is_likely
        )
        names = list(printed)[:_MAX_NAMES]
        known = [list(dict.fromkeys(seen.name for seen in lessons[label.path] if seen.name)) for label in labels]
        own = [text for label in labels for text in (words_of(label.path[-1]), label.prompt)]
        texts = [*_COMMON, *names, *own, *(name for one in known for name in one)]
        embedded = await self.embeddings.embed_untruncated(texts, urgency=urgency)
        meant = _meanings(embedded.vectors, len(names), [len(one) for one in known])
        taught = [
            Taught(
                lessons[label.path],
                frozenset(map(content_of, (*one, words_of(label.path[-1])))) - {""},
                dict(zip(names, alike, strict=True)),
                label.many,
            )
            for label, one, alike in zip(labels, known, meant, strict=True)
        ]
        read = partial(_taught_values, document, at, labels, taught, on_page)
        values = await self.text_work.run_long(read, len(page.text))
        return values, sum(embedded.tokens)

    async def _meant(
        self, names: _PageNames, labels: Sequence[OwnLabel], urgency: Urgency
    ) -> tuple[list[_NameMatch], int]:
        """Names that mean labels whose own names are not on the page; and the tokens that were read."""
        spelt = {one.label for one in names.spelt}
        asked = [index for index in range(len(labels)) if index not in spelt]
        if not asked or not names.others:
            return [], 0
        texts = texts_to_embed(names, labels, asked)
        embedded = await self.embeddings.embed_untruncated(texts, urgency=urgency)
        match = partial(_matched_by_meaning, embedded.vectors, names, labels, asked)
        return await self.text_work.run_long(match, len(names.page.text)), sum(embedded.tokens)


def names_on(page: Page, labels: Sequence[OwnLabel]) -> _PageNames:
    """The names on a page: those that are spelt as a label, and those whose meaning is to be looked at."""
    printed = printed_names(page)
    asked = [content_of(words_of(label.path[-1])) for label in labels]
    best: dict[Segment, tuple[tuple[float, int, int], PrintedName]] = {}
    for name in printed:
        require_wanted()
        plain = content_of(name.text)
        for index, wanted in enumerate(asked):
            alike = fuzz.ratio(plain, wanted, score_cutoff=_SPELT)
            rank = (alike, len(name.text), -index)
            if alike and (name.segment not in best or rank > best[name.segment][0]):
                best[name.segment] = (rank, name)
    prose = _prose(page.text)
    names = _PageNames(page, prose, 2 * len(prose.split()) - len(page.text.split()), find_patterns(page.text))
    spelt = [
        _NameMatch(-rank[2], name, _BY_SPELLING * rank[0] / 100, _read(names, labels[-rank[2]], name, best))
        for rank, name in best.values()
    ]
    names = replace(names, spelt=spelt)
    taken = names.taken
    others = [
        name
        for name in printed
        if name.segment not in taken
        and len(name.text) <= _MAX_NAME_CHARS
        # What a sentence says beside its first words is no value by itself.
        and (not names.in_prose(name) or (name.with_colon and name.beside[0].where == "after"))
        and (name.with_colon or names.prose_surplus <= 0)
    ]
    others.sort(key=lambda name: not name.is_likely)
    return replace(names, others=others[:_MAX_NAMES])


def _places(
    names: _PageNames, labels: Sequence[OwnLabel]
) -> tuple[str, list[tuple[OwnLabel, list[tuple[int, int]] | None]]]:
    """What of a page is asked, and where it has values of each label's kind; labels without any are left out."""
    text = names.prose if names.prose_surplus < 0 else names.page.text  # of a form with a sentence or two these alone
    pairs = []
    for label in labels:
        places = places_of(label, names.page.text, names.patterns)
        if places is not None:
            places = [(start, end) for start, end in places if text[start:end].strip()]
        if places is None or places:
            pairs.append((label, places))
    return text, pairs


def _question(label: OwnLabel) -> str:
    name = " ".join(map(words_of, label.path))
    form = _ASKED.get(label.kind, "Who is the {}?" if _WHO.search(label.description) else "What is the {}?")
    return form.format(name) + (f" ({label.description})" if label.description else "")


def _prose(text: str) -> str:
    """A page's text with blanks in place of all that is no sentence of some words, so that its places stay."""
    kept = [" "] * len(text)
    for start, end in sentence_spans(text).tolist():
        if text[end - 1] in _STOPS and len(text[start:end].split()) >= _SENTENCE_WORDS:
            kept[start:end] = text[start:end]
    return "".join(kept)


def _answers_read(
    document: Document, names: _PageNames, first: int, labels: Sequence[OwnLabel], answers: Sequence[Answer]
) -> list[tuple[Path, OwnValue]]:
    page, kept, taken = names.page, list[tuple[Path, OwnValue]](), _Taken(len(document.text), {})
    asked = [(label, answer) for label, answer in zip(labels, answers, strict=True) if answer.absent is None]
    pairs = [(label, answer, _sureness(label, answer, names)) for label, answer in asked]
    for label, answer, score in sorted(pairs, key=lambda pair: -pair[2]):
        if not score:
            continue
        span = _span_of(label, answer, names)
        if label.kind == BOOLEAN:
            values = [_said(page.text, *span)]
        elif label.many:
            values = read_values(label, page.text, [span], names.patterns)
        else:
            values = list(filter(None, [read_value(label, page.text, *span, names.patterns)]))
        why = because("own_answer")
        placed = [
            _placed(document, first, page, without_article(value, page.text), score=score, why=why) for value in values
        ]
        if not any(taken.has(one) for one in placed) or label.kind == BOOLEAN:
            kept += [(label.path, one) for one in placed]
            taken.add(*placed)
    return kept


def _span_of(label: OwnLabel, answer: Answer, names: _PageNames) -> tuple[int, int]:
    """Where to read an answer's value: the place of the label's kind that it has a part of, or its first line.

    A person's name of which an answer is the beginning is read to its end.
    """
    text, start, end = names.page.text, answer.start, answer.end
    for place in places_of(label, text, names.patterns) or ():
        if place[0] < end and start < place[1] and not label.many:
            return place
    if label.kind == STRING and not label.many and _WHO.search(label.prompt) and (past := _name_end(text, start)):
        return start, past
    return start, _line_end(text, start, end)


def _name_end(text: str, start: int) -> int:
    """Where the words with capitals end that begin there, a title aside; 0 for fewer than two."""
    past, count = start, 0
    for word in _WORD.finditer(text, start):
        is_title = not count and _TITLES.fullmatch(word[0]) is not None
        if not is_title and (not word[0][0].isupper() or text[past : word.start()].strip(" ")):
            break
        past, count = word.end(), count + (not is_title)
    return past - (text[past - 1] == ".") if count > 1 else 0


def _line_end(text: str, start: int, end: int) -> int:
    """Where the sentence ends, or the line of an address or a signature, in which an answer begins."""
    ends = (past for _, past in sentence_spans(text[start:end]).tolist() if past)
    return start + min(ends, default=end - start)


def _sureness(label: OwnLabel, answer: Answer, names: _PageNames) -> float:
    """How likely an answer is a label's value; 0 for too unlikely."""
    if label.kind in _ONE_OF_ITS_KIND and len(places_of(label, names.page.text, names.patterns) or ()) == 1:
        return _LONE
    least, at_zero = _BY_ANSWER.get(label.kind, _BY_ANSWER_OF_ITS_KIND)
    return at_zero + (1 - at_zero) * answer.score if answer.score >= least else 0.0


def _said(text: str, start: int, end: int) -> ReadValue:
    """Whether what a clause says is so: unless it has a word that denies."""
    start = max((mark.end() for mark in _CLAUSE.finditer(text, 0, start)), default=0)
    end = next((mark.start() for mark in _CLAUSE.finditer(text, end)), len(text))
    return ReadValue(_DENIED.search(text, start, end) is None, start, end)


def _meanings(vectors: Vectors, names: int, known: Sequence[int]) -> list[list[float]]:
    """For each label how like the page's names are in meaning to its own or a taught name, the likest of them.

    Args:
        vectors: of ``_COMMON``, the page's names, each label and its prompt, and the taught names of each.
        known: how many taught names each label has.
    """
    centre = vectors[: len(_COMMON)].mean(axis=0)
    rest = normalized(vectors[len(_COMMON) :] - centre)
    printed, own, taught = np.split(rest, [names, names + 2 * len(known)])
    asked = (own[::2] + own[1::2]) / 2
    parts = np.split(taught, np.cumsum(known)[:-1]) if known else []
    return [
        (np.vstack((label[None], part)) @ printed.T).max(axis=0).tolist()
        for label, part in zip(asked, parts, strict=True)
    ]


def _taught_values(
    document: Document, at: int, labels: Sequence[OwnLabel], taught: Sequence[Taught], on_page: PageRuns
) -> dict[Path, list[OwnValue]]:
    page, first, found = document.pages[at], document.page_starts[at], dict[Path, list[OwnValue]]()

    def read(label: int, run: Run) -> ReadValue | None:
        return read_run(labels[label], page.text, run, on_page.patterns)

    for one in choose(on_page.runs, taught, lambda label, run: read(label, run) is not None):
        if (value := read(one.label, one.run)) is not None:
            placed = _placed(document, first, page, value, score=one.score, why=one.why)
            found.setdefault(labels[one.label].path, []).append(placed)
    return found


def _fits(value: OwnValue, seen: Sequence[Seen] | None) -> bool:
    """Whether a value has digits as those of the examples have; any does where there are none."""
    has_digit = any(map(str.isdecimal, value.text))
    return not seen or any(has_digit == ("0" in one.form) for one in seen)


class _Taken:
    """The characters that are values already."""

    def __init__(self, length: int, values: Mapping[Path, Sequence[OwnValue]]) -> None:
        self._marks = bytearray(length)
        self.add(*(value for own in values.values() for value in own))

    def add(self, *values: OwnValue | ReadValue) -> None:
        for value in values:
            self._marks[value.start : value.end] = b"\x01" * (value.end - value.start)

    def has(self, value: OwnValue | ReadValue) -> bool:
        return self._marks.find(1, value.start, value.end) >= 0


def _matched_by_meaning(
    vectors: Vectors, names: _PageNames, labels: Sequence[OwnLabel], asked: Sequence[int]
) -> list[_NameMatch]:
    """Labels and names, each once, the likeliest first, where a value of the label's kind stands beside the name.

    Args:
        vectors: of `texts_to_embed`.
    """
    wanted = [labels[index] for index in asked]
    page, own, prompts = candidates(vectors, names, len(wanted))
    read = read_all(names, wanted)
    likely = own_matches.likelihoods(page, wanted, own, prompts, read)
    matches = dict[int, _NameMatch]()
    named, values = set[Segment](), _Taken(len(names.page.text), {})
    for at in np.argsort(-likely, axis=None, kind="stable").tolist():
        label, index = divmod(at, len(names.others))
        if likely[label, index] < _LIKELY:
            break
        name, own_values = names.others[index], read[label][index]
        segments = {name.segment, *(place.segment for _, place in own_values)}
        if label not in matches and not segments & named and not any(values.has(value) for value, _ in own_values):
            score = min(_BY_MEANING, own_matches.score_of(likely[label, index]))
            matches[label] = _NameMatch(asked[label], name, score, own_values)
            named |= segments
            values.add(*(value for value, _ in own_values))
    return list(matches.values())


def texts_to_embed(names: _PageNames, labels: Sequence[OwnLabel], asked: Sequence[int]) -> list[str]:
    """What `candidates` has the vectors of."""
    return [
        *_COMMON, *own_matches.NOTIONS, *(name.text for name in names.others),
        *(words_of(labels[index].path[-1]) for index in asked), *(labels[index].prompt for index in asked),
    ]  # fmt: skip


def read_all(names: _PageNames, labels: Sequence[OwnLabel]) -> list[list[own_matches.Read]]:
    """What stands beside each name of another meaning as each label's kind of value."""
    taken = names.taken
    by_kind: dict[tuple[str, bool, tuple[str, ...]], list[own_matches.Read]] = {}
    for label in labels:
        kind = label.kind, label.many, label.choices
        if kind not in by_kind:
            by_kind[kind] = [_read(names, label, name, taken) for name in names.others]
    return [by_kind[label.kind, label.many, label.choices] for label in labels]


def candidates(vectors: Vectors, names: _PageNames, asked: int) -> tuple[own_matches.Candidates, Vectors, Vectors]:
    """The names whose meaning is looked at, and the vectors of labels and of their prompts."""
    rest = normalized(vectors[len(_COMMON) :] - vectors[: len(_COMMON)].mean(axis=0))
    sizes = np.cumsum([len(own_matches.NOTIONS), len(names.others), asked])
    notions, printed, own, prompts = np.split(rest, sizes)
    in_prose = [names.in_prose(name) for name in names.others]
    return own_matches.Candidates(names.others, in_prose, names.page.text, printed, notions), own, prompts


def _values(
    document: Document, first: int, names: _PageNames, labels: Sequence[OwnLabel], matches: Sequence[_NameMatch]
) -> dict[Path, list[OwnValue]]:
    """The values on a page by label. Args: first, where the page's text begins in the document's."""
    found: dict[Path, list[OwnValue]] = {}
    for match in matches:
        for value, place in match.read:
            why = because("own_label", position=place.where, label=match.name.text)
            placed = _placed(document, first, names.page, value, score=match.score, why=why)
            found.setdefault(labels[match.label].path, []).append(placed)
    return found


def _read(
    names: _PageNames, label: OwnLabel, name: PrintedName, taken: Collection[Segment]
) -> list[tuple[ReadValue, Beside]]:
    """The value beside a name, or those of a list, in the likeliest place that has any. Args: taken, by names."""
    for place in name.beside:
        if place.where != "after" and place.segment in taken:
            continue
        if values := _read_place(names, label, place):
            return [(value, place) for value in values]
    return []


def _read_place(names: _PageNames, label: OwnLabel, place: Beside) -> list[ReadValue]:
    lines = [place.words, *place.lines] if label.many else [place.words]
    spans = [
        (words[0].start, words[-1].end)
        for words in lines
        # else words of other columns lie between
        if words[-1].end - words[0].start <= 2 * sum(len(word.text) + 1 for word in words)
    ]
    if label.many:
        return read_values(label, names.page.text, spans, names.patterns)
    value = read_value(label, names.page.text, *spans[0], names.patterns) if spans else None
    return [] if value is None else [value]


def _placed(document: Document, first: int, page: Page, value: ReadValue, *, score: float, why: str) -> OwnValue:
    text = " ".join(page.text[value.start : value.end].split())
    start, end = value.start + first, value.end + first
    places = tuple(locate(document, start, end))
    return OwnValue(orjson.dumps(value.value).decode(), text, start, end, round(score, 4), why, places, value.valid)
