"""The engine of every task that runs an encoder; the tasks differ in the head that computes results from its output.

A result that is not a finite number is computed again in float32, so that NaN never leaves the service.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from backend.errors import FinanciaError, InferenceFailed
from backend.lanes.engine import BatchLimits, UnlimitedBatches
from backend.models.encoder import Encoder, Payload, TokenBatch, Vectors, ids_of, payload_at, with_spans
from backend.models.encoder_source import EncoderSource
from backend.models.readout import QueuedResults, Readout, reads_on_device
from backend.telemetry import FALLBACK_OUTCOMES, Telemetry, log_event

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
