"""The run over all sets: what is asked for, what is kept, and what the exit status says."""

import json
import sys
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from backend.errors import InvalidField, ModelUnavailable
from benchmarks import quality
from benchmarks.judging.records import Judge, Row, Unmeasured
from benchmarks.quality_tables import TASKS

GOOD = Row("names", "good", "en", "F1", 0.8, 100, 0.7)
BAD = Row("names", "bad", "es", "F1", 0.6, 100, 0.7)


def result(*rows, unmeasured=None, quick=False):
    """What a run measured."""
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
    assert list(quality.JUDGES) == quality.chosen("")
    assert ["names-ewt"] == [one.name for one in quality.chosen("names-ewt")]
    assert {"zero-shot", "language"} == {one.task for one in quality.chosen("language, zero-shot,zero-shot-topics")}
    with pytest.raises(ValueError, match="nmaes is none of classes, classes-banking-intents"):
        quality.chosen("nmaes")


def test_every_judge_has_a_name_of_its_own_and_a_task_with_a_title():
    """A name that stood twice would hide one, a task without a title would show a word of the code."""
    assert len(quality.JUDGES) == len({one.name for one in quality.JUDGES})
    assert {one.task for one in quality.JUDGES} == set(TASKS)


class House:
    """Services that were started; the test looks whether they were closed."""

    def __init__(self):
        self.closed = False
        choice = SimpleNamespace(runtime="onnx", dtype="int8")
        report = {"task": "ner", "name": "n", "source": "bundled", "revision": "r", "width": 384}
        self.catalog = SimpleNamespace(models=lambda: [SimpleNamespace(report=lambda: report, choice=choice)])

    async def close(self):
        """Noted."""
        self.closed = True


@pytest.fixture
def house(monkeypatch):
    """``build`` gives a house and notes the settings."""
    made = House()

    async def build(settings):
        made.settings = settings
        return made

    monkeypatch.setattr(quality, "build", build)
    return made


def judge_of(name, answer):
    """A judge that answers with rows, or raises."""

    async def run(bench):
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Judge(name, "names", run)


async def test_one_absent_set_leaves_the_others(house, tmp_path):
    """What a service refuses, such as a foreign model without labels, is told and left out too."""
    judges = [
        judge_of("absent", Unmeasured("a.conll is not here")),
        judge_of("good", [GOOD]),
        judge_of("refused", InvalidField("labels: none given", param="labels")),
    ]

    measured = await quality.measure({"precision": "exact", "state_dir": tmp_path}, judges, data=tmp_path)

    assert [asdict(GOOD)] == measured["rows"]
    assert {"absent": "a.conll is not here", "refused": "labels: none given"} == measured["unmeasured"]
    assert [
        {"task": "ner", "name": "n", "source": "bundled", "revision": "r", "runtime": "onnx", "dtype": "int8"}
    ] == measured["models"]
    assert "exact" == house.settings.precision
    assert house.closed


async def test_a_fault_of_ours_ends_the_run(house, tmp_path):
    """A programming error is no absent set; the service is closed all the same."""
    with pytest.raises(ZeroDivisionError):
        await quality.measure({"state_dir": tmp_path}, [judge_of("broken", ZeroDivisionError())], data=tmp_path)

    assert house.closed


def run_main(monkeypatch, *arguments, measured=None, error=None):
    """The command with these arguments; its exit status and what ``measure`` was asked."""
    asked = {}

    async def measure(settings, judges, **more):
        asked.update({"settings": settings, "judges": judges, **more})
        if error is not None:
            raise error
        return measured or {"models": [], "rows": [asdict(GOOD)], "unmeasured": {}}

    monkeypatch.setattr(quality, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["quality", *arguments])
    with pytest.raises(SystemExit) as ended:
        quality.main()
    return ended.value.code, asked


def test_only_a_run_of_everything_replaces_the_result(monkeypatch, tmp_path, capsys):
    """What the tables of the README come from is never a part, nor another model's."""
    kept = tmp_path / "quality.json"
    monkeypatch.setattr(quality, "RESULT", kept)

    for part in (["--quick"], ["--sets=names"], ["--ner-model=mine"], ["--precision=exact"]):
        assert 0 == run_main(monkeypatch, *part)[0]
        assert not kept.exists()
    assert 0 == run_main(monkeypatch)[0]

    assert [asdict(GOOD)] == json.loads(kept.read_text(encoding="utf-8"))["rows"]
    assert "| people, organisations, places | good | en | F1 | 0.800 | 0.70 | 100 |" in capsys.readouterr().out


def test_a_part_is_kept_where_it_is_asked_for(monkeypatch, tmp_path):
    """With what was wished for, so that the table says whose it is."""
    out = tmp_path / "new" / "mine.json"

    status, asked = run_main(monkeypatch, "--ner-model=mine", "--runtime=onnx", f"--out={out}", f"--data={tmp_path}")

    assert (0, tmp_path) == (status, asked["data"])
    assert {"ner_model": "mine", "runtime": "onnx"} == json.loads(out.read_text(encoding="utf-8"))["settings"]
    assert {"ner_model", "runtime", "state_dir"} == asked["settings"].keys()


def test_what_was_not_measured_is_printed(monkeypatch, capsys):
    """By name, with the reason, and with an exit status of its own."""
    measured = {"models": [], "rows": [], "unmeasured": {"names-ewt": "a.conll is not here"}}

    assert 2 == run_main(monkeypatch, "--quick", measured=measured)[0]
    assert "not measured: names-ewt: a.conll is not here" in capsys.readouterr().out


def test_a_service_that_does_not_start_says_why(monkeypatch):
    """In one line, without a stack trace."""
    status, _ = run_main(monkeypatch, "--ner-model=/nowhere", error=ModelUnavailable("model folder does not exist"))

    assert "the service does not start: model folder does not exist" == status
