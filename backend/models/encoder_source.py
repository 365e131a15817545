"""Where an engine gets its encoder: one that stays in memory, or one that is unloaded while idle and loaded again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol

from typing_extensions import TypeVar

from backend.errors import SetupError, Unavailable
from backend.models.encoder import Encoder
from backend.telemetry import log_event

_log = logging.getLogger(__name__)


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
