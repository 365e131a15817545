"""The tables of docs/scaling.md and docs/ray.md."""

from __future__ import annotations

from typing import Any

from benchmarks.replica_tables import processes_section, replicas_section, rolling_section, scaleout_section

FACTS: dict[str, Any] = {
    "machine": {"cores": 2, "cpu": "a processor", "cpu_flags": ["avx2"]},
    "versions": {"python": "3.11", "torch": "2.13"},
    "started": "2026-01-01T00:00:00",
    "commit": "abc",
    "command": "python -m benchmarks.something",
    "load_average_1min": 0.4,
}


def phase(kind: str, **changes: Any) -> dict[str, Any]:
    """A phase in which nothing failed."""
    counts = {"faults": 3, "requests": 1200, "documents": 30, "jobs": 9, "failed_attempts": 0, "lost": 0, "wrong": 0}
    return {
        "kind": kind,
        **counts,
        "failed_as": {},
        "text_p50_s": 0.004,
        "text_p99_s": 0.25,
        "slowest_s": 3.04,
        **changes,
    }


def test_each_arrangement_against_one_process():
    """Medians of the rounds; the first arrangement of a load is what the others are compared with."""
    row = {"engine": "an encoder", "load": "1 text", "p50_s": 0.01, "p99_s": 0.05, "cpu_ms_per_request": 0.7}
    rates = {"one process": (1000.0, 1200.0, 1100.0), "2 replicas": (2200.0, 1900.0, 2090.0)}
    rows = [
        {**row, "arrangement": name, "requests_per_s": rate, "memory_bytes": 800 * 2**20}
        for name, of_name in rates.items()
        for rate in of_name
    ]

    section = processes_section({**FACTS, "rows": rows})

    assert "Medians of 3 rounds." in section
    assert "| an encoder | 1 text | 2 replicas | 2,090 | 1.90x | 10 ms | 50 ms | 0.70 ms | 800 MiB |" in section


def test_replicas_against_one():
    """The rate with its extremes, and how little of the cores it took."""
    row = {"p50_s": 0.2, "p99_s": 0.4, "cpu_cores": 0.25}
    rows = [
        {**row, "replicas": count, "clients": 32 * count, "requests_per_s": 100.0 * count + change}
        for change in (0.0, 4.0, 2.0)
        for count in (1, 2)
    ]

    section = replicas_section({**FACTS, "batch_s": 0.005, "token_s": 0.0003, "rows": rows})

    assert "waits 5 ms and 0.3 ms for each of its tokens; medians of 3 rounds" in section
    assert "| 2 | 64 | 202 (200-204) | 1.98x | 200 ms | 400 ms | 0.25 |" in section


def test_replicas_under_ray_against_the_service_alone():
    """The rate of each load with its ratio; a load that a server was not asked for is a dash."""
    row = {"p50_s": 0.1, "p99_s": 0.3, "lost": 0, "start_s": 6.0, "load": "1 text"}
    rows = [{**row, "server": "plain", "requests_per_s": rate} for rate in (200.0, 220.0)]
    rows += [{**row, "server": "plain", "load": "32 texts", "requests_per_s": 8.0}]
    rows += [{**row, "server": "ray-haproxy", "requests_per_s": rate} for rate in (180.0, 198.0)]

    section = scaleout_section({**FACTS, "rounds": 2, "seconds": 3.0, "rows": rows})

    assert "| the service alone | 210 (1.00) | 8.0 (1.00) | 300 ms | 6 s |" in section
    assert "| **two replicas under Ray, HAProxy** | 189 (0.90) | - | 300 ms | 6 s |" in section


def test_restarts_come_first_and_failures_are_named():
    """Attempts that failed are counted by how, and a run that lost something says so before the table."""
    killed = phase("replica_killed", failed_attempts=3, failed_as={"502": 1, "cut off": 2}, lost=1)
    options = {"clients": {"texts": 12, "documents": 1, "jobs": 2}}
    result = {**FACTS, "options": options, "passed": False, "starts": 9}

    section = rolling_section({**result, "phases": [killed, phase("replica_replaced")]})

    assert "**Did not pass.** 12 clients of texts, 1 of documents, 2 of jobs; 9 starts of a replica." in section
    first, second, _, few = section.splitlines()[-4:]
    assert (
        "| every replica restarted in turn (SIGTERM) | 3 | 1,200 | 30 | 9 | 0 | 0 | 0 | 4 / 250 ms | 3.0 s |" == first
    )
    assert "| 3 (1 x 502, 2 x cut off) | 1 | 0 |" in second
    assert "60 of 2,400 requests are documents, and there are 18 jobs" in few


def test_a_busy_machine_is_named_beside_the_table():
    """Above one task a core; a quiet machine needs no word."""
    row = {"replicas": 1, "clients": 32, "requests_per_s": 100.0, "p50_s": 0.2, "p99_s": 0.4, "cpu_cores": 0.25}
    result = {**FACTS, "batch_s": 0.005, "token_s": 0.0003, "rows": [row]}

    assert "the load average at the start was 24 on 2 cores." in replicas_section({**result, "load_average_1min": 24.2})
    assert "load average" not in replicas_section({**result, "load_average_1min": 2.0})
