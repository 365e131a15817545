"""One engine on several devices: the same model on each, one queue for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend.lanes.engine import BatchLimits, Engine


class Replicas:
    """Engines of one task and one arithmetic, by device index; a lane gets its own with ``on``.

    Work waits for the task, not for a device: whichever lane is free first takes it, so unequal cards share the work by
    their speed. Without a device index the first engine answers.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        if not engines:
            raise ValueError("no engine to replicate")
        self._engines = tuple(engines)

    @property
    def name(self) -> str:
        return self._engines[0].name

    @property
    def budget(self) -> int:
        """The smallest of all, so that any device may take any batch."""
        return min(engine.budget for engine in self._engines)

    @property
    def padding_cost(self) -> float:
        """The first engine's: they all run the same arithmetic."""
        return self._engines[0].padding_cost

    @property
    def launch_cost(self) -> int:
        """The first engine's; a lane asks the engine of its device."""
        return self._engines[0].launch_cost

    @property
    def batch_limits(self) -> BatchLimits:
        """The first engine's; a lane asks the engine of its device."""
        return self._engines[0].batch_limits

    def on(self, device_index: int) -> Engine:
        return self._engines[device_index]

    def prepare(self, payloads: Sequence[Any]) -> Any:
        return self._engines[0].prepare(payloads)

    def forward(self, prepared: Any) -> Any:
        return self._engines[0].forward(prepared)

    def finish(self, output: Any) -> Sequence[Any]:
        return self._engines[0].finish(output)
