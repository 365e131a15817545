"""What a row of looks at a device says: its room, its trend, when to warn. No clock, no device, no threads."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

LOOK_S = 10.0  # a running batch borrows memory for a moment: the widest room of this long is the room
FORECAST_WINDOWS_S = (60.0, 180.0, 600.0)  # a fast leak shows in the first, a slow one only in the last
FORECAST_LOOKS_MIN = 15  # five in each third of a window, so that each has an error of its own
FORECAST_REACH = 10.0  # nothing is foretold further ahead than this many times what was seen
SIGNIFICANT_ERRORS = 3.0  # standard errors that a fall must stand out from the noise of running batches
EXHAUSTION_S = 600.0  # warn this long before; research §5: "slope reaching zero in < 10 min"
RETRIES_WINDOW_S = 60.0  # within which two growths are a habit, not the first batch of a new size
_CALM_BATCHES, _CALM_S = 1.5, 900.0  # where a warning ends: beyond where it began, so that it does not flutter


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one device. ``None`` where nobody tells; never 0 for "unknown"."""

    at_s: float  # of a monotonic clock
    room_bytes: int | None = None  # what this process can still take
    used_bytes: int | None = None  # by everybody
    retries: int = 0  # times the allocator emptied its cache and tried again, since the process began
    utilization_ratio: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    lost: str = ""  # why the device did not answer; "" when it did


@dataclass(frozen=True, slots=True)
class Spread:
    """What a row of numbers ranges over."""

    minimum: float
    mean: float
    maximum: float
    count: int


@dataclass(frozen=True, slots=True)
class Line:
    """A least-squares line, with what it is worth."""

    slope: float  # per second
    error: float  # standard error of the slope
    end: float  # its height at the last point


@dataclass(frozen=True, slots=True)
class Headroom:
    """How far a device is from running out of memory."""

    bytes: int | None = None  # the widest room of the last LOOK_S
    batches: float | None = None  # how many full batches that is; None while a batch's memory is unknown
    exhaustion_s: float | None = None  # until nothing is left if it goes on falling like this; None when it does not


class AlertKind(StrEnum):
    """What is warned of; the values of the label ``kind`` of ``device_alerts_total``."""

    HEADROOM = "headroom"
    EXHAUSTION = "exhaustion"
    LOST = "lost"
    RETRIES = "retries"


@dataclass(frozen=True, slots=True)
class Alert:
    """One warning, as a sentence with numbers."""

    kind: AlertKind
    message: str


@dataclass(frozen=True, slots=True)
class Situation:
    """All that warnings are decided from."""

    headroom: Headroom = Headroom()
    growths: int = 0  # looks of the last RETRIES_WINDOW_S at which the allocator's retries had grown
    lost: str = ""


class History:
    """The last ``most`` samples, oldest first. Belongs to one thread, or to whoever holds the owner's lock."""

    def __init__(self, most: int) -> None:
        self._samples: deque[Sample] = deque(maxlen=most)

    def add(self, sample: Sample) -> None:
        """Keep one more; the oldest goes when the ring is full."""
        self._samples.append(sample)

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All that is kept."""
        return tuple(self._samples)

    @property
    def latest(self) -> Sample | None:
        """The newest, None before the first."""
        return self._samples[-1] if self._samples else None

    def last(self, seconds: float) -> list[Sample]:
        """The samples at most ``seconds`` older than the newest, oldest first."""
        found: list[Sample] = []
        for sample in reversed(self._samples):
            if self._samples[-1].at_s - sample.at_s > seconds:
                break
            found.append(sample)
        return found[::-1]


def spread(values: Iterable[float | None]) -> Spread | None:
    """Smallest, mean and largest of the values that are known; None when none is."""
    known = [value for value in values if value is not None]
    return Spread(min(known), math.fsum(known) / len(known), max(known), len(known)) if known else None


def line(points: Sequence[tuple[float, float]]) -> Line | None:
    """The least-squares line through (seconds, value); None under three points or when no time passes."""
    count = len(points)
    if count < 3:
        return None
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    across = sum((x - mean_x) ** 2 for x, _ in points)
    if across <= 0.0:
        return None
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / across
    end = mean_y + slope * (points[-1][0] - mean_x)
    residue = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return Line(slope, math.sqrt(residue / (count - 2) / across), end)


def seconds_to_exhaustion(points: Sequence[tuple[float, float]]) -> float | None:
    """Seconds until the room of (seconds, bytes) is gone, were it to fall on; None when it does not clearly fall.

    Each third of the row must fall, beyond its own noise, and the gentlest of them counts: a model that is loaded is
    one step down in one third and no leak, and a batch that comes and goes has no direction.
    """
    if len(points) < FORECAST_LOOKS_MIN:
        return None
    third = len(points) // 3
    lines = [line(points[:third]), line(points[third : 2 * third]), line(points[2 * third :])]
    falls = [-one.slope for one in lines if one and one.slope < -SIGNIFICANT_ERRORS * one.error]
    last = lines[-1]
    if len(falls) < 3 or last is None:
        return None
    left_s = max(0.0, last.end) / min(falls)
    return left_s if left_s <= FORECAST_REACH * (points[-1][0] - points[0][0]) else None


def headroom(history: History, batch_bytes: int | None) -> Headroom:
    """The room that is left, in bytes, in full batches of ``batch_bytes`` and in time."""
    widest = max((one.room_bytes for one in history.last(LOOK_S) if one.room_bytes is not None), default=None)
    batches = widest / batch_bytes if widest is not None and batch_bytes else None
    forecasts = [_forecast(history, window_s) for window_s in FORECAST_WINDOWS_S]
    return Headroom(widest, batches, min((one for one in forecasts if one is not None), default=None))


def _forecast(history: History, window_s: float) -> float | None:
    points = [(one.at_s, float(one.room_bytes)) for one in history.last(window_s) if one.room_bytes is not None]
    if not points or points[-1][0] - points[0][0] < 0.9 * window_s:
        return None  # the history is not yet as long as this window, give or take a look
    return seconds_to_exhaustion(points)


def growths(samples: Sequence[Sample]) -> int:
    """At how many looks the allocator's count of retries had grown since the look before."""
    return sum(after.retries > before.retries for before, after in pairwise(samples))


def situation(history: History, batch_bytes: int | None) -> Situation:
    """What the newest sample and those before it amount to."""
    latest = history.latest
    return Situation(
        headroom(history, batch_bytes), growths(history.last(RETRIES_WINDOW_S)), latest.lost if latest else ""
    )


def standing(before: frozenset[AlertKind], now: Situation) -> frozenset[AlertKind]:
    """The warnings that stand now. One that stood ends only well past where it began; an unknown changes nothing."""
    room, left_s = now.headroom.batches, now.headroom.exhaustion_s
    holds = {
        AlertKind.HEADROOM: AlertKind.HEADROOM in before
        if room is None
        else room < (_CALM_BATCHES if AlertKind.HEADROOM in before else 1.0),
        AlertKind.EXHAUSTION: left_s is not None
        and left_s < (_CALM_S if AlertKind.EXHAUSTION in before else EXHAUSTION_S),
        AlertKind.RETRIES: now.growths >= (1 if AlertKind.RETRIES in before else 2),
        AlertKind.LOST: bool(now.lost),
    }
    return frozenset(kind for kind, true in holds.items() if true)


def alerts(before: frozenset[AlertKind], after: frozenset[AlertKind], now: Situation) -> list[Alert]:
    """The warnings that began: each is told once, when it begins."""
    return [Alert(kind, _sentence(kind, now)) for kind in AlertKind if kind in after - before]


def _sentence(kind: AlertKind, now: Situation) -> str:
    room = now.headroom
    if kind is AlertKind.HEADROOM:
        return f"{mebibytes(room.bytes)} are free, {room.batches or 0.0:.2f} of a full batch"
    if kind is AlertKind.EXHAUSTION:
        return f"free memory keeps falling; {mebibytes(room.bytes)} left are gone in {room.exhaustion_s or 0.0:.0f} s"
    if kind is AlertKind.RETRIES:
        return f"the allocator had to empty its cache at {now.growths} looks of the last {RETRIES_WINDOW_S:.0f} s"
    return now.lost


def mebibytes(count: int | None) -> str:
    """Bytes for people."""
    return "unknown bytes" if count is None else f"{count / 2**20:.0f} MiB"
