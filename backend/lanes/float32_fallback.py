"""Computes a text again in float32 when its result is not a finite number, so that NaN never leaves the service."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

import numpy as np

from backend.errors import FinanciaError, InferenceFailed
from backend.models.encoder import Encoder, Vectors
from backend.models.span_sums import Payload, ids_of
from backend.telemetry import Telemetry, log_event

_log = logging.getLogger(__name__)
ComputeOne = Callable[[Encoder, Payload], Vectors]  # a task's result for one text by that encoder


class Fallback(Protocol):
    """Handles a text whose result is not finite."""

    def recompute(self, text: Payload, compute: ComputeOne) -> Vectors | FinanciaError:
        """The result computed again, or the error its caller gets. Runs on the lane."""


class NoFallback:
    """For a model that is served in float32 already: the text gets an error."""

    def recompute(self, text: Payload, compute: ComputeOne) -> FinanciaError:  # noqa: ARG002 - the protocol's arguments
        return _not_finite(text, "float32")


class Float32Encoder:
    """The same model in float32, loaded when first needed; shared by the engines of a device. Any thread."""

    def __init__(self, load: Callable[[], Encoder]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._encoder: Encoder | None = None

    def get(self) -> Encoder:
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


class Float32Fallback:
    """Computes the text alone with the model in float32. Few texts of few models overflow fp16, which ends at 65,504.

    Args:
        engine: name of the engine that uses this fallback, for the metrics.
    """

    def __init__(self, exact: Float32Encoder, engine: str, telemetry: Telemetry) -> None:
        self._exact = exact
        self._nonfinite = telemetry.nonfinite_outputs_total.labels(engine)
        self._outcomes = {
            outcome: telemetry.precision_fallbacks_total.labels(engine, outcome) for outcome in ("rescued", "failed")
        }

    def recompute(self, text: Payload, compute: ComputeOne) -> Vectors | FinanciaError:
        self._nonfinite.inc()
        result = compute(self._exact.get(), text)
        is_finite = bool(np.isfinite(result).all())
        self._outcomes["rescued" if is_finite else "failed"].inc()
        return result if is_finite else _not_finite(text, "float32 too")


def _not_finite(text: Payload, where: str) -> FinanciaError:
    return InferenceFailed(
        f"the model's output for this input of {ids_of(text).shape[-1]} tokens is not a finite number in {where}; "
        "its weights or this input are at fault"
    )
