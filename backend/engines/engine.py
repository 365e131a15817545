"""What a task is to the lanes: three verbs and a cost. No HTTP, no asyncio, no queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Capacity = Callable[[int], int]  # longest payload's cost -> payloads of that cost that fit at once, at least 1


class Room(Protocol):
    """How much of one engine's work fits the memory of its device; learns from what happened. Any thread."""

    def capacity(self) -> Capacity:
        """What fits now; one look at the device, good for the batch that is being cut."""

    def missed(self, longest: int, count: int) -> None:
        """A batch of ``count`` payloads ran out of memory: fewer of that length from now on; free what is cached."""

    def succeeded(self, longest: int, count: int) -> None:
        """A batch of ``count`` payloads was run."""

    def batch_bytes(self, budget: int, longest: int) -> int | None:
        """Memory of a full batch of the longest payloads; None where it was not measured."""


class Unlimited:
    """The room of a device whose memory is not the limit (a CPU, whose budgets are small). Also a null object."""

    def capacity(self) -> Capacity:
        """Any number."""
        return any_number

    def missed(self, longest: int, count: int) -> None:
        """Nothing is learnt: halving has solved it."""

    def succeeded(self, longest: int, count: int) -> None:
        """Nothing is learnt."""

    def batch_bytes(self, budget: int, longest: int) -> int | None:  # noqa: ARG002 - the protocol's arguments
        """Not measured."""
        return None


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

    @property
    def room(self) -> Room:
        """What fits the device's memory."""

    def on(self, device_index: int) -> Engine:
        """The engine as it stands on one of the placement's devices: itself where there is only one."""

    def prepare(self, payloads: Sequence[Any]) -> Any:
        """Collate payloads into what ``forward`` takes."""

    def forward(self, prepared: Any) -> Any:
        """Run the model; may return before the device has finished (CUDA streams)."""

    def finish(self, output: Any) -> Sequence[Any]:
        """Wait for the device and split the output: one result, or FinanciaError, a payload, in their order."""


def any_number(_longest: int) -> int:
    """The capacity of a device whose memory is not the limit."""
    return 1 << 30
