"""What a task is to the lanes: three verbs and a cost. No HTTP, no asyncio, no queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Engine(Protocol):
    """One task on one loaded model: ``prepare`` (CPU) -> ``forward`` (device) -> ``finish`` (CPU).

    All three run on a lane's thread, several lanes at once, so an engine keeps no state between calls.
    A payload's cost (tokens or pixels) is counted by the service before the job waits.
    """

    @property
    def name(self) -> str:
        """The engine's name in metrics and logs, e.g. "embeddings"."""

    @property
    def budget(self) -> int:
        """Padded cost one batch may have: longest payload times payloads."""

    @property
    def padding_cost(self) -> float:
        """What a padded unit of cost takes of a real one's time: 1 where the whole model pads, less where it packs."""

    def prepare(self, payloads: Sequence[Any]) -> Any:
        """Collate payloads into what ``forward`` takes."""

    def forward(self, prepared: Any) -> Any:
        """Run the model; may return before the device has finished (CUDA streams)."""

    def finish(self, output: Any) -> Sequence[Any]:
        """Wait for the device and split the output: one result a payload, in their order."""
