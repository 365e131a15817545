"""Learning rates follow the known curves, warm up, and outlive the number of steps they were made for."""

import json
import math

import pytest
import torch
import transformers
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from backend.training.trainer.model_setup import factor, make_schedule

NAMES = ("one_cycle", "linear", "cosine", "polynomial", "constant")


def optimizer(*rates: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates])


def rates(name: str, *, steps: int = 20, **options) -> list[float]:
    """The rate of every step of a run."""
    schedule = make_schedule(name, optimizer(0.1), steps=steps, **options)
    values = []
    for _ in range(steps):
        values.append(schedule.learning_rate)
        schedule.step()
    return values


@pytest.mark.parametrize(("steps", "ratio"), [(20, 0.3), (50, 0.1), (7, 0.5)])
def test_one_cycle_equals_torch(steps, ratio):
    """Step for step the rates of OneCycleLR without its cycle of momentum."""
    sgd = optimizer(0.1)
    theirs = OneCycleLR(sgd, max_lr=0.1, total_steps=steps, pct_start=ratio, cycle_momentum=False)
    expected = []
    for index in range(steps):
        expected.append(theirs.get_last_lr()[0])
        sgd.step()
        if index < steps - 1:
            theirs.step()

    assert expected == pytest.approx(rates("one_cycle", steps=steps, warmup_ratio=ratio))


@pytest.mark.parametrize("name", ["linear", "cosine", "polynomial", "constant"])
def test_after_the_warmup_the_curves_equal_transformers(name):
    """Without warm-up every rate is that of transformers; with it, every rate from the peak on."""
    makers = {
        "linear": transformers.get_linear_schedule_with_warmup,
        "cosine": transformers.get_cosine_schedule_with_warmup,
        "constant": transformers.get_constant_schedule_with_warmup,
    }
    for warm in (0, 5):
        sgd = optimizer(0.1)
        if name == "polynomial":
            theirs = transformers.get_polynomial_decay_schedule_with_warmup(sgd, warm, 20, lr_end=1e-30)
        else:
            theirs = makers[name](sgd, warm, *([] if name == "constant" else [20]))
        expected = []
        for _ in range(20):
            expected.append(theirs.get_last_lr()[0])
            sgd.step()
            theirs.step()

        assert expected[warm:] == pytest.approx(rates(name, warmup_ratio=warm / 20)[warm:])


@pytest.mark.parametrize("name", ["linear", "cosine", "polynomial", "constant"])
def test_the_warmup_rises_from_above_zero_to_the_peak(name):
    """No step is taken at a rate of 0, and the peak comes when the warm-up ends."""
    values = rates(name, steps=20, warmup_ratio=0.2)

    assert values[:5] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])
    assert max(values) == pytest.approx(0.1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.9])
def test_the_shortest_runs_train(name, steps, ratio):
    """A run of one, two or three steps has finite rates, and its first one is above 0."""
    values = rates(name, steps=steps, warmup_ratio=ratio)

    assert all(math.isfinite(rate) and 0 <= rate <= 0.1 for rate in values)
    assert values[0] > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_gets_longer_never_raises(name):
    """Past its last step a schedule stays at its end; torch's own raises there (PiFold#6)."""
    schedule = make_schedule(name, optimizer(0.1), steps=10)
    for _ in range(10):
        schedule.step()
    at_the_end = schedule.learning_rate
    for _ in range(20):
        schedule.step()

    assert schedule.learning_rate == pytest.approx(at_the_end)
    assert schedule.learning_rate >= 0


@pytest.mark.parametrize("name", NAMES)
def test_resuming_gives_the_same_rates(name):
    """A schedule that loads a state, also through JSON, continues bit for bit."""
    expected = rates(name)
    first = make_schedule(name, optimizer(0.1), steps=20)
    for _ in range(9):
        first.step()
    state = json.loads(json.dumps(first.state_dict()))

    second = make_schedule(name, optimizer(0.1), steps=20)
    second.load_state_dict(state)
    values = []
    for _ in range(11):
        values.append(second.learning_rate)
        second.step()

    assert expected[9:] == values


def test_more_steps_follow_the_longer_curve():
    """Resumed with more epochs, a run keeps its step and takes the longer curve from there."""
    first = make_schedule("linear", optimizer(0.1), steps=10, warmup_ratio=0)
    for _ in range(8):
        first.step()
    longer = make_schedule("linear", optimizer(0.1), steps=40, warmup_ratio=0)
    longer.load_state_dict(first.state_dict())

    assert longer.learning_rate == pytest.approx(0.1 * (1 - 8 / 40))


def test_each_group_keeps_its_own_peak():
    """Heads with a higher rate keep the ratio."""
    two = optimizer(0.1, 0.01)
    schedule = make_schedule("linear", two, steps=10, warmup_ratio=0)
    schedule.step()

    assert [group["lr"] for group in two.param_groups] == pytest.approx([0.09, 0.009])


def test_the_optimizers_saved_rate_does_not_become_the_peak():
    """Loading the optimizer first, whose groups hold a decayed rate, then the schedule, restores the peak."""
    sgd = optimizer(0.1)
    schedule = make_schedule("linear", sgd, steps=10, warmup_ratio=0)
    for _ in range(5):
        schedule.step()
    saved, state = sgd.state_dict(), schedule.state_dict()

    fresh = optimizer(0.1)
    fresh.load_state_dict(saved)
    again = make_schedule("linear", fresh, steps=10, warmup_ratio=0)  # made too late: its peak would be 0.05
    again.load_state_dict(state)

    assert again.learning_rate == pytest.approx(0.05)
    assert factor("linear", 5, 10, warmup_steps=0) == pytest.approx(0.5)
