"""The table of the quality of hybrid search, from its result."""

from collections.abc import Iterable, Sequence

from benchmarks.tables import Result, about, table

GAIN = 0.02  # of MRR@10 over vectors alone, and over words alone
_HELD_OUT = "held out"
_METHODS = {"vectors": "vectors alone", "words": "words alone (BM25)", "rrf": "both, RRF", "hybrid": "both, as served"}


def search_quality_section(result: Result) -> str:
    """A row for each collection, and one for all questions of each language."""
    head = ["language", "collection", "questions", *_METHODS.values(), "gain over the better one"]
    rows = _held_out(result)
    collections = [_row(part[0]["title"], part) for part in _groups(rows, "collection")]
    languages = [_row("all questions", part) for part in _groups(rows, "language")]
    circumstances = f"MRR@10 on held-out questions; vectors of {result['model']}, storage {result['storage']}."
    return f"{about(result)} {circumstances}\n\n{table([head, *collections, *languages])}"


def gains_by_language(result: Result) -> dict[str, float]:
    """What hybrid search gains over the better of its halves, on all held-out questions of a language."""
    return {part[0]["language"]: _gain(part) for part in _groups(_held_out(result), "language")}


def _held_out(result: Result) -> list[Result]:
    return [row for row in result["rows"] if row["half"] == _HELD_OUT]


def _groups(rows: Sequence[Result], key: str) -> Iterable[list[Result]]:
    for value in dict.fromkeys(row[key] for row in rows):
        yield [row for row in rows if row[key] == value]


def _mean(rows: Sequence[Result], method: str) -> float:
    """Over questions."""
    chosen = [row for row in rows if row["method"] == method]
    return float(sum(row["mrr"] * row["questions"] for row in chosen) / sum(row["questions"] for row in chosen))


def _gain(rows: Sequence[Result]) -> float:
    return _mean(rows, "hybrid") - max(_mean(rows, "vectors"), _mean(rows, "words"))


def _row(title: str, rows: Sequence[Result]) -> list[str]:
    questions = sum(row["questions"] for row in rows if row["method"] == "hybrid")
    cells = [f"{_mean(rows, method):.3f}" for method in _METHODS]
    return [rows[0]["language"], title, f"{questions:,}", *cells, f"{_gain(rows):+.3f}"]
