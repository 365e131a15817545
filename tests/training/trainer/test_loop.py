"""The training loop: results, stops, resumes, evaluations and checkpoints."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from backend.errors import BadCheckpoint, BadData, TrainingError
from backend.training.trainer.checkpoints import find_best, find_latest, load_checkpoint
from backend.training.trainer.loop import train
from tests.toy_training import (
    Faults,
    RecordingObserver,
    StopAt,
    ToyTask,
    difference,
    plain_config,
    same_bits,
    weights_of,
)


class Killed(BaseException):
    """Stands for a SIGKILL: no handler of the loop catches it."""


@pytest.mark.parametrize("micro_batch", [1, 3, 5])
def test_a_forced_split_gives_the_same_result(micro_batch: int) -> None:
    """In float32, within 1e-6 over a whole run."""
    whole, split = ToyTask(), ToyTask()
    unsplit = train(whole, plain_config(), output=None)
    parts = train(split, plain_config(micro_batch=micro_batch), output=None)

    assert abs(unsplit.loss - parts.loss) < 1e-6
    assert difference(weights_of(whole.model), weights_of(split.model)) < 1e-6
    assert (8, micro_batch) == (unsplit.micro_batch, parts.micro_batch)


def test_a_run_repeats_itself() -> None:
    """The same seed, the same bits, whatever random numbers were drawn before; another seed, others."""
    first, second, other = ToyTask(dropout=0.2), ToyTask(dropout=0.2), ToyTask(dropout=0.2)
    train(first, plain_config(), output=None)
    torch.rand(17)
    train(second, plain_config(num_workers=2), output=None)
    train(other, plain_config(seed=43), output=None)

    assert same_bits(weights_of(first.model), weights_of(second.model))
    assert not same_bits(weights_of(first.model), weights_of(other.model))


@pytest.mark.parametrize("stop_at", sorted(random.Random(4).sample(range(1, 18), 4)))
def test_resume_after_a_stop_gives_the_same_bits(tmp_path: Path, stop_at: int) -> None:
    """Stopped at a random step, with dropout, mid-epoch: the resumed run ends as the one that never stopped."""
    config = plain_config(epochs=3)
    straight, stopped, resumed = (ToyTask(dropout=0.2) for _ in range(3))
    expected = train(straight, config, output=None)
    stopper = StopAt(stop_at)
    early = train(stopped, config, output=tmp_path, observers=[stopper], stop=stopper.event)
    notes = RecordingObserver()
    late = train(resumed, config, output=tmp_path, resume=True, observers=[notes])

    assert ("interrupted", "epochs") == (early.reason, late.reason)
    assert early.steps < expected.steps == late.steps
    assert early.steps == notes.of("start")[0].step
    assert f"resumed at step {early.steps}" in notes.of("start")[0].message
    assert (expected.loss, expected.metrics) == (late.loss, late.metrics)
    assert same_bits(weights_of(straight.model), weights_of(resumed.model))


def test_resume_after_a_kill_gives_the_same_bits(tmp_path: Path) -> None:
    """Steps since the last checkpoint are repeated bit for bit, BatchNorm statistics included."""

    def task() -> ToyTask:
        torch.manual_seed(3)
        norm = nn.Sequential(
            nn.Flatten(), nn.Linear(30, 12), nn.BatchNorm1d(12), nn.Linear(12, 15), nn.Unflatten(1, (5, 3))
        )
        return ToyTask(model=norm)

    config = plain_config(epochs=3, checkpoint_every=4, num_workers=2)
    straight, killed, resumed = task(), task(), task()
    train(straight, config, output=None)

    class Kill(Faults):
        def before(self, step: int, indices: Sequence[int]) -> None:
            if step == 11:
                raise Killed

    with pytest.raises(Killed):
        train(killed, config, output=tmp_path, faults=Kill())
    latest = find_latest(tmp_path)

    assert "step-00000008" == latest.name
    train(resumed, config, output=tmp_path, resume=True)
    assert same_bits(weights_of(straight.model), weights_of(resumed.model))


@pytest.mark.slow
def test_resume_keeps_micro_batch_precision_and_exclusions(tmp_path: Path) -> None:
    """What the run found out about memory, precision and examples survives the stop."""
    config = plain_config(epochs=3)
    faults = Faults(fits=3, broken=lambda step, indices: 17 in indices)
    stopper = StopAt(10)
    first = train(ToyTask(), config, output=tmp_path, faults=faults, observers=[stopper], stop=stopper.event)
    second = train(ToyTask(), config, output=tmp_path, resume=True)

    assert (2, (17,)) == (first.micro_batch, first.skipped)
    assert (2, (17,)) == (second.micro_batch, second.skipped)
    assert () == second.events


def test_resume_of_a_finished_run(tmp_path: Path) -> None:
    """There is nothing to do: the same result, and no loss of 0."""
    first = train(ToyTask(), plain_config(), output=tmp_path)
    again = train(ToyTask(), plain_config(), output=tmp_path, resume=True)

    assert (first.loss, first.steps, first.metrics) == (again.loss, again.steps, again.metrics)


def test_more_epochs_after_a_finished_run(tmp_path: Path) -> None:
    """A run may be resumed with more epochs."""
    train(ToyTask(), plain_config(epochs=1), output=tmp_path)
    result = train(ToyTask(), plain_config(epochs=2), output=tmp_path, resume=True)

    assert (12, 2.0) == (result.steps, result.epochs)


def test_resume_without_a_checkpoint_starts_anew(tmp_path: Path) -> None:
    """A run that was killed before its first checkpoint is restarted by the same command."""
    straight, resumed = ToyTask(), ToyTask()
    train(straight, plain_config(), output=None)
    train(resumed, plain_config(), output=tmp_path, resume=True)

    assert same_bits(weights_of(straight.model), weights_of(resumed.model))


def test_checkpoints_of_another_run_are_refused(tmp_path: Path) -> None:
    """A new run into a used folder, another model, other data: each is refused with what to do."""
    train(ToyTask(), plain_config(epochs=1), output=tmp_path)
    with pytest.raises(BadCheckpoint, match="--resume"):
        train(ToyTask(), plain_config(), output=tmp_path)
    with pytest.raises(BadCheckpoint):
        train(ToyTask(model=nn.Linear(6, 3)), plain_config(), output=tmp_path, resume=True)
    with pytest.raises(BadCheckpoint, match="examples was 42 and is 40"):
        train(ToyTask(40), plain_config(), output=tmp_path, resume=True)


def test_a_checkpoint_that_cannot_be_written_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Observers get the reason."""

    def full(*args: object, **options: object) -> None:
        raise TrainingError("the checkpoint of step 6 could not be written: the disk is full")

    monkeypatch.setattr("backend.training.trainer.checkpoints.CheckpointFolder.save", full)
    notes = RecordingObserver()
    with pytest.raises(TrainingError, match="disk is full"):
        train(ToyTask(), plain_config(), output=tmp_path, observers=[notes])

    assert "disk is full" in notes.of("stop")[0].message
    assert 1 == notes.closed


@pytest.mark.parametrize("on_disk", [True, False])
def test_the_best_weights_are_returned(tmp_path: Path, on_disk: bool) -> None:
    """The second of three evaluations was the best: its weights are in the model, its metrics in the result."""
    metrics = [{"accuracy": 0.2}, {"accuracy": 0.7}, {"accuracy": 0.5}]
    task, two = ToyTask(metrics=metrics), ToyTask(metrics=metrics)
    output = tmp_path if on_disk else None
    result = train(task, plain_config(epochs=3, schedule="constant", keep_checkpoints=1), output=output)
    train(two, plain_config(epochs=2, schedule="constant"), output=None)

    assert {"accuracy": 0.7} == result.metrics
    assert 18 == result.steps
    assert not same_bits(weights_of(ToyTask().model), weights_of(task.model))
    difference_to_two = difference(weights_of(two.model), weights_of(task.model))
    assert difference_to_two < 1e-2  # not equal: warm-up is a share of another number of steps
    if on_disk:
        best = find_best(tmp_path)
        assert best is not None
        assert 12 == load_checkpoint(best).step


@pytest.mark.parametrize("on_disk", [True, False])
def test_the_best_weights_after_going_back(tmp_path: Path, on_disk: bool) -> None:
    """A step number comes twice after a fallback; the best weights are still those that were evaluated."""
    evaluated = []

    class Watching(ToyTask):
        def evaluate(self, model: nn.Module) -> dict[str, float]:
            evaluated.append(weights_of(model))
            return {"accuracy": [0.9, 0.1, 0.2, 0.3, 0.4][len(evaluated) - 1]}

    once = [True]

    def broken(step: int, indices: Sequence[int]) -> bool:
        return step == 7 and bool(once) and once.pop()

    task = Watching(dropout=0.2)
    config = plain_config(snapshot_every=50, evaluate_every=3, checkpoint_every=50)
    result = train(task, config, output=tmp_path if on_disk else None, faults=Faults(broken=broken))

    assert (5, 1, {"accuracy": 0.9}) == (len(evaluated), len(result.events), result.metrics)
    assert same_bits(evaluated[0], weights_of(task.model))
    assert not same_bits(evaluated[-1], weights_of(task.model))


def test_patience() -> None:
    """Two evaluations without a better one end the run, with the best one's metrics."""
    task = ToyTask(metrics=[{"accuracy": one} for one in (0.5, 0.4, 0.5, 0.9)])
    result = train(task, plain_config(epochs=9, patience=2), output=None)

    assert ("patience", 3.0, {"accuracy": 0.5}) == (result.reason, result.epochs, result.metrics)


@pytest.mark.parametrize("metrics", [{"other": 1.0}, {"accuracy": math.nan}], ids=["another-metric", "not-a-number"])
def test_without_a_score_nothing_is_lost(metrics: dict) -> None:
    """The run goes to its end and keeps its last weights, as one without evaluation examples does."""
    plain, task = ToyTask(metrics=[{}]), ToyTask(metrics=[metrics])
    train(plain, plain_config(), output=None)
    result = train(task, plain_config(patience=1), output=None)

    assert "epochs" == result.reason
    assert same_bits(weights_of(plain.model), weights_of(task.model))


def test_evaluation_every_n_steps() -> None:
    """Once more at the end, unless it was just done."""
    notes = RecordingObserver()
    train(ToyTask(), plain_config(evaluate_every=5), output=None, observers=[notes])

    assert [5, 10, 12] == [event.step for event in notes.of("evaluation")]


def test_max_steps_ends_within_an_epoch() -> None:
    """The schedule is planned for those steps, and the loss is the mean of the epoch so far."""
    notes = RecordingObserver()
    result = train(ToyTask(), plain_config(max_steps=4, schedule="linear"), output=None, observers=[notes])
    steps = notes.of("step")

    assert ("max_steps", 4) == (result.reason, result.steps)
    assert {"steps": 4, "micro_batch": 8, "precision": "fp32"} == notes.of("start")[0].values
    assert steps[-1].values["learning_rate"] < steps[0].values["learning_rate"]
    assert min(one.values["loss"] for one in steps) <= result.loss <= max(one.values["loss"] for one in steps)


def test_events_come_in_order_and_can_be_logged(tmp_path: Path) -> None:
    """Everything that a bar or a log needs, as plain values."""
    notes = RecordingObserver()
    train(ToyTask(), plain_config(epochs=1, evaluate_every=3), output=tmp_path, observers=[notes])
    kinds = [event.kind for event in notes.events]

    assert ["start", *["step"] * 3, "evaluation", "checkpoint", *["step"] * 3] == kinds[:9]
    assert "end" == kinds[-1]
    expected = {"loss", "learning_rate", "grad_norm", "micro_batch", "precision", "tokens"}
    assert expected == set(notes.of("step")[0].values)
    json.dumps([event.values for event in notes.events])
    assert 1 == notes.closed


def test_evaluation_mode_and_gradients() -> None:
    """A task evaluates without gradients and without dropout, and trains with both afterwards."""
    seen = []

    class Watching(ToyTask):
        def evaluate(self, model: nn.Module) -> dict[str, float]:
            seen.append((model.training, torch.is_grad_enabled()))
            return {}

        def loss(self, model: nn.Module, batch: dict):  # type: ignore[no-untyped-def, override]
            seen.append((model.training, torch.is_grad_enabled()))
            return super().loss(model, batch)

    train(Watching(8), plain_config(epochs=2), output=None)

    assert [(True, True), (False, False)] * 2 == seen


def test_no_examples() -> None:
    """Empty data is refused before anything is computed."""
    with pytest.raises(BadData, match="no example"):
        train(ToyTask(0), plain_config(), output=None)


def test_torch_settings_are_restored() -> None:
    """Deterministic algorithms are on during the run alone."""
    seen = []

    class Watching(ToyTask):
        def evaluate(self, model: nn.Module) -> dict[str, float]:
            seen.append(torch.are_deterministic_algorithms_enabled())
            return {}

    train(Watching(8), plain_config(epochs=1, deterministic=True), output=None)

    assert [True] == seen
    assert not torch.are_deterministic_algorithms_enabled()
