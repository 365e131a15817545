"""Learning rates over a run: five curves with warm-up, each a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from backend.training.records import Schedule

# torch's OneCycleLR and fast.ai's recipe: start at a 25th of the peak, end ten thousand times below the start.
_ONE_CYCLE_START = 1 / 25
_ONE_CYCLE_END = _ONE_CYCLE_START / 1e4


def factor(name: Schedule, step: int, steps: int, *, warmup_steps: float, power: float = 1.0) -> float:
    """The share of the peak learning rate that optimizer step ``step`` (the first is 0) takes.

    Beyond the last step it stays at the end of the curve: a run may turn out longer than planned.
    Except for one_cycle, whose start is torch's, warm-up rises in a line and never takes a step of nothing: a run of
    one step learns too. After the warm-up the curves are those of transformers.
    """
    if name == "one_cycle":
        return _one_cycle(step, steps, warmup_steps)
    warm = math.ceil(warmup_steps)
    if step < warm:
        return (step + 1) / (warm + 1)
    if name == "constant":
        return 1.0
    left = max(0.0, 1 - (step - warm) / max(1, steps - warm))
    if name == "cosine":
        return (1 - math.cos(math.pi * left)) / 2
    return left**power if name == "polynomial" else left


def _one_cycle(step: int, steps: int, warmup_steps: float) -> float:
    top, last = warmup_steps - 1, steps - 1  # indices, as torch counts its phases
    if step < top:
        return _between(_ONE_CYCLE_START, 1.0, step / top)
    return _between(1.0, _ONE_CYCLE_END, min(1.0, max(0.0, step - max(0.0, top)) / max(1e-9, last - max(0.0, top))))


def _between(start: float, end: float, share: float) -> float:
    """From start to end along half a cosine."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


class LearningRate:
    """Sets the learning rate of an optimizer's groups; ``step`` it once after each step that really was taken.

    Every group keeps its own peak: the rate it had when this was made. Momentum and betas are left alone.
    """

    def __init__(
        self, name: Schedule, optimizer: Optimizer, *, steps: int, warmup_steps: float, power: float = 1.0
    ) -> None:
        self._name, self._optimizer = name, optimizer
        self._steps, self._warmup_steps, self._power = steps, warmup_steps, power
        self._peaks = [float(group["lr"]) for group in optimizer.param_groups]
        self._done = 0
        self._apply()

    @property
    def learning_rate(self) -> float:
        """Of the optimizer's first group, for the step to come."""
        return float(self._optimizer.param_groups[0]["lr"])

    @property
    def steps_done(self) -> int:
        """Optimizer steps counted."""
        return self._done

    def step(self) -> None:
        """An optimizer step was taken: set the rate of the next. Never raises, however long the run gets."""
        self._done += 1
        self._apply()

    def resize(self, steps: int, *, warmup_steps: float | None = None) -> None:
        """The run now has ``steps`` steps in all; what is done stays done, the rest follows the new curve."""
        self._steps = steps
        self._warmup_steps = self._warmup_steps if warmup_steps is None else warmup_steps
        self._apply()

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"steps_done": self._done, "peaks": list(self._peaks)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the saved number of steps, on this run's own curve: its length and name may have changed."""
        self._done = int(state["steps_done"])
        if len(state["peaks"]) == len(self._peaks):
            self._peaks = [float(peak) for peak in state["peaks"]]
        self._apply()

    def _apply(self) -> None:
        share = factor(self._name, self._done, self._steps, warmup_steps=self._warmup_steps, power=self._power)
        for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * share


def make_schedule(
    name: Schedule,
    optimizer: Optimizer,
    *,
    steps: int,
    warmup_ratio: float = 0.1,
    warmup_steps: float | None = None,
    max_lr: float | None = None,
    power: float = 1.0,
) -> LearningRate:
    """The schedule ``name`` for an optimizer, its rate for the first step set already.

    Args:
        steps: optimizer steps of the whole run.
        warmup_ratio: of all steps; ``warmup_steps`` wins over it.
        max_lr: peak of every group; None keeps each group's own rate as its peak.
        power: of the polynomial curve.
    """
    if max_lr is not None:
        for group in optimizer.param_groups:
            group["lr"] = max_lr
    steps = max(1, steps)
    warm = warmup_ratio * steps if warmup_steps is None else warmup_steps
    return LearningRate(name, optimizer, steps=steps, warmup_steps=min(float(warm), float(steps)), power=power)
