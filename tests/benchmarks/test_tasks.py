"""The cost of tasks: every text once a pass, and ratios of one round."""

from types import SimpleNamespace

import pytest

from benchmarks import tasks
from benchmarks.tasks import EMBED, HTTP, LOADS, SERVICES, TARGETS, Pass, rows_of


def passes(task, rates, load=LOADS[0], over=SERVICES):
    """One pass per round."""
    return [Pass(over, load, task, number, rate) for number, rate in enumerate(rates)]


def test_ratios_are_of_one_round():
    """A machine of half the speed in the second round changes no ratio."""
    rows = rows_of([*passes(EMBED, [400.0, 200.0, 400.0]), *passes("entities", [320.0, 160.0, 200.0])])

    (entities,) = [row for row in rows if row["task"] == "entities"]
    assert {"median": 1.25, "min": 1.25, "max": 2.0, "n": 3} == entities["times_the_embedding"]
    assert {"median": 200.0, "min": 160.0, "max": 320.0, "n": 3} == entities["texts_per_s"]
    assert TARGETS["entities"] == entities["target"]


def test_a_row_for_each_task_load_and_way():
    """An embedding is its own measure: once its own time, and no target."""
    made = [
        *passes(EMBED, [100.0]),
        *passes(EMBED, [300.0], LOADS[1]),
        *passes("classes", [150.0], LOADS[1]),
        *passes(EMBED, [50.0], over=HTTP),
    ]

    rows = rows_of(made)

    assert [("embeddings", 1.0), ("embeddings", 1.0), ("classes", 2.0), ("embeddings", 1.0)] == [
        (row["task"], row["times_the_embedding"]["median"]) for row in rows
    ]
    assert ["one text, 32 clients", "32 texts, 4 clients"] == list(dict.fromkeys(row["load"] for row in rows))
    assert [None, None, 1.3, None] == [row["target"] for row in rows]


def test_a_refusal_is_no_speed(monkeypatch):
    """Answers but 200 end the run."""
    report = SimpleNamespace(statuses={"200": 90, "429": 10}, texts_per_s=1000.0)
    monkeypatch.setattr(tasks, "run_in_subprocess", lambda port, shape: report)

    with pytest.raises(RuntimeError, match="/v1/classify answered"):
        tasks._rate(1, tasks._shape("classes", "/v1/classify", LOADS[0], 1.0))
