"""Result files, and the raw and summarized measurements of a run over HTTP in the format of results/http."""

import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.load import Report

Spread = dict[str, float]  # median, min, max, n

_METRICS = ("requests_per_s", "texts_per_s", "p50_s", "p95_s", "p99_s", "unfinished", "generator_cpu_ratio")
_COLD = -1  # round number of the first starts, before our tuning file is written


@dataclass(frozen=True, slots=True)
class Load:
    """The report of one load on one server in one round."""

    peer: str
    load: str
    round: int
    report: Report


@dataclass(frozen=True, slots=True)
class Start:
    """Start-up time and memory of one server start."""

    peer: str
    round: int  # -1: before the rounds
    ready_s: float
    idle_bytes: int  # resident when ready, before any request of this start
    loaded_bytes: int = 0  # resident after all loads of the round


@dataclass(slots=True)
class Results:
    """All measurements of a run."""

    loads: list[Load] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    accuracy: dict[str, dict[str, float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # peer -> why it was left out
    system: object = None  # response of our GET /v1/system

    def add(self, load: Load) -> None:
        """Record a load and print it to stderr."""
        self.loads.append(load)
        report = load.report
        print(
            f"round {load.round + 1}: {load.peer}: {load.load}: {report.texts_per_s:.1f} texts/s, "
            f"p50 {report.p50_s:.4f} s, p99 {report.p99_s:.4f} s, {report.statuses}",
            file=sys.stderr,
        )

    def as_json(self) -> dict[str, object]:
        """The measurements for the result file: summaries first, raw numbers last."""
        return {
            "failed": self.failed,
            "accuracy": self.accuracy,
            "starts": _by_peer_starts(self.starts),
            "summary": _by_peer_loads(self.loads),
            "system": self.system,
            "raw": {
                "loads": [asdict(record) for record in self.loads],
                "starts": [asdict(record) for record in self.starts],
            },
        }


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def spread(values: Iterable[float]) -> Spread:
    """Median, extremes and count of one number over the rounds."""
    numbers = list(values)
    return {"median": statistics.median(numbers), "min": min(numbers), "max": max(numbers), "n": len(numbers)}


def _by_peer_loads(loads: Sequence[Load]) -> dict[str, dict[str, dict[str, object]]]:
    """Peer -> load -> metric -> spread, and ``errors``: responses other than 200 by status, over all rounds."""
    groups: dict[tuple[str, str], list[Report]] = {}
    for record in loads:
        groups.setdefault((record.peer, record.load), []).append(record.report)
    summary: dict[str, dict[str, dict[str, object]]] = {}
    for (peer, load), reports in groups.items():
        errors: Counter[str] = Counter()
        for report in reports:
            errors.update({status: count for status, count in report.statuses.items() if status != "200"})
        metrics: dict[str, object] = {name: spread(getattr(report, name) for report in reports) for name in _METRICS}
        summary.setdefault(peer, {})[load] = {**metrics, "errors": dict(errors)}
    return summary


def _by_peer_starts(starts: Sequence[Start]) -> dict[str, dict[str, object]]:
    """Peer -> seconds of cold starts, spread of warm starts and of resident memory."""
    summary: dict[str, dict[str, object]] = {}
    for peer in dict.fromkeys(start.peer for start in starts):
        cold = [start for start in starts if start.peer == peer and start.round == _COLD]
        warm = [start for start in starts if start.peer == peer and start.round != _COLD]
        summary[peer] = {"cold_s": [start.ready_s for start in cold]}
        if warm:
            summary[peer]["ready_s"] = spread(start.ready_s for start in warm)
            summary[peer]["idle_bytes"] = spread(start.idle_bytes for start in warm)
            summary[peer]["loaded_bytes"] = spread(start.loaded_bytes for start in warm)
    return summary
