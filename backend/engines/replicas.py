"""One engine on several devices: the same model on each, one queue for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend.engines.engine import Engine, Room


class Replicas:
    """Engines of one task and one arithmetic, by device index; a lane asks for its own with ``on``.

    Jobs wait for the task, not for a device: whichever lane is free first takes them, so unequal cards share the
    work by their speed. Budget and padding are the first one's until a device is named.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        if not engines:
            raise ValueError("no engine to replicate")
        self._engines = tuple(engines)

    @property
    def name(self) -> str:
        """The task's."""
        return self._engines[0].name

    @property
    def budget(self) -> int:
        """The least of all, so that any device may take any batch."""
        return min(engine.budget for engine in self._engines)

    @property
    def padding_cost(self) -> float:
        """The first one's: they all run the same arithmetic."""
        return self._engines[0].padding_cost

    @property
    def room(self) -> Room:
        """The first one's; a lane asks its own."""
        return self._engines[0].room

    def on(self, device_index: int) -> Engine:
        """The engine on that device."""
        return self._engines[device_index]

    def prepare(self, payloads: Sequence[Any]) -> Any:
        """As the first one does."""
        return self._engines[0].prepare(payloads)

    def forward(self, prepared: Any) -> Any:
        """As the first one does."""
        return self._engines[0].forward(prepared)

    def finish(self, output: Any) -> Sequence[Any]:
        """As the first one does."""
        return self._engines[0].finish(output)
