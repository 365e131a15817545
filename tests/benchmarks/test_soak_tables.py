"""The table of docs/reliability.md."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.soak_tables import soak_section


def result(**changes: Any) -> dict[str, Any]:
    """A short run with one fault."""
    row = {"jobs": 3, "tried_again": 2, "failed": 1, "gone": 0, "wrong": 0, "lost": 0, "text_p50_s": 0.012}
    footprint = {"replica-1": {"resident_bytes": 500 * 2**20}, "replica-2": {"resident_bytes": 600 * 2**20}}
    return {
        "machine": {"cores": 2, "cpu": "a processor", "cpu_flags": ["avx2"]},
        "versions": {"python": "3.11", "torch": "2.13"},
        "started": "2026-01-01T00:00:00",
        "commit": "abc",
        "command": "python -m benchmarks.soak",
        "options": {"minutes": 30.0, "seed": 14, "text_p99_s": 1.0},
        "totals": {"job": {"right": 3}, "embeddings": {"right": 1200}},
        "rows": [
            {"kind": "none", "times": 0, "requests": 900, "text_p99_s": 0.2, "recovery_s": 0.0, **row},
            {"kind": "redis_paused", "times": 4, "requests": 1303, "text_p99_s": 0.6, "recovery_s": 10.4, **row},
        ],
        "passed": True,
        "rules_broken": {},
        "left_out": [],
        "at_rest": {"starts": 9, "fresh_texts_compared": 120, "before": footprint, "after": footprint},
        **changes,
    }


def test_a_row_for_the_calm_and_one_for_each_fault():
    """With counts, both percentiles, and how long it was felt."""
    section = soak_section(result())

    assert "| no fault |  | 900 | 3 | 2 | 1 | 0 | 0 | 0 | 12 / 200 ms |  |" in section
    assert "| Redis frozen (SIGSTOP) for 10 s | 4 | 1,303 | 3 | 2 | 1 | 0 | 0 | 0 | 12 / 600 ms | 10.4 s |" in section


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, "Nothing lost, nothing wrong", id="passed"),
        pytest.param({"passed": False, "rules_broken": {"lost": 2}}, "**Did not pass**: lost 2.", id="failed"),
        pytest.param({"left_out": ["disk_full"]}, "left out on this machine: disk_full", id="a-fault-was-not-possible"),
    ],
)
def test_the_verdict_is_beside_the_table(changes, expected):
    """A run that failed, or that left a fault out, says so."""
    assert expected in soak_section(result(**changes))
