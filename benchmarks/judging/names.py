"""Names of people, organisations and places: ``/v1/entities`` on sentences laid out as text.

What it finds by characters is brought back to the set's tokens and scored as the field does, by seqeval; ``exact``
among the parts is the same measure on characters, where a blank or half a word too much is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from backend.documents.entities import Entity
from backend.training.data.conll import OUTSIDE, Sentence, as_text, keep_types, read_conll, rename_types
from backend.training.metrics import entity_scores
from benchmarks.judging.records import Bench, Judge, Row, Unmeasured
from benchmarks.judging.tasks import NAMES
from tools.train_bundled import NER_FIRST

TYPES = ("LOC", "ORG", "PER")
_AT_ONCE = 256  # sentences a request

Span = tuple[str, int, int]  # type, start, end


@dataclass(frozen=True, slots=True)
class NameSet:
    """Sentences whose names are marked."""

    name: str
    language: str
    folder: str
    file: str  # without its ending
    target: float | None = None
    relabel: Mapping[str, str] = field(default_factory=dict)  # kind in the set -> PER, ORG or LOC
    at_most: int | None = None  # sentences, evenly from all over a set that would take minutes


# The targets are what a quick probe reached, 3 points more for Spanish news; the issue asks to beat them.
SETS = (
    NameSet("EWT", "en", "ner_uner", "en_ewt_dev", 0.71),
    NameSet("wikigold", "en", "ner_wikigold", "en_wikigold_train", 0.68),
    NameSet("SEC filings", "en", "ner_sec_filings", "en_sec_train", 0.76),
    NameSet("FIRE", "en", "ner_fire", "en_fire_dev", 0.66),
    NameSet("WNUT-17", "en", "ner_wnut17", "en_wnut17_dev", relabel={"GROUP": "ORG"}),
    NameSet("AnCora", "es", "ner_ancora_es", "es_ancora_dev", 0.68),
    NameSet("ECHR", "es", "ner_echr", "es_echr_train", 0.71, relabel={"PER_LEGAL": "PER"}),
    NameSet("MEDDOCAN", "es", "ner_meddocan", "es_meddocan_dev", 0.95, at_most=4000),
    NameSet("Bosque", "pt", "ner_uner", "pt_bosque_dev"),
)


def sentences_of(bench: Bench, one: NameSet) -> list[Sentence]:
    """Those that the bundled model never learnt from: a development file, or what its training held out.

    Raises: Unmeasured.
    """
    read = read_conll(bench.file(one.folder, f"{one.file}.conll"))
    share = next((part.held_out for part in NER_FIRST if (part.folder, part.file) == (one.folder, one.file)), 0.0)
    if share:
        read = read[len(read) - round(len(read) * share) :]
    return bench.some(keep_types(rename_types(read, one.relabel), TYPES), one.at_most)


async def judge(bench: Bench, one: NameSet) -> list[Row]:
    """F1 of whole names, type and both ends right, of the types that the set has. Raises: Unmeasured."""
    model = bench.services.catalog.ner()
    if model is None:
        raise Unmeasured("no model for entities is loaded")
    sentences = sentences_of(bench, one)
    kinds = frozenset[str]().union(*(sentence.types for sentence in sentences))
    laid_out = [as_text(sentence.words) for sentence in sentences]
    found = await _find(bench, [text for text, _ in laid_out], kinds)
    places = [place for _, place in laid_out]
    expected = [sentence.tags for sentence in sentences]
    report = entity_scores(expected, [tags_of(*pair) for pair in zip(found, places, strict=True)])
    exact = f1_of(
        [spans_of(*pair) for pair in zip(expected, places, strict=True)],
        [{(entity.type, entity.start, entity.end) for entity in entities} for entities in found],
    )
    by_kind = {row.label: row.f1 for row in report.per_class if row.f1 is not None}
    parts = {name: report.scores[name] for name in ("precision", "recall") if name in report.scores}
    return [
        Row(
            NAMES,
            one.name,
            one.language,
            "F1",
            report.scores.get("f1", 0.0),
            len(sentences),
            one.target,
            model.name,
            {**parts, "exact": exact, **by_kind},
        )
    ]


def tags_of(entities: Sequence[Entity], places: Sequence[tuple[int, int]]) -> list[str]:
    """BIO tags of the tokens that the entities touch, in the order of the text."""
    tags = [OUTSIDE] * len(places)
    for entity in entities:
        touched = [index for index, (start, end) in enumerate(places) if start < entity.end and end > entity.start]
        for index in touched:
            tags[index] = f"{'B' if index == touched[0] else 'I'}-{entity.type}"
    return tags


def spans_of(tags: Sequence[str], places: Sequence[tuple[int, int]]) -> set[Span]:
    """Where the names of BIO tags stand."""
    spans: list[Span] = []
    for tag, (start, end) in zip(tags, places, strict=True):
        if tag.startswith("I-"):
            kind, first, _ = spans.pop()
            spans.append((kind, first, end))
        elif tag != OUTSIDE:
            spans.append((tag[2:], start, end))
    return set(spans)


def f1_of(expected: Sequence[set[Span]], found: Sequence[set[Span]]) -> float:
    """F1 of spans that are equal, over all texts; 0 where there is nothing to find and nothing was found."""
    right = sum(len(ours & theirs) for ours, theirs in zip(expected, found, strict=True))
    return 2 * right / max(1, sum(map(len, expected)) + sum(map(len, found)))


async def _find(bench: Bench, texts: Sequence[str], kinds: frozenset[str]) -> list[list[Entity]]:
    """With patterns, as users get them. A type that the model does not know it cannot be asked for."""
    found: list[list[Entity]] = []
    for first in range(0, len(texts), _AT_ONCE):
        answer = await bench.services.entities.find(texts[first : first + _AT_ONCE])
        found += [[entity for entity in row.entities if entity.type in kinds] for row in answer.rows]
    return found


JUDGES = tuple(Judge(f"{NAMES}-{one.name.lower().replace(' ', '-')}", NAMES, partial(judge, one=one)) for one in SETS)
