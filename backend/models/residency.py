"""A model's stay in memory: loaded at the start, put out when nobody needs it, back by itself when somebody does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from backend.errors import SetupError, Unavailable
from backend.models.encoder import Encoder
from backend.telemetry import log_event

_log = logging.getLogger(__name__)


class EncoderSource(Protocol):
    """Where an engine gets its encoder, once a batch."""

    @property
    def padding_cost(self) -> float:
        """The encoder's, known also while it is out."""

    def get(self) -> Encoder:
        """The encoder. Who holds it may use it to the end of the batch whatever happens meanwhile."""


class Pinned:
    """An encoder that never leaves."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @property
    def padding_cost(self) -> float:
        """The encoder's."""
        return self._encoder.padding_cost

    def get(self) -> Encoder:
        """The encoder."""
        return self._encoder


class Resident:
    """An encoder that can leave memory and comes back with the first batch that needs it.

    Nothing counts its users: a batch holds the encoder it began with, so one that is put out meanwhile is freed when
    the batch ends. Safe on any thread; ``get`` takes the lock only to load.

    Args:
        load: makes it anew, on the lane that asks first; other lanes wait for that one.
        changed: told after it came (True) or went (False), on the thread that did it.
    """

    def __init__(
        self,
        encoder: Encoder,
        load: Callable[[], Encoder],
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.padding_cost = encoder.padding_cost
        self.changed: Callable[[bool], None] = _nobody
        self._load, self._clock = load, clock
        self._encoder: Encoder | None = encoder
        self._lock = threading.Lock()
        self._used_s = clock()

    @property
    def is_loaded(self) -> bool:
        """Whether it is in memory now."""
        return self._encoder is not None

    @property
    def idle_s(self) -> float:
        """Seconds since a batch last asked for it."""
        return self._clock() - self._used_s

    def get(self) -> Encoder:
        """The encoder, loaded first if it is out. Raises: Unavailable when it cannot be loaded any more."""
        self._used_s = self._clock()
        encoder = self._encoder
        return encoder if encoder is not None else self._bring_back()

    def unload(self) -> bool:
        """Forget the encoder; False when it is out already. The caller releases what the allocators keep."""
        with self._lock:
            if self._encoder is None:
                return False
            self._encoder = None
        log_event(_log, logging.INFO, "idle model unloaded", model=self.name, idle_s=round(self.idle_s, 1))
        self.changed(False)
        return True

    def _bring_back(self) -> Encoder:
        with self._lock:
            if self._encoder is not None:  # another lane was faster
                return self._encoder
            started_s = self._clock()
            try:
                encoder = self._encoder = self._load()
            except SetupError as error:
                raise Unavailable(f"the idle model could not be loaded again: {error}") from error
        log_event(_log, logging.INFO, "model loaded again", model=self.name, s=round(self._clock() - started_s, 2))
        self.changed(True)
        return encoder


def _nobody(_loaded: bool) -> None:
    """Told nobody."""
