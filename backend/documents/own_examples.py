"""What examples teach about fields in the caller's words, and which values of a page are like theirs. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from rapidfuzz import fuzz

from backend.abandoned import require_wanted
from backend.documents.printed_names import EDGES, NAME_WORDS, PrintedName, content_of, printed_names
from backend.errors import InvalidField
from backend.files.pages import Document, Page, Word
from backend.files.visual_rows import MAX_ROW_WORDS, page_rows
from backend.invoices.taught.apply import words_alike
from backend.invoices.taught.printed import PageArea, Printed, plain, printed_pages, shape_of
from backend.models.encoder import Vectors
from backend.reasons import because
from backend.text.entity_merge import Entity
from backend.text.own_labels import STRING, OwnLabel, Path, plain_of
from backend.text.own_values import ReadValue, Value, read_value
from backend.text.patterns import find_patterns
from backend.word_cache import word_cache

MAX_EXAMPLES = 16
_MARKS = EDGES + '\N{EN DASH}\N{EM DASH},;()[]«»“”"='
_LINKS = frozenset({"es", "is", "son", "are", "era", "was", "el", "la", "the", "a", "al"})  # name to value
_LEADS = frozenset({"the", "that", "que", "el", "la", "los", "las", "su", "your", "its", "un", "una", "this", "esta"})
_SHORT = 3  # words of a name that no sentence leads to
PATTERNS = frozenset({"DATE", "MONEY", "PERCENT", "EMAIL", "URL", "PHONE", "IBAN"})
WORDS, _DIGITS = "A", "0"
_LEAD_WORDS = NAME_WORDS + 2  # before a value: its name, and what links them
_MAX_SEEN = 16  # of a label
_MAX_CHARS = 200  # of a name or a form that is kept


@dataclass(frozen=True, slots=True)
class Seen:
    """Where an example had a value."""

    form: str  # as of `Run`
    kind: str
    name: str  # printed beside it; empty where none is
    before: tuple[str, ...]  # as of `Printed`
    above: tuple[str, ...]
    after: str
    place: PageArea


Lessons: TypeAlias = Mapping[Path, Sequence[Seen]]


class Beside(NamedTuple):
    """A name that a run of words may be the value of."""

    name: PrintedName
    where: str  # as of `printed_names.Beside`
    rank: int  # of the places where the name's value may stand


@dataclass(frozen=True, slots=True)
class Run:
    """Words of a page that stand together and may be a value."""

    printed: Printed
    start: int  # of the page's text
    end: int
    form: str  # "1234 BCD" -> "0 A"; words without digits are counted: "A A"
    kind: str  # of `PATTERNS`, or "A", "0", "A0", "0A" by what it has and begins with
    names: Sequence[Beside]
    lead: str  # the words before it in its cell, without those that link a name to its value
    begins: bool  # whether it begins and ends where a value may, by marks and columns
    ends: bool
    is_broken: bool  # whether a comma stands in it


class PageRuns(NamedTuple):
    """What may be a value on a page, and what patterns found in its text."""

    runs: Sequence[Run]
    patterns: Sequence[Entity]


def learn(labels: Sequence[OwnLabel], examples: Sequence[tuple[Document, Mapping[Path, Sequence[Value]]]]) -> Lessons:
    """Where the examples have the values of each label. On a thread: some 10 ms a page.

    Raises: InvalidField where no value of any label is on its paper.
    """
    lessons: dict[Path, list[Seen]] = {}
    for document, values in examples:
        for page in document.pages:
            runs, patterns = page_runs(page)
            printed = [_plain(run.printed.value) for run in runs]
            for label in labels:
                if wanted := frozenset(values.get(label.path, ())):
                    plain_wanted = {_plain(value) for value in wanted if isinstance(value, str)}
                    own = [
                        run
                        for run, text in zip(runs, printed, strict=True)
                        if text in plain_wanted or _is_read_as(label, page.text, run, patterns, wanted)
                    ]
                    lessons.setdefault(label.path, []).extend(map(_seen, _shortest(own)))
    lessons = {path: seen for path, seen in lessons.items() if seen}
    if not lessons:
        raise InvalidField(
            "examples: none of their values is printed on its paper; give each as it is printed there, or dates as ISO"
            " 8601 and numbers as JSON numbers where the schema says so",
            param="examples",
        )
    return {path: seen[:_MAX_SEEN] for path, seen in lessons.items()}


def page_runs(page: Page, after: Collection[str] | None = None) -> PageRuns:
    """The runs of words on the page that may be values, as far as one ends where marks or columns say so.

    Args:
        after: words before which one may end, too, as of `Printed.after`; None: one may end anywhere.
    """
    names: dict[int, list[Beside]] = {}
    for name in printed_names(page):
        for rank, beside in enumerate(name.beside):
            names.setdefault(beside.words[0].start, []).append(Beside(name, beside.where, rank))
    patterns = find_patterns(page.text)
    kinds = {(entity.start, entity.end): entity.type for entity in patterns if entity.type in PATTERNS}

    def may_end(word: Word, behind: Word | None) -> bool:
        return after is None or _ends(word, behind) or (behind is not None and plain(behind.text) in after)

    spans = printed_pages([page_rows(page, most_words=MAX_ROW_WORDS)]).spans(may_end)
    runs = [
        _run(printed, words[max(0, first - _LEAD_WORDS) : first], words[last : last + 1], names, kinds)
        for printed, words, first, last in spans
    ]
    return PageRuns(runs, patterns)


def _ends(word: Word, behind: Word | None) -> bool:
    return behind is None or word.text[-1] in ".,;)" or behind.text[0] == "(" or not behind.text.strip(_MARKS)


def read_run(label: OwnLabel, text: str, run: Run, patterns: Sequence[Entity]) -> ReadValue | None:
    """The value that a run is from its first letter on; None where it is none of the label's kind."""
    read = read_value(label, text, run.start, run.end, patterns)
    return None if read is None or text[run.start : read.start].strip(_MARKS) else read


def trimmed(name: str) -> str:
    """A name out of the sentence that it stands in: "Please note that the mileage is" -> "mileage"."""
    words = name.split()
    while words and plain_of(words[-1]) in _LINKS:
        words.pop()
    if len(words) <= _SHORT:
        return " ".join(words)
    return " ".join(words[max((at + 1 for at, word in enumerate(words) if plain_of(word) in _LEADS), default=0) :])


def lessons_json(lessons: Lessons) -> list[Any]:
    """Lessons as they are kept."""
    return [
        [
            path,
            [[s.form, s.kind, s.name, s.before, s.above, s.after, [round(side, 4) for side in s.place]] for s in seen],
        ]
        for path, seen in lessons.items()
    ]


def lessons_from(kept: Sequence[Any]) -> dict[Path, tuple[Seen, ...]]:
    """The lessons that `lessons_json` wrote."""
    return {
        tuple(path): tuple(
            Seen(form, kind, name, tuple(before), tuple(above), after, PageArea(*place))
            for form, kind, name, before, above, after, place in seen
        )
        for path, seen in kept
    }


def _run(
    printed: Printed, before: Sequence[Word], behind: Sequence[Word], names: Mapping[int, Sequence[Beside]],
    kinds: Mapping[tuple[int, int], str],
) -> Run:  # fmt: skip
    words, value = printed.words, printed.value.strip(_MARKS)
    start, end = words[0].start, words[-1].end
    lead = [text for word in before if (text := plain_of(word.text).strip(_MARKS))]
    while lead and lead[-1] in _LINKS:
        lead.pop()
    marked = end - (len(printed.value) - len(printed.value.rstrip(_MARKS)))
    return Run(
        printed,
        start,
        end,
        shape_of(value) if any(map(str.isdecimal, value)) else " ".join(WORDS * len(value.split())),
        kinds.get((start, marked)) or _kind_of(value),
        names.get(start, ()),
        " ".join(lead),
        begins=not before or before[-1].text[-1] in ":=" or not before[-1].text.strip(_MARKS),
        ends=_ends(words[-1], behind[0] if behind else None),
        is_broken=any(word.text[-1] in ",;" for word in words[:-1]),
    )


def _kind_of(text: str) -> str:
    marks = "".join(filter(str.isalnum, text))
    if marks.isdecimal():
        return _DIGITS
    if not any(map(str.isdecimal, marks)):
        return WORDS
    return "0A" if marks[0].isdecimal() else "A0"


def _plain(text: str) -> str:
    return plain_of(text).strip(_MARKS)


def _is_read_as(label: OwnLabel, text: str, run: Run, patterns: Sequence[Entity], values: Collection[Value]) -> bool:
    require_wanted()
    read = None if label.kind == STRING else read_run(label, text, run, patterns)
    return read is not None and read.value in values


def _shortest(runs: Sequence[Run]) -> list[Run]:
    """One for each place: "87.500" of "87.500" and "87.500 km"."""
    best: dict[int, Run] = {}
    for run in runs:
        if run.start not in best or run.end < best[run.start].end:
            best[run.start] = run
    return list(best.values())


def _seen(run: Run) -> Seen:
    names = sorted(run.names, key=lambda one: (not one.name.is_likely, one.rank, -len(one.name.text)))
    name, printed = trimmed(names[0].name.text if names else run.lead), run.printed
    before, above = (tuple(word[:_MAX_CHARS] for word in words) for words in (printed.before, printed.above))
    form, after = run.form[:_MAX_CHARS], printed.after[:_MAX_CHARS]
    return Seen(form, run.kind, name[:_MAX_CHARS], before, above, after, printed.place)


_LEAST = 0.3  # of a value's score
_MEANT = 0.25  # as of `own_fields`
_X, _Y = 0.05, 0.2  # widths of the page from which a place is another one
_OTHER = 70.0  # of 100: spellings less alike are of other names
_SURE = 0.3  # of `spelling_of`: 86 of 100
_UNKNOWN = 0.5
_SPELT, _CONTEXT, _PLACE, _FORM, _KIND, _COLUMNS = 1, 12, 14, 15, 16, 24  # of `_evidence`
# Its form alone makes no value: its name by spelling or meaning, the words around or the place must speak for it, too.
_MIN_SUPPORT = np.full(_COLUMNS, np.inf)
_MIN_SUPPORT[[_SPELT, _SPELT + 1, _CONTEXT, _PLACE]] = 0.1, _MEANT, 0.3, 0.3
# Of a logistic regression on made papers (docs/own-words.md), in the order of `_evidence` and `_probabilities`.
_WEIGHTS = np.array([
    -8.28, -0.47, -0.28, -0.13, -0.33, 2.76, 3.42, 0.15, 0.43, -1.31, -0.36, -2.95, -1.33, 2.57, -0.11, 1.07, 1.03,
    2.14, -0.29, -0.27, 4.8, 2.17, 0.54, -2.27, -3.58, 4.19, 1.08, 1.08, 0.73, 3.76,
])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Taught:
    """A label that examples teach."""

    seen: Sequence[Seen]
    names: frozenset[str]  # its own and the printed ones, as of `content_of`
    meant: Mapping[str, float]  # how like in meaning the page's names are
    many: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    """A run that is the value of a label."""

    label: int
    run: Run
    score: float  # 0 to 1
    why: str  # one sentence


def choose(runs: Sequence[Run], labels: Sequence[Taught], is_value: Callable[[int, Run], bool]) -> list[Chosen]:
    """For each label the run that is most like its examples, or the runs where it is a list; no two overlap.

    Args:
        is_value: whether a run can be read as a label asks.
    """
    known = frozenset[str]().union(*(label.names for label in labels))
    where = _where(runs, labels)
    own = [_likely(runs, label, partial(is_value, index)) for index, label in enumerate(labels)]
    rows = [_evidence(of_label, label, known, where) for of_label, label in zip(own, labels, strict=True)]
    options = []
    for index, (of_label, likely) in enumerate(zip(own, _probabilities(rows), strict=True)):
        supported = (rows[index] > _MIN_SUPPORT).any(axis=1)
        for run, score in zip(of_label, np.where(supported, likely, 0.0), strict=True):
            if score > _LEAST:
                options.append(Chosen(index, run, float(score), _why(run, labels[index])))
    chosen: list[Chosen] = []
    filled, taken = set[int](), list[tuple[int, int]]()  # labels that have their value; runs that are one, in order
    for option in sorted(options, key=lambda option: -option.score):
        at = bisect_left(taken, (option.run.end, 0))  # of those before it the last reaches furthest: none overlap
        if option.label not in filled and not (at and taken[at - 1][1] > option.run.start):
            chosen.append(option)
            taken.insert(at, (option.run.start, option.run.end))
            if not labels[option.label].many:
                filled.add(option.label)
    return chosen


def _likely(runs: Sequence[Run], label: Taught, is_value: Callable[[Run], bool]) -> list[Run]:
    likely = []
    for run in runs:
        require_wanted()
        if _may_be(run, label) and is_value(run):
            likely.append(run)
    return likely


def _probabilities(rows: Sequence[Vectors]) -> list[Vectors]:
    """How likely the runs of each label are its values, by their `_evidence`.

    Places and the words around count as far as the page is set as the examples were.
    """
    likest = [float((own[:, _PLACE] * np.sqrt(own[:, _FORM]) * own[:, _KIND]).max()) for own in rows if len(own)]
    page = sum(likest) / len(rows) if rows else 0.0
    found = []
    for own in rows:
        place, form, kind, context, spelt = (own[:, at] for at in (_PLACE, _FORM, _KIND, _CONTEXT, _SPELT))
        like = (page * place, page * context, page * form * place, page * kind * place, (1 - page) * spelt)
        whole = np.column_stack((own, np.full(len(own), page), *like))
        found.append(np.asarray(1 / (1 + np.exp(-whole @ _WEIGHTS)), np.float32))
    return found


def _evidence(runs: Sequence[Run], label: Taught, known: frozenset[str], where: Counter[str]) -> Vectors:
    """What speaks for each run, a row each.

    Args:
        known: the names of all labels.
        where: on which side of their names values of the page stand.
    """
    require_wanted()
    forms, kinds = Counter(seen.form for seen in label.seen), Counter(seen.kind for seen in label.seen)
    on_page = Counter(run.form for run in runs)
    around = list(dict.fromkeys((seen.before, seen.above) for seen in label.seen))
    rows = np.zeros((len(runs), _COLUMNS), np.float32)
    for row, run in zip(rows, runs, strict=True):
        spelt, meant, side, first = _named(run, label)
        context = max(
            max(words_alike(before, run.printed.before) or 0.0, words_alike(above, run.printed.above) or 0.0)
            for before, above in around
        )
        place = max(_nearness(seen, run) for seen in label.seen)
        form, kind = forms[run.form] / len(label.seen), kinds[run.kind] / len(label.seen)
        usual = where[side] / where.total() if side and where else _UNKNOWN
        begins = run.begins or spelt == 1.0 or any(seen.before[:1] == run.printed.before[:1] for seen in label.seen)
        bounded = begins and (run.ends or any(seen.after == run.printed.after for seen in label.seen))
        after = any(seen.after == run.printed.after for seen in label.seen)
        row[:] = (
            1.0, spelt, meant, meant > _MEANT, spelt * first, meant * first, spelt * usual, meant * usual,
            spelt * kind, meant * kind, spelt * bounded, content_of(run.printed.value) in known, context, context**3,
            place, form, kind, context * form, context * place, place * form, form / on_page[run.form], bounded, after,
            run.is_broken,
        )  # fmt: skip
    return rows


def _may_be(run: Run, label: Taught) -> bool:
    """Whether it is worth a look: it is bounded as values are, and of a kind that was seen."""
    kinds = {seen.kind for seen in label.seen}
    if kinds <= PATTERNS and run.kind not in kinds:
        return False
    if run.kind == WORDS and WORDS not in kinds:
        return False
    return run.ends or any(seen.after and seen.after == run.printed.after for seen in label.seen)


def _named(run: Run, label: Taught) -> tuple[float, float, str, bool]:
    """How like its name is to a label's, by spelling and by meaning; on which side it is, and whether that is usual."""
    spelt, meant, side, first = 0.0, 0.0, "", False
    for beside in run.names:
        spelling, meaning = spelling_of(beside.name.text, label.names), label.meant.get(beside.name.text, 0.0)
        if (spelling, meaning) > (spelt, meant):
            side, first = beside.where, beside.rank == 0
        spelt, meant = max(spelt, spelling), max(meant, meaning)
    if any(run.lead == name or run.lead.endswith(f" {name}") for name in label.names):
        return 1.0, meant, side or "after", True
    return spelt, meant, side, first


def _why(run: Run, label: Taught) -> str:
    spelt, meant, side, _ = _named(run, label)
    if not side or (spelt < _SURE and meant < _MEANT):
        return "; ".join((because("like_examples"), because("own_place")))
    name = next((beside.name.text for beside in run.names if beside.where == side), run.lead)
    return "; ".join((because("like_examples"), because("own_label", position=side, label=name)))


@word_cache(16_384)
def spelling_of(name: str, names: frozenset[str]) -> float:
    """0 to 1: how like a printed name is spelt to one of some."""
    alike = max((fuzz.ratio(content_of(name), one, score_cutoff=_OTHER) for one in names), default=0.0)
    return float(max(0.0, alike - _OTHER) / (100 - _OTHER)) ** 2


def _where(runs: Sequence[Run], labels: Sequence[Taught]) -> Counter[str]:
    """On which side of names that are surely labels' a value of a seen kind stands."""
    sides: Counter[str] = Counter()
    for label in labels:
        require_wanted()
        kinds = {seen.kind for seen in label.seen} - {WORDS}
        for run in runs:
            if run.kind in kinds and run.ends:
                sides.update(
                    {beside.where for beside in run.names if spelling_of(beside.name.text, label.names) > _SURE}
                )
    return sides


def _nearness(seen: Seen, run: Run) -> float:
    """0 to 1: whether it stands at the same place of the page."""
    one, other = seen.place, run.printed.place
    aside = min(abs(one.left - other.left), abs(one.right - other.right))
    down = min(abs(one.top - other.top), abs(one.end - other.end))
    return max(0.0, 1 - aside / _X) * max(0.0, 1 - down / _Y)
