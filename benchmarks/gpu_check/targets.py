"""What a card should reach, and whether it did. Pure functions on the results of the parts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NONE, TOGETHER = "none", "all for speed together"  # names of rows of benchmarks/training.py
MET, MISSED, NOT_MEASURED = "met", "missed", "not measured"
E5_SMALL, MIXED, TOKENS_128 = "e5-small", "mixed lengths", "128 tokens"
TEXTS_32, LONE, SERVICE = "32 texts", "one text, one client", "FinancIA Inference"
AS_SERVED = "as served"
_MEMORY_BACK_BYTES = 1 << 20  # allocated after the split and before it may differ by what a library rounds

Results = Mapping[str, Mapping[str, Any]]  # part -> its result; parts that did not end well are absent


@dataclass(frozen=True, slots=True)
class Target:
    """One number to reach."""

    name: str
    limit: float
    unit: str  # "%", "x", "ms" or "" for a plain number
    reached: Callable[[Results], float | None]  # None where a part it needs has no result
    at_most: bool = False

    def is_met(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit


def verdicts(results: Results) -> list[dict[str, Any]]:
    """A row for each target: what was reached, and whether that is enough."""
    return [_verdict(target, results) for target in TARGETS]


def _verdict(target: Target, results: Results) -> dict[str, Any]:
    value = target.reached(results)
    verdict = NOT_MEASURED if value is None else MET if target.is_met(value) else MISSED
    sign = "at most" if target.at_most else "at least"
    return {
        "target": target.name,
        "to_reach": f"{sign} {target.limit:g}{_spaced(target.unit)}",
        "reached": value,
        "unit": target.unit,
        "verdict": verdict,
    }


def _spaced(unit: str) -> str:
    return unit if unit in ("", "x") else f" {unit}"


def _matrix_share(results: Results) -> float | None:
    """Of the fastest runtime, on texts of 128 tokens."""
    rows = results.get("encoders", {}).get("rows", ())
    shares = [row["matrix_share"] for row in rows if row["model"] == E5_SMALL and row["texts"] == TOKENS_128]
    return 100 * float(max(shares)) if shares else None


def _process_rate(results: Results) -> float | None:
    rows = results.get("process", {}).get("rows", ())
    return _best([row for row in rows if row["encoder"] == SERVICE and row["texts"] == MIXED])


def _http_rate(results: Results) -> float | None:
    """By the best of the servers that were tried."""
    return _best(_http_rows(results, TEXTS_32))


def _best(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Millions of tokens a second."""
    return max((float(row["tokens_per_s"]) / 1e6 for row in rows if row["model"] == E5_SMALL), default=None)


def _lone_p50_ms(results: Results) -> float | None:
    return min((1000 * float(row["p50_s"]) for row in _http_rows(results, LONE)), default=None)


def _http_rows(results: Results, load: str) -> list[Mapping[str, Any]]:
    rows = results.get("http", {}).get("rows", ())
    return [row for row in rows if row["load"] == load and "tokens_per_s" in row]


def _wrong_vectors(results: Results) -> float | None:
    reloads = results.get("reloads")
    return float(reloads["wrong"]) if reloads and reloads["graphs"] else None


def _split_cosine(results: Results) -> float | None:
    """Of the vectors of a batch that was split; nothing is proven where memory never ran out."""
    split = results.get("oom")
    return float(split["cosine_min"]) if split and split["ooms"] else None


def _memory_left_mib(results: Results) -> float | None:
    split = results.get("oom")
    if not split or not split["ooms"]:
        return None
    return max(0.0, float(split["allocated_after"] - split["allocated_before"])) / 2**20


def _batch_single(results: Results) -> float | None:
    cosines = [float(row["batch_single"]) for row in results.get("fidelity", {}).get("rows", ()) if row["offered"]]
    return min(cosines, default=None)


def _new_shape_ms(results: Results) -> float | None:
    """Of the runtime that a new shape costs most."""
    rows = [row for row in results.get("shapes", {}).get("rows", ()) if row["kernels"] == AS_SERVED and "new_ms" in row]
    return max((float(row["new_ms"]["median"] - row["seen_ms"]["median"]) for row in rows), default=None)


def _queue_ms(results: Results) -> float | None:
    """Of the runtime that is held up least, which is the one that serves."""
    rows = results.get("queueing", {}).get("rows", ())
    return min((float(row["queue_behind_work_ms"]) for row in rows if "queue_behind_work_ms" in row), default=None)


def _training_speed(results: Results) -> float | None:
    steps = {row["option"]: row["step_s"]["median"] for row in results.get("training", {}).get("rows", ())}
    both = TOGETHER in steps and NONE in steps
    return float(steps[NONE] / steps[TOGETHER]) if both else None


def _failed_tests(results: Results) -> float | None:
    suite = results.get("tests")
    return float(suite["failed"]) if suite and suite["passed"] else None


TARGETS = (
    Target("e5-small, 128 tokens: of the card's bf16 matrix rate", 50, "%", _matrix_share),
    Target("e5-small, from text, in process: tokens a second", 4, "M", _process_rate),
    Target("e5-small, over HTTP, 32 texts a request: tokens a second", 2, "M", _http_rate),
    Target("lone text over HTTP, p50", 2, "ms", _lone_p50_ms, at_most=True),
    Target("graphs under reload: wrong vectors", 0, "", _wrong_vectors, at_most=True),
    Target("memory ran out: least cosine of the split batch", 0.9999, "", _split_cosine),
    Target("memory ran out: left allocated", _MEMORY_BACK_BYTES / 2**20, "MiB", _memory_left_mib, at_most=True),
    Target("batch against single: least cosine of what PRECISION=auto may take", 0.9999, "", _batch_single),
    Target("a batch of a new shape: over one seen before", 10, "ms", _new_shape_ms, at_most=True),
    Target("queueing a batch behind 28 ms of work: time of the host", 5, "ms", _queue_ms, at_most=True),
    Target("training with all options together, against none", 3, "x", _training_speed),
    Target("tests with --device that fail", 0, "", _failed_tests, at_most=True),
)
