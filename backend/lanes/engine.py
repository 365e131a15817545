"""The engine interface that the batching layer runs: three verbs and a cost. No HTTP, no asyncio, no queue.

Also one engine on several devices, the same model on each, one queue for all; and the engine of every task that runs an
encoder, whose head computes results from its output. It gets the encoder from a source: one that stays in memory, or
one that is unloaded while idle and loaded again. A result that is not a finite number is computed again in float32, so
that NaN never leaves the service.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from backend.errors import FinanciaError, InferenceFailed, SetupError, Unavailable
from backend.models.encoder import Encoder, Payload, TokenBatch, Vectors, ids_of, payload_at, with_spans
from backend.models.readout import QueuedResults, Readout, reads_on_device
from backend.telemetry import FALLBACK_OUTCOMES, Telemetry, log_event


class Loadable(Protocol):
    """A model that may be loaded and unloaded: an encoder, or a generator."""

    @property
    def padding_cost(self) -> float: ...


Loaded = TypeVar("Loaded", bound=Loadable, default=Encoder)
Loaded_co = TypeVar("Loaded_co", bound=Loadable, covariant=True, default=Encoder)


class EncoderSource(Protocol[Loaded_co]):
    """Gives an engine its encoder, or its model of another kind, once a batch."""

    @property
    def padding_cost(self) -> float:
        """The encoder's ``padding_cost``, known also while it is unloaded."""

    def get(self) -> Loaded_co:
        """The encoder. The caller may use it to the end of the batch, even if it is unloaded meanwhile."""


class PinnedEncoder:
    """An encoder that is never unloaded."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @property
    def padding_cost(self) -> float:
        return self._encoder.padding_cost

    def get(self) -> Encoder:
        return self._encoder


class UnloadableEncoder(Generic[Loaded]):
    """An encoder that can be unloaded; the first batch that needs it loads it again.

    Users are not counted: a batch holds a reference to the encoder it began with, so one that is unloaded meanwhile is
    freed when the batch ends. Safe on any thread; ``get`` takes the lock only to load.

    Args:
        encoder: None for one that is loaded later, by the first that needs it.
        load: loads the encoder, on the lane that asks first; other lanes wait for that one.
        padding_cost: of an encoder that is loaded later.
        device: where it is, as torch names it.
        companions: drop what was loaded beside the encoder; called when it is unloaded.
        changed: called after loading (True) and unloading (False), on the thread that did it.
    """

    def __init__(
        self,
        encoder: Loaded | None,
        load: Callable[[], Loaded],
        *,
        name: str,
        device: str = "cpu",
        companions: Sequence[Callable[[], None]] = (),
        padding_cost: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.device = name, device
        self.padding_cost = padding_cost if encoder is None else encoder.padding_cost
        self.changed: Callable[[bool], None] = _ignore
        self._load, self._clock, self._companions = load, clock, companions
        self._encoder = encoder
        self._lock = threading.Lock()
        self._used_s = clock()

    @property
    def is_loaded(self) -> bool:
        return self._encoder is not None

    @property
    def idle_s(self) -> float:
        """Seconds since a batch last asked for the encoder."""
        return self._clock() - self._used_s

    def graphs(self) -> dict[str, object] | None:
        """What became of its CUDA graphs; None where it has none, or is unloaded. Does not count as a use."""
        graphs = getattr(self._encoder, "graphs", None)  # of packed encoders on a card alone
        return None if graphs is None else {"device": self.device, **graphs.report()}

    def get(self) -> Loaded:
        """The encoder, loaded first if it is unloaded. Raises: Unavailable when it cannot be loaded any more."""
        self._used_s = self._clock()
        encoder = self._encoder
        return encoder if encoder is not None else self._load_again()

    def unload(self) -> bool:
        """Drop the encoder; False when it is unloaded already. The caller releases what the allocators keep."""
        with self._lock:
            if self._encoder is None:
                return False
            self._encoder = None
        for drop in self._companions:
            drop()
        log_event(_log, logging.INFO, "idle model unloaded", model=self.name, idle_s=round(self.idle_s, 1))
        self.changed(False)
        return True

    def _load_again(self) -> Loaded:
        with self._lock:
            if self._encoder is not None:  # another lane was faster
                return self._encoder
            started_s = self._clock()
            try:
                encoder = self._encoder = self._load()
            except SetupError as error:
                raise Unavailable(f"the idle model could not be loaded again: {error}") from error
        log_event(_log, logging.INFO, "model is in memory", model=self.name, s=round(self._clock() - started_s, 2))
        self.changed(True)
        return encoder


def _ignore(_loaded: bool) -> None:
    """The default of ``changed``."""


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


_log = logging.getLogger(__name__)
ComputeOne = Callable[[Encoder, Payload], Vectors]  # a task's result for one text by that encoder
Prepared = tuple[Encoder, TokenBatch]
Exact = TypeVar("Exact", default=Encoder)  # what is loaded in float32: an encoder, or a model of another kind


class Fallback(Protocol):
    """Handles a text whose result is not finite."""

    def recompute(self, text: Payload, compute: ComputeOne) -> Vectors | FinanciaError:
        """The result computed again, or the error its caller gets. Runs on the lane."""


class NoFallback:
    """For a model that is served in float32 already: the text gets an error."""

    def recompute(self, text: Payload, compute: ComputeOne) -> FinanciaError:  # noqa: ARG002 - the protocol's arguments
        return _not_finite(text, "float32")


class Float32Encoder(Generic[Exact]):
    """The same model in float32, loaded when first needed; shared by the engines of a device. Any thread."""

    def __init__(self, load: Callable[[], Exact]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._encoder: Exact | None = None

    def get(self) -> Exact:
        with self._lock:
            if self._encoder is None:
                log_event(
                    _log,
                    logging.WARNING,
                    "an output was not finite; loading the model in float32 beside it "
                    "(PRECISION=exact or bf16 avoids this)",
                )
                self._encoder = self._load()
            return self._encoder

    def drop(self) -> None:
        """Forget it, when the model that it stands in for leaves memory."""
        with self._lock:
            self._encoder = None


class Float32Fallback(Generic[Exact]):
    """Computes the input alone with the model in float32. Few texts of few models overflow fp16, which ends at 65,504.

    Args:
        engine: name of the engine that uses this fallback, for the metrics.
    """

    def __init__(self, exact: Float32Encoder[Exact], engine: str, telemetry: Telemetry) -> None:
        self._exact = exact
        self._nonfinite = telemetry.nonfinite_outputs_total.labels(engine)
        self._outcomes = {name: telemetry.precision_fallbacks_total.labels(engine, name) for name in FALLBACK_OUTCOMES}

    def again(self, run: Callable[[Exact], Vectors]) -> Vectors:
        """What ``run`` gives with the model in float32, counted."""
        self._nonfinite.inc()
        result = run(self._exact.get())
        self._outcomes["rescued" if np.isfinite(result).all() else "failed"].inc()
        return result

    def recompute(self: Float32Fallback[Encoder], text: Payload, compute: ComputeOne) -> Vectors | FinanciaError:
        result = self.again(lambda encoder: compute(encoder, text))
        return result if np.isfinite(result).all() else _not_finite(text, "float32 too")


def _not_finite(text: Payload, where: str) -> FinanciaError:
    return InferenceFailed(
        f"the model's output for this input of {ids_of(text).shape[-1]} tokens is not a finite number in {where}; "
        "its weights or this input are at fault"
    )


class TaskHead(Protocol):
    """A task's last step, on the lane's thread."""

    @property
    def readout(self) -> Readout:
        """The same step for encoders that compute it on their device; one object as long as the head lives."""

    def compute(self, encoder: Encoder, batch: TokenBatch, output: Any) -> Sequence[Vectors]:
        """Wait for the device and compute one array a text from the encoder's output; their shapes are the task's."""


@dataclass(frozen=True, slots=True)
class EncoderEngine:
    """One encoder and one task head.

    Payload: token ids (tokens) int64, or ids over token types (2, tokens); of the analysis, a ``SpannedText``.
    A text whose result is not finite is computed again by ``fallback``, so NaN never leaves, whatever the task.
    """

    name: str  # the task's, also in metrics
    source: EncoderSource
    head: TaskHead
    budget: int  # padded tokens of a batch; measured
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)
    fallback: Fallback = field(default_factory=NoFallback)
    launch_cost: int = 0  # tokens; measured

    @property
    def padding_cost(self) -> float:
        return self.source.padding_cost

    def on(self, device_index: int) -> EncoderEngine:  # noqa: ARG002 - this engine has one device only
        return self

    def prepare(self, payloads: Sequence[Payload]) -> Prepared:
        """Pack the ids for the encoder; the model is loaded here if it was unloaded."""
        encoder = self.source.get()
        return encoder, _packed(encoder, payloads)

    def forward(self, prepared: Prepared) -> tuple[Encoder, TokenBatch, Any]:
        """Run the layers. A device queues the head, the check for finite numbers and the copy home behind them."""
        encoder, batch = prepared
        output = encoder.queue(batch, self.head.readout) if reads_on_device(encoder) else encoder.forward(batch)
        return encoder, batch, output

    def finish(self, output: tuple[Encoder, TokenBatch, Any]) -> Sequence[Vectors | FinanciaError]:
        """Wait for the device, or run the head here: one result a text."""
        batch = output[1]
        results, finite = self._results(*output)
        return [
            result if ok else self.fallback.recompute(payload_at(batch, row), self._compute_one)
            for row, (result, ok) in enumerate(zip(results, finite, strict=True))
        ]

    def _results(
        self, encoder: Encoder, batch: TokenBatch, output: Any
    ) -> tuple[Sequence[Vectors], Sequence[np.bool_] | NDArray[np.bool_]]:
        if reads_on_device(encoder):
            queued: QueuedResults = output
            return queued.wait()
        results = self.head.compute(encoder, batch, output)
        return results, [np.isfinite(result).all() for result in results]

    def _compute_one(self, encoder: Encoder, text: Payload) -> Vectors:
        return self._results(*self.forward((encoder, _packed(encoder, [text]))))[0][0]


def _packed(encoder: Encoder, payloads: Sequence[Payload]) -> TokenBatch:
    return with_spans(encoder.prepare([ids_of(payload) for payload in payloads]), payloads)
