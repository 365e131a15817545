"""Back to the faster precision after a clean stretch, seldom enough not to flap, and the same after a resume."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from backend.training.records import Batch, LossPart, MixedPrecisionConfig, StepEvent, TrainingConfig, TrainingResult
from backend.training.trainer.checkpoints import find_latest, load_checkpoint
from backend.training.trainer.loop import train
from backend.training.trainer.precision import NumericFailure, PrecisionFallback
from backend.training.trainer.progress import JsonLines, LogLines
from tests.toy_training import Faults, RecordingObserver, ToyTask, plain_config, same_bits, weights_of
from tests.training.trainer.test_loop import StopAt

BROKEN = NumericFailure("the loss was not finite")


def clean(fallback: PrecisionFallback, steps: int) -> list[str]:
    """The precision after each of so many clean steps."""
    seen = []
    for _ in range(steps):
        fallback.after_clean_step()
        if fallback.recovery_is_due:
            fallback.recover()
        seen.append(fallback.precision)
    return seen


class InHalf(ToyTask):
    """Knows whether its last loss was computed in bf16, for faults that only this precision has."""

    in_half = False

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        self.in_half = torch.is_autocast_enabled("cpu")
        return super().loss(model, batch)

    def breaks_at(self, *steps: int) -> Faults:
        """NaN in these steps, in bf16 alone; again whenever they come again."""

        def broken(step: int, indices: Sequence[int]) -> bool:
            return self.in_half and step in steps

        return Faults(broken=broken)


def bf16_config(recovery_interval: int | None, **settings: object) -> TrainingConfig:
    """Mixed precision on the CPU; emulated where the processor lacks it."""
    mixed = MixedPrecisionConfig(dtype="bfloat16", recovery_interval=recovery_interval)
    return plain_config(use_amp=True, mixed_precision=mixed, **{"epochs": 3, **settings})


def precisions_of(notes: RecordingObserver) -> str:
    """The precision of every step that was taken, those that were taken back too."""
    return " ".join(str(event.values["precision"]) for event in notes.of("step"))


def test_one_precision_up_after_each_clean_stretch() -> None:
    """Step by step to the first, and not beyond it."""
    fallback = PrecisionFallback(("fp16", "bf16", "tf32", "fp32"), 3)
    fallback.fall_back(BROKEN)
    fallback.fall_back(BROKEN)

    assert ["fp32", "fp32", "tf32", "tf32", "tf32", "bf16", "bf16", "bf16", "fp16", "fp16"] == clean(fallback, 10)
    assert ["fp16"] * 100 == clean(fallback, 100)


def test_each_fall_from_a_recovered_precision_doubles_the_stretch() -> None:
    """Hysteresis: 3 clean steps, then 6, then 12; a fall before any recovery doubles nothing."""
    fallback = PrecisionFallback(("bf16", "fp32"), 3)
    stretches = []
    for _ in range(4):
        fallback.fall_back(BROKEN)
        stretches.append(clean(fallback, 30).index("bf16") + 1)

    assert [3, 6, 12, 24] == stretches
    assert 24 == fallback.clean_steps_to_recover


def test_after_a_recovery_it_falls_to_where_it_came_from() -> None:
    """That precision was clean; the bottom comes after a second fall, as at the beginning."""
    fallback = PrecisionFallback(("fp16", "bf16", "tf32", "fp32"), 3)
    fallback.fall_back(BROKEN)
    fallback.fall_back(BROKEN)
    clean(fallback, 6)

    assert "bf16" == fallback.precision

    for expected in ("tf32", "fp32"):
        fallback.fall_back(BROKEN)

        assert expected == fallback.precision


def test_a_run_that_cannot_bear_the_precision_does_not_flap() -> None:
    """bf16 breaks at every second step in it: in 100,000 steps it falls nine times."""
    fallback = PrecisionFallback(("bf16", "fp32"), 200)
    falls = in_half = 0
    for _ in range(100_000):
        in_half = in_half + 1 if fallback.precision == "bf16" else 0
        if in_half == 2:
            fallback.fall_back(BROKEN)
            falls, in_half = falls + 1, 0
        else:
            clean(fallback, 1)

    assert 9 == falls


def test_the_counts_come_back() -> None:
    """At every moment the state, as JSON, goes on as the one it was taken from; that of an older version has none."""
    first = PrecisionFallback(("bf16", "fp32"), 3)
    first.fall_back(BROKEN)
    clean(first, 3)
    first.after_scaled_step(skipped=True, at_min_scale=True)
    first.fall_back(BROKEN)
    clean(first, 2)
    state = json.loads(json.dumps(first.state_dict()))
    second, old = PrecisionFallback(("bf16", "fp32"), 3), PrecisionFallback(("bf16", "fp32"), 3)
    second.load_state_dict(state)
    former = {"rung": "precision", "drops": "drops", "at_bottom": "failures_in_last", "strikes": "strikes"}
    old.load_state_dict({name: state[today] for name, today in former.items()})

    assert first.state_dict() == second.state_dict()
    assert clean(first, 9) == clean(second, 9)
    assert ["fp32", "fp32", "bf16"] == clean(old, 3)


def test_a_run_returns_to_bf16() -> None:
    """One NaN in 18 steps: the steps that are run again and four more are in float32; every place tells."""
    notes, task = RecordingObserver(), InHalf()
    once = iter([True])

    def broken(step: int, indices: Sequence[int]) -> bool:
        return step == 5 and next(once, False)

    result = train(task, bf16_config(4), output=None, faults=Faults(broken=broken), observers=[notes])

    assert ("bf16", 18) == (result.precision, result.steps)
    assert {"bf16": 11, "fp32": 7} == result.steps_by_precision
    # Step 5 broke: back to the snapshot of step 3, so that 3, 4 and 5 are run again.
    assert " ".join(["bf16"] * 5 + ["fp32"] * 7 + ["bf16"] * 8) == precisions_of(notes)
    assert [("bf16", "fp32"), ("fp32", "bf16")] == [
        (event.values["from"], event.values["to"]) for event in result.events
    ]
    assert "4 clean steps in fp32: back to bf16" == result.events[1].message
    assert result.events[1].values["recovered"]
    assert "bf16 (11) and fp32 (7)" == result.precisions == result.summary()["precision"]
    assert [event.message for event in result.events] == result.summary()["precision changes"]
    assert math.isfinite(result.loss)


def test_a_run_that_breaks_again_goes_back_to_where_it_recovered() -> None:
    """bf16 breaks always from step 5 on: it is tried after 2 and 4 clean steps, and no example is blamed."""
    notes, task = RecordingObserver(), InHalf()
    config, faults = bf16_config(2, snapshot_every=100, checkpoint_every=100), task.breaks_at(*range(5, 99))
    result = train(task, config, output=None, faults=faults, observers=[notes])
    changes = [(event.values["to"], event.step) for event in notes.of("precision")]

    assert "fp32" == result.precision
    # The replay of steps 0 to 5 and 2 more; then the step that failed and 4 more; then, 8 after the next, it is over.
    assert [("fp32", 0), ("bf16", 8), ("fp32", 8), ("bf16", 13), ("fp32", 13)] == changes
    assert {"fp32": 18} == result.steps_by_precision
    assert () == result.skipped


def test_an_example_that_breaks_every_precision_is_left_out_and_bf16_comes_back() -> None:
    """The data were at fault, not the precision."""
    task = InHalf()
    result = train(task, bf16_config(3), output=None, faults=Faults(broken=lambda step, indices: 17 in indices))

    assert ("bf16", (17,)) == (result.precision, result.skipped)
    assert ["fp32", "fp32", "bf16"] == [event.values["to"] for event in result.events]


def test_float16_gets_a_new_scaler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale of before the fall may be what was wrong."""
    monkeypatch.setattr(
        "backend.training.trainer.trainer_state.precisions_for", lambda *args, **options: (("fp16", "fp32"), "a test")
    )
    notes, once = RecordingObserver(), iter([True])
    mixed = MixedPrecisionConfig(dtype="float16", initial_scale=8.0, growth_interval=1, recovery_interval=2)
    faults = Faults(broken=lambda step, indices: step == 3 and next(once, False))
    train(ToyTask(), plain_config(use_amp=True, mixed_precision=mixed), output=None, faults=faults, observers=[notes])
    scales = [event.values.get("scale") for event in notes.of("step")]

    assert [16.0, 32.0, 64.0, None, None, None, 16.0] == scales[:7]


@pytest.mark.parametrize("stop_at", [2, 4, 8, 10, 13, 15])
def test_a_resumed_run_equals_one_that_never_stopped(tmp_path: Path, stop_at: int) -> None:
    """Stopped anywhere in a run that falls twice and recovers twice: the same bits, precisions and changes."""

    def run(task: InHalf, output: Path | None, **rest: object) -> TrainingResult:
        return train(task, bf16_config(2, snapshot_every=5), output=output, faults=task.breaks_at(4, 11), **rest)  # type: ignore[arg-type]

    straight, stopped, resumed = (InHalf(dropout=0.2) for _ in range(3))
    expected, notes = run(straight, None), RecordingObserver()
    stopper = StopAt(stop_at)
    early = run(stopped, tmp_path, observers=[stopper], stop=stopper.event)
    late = run(resumed, tmp_path, resume=True, observers=[notes])

    assert "interrupted" == early.reason
    assert ["fp32", "bf16", "fp32", "bf16"] == [event.values["to"] for event in expected.events]
    assert (expected.loss, expected.precision, expected.metrics) == (late.loss, late.precision, late.metrics)
    assert expected.steps_by_precision == late.steps_by_precision
    assert same_bits(weights_of(straight.model), weights_of(resumed.model))


def test_a_checkpoint_is_a_snapshot(tmp_path: Path) -> None:
    """It holds no second copy of the weights; that of a run that was interrupted between two snapshots does."""
    stopper = StopAt(8)
    train(ToyTask(), plain_config(snapshot_every=50), output=tmp_path, observers=[stopper], stop=stopper.event)
    latest = find_latest(tmp_path)
    scheduled = tmp_path / "checkpoints" / "step-00000006"

    assert "step-00000009" == latest.name
    assert 6 == load_checkpoint(latest).rest["snapshot"]["rest"]["progress"]["steps"]
    assert "snapshot" not in load_checkpoint(scheduled).rest


def test_the_log_tells(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A fall is a warning, a recovery is not; train.jsonl has both and every step's precision."""
    log, lines = JsonLines(tmp_path / "train.jsonl"), LogLines()
    events: Sequence[tuple[str, Mapping[str, object]]] = (
        ("fell", {"from": "bf16", "to": "fp32"}),
        ("recovered", {"from": "fp32", "to": "bf16", "recovered": True}),
    )
    with caplog.at_level("INFO"):
        for message, values in events:
            for observer in (log, lines):
                observer.on_event(StepEvent("precision", 3, 0.5, values, message))
    log.close()
    written = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]

    assert ["WARNING", "INFO"] == [record.levelname for record in caplog.records]
    assert ["fp32", "bf16"] == [line["to"] for line in written]
