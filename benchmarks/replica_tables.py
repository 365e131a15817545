"""The tables of docs/scaling.md (processes, replicas) and of docs/ray.md (replicas under Ray Serve)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.tables import Result, about, table

_SHARED = ", which the load generator shares"
_SCALEOUT: Mapping[str, str] = {
    "plain": "the service alone",
    "nginx": "two services behind nginx",
    "ray-haproxy": "**two replicas under Ray, HAProxy**",
    "ray-python": "two replicas under Ray, its Python proxy",
}


def _other_work(result: Result) -> str:
    """What else the machine did; nothing where it was quiet."""
    load, cores = result["load_average_1min"], result["machine"]["cores"]
    if load <= cores:
        return ""
    return f"**Not a quiet machine:** the load average at the start was {load:.0f} on {cores} cores.\n\n"


def processes_section(result: Result) -> str:
    """What HTTP workers and replicas bring on one machine, and what they cost."""
    rows = [["", "load", "", "requests/s", "against one process", "p50", "p99", "processor, a request", "memory"]]
    for (engine, load), of_load in _grouped(result["rows"], "engine", "load").items():
        one = 0.0
        for (name,), of_name in _grouped(of_load, "arrangement").items():
            rate = _median(of_name, "requests_per_s")
            one = one or rate
            rows.append([engine, load, name, f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}", f"{rate / one:.2f}x"])
            rows[-1] += [f"{_median(of_name, name) * 1000:,.0f} ms" for name in ("p50_s", "p99_s")]
            rows[-1] += [f"{_median(of_name, 'cpu_ms_per_request'):.2f} ms"]
            rows[-1] += [f"{_median(of_name, 'memory_bytes') / 2**20:,.0f} MiB"]
    rounds = len(result["rows"]) // (len(rows) - 1)
    return f"{about(result, _SHARED)} Medians of {rounds} rounds.\n\n{_other_work(result)}{table(rows)}"


def scaleout_section(result: Result) -> str:
    """Two replicas under Ray Serve beside the service alone: each rate against it, and the time of a start."""
    loads = _grouped(result["rows"], "load")
    base = {load: _median(_of(rows, "plain"), "requests_per_s") for (load,), rows in loads.items()}
    table_rows = [["", *(f"{load}: requests/s" for load in base), "p99 of the first", "start"]]
    for (server,), of_server in _grouped(result["rows"], "server").items():
        cells = []
        for load, alone in base.items():
            rows = [row for row in of_server if row["load"] == load]
            rate = _median(rows, "requests_per_s") if rows else None
            cells.append("-" if rate is None else f"{rate:,.{0 if rate >= 100 else 1}f} ({rate / alone:.2f})")
        first = [row for row in of_server if row["load"] == next(iter(base))]
        p99, start = _median(first, "p99_s") * 1000, _median(of_server, "start_s")
        table_rows.append([_SCALEOUT.get(server, server), *cells, f"{p99:,.0f} ms", f"{start:,.0f} s"])
    rounds = f" Medians of {result['rounds']} rounds of {result['seconds']:g} s; in brackets against the service alone."
    return f"{about(result, _SHARED)}{rounds}\n\n{table(table_rows)}"


def _of(rows: Sequence[Mapping[str, Any]], server: str) -> Sequence[Mapping[str, Any]]:
    return [row for row in rows if row["server"] == server]


def _grouped(rows: Sequence[Mapping[str, Any]], *names: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def _median(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.median(float(row[name]) for row in rows)
