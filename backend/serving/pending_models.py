"""Models that are set and could not be fetched from the hub yet, and what serves in their place."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend.errors import ModelPending
from backend.retry import Backoff

PAUSE = Backoff(15.0, 900.0)
_UNDER_WAY_S = 30.0  # Retry-After while it is being fetched: nobody knows how long that takes


@dataclass(slots=True)
class PendingModel:
    """One of them. Changed by services/model_retry alone."""

    task: str
    source: str  # as the settings have it
    names: tuple[str, ...]  # every name it will answer to
    reason: str  # why the last try failed
    serving: str | None  # the name of the model in its place, None where there is none
    tries: int = 0
    next_try_s: float = 0.0  # monotonic
    is_under_way: bool = False  # being fetched or loaded now

    def failed(self, reason: str, now_s: float) -> None:
        """A try has failed: the next comes after a pause that doubles each time."""
        self.tries += 1
        self.next_try_s = now_s + PAUSE.wait_s(self.tries)
        self.reason, self.is_under_way = reason, False

    def retry_after_s(self, now_s: float) -> float:
        """When a caller should ask again."""
        return _UNDER_WAY_S if self.is_under_way else max(1.0, self.next_try_s - now_s)

    def sentence(self, now_s: float) -> str:
        """What is missing, why, what serves, and when the next try is."""
        serving = f"{self.serving} serves in its place" if self.serving else "no model of its own serves"
        again = "a try is under way" if self.is_under_way else f"next try in {max(0.0, self.next_try_s - now_s):.0f} s"
        return f"the model for {self.task} ({self.source}) is not loaded: {self.reason}; {serving}; {again}"

    def report(self, now_s: float) -> dict[str, object]:
        """For GET /v1/system."""
        return {
            "task": self.task,
            "source": self.source,
            "serving": self.serving,
            "reason": self.reason,
            "tries": self.tries,
            "is_under_way": self.is_under_way,
            "next_try_in_s": None if self.is_under_way else round(max(0.0, self.next_try_s - now_s), 1),
        }


class PendingModels:
    """The pending models by task. Belongs to the loop.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, models: Sequence[PendingModel] = (), *, clock: Callable[[], float] = time.monotonic) -> None:
        self._models = {model.task: model for model in models}
        self._clock = clock

    def of(self, task: str) -> PendingModel | None:
        return self._models.get(task)

    def models(self) -> tuple[PendingModel, ...]:
        return tuple(self._models.values())

    def next(self) -> PendingModel | None:
        """The one whose next try comes first; None once all are there."""
        return min(self._models.values(), key=lambda model: model.next_try_s, default=None)

    def settle(self, task: str) -> None:
        """Some model was loaded for the task on purpose: nothing is pending there any more."""
        self._models.pop(task, None)

    def check(self, name: str) -> None:
        """Raises: ModelPending where ``name`` is one of theirs."""
        now_s = self._clock()
        for model in self._models.values():
            if name in model.names:
                after_s = model.retry_after_s(now_s)
                raise ModelPending(name, model.reason, serving=model.serving, retry_after_s=after_s)

    def sentences(self) -> tuple[str, ...]:
        """One a model, for people."""
        now_s = self._clock()
        return tuple(model.sentence(now_s) for model in self._models.values())

    def report(self) -> list[dict[str, object]]:
        """For GET /v1/system."""
        now_s = self._clock()
        return [model.report(now_s) for model in self._models.values()]
