"""A daemon thread that calls a function at a fixed interval until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from backend.telemetry import log_event

_log = logging.getLogger(__name__)
STOP_S = 5.0  # a driver call can hang on a card that fell off the bus; the daemon thread is then abandoned


class PeriodicThread:
    """Calls ``action`` at once and then at every interval, on one daemon thread, until stopped. Can be restarted.

    Exceptions of ``action`` are counted, logged once per streak and dropped: a failing device must not end its monitor.
    """

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action = name, action
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self._failing = False
        self.errors = 0

    @property
    def running(self) -> bool:
        """True between ``start`` and ``stop``."""
        return self._stop is not None

    def start(self, interval_s: float) -> None:
        """Start the thread; a running one is restarted with the new interval.

        Raises: ValueError for an interval that is not positive.
        """
        if not interval_s > 0.0:
            raise ValueError(f"interval {interval_s}: must be more than 0 seconds")
        self.stop()
        stop = threading.Event()  # one per thread: an abandoned thread stays stopped when its driver call returns
        self._stop = stop
        self._thread = threading.Thread(target=self._run, args=(stop, interval_s), name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for the call in progress, at most STOP_S."""
        if self._stop is None or self._thread is None:
            return
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_S)
        self._stop = self._thread = None

    def call_once(self) -> None:
        """Call ``action`` on this thread; count and log its exceptions."""
        try:
            self._action()
        except Exception as error:  # noqa: BLE001  # drivers and callbacks are foreign; the thread must outlive them
            self.errors += 1
            if not self._failing:
                log_event(_log, logging.ERROR, "a look at the devices failed", thread=self._name, reason=repr(error))
            self._failing = True
        else:
            self._failing = False

    def _run(self, stop: threading.Event, interval_s: float) -> None:
        while not stop.is_set():
            self.call_once()
            stop.wait(interval_s)
