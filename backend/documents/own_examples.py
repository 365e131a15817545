"""What examples teach about fields in the caller's words: the printed names, forms and places of their values. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from backend.abandoned import require_wanted
from backend.documents.printed_names import EDGES, NAME_WORDS, PrintedName, printed_names
from backend.errors import InvalidField
from backend.files.pages import Document, Page, Word
from backend.files.visual_rows import MAX_ROW_WORDS, page_rows
from backend.invoices.taught.printed import PageArea, Printed, plain, printed_pages, shape_of
from backend.text.entity_merge import Entity
from backend.text.own_labels import STRING, OwnLabel, Path, plain_of
from backend.text.own_values import ReadValue, Value, read_value
from backend.text.patterns import find_patterns

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
