"""The service, with one fault built in: SIGUSR1 kills the lane that launches the next batch. For the soak tests alone.

SIGUSR2 writes what every thread is at into the log.

Nothing in `backend` can be told to kill a lane; this process patches `Lane` before the service starts.
"""

import faulthandler
import signal
import sys
import threading
from types import FrameType

from backend.lanes.lane import Batch, Lane
from backend.main import main

LANE_DEATH = "the soak test kills this lane"  # in the service's log, once for each

_armed = threading.Event()
_launch = Lane._launch  # noqa: SLF001 - the fault is put where a real one would arise


def _arm(_number: int, _frame: FrameType | None) -> None:
    _armed.set()


def _launch_or_die(self: Lane, batch: Batch) -> None:
    if _armed.is_set():
        _armed.clear()
        raise SystemExit(LANE_DEATH)  # not an Exception: as foreign code that ends its thread
    _launch(self, batch)


if __name__ == "__main__":
    Lane._launch = _launch_or_die  # type: ignore[method-assign]  # noqa: SLF001
    signal.signal(signal.SIGUSR1, _arm)
    faulthandler.register(signal.SIGUSR2)
    sys.exit(main())
