"""Quality as tables: everything for the README, and what concerns one model for its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.judging.tasks import CLASSES, LANGUAGE, LEARNT, LIKENESS, NAMES, PATTERNS, RANKING, ZERO_SHOT
from benchmarks.tables import Result, about, table

TASKS: Mapping[str, str] = {
    CLASSES: "classes, bundled head",
    LEARNT: "classes, head learnt at run time",
    ZERO_SHOT: "classes, labels alone",
    NAMES: "people, organisations, places",
    PATTERNS: "pattern entities",
    RANKING: "documents for a question",
    LIKENESS: "likeness of sentences",
    LANGUAGE: "language",
}
HEADS = ("document-type", "topics", "banking-intents")
NER = "ner"
_KINDS = ("PER", "ORG", "LOC")
_NOTHING = "-"


def quality_section(result: Result) -> str:
    """All that was measured, and by which models."""
    parts = [f"{about(result)} {_models(result)}", quality_table(result)]
    if result["unmeasured"]:
        parts.append("Not measured: " + "; ".join(f"{name}: {why}" for name, why in result["unmeasured"].items()))
    return "\n\n".join(parts)


def quality_table(result: Result) -> str:
    """A set and a measure a row."""
    head = ["task", "set", "language", "measure", "reached", "to reach", "examples"]
    return table([head, *(_row(row) for row in result["rows"])])


def names_section(result: Result) -> str:
    """For the card of the model that finds names: each set, by kind."""
    head = ["set", "language", "F1", "to reach", "precision", "recall", "F1 of exact characters", *_KINDS, "sentences"]
    rows = [row for row in result["rows"] if row["task"] == NAMES]
    cells = [
        [row["set"], row["language"], _number(row["score"]), _target(row)]
        + [_part(row, name) for name in ("precision", "recall", "exact", *_KINDS)]
        + [f"{row['examples']:,}"]
        for row in rows
    ]
    return f"{about(result)} {_models(result)}\n\n{table([head, *cells])}"


def head_section(result: Result, name: str) -> str:
    """For the card of a bundled head: as served, beside a head that was learnt at run time from the same texts."""
    head = [
        "by",
        "texts of",
        "language",
        "measure",
        "reached",
        "to reach",
        "answered",
        "likeliest label right",
        "texts",
        "by language",
    ]
    ours = (CLASSES, LEARNT, ZERO_SHOT)
    rows = [row for row in result["rows"] if row["set"].partition(",")[0] == name and row["task"] in ours]
    cells = [
        [TASKS[row["task"]].partition(", ")[2], row["set"], *_middle(row)]
        + [_part(row, part) for part in ("answered", "likeliest")]
        + [f"{row['examples']:,}", row["notes"] or _NOTHING]
        for row in rows
    ]
    said = "A text without an answer counts as wrong."
    return f"{about(result)} {_models(result)} {said}\n\n{table([head, *cells])}"


def _models(result: Result) -> str:
    said = [f"{one['name']} ({one['task']}, {one['runtime']} {one['dtype']})" for one in result["models"]]
    return f"Models: {', '.join(said)}."


def _row(row: Mapping[str, Any]) -> Sequence[str]:
    name = TASKS.get(row["task"], row["task"])
    return [name, row["set"], *_middle(row), f"{row['examples']:,}"]


def _middle(row: Mapping[str, Any]) -> Sequence[str]:
    return [row["language"], row["measure"], _number(row["score"]), _target(row)]


def _target(row: Mapping[str, Any]) -> str:
    if row["target"] is None:
        return _NOTHING
    return f"{row['target']:.2f}" + (" (missed)" if row["score"] < row["target"] else "")


def _part(row: Mapping[str, Any], name: str) -> str:
    return _number(row["parts"][name]) if name in row["parts"] else _NOTHING


def _number(value: float) -> str:
    return f"{value:.3f}"
