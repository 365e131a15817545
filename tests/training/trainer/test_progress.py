"""Observers: a bar on terminals alone, every event as strict JSON, and decisions in the log."""

import io
import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from backend.training.records import StepEvent
from backend.training.trainer.progress import JsonLines, LogLines, ProgressBar, TokenRate, observers_for
from tests.fakes import ManualClock
from tests.test_check_gpu import Terminal

START = StepEvent("start", 0, 0.0, {"steps": 4, "device": "cpu"})
MEMORY = StepEvent("out_of_memory", 1, 0.5, {"micro_batch": 8}, "memory ran out; micro-batch 16 -> 8")


def step(number: int, **values) -> StepEvent:
    return StepEvent("step", number, number / 2, {"loss": 0.5, "learning_rate": 1e-5, **values})


def lines(file: Path) -> list[dict]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in file.read_text(encoding="utf-8").splitlines()]


def test_default_observers(tmp_path):
    """A terminal gets the bar, a pipe the log; the file is written either way, and not without a folder."""
    assert [ProgressBar, JsonLines] == [type(observer) for observer in observers_for(tmp_path, stream=Terminal())]
    assert [LogLines, JsonLines] == [type(observer) for observer in observers_for(tmp_path, stream=io.StringIO())]
    assert [LogLines] == [type(observer) for observer in observers_for(None, stream=io.StringIO())]
    assert not (tmp_path / "train.jsonl").exists()


def test_the_bar_shows_the_run():
    """Steps of all steps, the numbers of the last one, and decisions above it that stay."""
    terminal = Terminal()
    bar = ProgressBar(terminal)
    for event in (START, step(1), MEMORY, step(2), StepEvent("evaluation", 2, 1.0, {"f1": 0.91234}), step(4)):
        bar.on_event(event)
    bar.close()

    shown = terminal.getvalue()
    assert "[step 1] memory ran out; micro-batch 16 -> 8\n" in shown
    assert "[step 2] f1 0.9123\n" in shown
    assert "epoch 2.00" in shown.splitlines()[-1]
    assert "4/4" in shown.splitlines()[-1]
    assert "loss=0.5, lr=1e-05" in shown.splitlines()[-1]


def test_the_bar_resumes_and_goes_back():
    """A resumed run starts in the middle; a run that went back to a snapshot shows so; events alone need no bar."""
    terminal = Terminal()
    bar = ProgressBar(terminal)
    bar.on_event(StepEvent("stop", 3, 1.0, {}, "no bar yet"))
    bar.on_event(StepEvent("start", 3, 1.0, {"steps": 10}))
    bar.on_event(step(8))
    bar.on_event(StepEvent("precision", 6, 1.0, {}, "back to step 6 in bf16"))
    bar.close()
    bar.close()

    assert "[step 3] no bar yet" in terminal.getvalue()
    assert "6/10" in terminal.getvalue().splitlines()[-1]


def test_every_event_is_a_json_line(tmp_path):
    """Time, step, values, message and the rate of tokens, in the order they came."""
    clock = ManualClock()
    log = JsonLines(tmp_path / "out/train.jsonl", clock=clock, now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    for event in (START, step(1, tokens=600, micro_batch=8), MEMORY, step(2, tokens=600)):
        log.on_event(event)
        clock.now_s += 2.0
    log.close()

    found = lines(tmp_path / "out/train.jsonl")
    assert found[0] == {
        "time": "2026-01-02T03:04:05.000+00:00",
        "seconds": 0.0,
        "kind": "start",
        "step": 0,
        "epoch": 0.0,
        "steps": 4,
        "device": "cpu",
    }
    assert [line["kind"] for line in found] == ["start", "step", "out_of_memory", "step"]
    assert [line["seconds"] for line in found] == [0.0, 2.0, 4.0, 6.0]
    assert found[1]["tokens_per_second"] == 300.0
    assert found[2]["message"] == "memory ran out; micro-batch 16 -> 8"


def test_lines_are_written_at_once(tmp_path):
    """A run that is killed loses no line."""
    log = JsonLines(tmp_path / "train.jsonl")
    log.on_event(START)

    assert len(lines(tmp_path / "train.jsonl")) == 1
    log.close()


def test_a_resumed_run_appends(tmp_path):
    """Old lines stay; an unfinished one of a killed run does not swallow the next."""
    file = tmp_path / "train.jsonl"
    file.write_text('{"kind": "step"}\n{"kind": "st', encoding="utf-8")
    log = JsonLines(file)
    log.on_event(START)
    log.on_event(step(1))
    log.close()

    written = file.read_text(encoding="utf-8").splitlines()
    assert written[1] == '{"kind": "st'
    assert [json.loads(written[place])["kind"] for place in (0, 2, 3)] == ["step", "start", "step"]


def test_numbers_that_are_not_finite_are_strings(tmp_path):
    """NaN and infinity are strings in strict JSON, never null or 0; foreign numbers become plain."""
    log = JsonLines(tmp_path / "train.jsonl")
    values = {
        "loss": float("nan"),
        "scale": float("inf"),
        "grad_norm": np.float32(2.5),
        "lr": torch.tensor(0.5),
        "many": torch.zeros(2),
        "per_class": {"a": np.float64("nan"), 3: [1, (2,)]},
        "where": Path("out"),
    }
    log.on_event(StepEvent("step", 1, 0.1, values))
    log.close()

    (found,) = lines(tmp_path / "train.jsonl")
    assert [found[name] for name in ("loss", "scale", "grad_norm", "lr")] == ["nan", "inf", 2.5, 0.5]
    assert found["per_class"] == {"a": "nan", "3": [1, [2]]}
    assert found["where"] == "out"


def test_a_log_that_cannot_be_written_does_not_end_the_run(tmp_path, caplog):
    """One warning, and the run goes on."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    log = JsonLines(tmp_path / "file" / "train.jsonl")
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            log.on_event(step(number))
        log.close()

    assert ["the training log cannot be written any more"] == [record.getMessage() for record in caplog.records]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full device")
def test_a_full_disk_does_not_end_the_run(tmp_path, caplog):
    """The same for an open file on a full disk."""
    (tmp_path / "train.jsonl").symlink_to("/dev/full")
    log = JsonLines(tmp_path / "train.jsonl")
    for number in range(3):
        log.on_event(step(number))
    log.close()

    assert len(caplog.records) == 1


def test_the_log_without_a_terminal(caplog):
    """Decisions are warnings, evaluations are infos, steps are not logged."""
    log = LogLines()
    with caplog.at_level(logging.INFO):
        for event in (START, step(1), MEMORY, StepEvent("evaluation", 2, 1.0, {"f1": 0.5}), StepEvent("end", 2, 1.0)):
            log.on_event(event)
        log.close()

    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO", "INFO"]


def test_the_token_rate_excludes_evaluations():
    """Time spent in an evaluation does not count; a rate in the event is kept."""
    clock = ManualClock()
    speed = TokenRate(clock)
    assert speed.after_event(step(1, tokens=10)) == {}
    clock.now_s += 60
    speed.after_event(StepEvent("evaluation", 1, 0.5))
    clock.now_s += 2

    assert speed.after_event(step(2, tokens=10)) == {"tokens_per_second": 5.0}
    clock.now_s += 2
    assert speed.after_event(step(3, tokens=10, tokens_per_second=7.0)) == {}
    assert speed.after_event(step(4, tokens=10)) == {}
    assert speed.after_event(step(5)) == {}
