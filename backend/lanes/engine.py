"""The engine interface that the batching layer runs: three verbs and a cost. No HTTP, no asyncio, no queue.

Also one engine on several devices: the same model on each, one queue for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Capacity = Callable[[int], int]  # longest payload's cost -> payloads of that cost that fit at once, at least 1


class BatchLimits(Protocol):
    """How many payloads of an engine fit its device's memory at once; adapts to out-of-memory errors. Any thread."""

    def capacity(self) -> Capacity:
        """What fits now, from one snapshot of the device's memory; good for the batch that is being cut."""

    def out_of_memory(self, longest: int, count: int) -> None:
        """A batch of ``count`` payloads ran out of memory: allow fewer of that length, and free cached memory."""

    def succeeded(self, longest: int, count: int) -> None:
        """A batch of ``count`` payloads was run."""

    def batch_bytes(self, budget: int, longest: int) -> int | None:
        """Memory of a full batch of the longest payloads; None where it was not measured."""


class UnlimitedBatches:
    """The limits of a device whose memory never limits a batch (a CPU, whose budgets are small). A null object."""

    def capacity(self) -> Capacity:
        return unlimited_count

    def out_of_memory(self, longest: int, count: int) -> None:
        """Changes nothing: halving the batch was enough."""

    def succeeded(self, longest: int, count: int) -> None:
        """Changes nothing."""

    def batch_bytes(self, budget: int, longest: int) -> int | None:  # noqa: ARG002 - the protocol's arguments
        return None


class Engine(Protocol):
    """One task on one loaded model: ``prepare`` (CPU) -> ``forward`` (device) -> ``finish`` (CPU).

    All three run on a lane's thread, several lanes at once, so an engine keeps no state between calls.
    A payload's cost (tokens or pixels) is counted by the service before the work item is queued.
    """

    @property
    def name(self) -> str:
        """The engine's name in metrics and logs, e.g. "embeddings"."""

    @property
    def budget(self) -> int:
        """Cost that one batch may have: longest payload times payloads, or their sum where nothing is padded."""

    @property
    def padding_cost(self) -> float:
        """Time of a padded unit of cost as a share of a real one's: 1 where the whole model pads, less if packed.

        0 where nothing is padded: then a batch is first come until the sum of its costs reaches ``budget``.
        """

    @property
    def launch_cost(self) -> int:
        """The cost that the device computes in the time of one launch: padding up to it is free. 0 if not known."""

    @property
    def batch_limits(self) -> BatchLimits:
        """How many payloads fit the device's memory."""

    def on(self, device_index: int) -> Engine:
        """The engine for one of the placement's devices: itself where there is only one."""

    def prepare(self, payloads: Sequence[Any]) -> Any:
        """Collate payloads into what ``forward`` takes."""

    def forward(self, prepared: Any) -> Any:
        """Run the model; may return before the device has finished (CUDA streams)."""

    def finish(self, output: Any) -> Sequence[Any]:
        """Wait for the device and split the output: one result, or FinanciaError, a payload, in their order."""


def unlimited_count(_longest: int) -> int:
    """The capacity of a device whose memory never limits a batch."""
    return 1 << 30


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
