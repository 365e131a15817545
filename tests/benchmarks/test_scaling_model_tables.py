"""The tables of docs/kubernetes.md."""

from __future__ import annotations

from typing import Any

from benchmarks.scaling_model_tables import scaling_section


def outcome(*, reached: bool, p99_s: float = 0.25) -> dict[str, Any]:
    return {
        "p99_s": p99_s,
        "late_ratio": 0.004,
        "cost_ratio": 1.149,
        "reached": reached,
        "seeds": 2,
        "changes": 30,
        "jobs_done_s": 600.0,
        "ideal_jobs_done_s": 540.0,
    }


def result() -> dict[str, Any]:
    """Two rules on two traces."""
    good = {"office": outcome(reached=True), "night": outcome(reached=True)}
    bad = {"office": outcome(reached=False, p99_s=3.0), "night": outcome(reached=True)}
    return {
        "machine": {"cores": 2, "cpu": "a processor", "cpu_flags": ["avx2"]},
        "versions": {"python": "3.11", "torch": "2.13"},
        "started": "2026-01-01T00:00:00",
        "commit": "abc",
        "command": "python -m benchmarks.scaling_model",
        "measured": {"facts": {"load_average_1min": 24.9}},
        "bound_s": 1.0,
        "cost_ratio": 1.3,
        "assumed": {"start_s": 19.0},
        "replica": {"texts_per_s": 229.0, "tokens_per_s": 8244.0, "pages_per_s": 0.85},
        "chosen": {"name": "as shipped", "minimum": 2, "scrape_s": 5.0},
        "traces": {"office": "a day", "night": "a night"},
        "rules": [
            {"name": "queue 1,000", "outcomes": bad},
            {"name": "load 0.8, queue 8,000", "outcomes": good},
        ],
        "variations": [{"name": "as shipped", "outcomes": good}],
        "foreseen": [
            {"requests_per_s": 80.0, "p50_s": 0.02, "foreseen_p50_s": 0.021, "p99_s": 0.08, "foreseen_p99_s": 0.07}
        ],
    }


def test_a_row_for_each_rule():
    """What reaches the goal is bold, the chosen one is named."""
    section = scaling_section(result())

    assert "| queue 1,000 | 3.00 s / 0.4% / 1.15 | **0.25 s / 0.4% / 1.15** | 30 |" in section
    assert "| as shipped **(chosen: this is shipped)** | **0.25 s / 0.4% / 1.15** |" in section


def test_measured_and_foreseen_stand_side_by_side():
    """With the jobs' time, and how many seeds a cell is the worst of."""
    section = scaling_section(result())

    assert "| 80 | 20 ms | 21 ms | 80 ms | 70 ms |" in section
    assert "end after 10 minutes" in section
    assert "the worst of 2 seeds" in section
    assert "scrapes every 5 s" in section
    assert "2 in the second" in section
