"""Seconds of audio that admitted recordings still have, and how many a file will have."""

from __future__ import annotations

import time
from collections.abc import Callable

from backend.lanes.backlog import Backlog

_BYTES_PER_S = 4000.0  # of a file that does not say how long it is: 32 kbit/s


def audio_backlog(lanes: Callable[[], int], *, clock: Callable[[], float] = time.monotonic) -> Backlog:
    """Counts seconds of audio. ``measured`` gets what the model heard on a lane: no silence, nothing cached."""
    return Backlog(lanes, of="seconds of other recordings", ignored=1.0, parts=1000, clock=clock)


def expected_s(declared_s: float | None, size_bytes: int, limit_s: float) -> float:
    """Seconds that a file will have, as far as one can tell before it is decoded: what it declares may be a lie."""
    plausible_s = size_bytes / _BYTES_PER_S
    if declared_s is None or declared_s <= 0:
        return min(plausible_s, limit_s)
    return min(declared_s, 8 * plausible_s, limit_s)  # Opus and Codec 2 go down to a few kbit/s
