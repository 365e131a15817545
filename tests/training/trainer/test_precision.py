"""The gradient scaler: torch's with limits and hysteresis, and able to discard a step."""

import pytest
import torch
from torch import nn

from backend.training.records import MixedPrecisionConfig
from backend.training.trainer.precision import ClampedGradScaler


class Rig:
    """One weight, an optimizer and a scaler, and steps that are good or bad."""

    def __init__(self, **settings: object) -> None:
        self.weight = nn.Parameter(torch.ones(3))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1)
        self.scaler = ClampedGradScaler("cpu", MixedPrecisionConfig(dtype="float16", **settings))  # type: ignore[arg-type]

    def step(self, *, good: bool = True) -> float:
        """The scale after it."""
        self.optimizer.zero_grad()
        loss = self.weight.sum() * (1.0 if good else float("inf"))
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return self.scaler.get_scale()


def test_min_scale() -> None:
    """Thirty bad steps take torch's scaler to 6e-05, where gradients vanish; this one stops at min_scale."""
    rig = Rig(initial_scale=16.0, min_scale=2.0, hysteresis=1)

    assert [8.0, 4.0, 2.0, 2.0, 2.0] == [rig.step(good=False) for _ in range(5)]
    assert rig.scaler.at_min_scale
    assert torch.equal(torch.ones(3), rig.weight.detach())


def test_max_scale() -> None:
    """The scale grows after each interval of good steps, up to max_scale."""
    rig = Rig(initial_scale=8.0, max_scale=16.0, growth_interval=1)

    assert [16.0, 16.0, 16.0] == [rig.step() for _ in range(3)]
    assert not rig.scaler.at_min_scale


@pytest.mark.parametrize(
    ("hysteresis", "steps", "expected"),
    [
        pytest.param(1, "bb", [8, 4], id="at-once-as-torch"),
        pytest.param(2, "bbb", [16, 8, 4], id="the-second-in-a-row-and-each-after-it"),
        pytest.param(2, "bgbg", [16, 16, 16, 16], id="single-ones-are-borne"),
        pytest.param(3, "bbgbbb", [16, 16, 16, 16, 16, 8], id="a-good-step-starts-the-row-anew"),
    ],
)
def test_hysteresis(hysteresis: int, steps: str, expected: list[float]) -> None:
    """The scale falls at the n-th bad step in a row, as in Megatron-LM."""
    rig = Rig(initial_scale=16.0, hysteresis=hysteresis)

    assert expected == [rig.step(good=one == "g") for one in steps]


def test_a_bad_step_starts_the_growth_interval_anew() -> None:
    """A tolerated bad step still ends the row of good ones."""
    rig = Rig(initial_scale=16.0, hysteresis=2, growth_interval=3)

    assert [16, 16, 16, 16, 16, 32] == [rig.step(good=one == "g") for one in "ggbggg"]


def test_a_discarded_step_can_be_run_again() -> None:
    """After memory ran out between unscaling and stepping, torch's scaler would refuse the second attempt."""
    rig = Rig()
    rig.scaler.scale(rig.weight.sum()).backward()
    rig.scaler.unscale_(rig.optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        rig.scaler.unscale_(rig.optimizer)
    rig.scaler.discard_step()

    assert 65536.0 == rig.step()


def test_state_comes_back() -> None:
    """A loaded scaler continues exactly: the same scale, the same bad steps in a row."""
    rig, other = Rig(initial_scale=16.0, hysteresis=2), Rig(initial_scale=1024.0, hysteresis=2)
    rig.step(good=False)
    other.step()
    other.scaler.load_state_dict(rig.scaler.state_dict())

    assert rig.step(good=False) == other.step(good=False) == 8.0
