"""Snapshots: everything a run goes on from, shared with nothing; and random numbers that need no keeping."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from backend.training.records import MixedPrecisionConfig
from backend.training.trainer.optimizers import make_optimizer
from backend.training.trainer.precision import Numerics
from backend.training.trainer.snapshot import Keeper, broken_tensors, changing, seed_step
from tests.toy_training import one_thread, plain_config, same_bits, weights_of  # noqa: F401  # a fixture

CPU = torch.device("cpu")


class Rig:
    """A model with statistics and a frozen layer, its optimizer, a counter, and a keeper of them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        self.model[0].requires_grad_(requires_grad=False)
        self.optimizer = make_optimizer(self.model, plain_config(), CPU)
        self.count = 0
        self.other = 0
        parts = {"count": (lambda: {"n": self.count}, self._put), "other": (lambda: {"n": self.other}, self._put_other)}
        self.keeper = Keeper(self.model, self.optimizer, parts)

    def _put(self, state: dict) -> None:
        self.count = state["n"]

    def _put_other(self, state: dict) -> None:
        self.other = state["n"]

    def step(self) -> None:
        inputs = torch.arange(24.0).reshape(6, 4).sin()
        self.model(inputs).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.count, self.other = self.count + 1, self.other + 1


def test_what_is_put_back_goes_on_to_the_same_weights() -> None:
    """Weights, statistics and both moments: three steps after going back equal the three before it, bit for bit."""
    rig = Rig()
    rig.step()
    snapshot = rig.keeper.take()
    for _ in range(3):
        rig.step()
    expected = weights_of(rig.model)
    for _ in range(2):  # twice: what is put back must not change the snapshot
        rig.keeper.put_back(snapshot)
        for _ in range(3):
            rig.step()

        assert same_bits(expected, weights_of(rig.model))
    assert 4 == rig.count


def test_a_snapshot_of_the_start_has_no_moments() -> None:
    """Going back to before the first step empties the optimizer too."""
    rig = Rig()
    start, snapshot = weights_of(rig.model), rig.keeper.take()
    rig.step()
    expected = weights_of(rig.model)
    rig.step()
    rig.keeper.put_back(snapshot)

    assert same_bits(start, weights_of(rig.model))
    rig.step()
    assert same_bits(expected, weights_of(rig.model))


def test_what_was_learnt_stays() -> None:
    """Parts named in ``keep`` are not put back: limits and rungs are learnt, not undone."""
    rig = Rig()
    snapshot = rig.keeper.take()
    rig.step()
    rig.keeper.put_back(snapshot, keep=("other",))

    assert (0, 1) == (rig.count, rig.other)


def test_gradients_do_not_survive() -> None:
    """A half-computed gradient of the failed step would be added to the next."""
    rig = Rig()
    snapshot = rig.keeper.take()
    rig.model(torch.ones(3, 4)).sum().backward()
    rig.keeper.put_back(snapshot)

    assert all(one.grad is None for one in rig.model.parameters())


def test_frozen_weights_are_not_copied() -> None:
    """With LoRA a snapshot is as small as the adapters."""
    names = set(changing(Rig().model))

    assert not {"0.weight", "0.bias"} & names
    assert {"1.running_mean", "2.weight"} <= names


def test_broken_tensors_are_named() -> None:
    """Weights and statistics, NaN and infinity; large numbers are not broken."""
    rig = Rig()
    with torch.no_grad():
        rig.model[2].bias.fill_(3e38)

    assert [] == broken_tensors(rig.model)
    with torch.no_grad():
        rig.model[2].weight[0, 0] = float("nan")
        rig.model[1].running_var[3] = float("inf")
    assert ["2.weight", "1.running_var"] == broken_tensors(rig.model)


def draws() -> tuple[float, float, float]:
    return float(torch.rand(())), random.random(), float(np.random.random())


def test_a_step_has_its_own_random_numbers() -> None:
    """The same step the same ones, whatever was drawn before; another step, rank or seed others."""
    seed_step(42, 7, 0, CPU)
    expected = draws()
    draws()
    seed_step(42, 7, 0, CPU)

    assert expected == draws()
    for other in ((42, 8, 0), (42, 7, 1), (43, 7, 0)):
        seed_step(*other, CPU)
        assert not set(expected) & set(draws())


@pytest.mark.parametrize("seed", [0, 2**63, -5])
def test_any_seed_will_do(seed: int) -> None:
    """torch takes 63 bits and NumPy 32; the user need not know."""
    seed_step(seed, 0, 0, CPU)

    assert all(0 <= one < 1 for one in draws())


def test_numerics_are_a_part() -> None:
    """A precision put back takes its scaler along."""
    numerics = Numerics(CPU, MixedPrecisionConfig(dtype="float16"), "fp16")
    model = nn.Linear(2, 2)
    keeper = Keeper(model, make_optimizer(model, plain_config(), CPU), {"numerics": (numerics.state, numerics.load)})
    snapshot = keeper.take()
    numerics.use("fp32")
    keeper.put_back(snapshot)

    assert "fp16" == numerics.rung
    assert numerics.scaler is not None
