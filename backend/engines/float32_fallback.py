"""A second opinion in float32 for an output that is not a finite number; NaN never leaves the service."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

import numpy as np

from backend.errors import FinanciaError, InferenceFailed
from backend.models.encoder import Encoder, Ids, Vectors
from backend.telemetry import Telemetry, log_event

_log = logging.getLogger(__name__)
ReadOne = Callable[[Encoder, Ids], Vectors]  # what a task makes of one text with that encoder


class Rescue(Protocol):
    """What becomes of a text whose result is not finite."""

    def again(self, text: Ids, read: ReadOne) -> Vectors | FinanciaError:
        """The result computed anew, or the error its caller gets. Runs on the lane."""


class NoRescue:
    """Nothing better than what has failed: it was float32 already."""

    def again(self, text: Ids, read: ReadOne) -> FinanciaError:  # noqa: ARG002 - the protocol's arguments
        """The error."""
        return _not_finite(text.shape[-1], "float32")


class Float32Encoder:
    """The same model in float32, loaded with the first output that needs it and kept; one for all engines of a device.

    Any thread.
    """

    def __init__(self, load: Callable[[], Encoder]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._encoder: Encoder | None = None

    def get(self) -> Encoder:
        """The encoder."""
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


class Float32Rescue:
    """The same model in float32. Half precision overflows on few texts of few models (fp16 ends at 65,504): they pay.

    Args:
        engine: the name of the one that is rescued, for the metrics.
    """

    def __init__(self, exact: Float32Encoder, engine: str, telemetry: Telemetry) -> None:
        self._exact = exact
        self._nonfinite = telemetry.nonfinite_outputs_total.labels(engine)
        self._outcomes = {
            outcome: telemetry.precision_fallbacks_total.labels(engine, outcome) for outcome in ("rescued", "failed")
        }

    def again(self, text: Ids, read: ReadOne) -> Vectors | FinanciaError:
        """The text alone in float32."""
        self._nonfinite.inc()
        result = read(self._exact.get(), text)
        rescued = bool(np.isfinite(result).all())
        self._outcomes["rescued" if rescued else "failed"].inc()
        return result if rescued else _not_finite(text.shape[-1], "float32 too")


def _not_finite(tokens: int, where: str) -> FinanciaError:
    return InferenceFailed(
        f"the model's output for this input of {tokens} tokens is not a finite number in {where}; "
        "its weights or this input are at fault"
    )
