"""Chooses the values of a page that are like those of examples. Pure: arithmetic on what is printed."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from rapidfuzz import fuzz

from backend.abandoned import require_wanted
from backend.documents.own_examples import PATTERNS, WORDS, Run, Seen
from backend.documents.printed_names import content_of
from backend.invoices.taught.apply import words_alike
from backend.models.encoder import Vectors
from backend.reasons import because
from backend.word_cache import word_cache

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
