"""The real service under four closed loops, which give its costs, and open loops, which the model must foresee."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.load import Report, Shape, run_in_subprocess
from benchmarks.machine import facts
from benchmarks.peers import ours, running
from benchmarks.scaling_model_replica import ClosedLoops, Costs, costs_of, simulate, with_apart
from benchmarks.tables import Result

_CLOSED_S, _OPEN_S = 10.0, 30.0
_CLOSED = {
    "one_client": Shape(clients=1),
    "two_clients": Shape(clients=2),
    "many_clients": Shape(clients=32),
    "batches": Shape(clients=4, texts=32),
}
_RESTED_PER_S = 20.0  # so few that hardly anybody waits
LOADS = (0.35, 0.7)  # of the saturated rate
_FORESEEN_REQUESTS = 30_000
_TEXTS_APART = 10_000  # between the loads' parts of the endless sequence of texts

Measured = dict[str, object]


def measure() -> Measured:
    """All loads on one service, one after the other; about three minutes."""
    with tempfile.TemporaryDirectory() as folder:
        peer = ours(Path(folder) / "state")
        with running(peer, Path(folder)):
            pass  # the first start chooses the runtime; what follows is a start like those of pods
        with running(peer, Path(folder)) as server:
            rates = {
                name: _run(server.port, shape, index, _CLOSED_S).texts_per_s
                for index, (name, shape) in enumerate(_CLOSED.items())
            }
            rested = _run(server.port, Shape(rate_per_s=_RESTED_PER_S), len(_CLOSED), 2 * _CLOSED_S)
            opened = [
                _run(server.port, Shape(rate_per_s=round(load * rates["many_clients"], 1)), 5 + index, _OPEN_S)
                for index, load in enumerate(LOADS)
            ]
            ready_s = server.ready_s
    return {
        "facts": facts(),
        "ready_s": ready_s,
        "closed_loops": rates,
        "rested": _row(rested),
        "open_loops": [_row(report) for report in opened],
    }


def _run(port: int, shape: Shape, index: int, duration_s: float) -> Report:
    return run_in_subprocess(port, replace(shape, first_text=index * _TEXTS_APART, duration_s=duration_s, warmup_s=2.0))


def _row(report: Report) -> dict[str, float]:
    names = ("requests_per_s", "requests", "p50_s", "p99_s", "unfinished")
    return {name: getattr(report, name) for name in names}


def costs_measured(measured: Result) -> Costs:
    """What the closed loops and the slowest open loop say of a replica."""
    costs = costs_of(ClosedLoops(**measured["closed_loops"]))
    return with_apart(costs, measured["rested"]["requests_per_s"], measured["rested"]["p50_s"])


def foreseen(measured: Result, costs: Costs) -> list[dict[str, float]]:
    """The open loops beside what the model says for the rate that really came."""
    rows = []
    for row in measured["open_loops"]:
        p50_s, p99_s = simulate(costs, row["requests_per_s"], _FORESEEN_REQUESTS).quantiles((0.5, 0.99))
        rows.append({**row, "foreseen_p50_s": p50_s, "foreseen_p99_s": p99_s})
    return rows
