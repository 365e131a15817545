"""Tables of the quality benchmark: all of it for the README, and the rows of a model for its card."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.evaluation.records import (
    CLASSES,
    ENTITIES,
    LANGUAGE,
    OWN_WORDS,
    PATTERNS,
    RANKING,
    SEARCH,
    SIMILARITY,
    TRAINED,
    ZERO_SHOT,
)
from benchmarks.tables import Result, about, faults, table

TASKS: Mapping[str, str] = {
    CLASSES: "classes, bundled head", TRAINED: "classes, head learnt at run time", ZERO_SHOT: "classes, labels alone",
    ENTITIES: "people, organisations, places", PATTERNS: "pattern entities", RANKING: "documents for a question",
    SIMILARITY: "likeness of sentences", LANGUAGE: "language", OWN_WORDS: "in own words",
    SEARCH: "search in vector stores",
}  # fmt: skip
HEADS = ("document-type", "topics", "banking-intents")
NER = "ner"
_KINDS = ("PER", "ORG", "LOC")
_EMPTY = "-"


def quality_section(result: Result) -> str:
    """The table of all rows, and the models."""
    sections = [f"{about(result)} {_models(result)}", quality_table(result)]
    return "\n\n".join([*sections, *faults("Not measured", result["unmeasured"])])


def quality_table(result: Result) -> str:
    """A row per data set and metric."""
    head = ["task", "set", "language", "measure", "reached", "to reach", "examples"]
    return table([head, *(_row(row) for row in result["rows"])])


def encoders_section(results: Sequence[Result]) -> str:
    """What each encoder reached on the same sets; a column an encoder, the best of the first row first."""
    if not results:
        return "Not measured yet."
    best_first = sorted(results, key=lambda result: -result["rows"][0]["score"])
    scores = [{_place(row): _number(row["score"]) for row in result["rows"]} for result in best_first]
    head = ["task", "set", "language", "measure", *(f"`{result['models'][0]['source']}`" for result in best_first)]
    rows = [[*place, *(column.get(place, _EMPTY) for column in scores)] for place in scores[0]]
    runs = [f"- `{result['models'][0]['source']}`: {about(result)}" for result in best_first]
    return "\n".join([*runs, "", table([head, *rows])])


def hybrid_search_section(result: Result) -> str:
    """What hybrid search gains over each of its halves."""
    methods = {"vectors": "vectors alone", "words": "words alone (BM25)", "rrf": "both, RRF"}
    rows = [["language", "collection", "questions", *methods.values(), "both, as served", "gain over the better one"]]
    for row in result["rows"]:
        parts, gain = row["parts"], row["score"] - max(row["parts"]["vectors"], row["parts"]["words"])
        cells = [_number(score) for score in (*(parts[name] for name in methods), row["score"])]
        rows.append([row["language"], row["set"], f"{row['examples']:,}", *cells, f"{gain:+.3f}"])
    model = result["rows"][0]["model"]
    return f"{about(result)} MRR@10 on held-out questions; vectors of {model}.\n\n{table(rows)}"


def _place(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return TASKS.get(row["task"], row["task"]), row["set"], row["language"], row["measure"]


def names_section(result: Result) -> str:
    """For the card of the NER model: each data set, by entity type."""
    head = ["set", "language", "F1", "to reach", "precision", "recall", "F1 of exact characters", *_KINDS, "sentences"]
    rows = [row for row in result["rows"] if row["task"] == ENTITIES]
    cells = [
        [row["set"], row["language"], _number(row["score"]), _target(row)]
        + [_part(row, name) for name in ("precision", "recall", "exact", *_KINDS)]
        + [f"{row['examples']:,}"]
        for row in rows
    ]
    return f"{about(result)} {_models(result)}\n\n{table([head, *cells])}"


def head_section(result: Result, name: str) -> str:
    """For the card of a bundled head: as served, beside a head trained at run time on the same texts."""
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
    tasks = (CLASSES, TRAINED, ZERO_SHOT)
    rows = [row for row in result["rows"] if row["set"].partition(",")[0] == name and row["task"] in tasks]
    cells = [
        [TASKS[row["task"]].partition(", ")[2], row["set"], *_middle(row)]
        + [_part(row, name) for name in ("answered", "likeliest")]
        + [f"{row['examples']:,}", row["notes"] or _EMPTY]
        for row in rows
    ]
    remark = "A text without an answer counts as wrong."
    return f"{about(result)} {_models(result)} {remark}\n\n{table([head, *cells])}"


def _models(result: Result) -> str:
    models = [f"{model['name']} ({model['task']}, {model['runtime']} {model['dtype']})" for model in result["models"]]
    return f"Models: {', '.join(models)}."


def _row(row: Mapping[str, Any]) -> Sequence[str]:
    name = TASKS.get(row["task"], row["task"])
    return [name, row["set"], *_middle(row), f"{row['examples']:,}"]


def _middle(row: Mapping[str, Any]) -> Sequence[str]:
    return [row["language"], row["measure"], _number(row["score"]), _target(row)]


def _target(row: Mapping[str, Any]) -> str:
    if row["target"] is None:
        return _EMPTY
    return f"{row['target']:.2f}" + (" (missed)" if row["score"] < row["target"] else "")


def _part(row: Mapping[str, Any], name: str) -> str:
    return _number(row["parts"][name]) if name in row["parts"] else _EMPTY


def _number(value: float) -> str:
    return f"{value:.3f}"
