"""The run over all sets: what is asked for, what is kept, and what the exit status says."""

import json
import sys
from dataclasses import asdict

import pytest

from benchmarks import quality
from benchmarks.evaluation.records import Row

GOOD = Row("names", "good", "en", "F1", 0.8, 100, 0.7)
BAD = Row("names", "bad", "es", "F1", 0.6, 100, 0.7)


def result(*rows, unmeasured=None, quick=False):
    """The result of a run with these rows."""
    return {"rows": [asdict(row) for row in rows], "unmeasured": unmeasured or {}, "quick": quick, "models": []}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(result(GOOD), 0, id="all-reached"),
        pytest.param(result(GOOD, BAD), 1, id="one-missed"),
        pytest.param(result(GOOD, BAD, quick=True), 0, id="few-examples-say-nothing"),
        pytest.param(result(GOOD, BAD, unmeasured={"x": "absent"}), 2, id="one-absent"),
    ],
)
def test_status(found, expected):
    """Something that was not measured weighs more than a target that was missed."""
    assert expected == quality.status_of(found)


def test_judges_are_chosen_by_name_or_by_task():
    """Each once, in the order of the table; an unknown word is answered with those that are known."""
    assert list(quality.EVALUATIONS) == quality.chosen("")
    assert ["names-ewt"] == [evaluation.name for evaluation in quality.chosen("names-ewt")]
    assert {"zero-shot", "language"} == {
        evaluation.task for evaluation in quality.chosen("language, zero-shot,zero-shot-topics")
    }
    with pytest.raises(ValueError, match="nmaes is none of classes, classes-banking-intents"):
        quality.chosen("nmaes")


def run_main(monkeypatch, *arguments, measured=None, error=None):
    """The command with these arguments; its exit status and what ``measure`` was asked."""
    arguments_of_measure = {}

    async def measure(settings, judges, **more):
        arguments_of_measure.update({"settings": settings, "judges": judges, **more})
        if error is not None:
            raise error
        return measured or {"models": [], "rows": [asdict(GOOD)], "unmeasured": {}}

    monkeypatch.setattr(quality, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["quality", *arguments])
    with pytest.raises(SystemExit) as exited:
        quality.main()
    return exited.value.code, arguments_of_measure


def test_only_a_run_of_everything_replaces_the_result(monkeypatch, tmp_path, capsys):
    """What the tables of the README come from is never a part, nor another model's."""
    result_file = tmp_path / "quality.json"
    monkeypatch.setattr(quality, "RESULT", result_file)

    for part in (["--quick"], ["--sets=names"], ["--ner-model=mine"], ["--precision=exact"]):
        assert 0 == run_main(monkeypatch, *part)[0]
        assert not result_file.exists()
    assert 0 == run_main(monkeypatch)[0]

    assert [asdict(GOOD)] == json.loads(result_file.read_text(encoding="utf-8"))["rows"]
    assert "| people, organisations, places | good | en | F1 | 0.800 | 0.70 | 100 |" in capsys.readouterr().out
