"""A thread that does one thing again and again until it is told to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from backend.telemetry import log_event

_log = logging.getLogger(__name__)
STOP_S = 5.0  # a driver call can hang on a card that fell off the bus; a daemon thread may be left behind


class Ticker:
    """Calls ``act`` at once and then again and again, on one daemon thread, until stopped. Can be started anew.

    Whatever ``act`` raises is counted, logged once a streak and survived: a monitor must not end with what it watches.
    """

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name, self._act = name, act
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self._failing = False
        self.errors = 0

    @property
    def running(self) -> bool:
        """Between ``start`` and ``stop``."""
        return self._stop is not None

    def start(self, interval_s: float) -> None:
        """Begin; a running one goes on with the new interval.

        Raises: ValueError for an interval that is not positive.
        """
        if not interval_s > 0.0:
            raise ValueError(f"interval {interval_s}: must be more than 0 seconds")
        self.stop()
        stop = threading.Event()  # one a thread: a thread left behind in the driver never comes back to life
        self._stop = stop
        self._thread = threading.Thread(target=self._run, args=(stop, interval_s), name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the look under way, at most STOP_S."""
        if self._stop is None or self._thread is None:
            return
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_S)
        self._stop = self._thread = None

    def tick(self) -> None:
        """One call of ``act``, its faults survived."""
        try:
            self._act()
        except Exception as error:  # noqa: BLE001  # drivers and callbacks are foreign; the thread must outlive them
            self.errors += 1
            if not self._failing:
                log_event(_log, logging.ERROR, "a look at the devices failed", thread=self._name, reason=repr(error))
            self._failing = True
        else:
            self._failing = False

    def _run(self, stop: threading.Event, interval_s: float) -> None:
        while not stop.is_set():
            self.tick()
            stop.wait(interval_s)
