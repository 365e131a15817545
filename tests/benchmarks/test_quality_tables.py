"""Tables of quality: encoders beside one another."""

from __future__ import annotations

from typing import Any

from benchmarks.quality_tables import encoders_section


def result(source: str, **scores: float) -> dict[str, Any]:
    rows = [
        {"task": "likeness", "set": name, "language": "en", "measure": "Spearman", "score": score}
        for name, score in scores.items()
    ]
    return {
        "machine": {"cores": 2, "cpu": "CPU", "cpu_flags": ["avx2"]},
        "versions": {"python": "3.11", "torch": "2"},
        "started": "2026-11-27T00:00",
        "commit": "abc",
        "command": source,
        "models": [{"source": source}],
        "rows": rows,
    }


def test_encoders_have_a_column_each_the_best_first():
    """With the run of each; what one did not measure is left out of its column."""
    section = encoders_section([result("small", a=0.5), result("large", a=0.9, b=0.8)])

    assert section.index("- `large`: Measured 2026-11-27") < section.index("- `small`: Measured 2026-11-27")
    assert "| task | set | language | measure | `large` | `small` |" in section
    assert "| likeness of sentences | a | en | Spearman | 0.900 | 0.500 |" in section
    assert "| likeness of sentences | b | en | Spearman | 0.800 | - |" in section


def test_without_results_nothing_was_measured():
    assert "Not measured yet." == encoders_section([])
