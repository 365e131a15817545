"""How a run stands: steps and losses so far, and its best evaluation. Plain numbers; no tensor, no device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class Standing:
    """Steps taken, and the loss of each epoch as its effective batches come in."""

    def __init__(self) -> None:
        self.steps = 0  # that changed the weights
        self._total, self._weight = 0.0, 0.0  # of the epoch under way
        self._last = math.nan  # mean loss of the last whole epoch

    @property
    def loss(self) -> float:
        """Mean loss of the epoch under way, or of the last one when none has begun; NaN before the first step."""
        return self._total / self._weight if self._weight else self._last

    def count(self, total: float, weight: float, *, applied: bool) -> None:
        """An effective batch went by with finite losses of this sum and weight."""
        self.steps += applied
        self._total, self._weight = self._total + total, self._weight + weight

    def end_epoch(self) -> None:
        """The next batch belongs to another epoch."""
        self._last, self._total, self._weight = self.loss, 0.0, 0.0

    def state(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"steps": self.steps, "total": self._total, "weight": self._weight, "last": self._last}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from it."""
        self.steps = int(state["steps"])
        self._total, self._weight, self._last = float(state["total"]), float(state["weight"]), float(state["last"])


class Best:
    """The best evaluation so far, and how many went by since.

    Args:
        goal: metric to go by; higher is better.
        patience: evaluations without improvement to bear; None bears any number.
    """

    def __init__(self, goal: str, patience: int | None) -> None:
        self._goal, self._patience = goal, patience
        self.metrics: dict[str, float] = {}
        self.evaluated: int | None = None  # step of the newest evaluation, while its weights are those of the run
        self._newest = False  # the newest evaluation is the best
        self._stale = 0

    @property
    def lost_patience(self) -> bool:
        """Whether it is time to stop."""
        return self._patience is not None and self._stale >= self._patience

    def score(self, metrics: Mapping[str, float]) -> float | None:
        """The goal's value; None where it is absent or not a number."""
        value = metrics.get(self._goal)
        return None if value is None or math.isnan(value) else float(value)

    def see(self, metrics: Mapping[str, float], step: int) -> bool:
        """Take note of an evaluation; whether it is the best. While there is no score the newest one stands."""
        self.evaluated = step
        score, best = self.score(metrics), self.score(self.metrics)
        better = best is None or (score is not None and score > best)
        self._stale = 0 if better else self._stale + 1
        self._newest = better
        if better:
            self.metrics = dict(metrics)
        return better

    def is_at(self, step: int) -> bool:
        """Whether the weights of the run at this step are the best ones; True without any evaluation."""
        return not self.metrics or (self._newest and self.evaluated == step)

    def go_back(self) -> None:
        """The run returned to earlier weights; what comes at the same step numbers is not what was evaluated."""
        self.evaluated = None

    def state(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "metrics": self.metrics,
            "evaluated": self.evaluated,
            "newest": self._newest,
            "stale": self._stale,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from it."""
        self.metrics, self.evaluated = dict(state["metrics"]), state["evaluated"]
        self._newest, self._stale = bool(state["newest"]), int(state["stale"])
