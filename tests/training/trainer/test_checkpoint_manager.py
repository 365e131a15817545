"""Snapshots hold everything a run goes on from, shared with nothing; random numbers are seeded for each step."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from backend.training.trainer.checkpoints import non_finite_tensors, restore_snapshot, take_snapshot, trainable_tensors
from backend.training.trainer.model_setup import make_optimizer
from backend.training.trainer.train_step import seed_step
from tests.toy_training import plain_config, same_bits, weights_of

CPU = torch.device("cpu")


class Rig:
    """A run to take snapshots of: a model with statistics and a frozen layer, its optimizer and two counters."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        self.model[0].requires_grad_(requires_grad=False)
        self.optimizer = make_optimizer(self.model, plain_config(), CPU)
        self.count = 0
        self.other = 0

    def state_dict(self) -> dict:
        return {"count": {"n": self.count}, "other": {"n": self.other}}

    def load_state_dict(self, states: dict) -> None:
        self.count = states.get("count", {"n": self.count})["n"]
        self.other = states.get("other", {"n": self.other})["n"]

    def step(self) -> None:
        inputs = torch.arange(24.0).reshape(6, 4).sin()
        self.model(inputs).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.count, self.other = self.count + 1, self.other + 1


def test_a_restored_run_continues_to_the_same_weights() -> None:
    """Weights, statistics and both moments: three steps after going back equal the three before it, bit for bit."""
    rig = Rig()
    rig.step()
    snapshot = take_snapshot(rig)
    for _ in range(3):
        rig.step()
    expected = weights_of(rig.model)
    for _ in range(2):  # twice: restoring must not change the snapshot
        restore_snapshot(rig, snapshot)
        for _ in range(3):
            rig.step()

        assert same_bits(expected, weights_of(rig.model))
    assert 4 == rig.count


def test_gradients_are_dropped() -> None:
    """A half-computed gradient of the failed step would be added to the next."""
    rig = Rig()
    snapshot = take_snapshot(rig)
    rig.model(torch.ones(3, 4)).sum().backward()
    restore_snapshot(rig, snapshot)

    assert all(one.grad is None for one in rig.model.parameters())


def test_frozen_weights_are_not_copied() -> None:
    """With LoRA a snapshot is as small as the adapters."""
    names = set(trainable_tensors(Rig().model))

    assert not {"0.weight", "0.bias"} & names
    assert {"1.running_mean", "2.weight"} <= names


def test_non_finite_tensors_are_named() -> None:
    """Weights and statistics, NaN and infinity; large numbers are fine."""
    rig = Rig()
    with torch.no_grad():
        rig.model[2].bias.fill_(3e38)

    assert [] == non_finite_tensors(rig.model)
    with torch.no_grad():
        rig.model[2].weight[0, 0] = float("nan")
        rig.model[1].running_var[3] = float("inf")
    assert ["2.weight", "1.running_var"] == non_finite_tensors(rig.model)


def draw() -> tuple[float, float, float]:
    return float(torch.rand(())), random.random(), float(np.random.random())


def test_a_step_has_its_own_random_numbers() -> None:
    """The same step gets the same ones, whatever was drawn before; another step, rank or seed gets others."""
    seed_step(42, 7, 0, CPU)
    expected = draw()
    draw()
    seed_step(42, 7, 0, CPU)

    assert expected == draw()
    for other in ((42, 8, 0), (42, 7, 1), (43, 7, 0)):
        seed_step(*other, CPU)
        assert not set(expected) & set(draw())


@pytest.mark.parametrize("seed", [0, 2**63, -5])
def test_any_seed_will_do(seed: int) -> None:
    """torch takes 63 bits and NumPy 32; any integer is accepted."""
    seed_step(seed, 0, 0, CPU)

    assert all(0 <= one < 1 for one in draw())
