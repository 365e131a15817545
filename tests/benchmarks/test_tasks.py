"""The cost of tasks: every text once a pass, and ratios of one round."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import tasks
from benchmarks.tasks import EMBED, HTTP, LOADS, SERVICES, TARGETS, Load, Pass, rows_of, texts_per_s


def passes(task, rates, load=LOADS[0], over=SERVICES):
    """A pass a round."""
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


@pytest.mark.parametrize(("load", "requests"), [(Load(1, 3), 10), (Load(4, 2), 3)])
async def test_every_text_is_asked_once_by_so_many_clients(load, requests):
    """Clients take the next request when theirs is answered; the last one may be smaller."""
    texts, asked, under_way, most = [f"text {number}" for number in range(10)], [], 0, 0

    async def ask(some):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        asked.append(list(some))
        under_way -= 1

    assert await texts_per_s(ask, texts, load) > 0
    assert texts == [text for some in asked for text in some]
    assert (requests, load.clients) == (len(asked), most)


def test_an_analysis_is_of_one_text():
    """Its route takes no list."""
    assert LOADS[0].takes("analysis")
    assert not LOADS[1].takes("analysis")


def test_each_task_has_a_route_and_a_service():
    """The same tasks both ways, under the same names."""
    services = SimpleNamespace(
        embeddings=SimpleNamespace(embed=1),
        classification=SimpleNamespace(classify=2),
        entities=SimpleNamespace(find=3),
    )

    assert tasks.PATHS.keys() == tasks.asks(cast("Any", services)).keys()
    assert TARGETS.keys() < tasks.PATHS.keys()


def test_a_refusal_is_no_speed(monkeypatch):
    """Answers but 200 end the run."""
    report = SimpleNamespace(statuses={"200": 90, "429": 10}, texts_per_s=1000.0)
    monkeypatch.setattr(tasks, "run_apart", lambda port, shape: report)

    with pytest.raises(RuntimeError, match="/v1/classify answered"):
        tasks._rate(1, tasks._shape("classes", "/v1/classify", LOADS[0], 1.0))


def test_only_embeddings_are_asked_for_an_encoding():
    """Other routes have no such field."""
    shapes = {task: tasks._shape(task, path, LOADS[1], 5.0) for task, path in tasks.PATHS.items()}

    assert {"base64"} == {shape.encoding_format for task, shape in shapes.items() if task == EMBED}
    assert {""} == {shape.encoding_format for task, shape in shapes.items() if task != EMBED}
    assert {(4, 32, 5.0)} == {(shape.clients, shape.texts, shape.duration_s) for shape in shapes.values()}


async def test_without_a_model_for_entities_nothing_is_measured(monkeypatch, tmp_path):
    """Patterns alone would look fast; what was started is closed."""
    closed = []

    async def close():
        closed.append(True)

    async def build(settings):
        assert not settings.cache_enabled
        return SimpleNamespace(catalog=SimpleNamespace(ner=lambda: None), close=close)

    monkeypatch.setattr(tasks, "build", build)

    with pytest.raises(RuntimeError, match="no model for entities"):
        await tasks.over_services(tmp_path, ["a text"], 1)

    assert [True] == closed
