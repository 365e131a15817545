"""The quality of hybrid search: how rankings are joined for comparison, and what the table says."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.search_quality import reciprocal_rank_fusion
from benchmarks.search_quality_tables import gains_by_language, search_quality_section

_CIRCUMSTANCES: dict[str, Any] = {
    "started": "2026-11-23T01:00:00",
    "commit": "abc",
    "machine": {"cores": 2, "cpu": "a CPU", "cpu_flags": ["avx2"]},
    "versions": {"python": "3.11", "torch": "2"},
    "command": "python -m benchmarks.search_quality",
    "model": "e5",
    "storage": "sqlite",
}


def _rows(collection: str, language: str, questions: int, **mrr: float) -> list[dict[str, Any]]:
    return [
        {
            "collection": collection,
            "title": collection.upper(),
            "language": language,
            "half": half,
            "method": method,
            "mrr": score if half == "held out" else 0.0,
            "questions": questions,
        }
        for method, score in mrr.items()
        for half in ("tuning", "held out")
    ]


_RESULT = {
    **_CIRCUMSTANCES,
    "rows": [
        *_rows("a", "en", 100, vectors=0.9, words=0.8, rrf=0.9, hybrid=0.9),
        *_rows("b", "en", 300, vectors=0.5, words=0.6, rrf=0.6, hybrid=0.7),
        *_rows("c", "es", 50, vectors=0.9, words=0.9, rrf=0.9, hybrid=0.93),
    ],
}


def test_reciprocal_rank_fusion():
    """Two second places are more than a first one alone."""
    assert [2, 1, 3] == reciprocal_rank_fusion([[1, 2], [3, 2]])


def test_gain_is_over_the_better_half_and_all_questions_of_a_language():
    """Held-out questions alone count, each once."""
    gains = gains_by_language(_RESULT)

    assert {"en": pytest.approx(0.75 - 0.65), "es": pytest.approx(0.03)} == gains


def test_table_has_collections_and_languages():
    """A row for each collection, then one for each language."""
    lines = search_quality_section(_RESULT).splitlines()

    assert "| en | B | 300 | 0.500 | 0.600 | 0.600 | 0.700 | +0.100 |" in lines
    assert "| en | all questions | 400 | 0.600 | 0.650 | 0.675 | 0.750 | +0.100 |" == lines[-2]
    assert "| es | all questions | 50 | 0.900 | 0.900 | 0.900 | 0.930 | +0.030 |" == lines[-1]
