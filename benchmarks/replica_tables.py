"""The tables of docs/scaling.md (processes, replicas, restarts) and of docs/ray.md (replicas under Ray Serve)."""

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
_FAULTS: Mapping[str, str] = {
    "replica_replaced": "every replica restarted in turn (SIGTERM)",
    "replica_killed": "a replica killed (SIGKILL), started again",
    "redis_killed": "Redis killed (SIGKILL), started again with its log",
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


def replicas_section(result: Result) -> str:
    """The rate of two and three replicas over that of one, before lanes that wait."""
    rows = [["replicas", "clients", "requests/s", "against one", "p50", "p99", "cores that they and the proxy used"]]
    one = 0.0
    for (count,), of_count in _grouped(result["rows"], "replicas").items():
        rate = _median(of_count, "requests_per_s")
        one = one or rate
        rows.append([str(count), str(of_count[0]["clients"]), f"{rate:,.0f} ({_extremes(of_count)})"])
        rows[-1] += [f"{rate / one:.2f}x"]
        rows[-1] += [f"{_median(of_count, name) * 1000:,.0f} ms" for name in ("p50_s", "p99_s")]
        rows[-1] += [f"{_median(of_count, 'cpu_cores'):.2f}"]
    waits = (
        f"Each batch waits {result['batch_s'] * 1000:g} ms and {result['token_s'] * 1000:g} ms for each of its tokens"
    )
    rounds = len(result["rows"]) // (len(rows) - 1)
    return f"{about(result, _SHARED)} {waits}; medians of {rounds} rounds.\n\n{_other_work(result)}{table(rows)}"


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


def rolling_section(result: Result) -> str:
    """What happened to requests and jobs in each phase."""
    head = ("", "times", "requests", "of them documents", "jobs", "attempts that failed", "lost", "wrong")
    rows = [[*head, "texts, p50 / p99", "slowest request"]]
    for kind in _FAULTS:
        rows += [_phase_row(phase) for phase in result["phases"] if phase["kind"] == kind]
    clients = result["options"]["clients"]
    load = f"{clients['texts']} clients of texts, {clients['documents']} of documents, {clients['jobs']} of jobs"
    verdict = "" if result["passed"] else "**Did not pass.** "
    said = f"{about(result, _SHARED)} {verdict}{load}; {result['starts']} starts of a replica."
    return f"{said}\n\n{_other_work(result)}{table(rows)}\n\n{_few(result['phases'])}"


def _phase_row(phase: Result) -> list[str]:
    failed = ", ".join(f"{count} x {failure}" for failure, count in phase["failed_as"].items())
    return [
        _FAULTS[phase["kind"]],
        *(f"{phase[name]:,}" for name in ("faults", "requests", "documents", "jobs")),
        f"{phase['failed_attempts']}{f' ({failed})' if failed else ''}",
        str(phase["lost"]),
        str(phase["wrong"]),
        f"{phase['text_p50_s'] * 1000:,.0f} / {phase['text_p99_s'] * 1000:,.0f} ms",
        f"{phase['slowest_s']:.1f} s",
    ]


def _few(phases: Sequence[Result]) -> str:
    """How little of the load was files, which take long and are what a restart could lose."""
    documents, jobs = (sum(phase[name] for phase in phases) for name in ("documents", "jobs"))
    requests = sum(phase["requests"] for phase in phases)
    return (
        f"{documents:,} of {requests:,} requests are documents, and there are {jobs:,} jobs: so few show "
        "that none was lost here, not how rarely one would be lost."
    )


def _grouped(rows: Sequence[Mapping[str, Any]], *names: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def _median(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.median(float(row[name]) for row in rows)


def _extremes(rows: Sequence[Mapping[str, Any]]) -> str:
    rates = [row["requests_per_s"] for row in rows]
    return f"{min(rates):,.0f}-{max(rates):,.0f}"
