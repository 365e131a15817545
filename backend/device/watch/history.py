"""PURE: a device's recent samples, the headroom and forecast computed from them, and when to raise alerts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

HEADROOM_WINDOW_S = 10.0  # a running batch takes memory for a moment: headroom is the maximum over this window
FORECAST_WINDOWS_S = (60.0, 180.0, 600.0)  # the first shows a fast leak early, the last a slow one
FORECAST_SAMPLES_MIN = 15  # five in each third of a window, enough for a standard error
FORECAST_REACH = 10.0  # the longest forecast, in multiples of the observed time
SIGNIFICANT_ERRORS = 3.0  # standard errors by which a fall must exceed the noise of running batches
EXHAUSTION_S = 600.0  # alert this long before memory runs out
RETRIES_WINDOW_S = 60.0  # two increases within it are thrashing; one may be the first batch of a new size
_CLEAR_BATCHES, _CLEAR_S = 1.5, 900.0  # where an alert ends; hysteresis against flapping


@dataclass(frozen=True, slots=True)
class Sample:
    """One device's numbers at one moment. ``None`` means unknown; 0 never does."""

    at_s: float  # of a monotonic clock
    headroom_bytes: int | None = None  # what this process can still take
    used_bytes: int | None = None  # by all processes
    retries: int = 0  # times the allocator emptied its cache and retried, since the process started
    utilization_ratio: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    lost: str = ""  # why the device did not answer; "" if it did


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, mean and maximum of a series; the fields are keys of GET /metrics/gpu."""

    minimum: float
    mean: float
    maximum: float
    count: int


@dataclass(frozen=True, slots=True)
class Trend:
    """A least-squares line and the standard error of its slope."""

    slope: float  # per second
    error: float  # standard error of the slope
    end: float  # value at the last point


@dataclass(frozen=True, slots=True)
class Headroom:
    """How far a device is from running out of memory."""

    bytes: int | None = None  # the maximum over the last HEADROOM_WINDOW_S
    batches: float | None = None  # the same in full batches; None while a batch's memory is unknown
    exhaustion_s: float | None = None  # until no memory is left at the current trend; None when it is not falling


class AlertKind(StrEnum):
    """Kinds of alerts: the values of the label ``kind`` of ``device_alerts_total``."""

    HEADROOM = "headroom"
    EXHAUSTION = "exhaustion"
    LOST = "lost"
    RETRIES = "retries"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert with a message for the log."""

    kind: AlertKind
    message: str


@dataclass(frozen=True, slots=True)
class AlertInputs:
    """Everything that alerts are decided from."""

    headroom: Headroom = Headroom()
    retry_increases: int = 0  # samples of the last RETRIES_WINDOW_S with more allocator retries than the one before
    lost: str = ""


class History:
    """The last ``max_samples`` samples, oldest first. Not thread-safe: its owner locks."""

    def __init__(self, max_samples: int) -> None:
        self._samples: deque[Sample] = deque(maxlen=max_samples)

    def add(self, sample: Sample) -> None:
        """Append a sample; a full history drops its oldest."""
        self._samples.append(sample)

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All samples, oldest first."""
        return tuple(self._samples)

    @property
    def latest(self) -> Sample | None:
        """The newest sample; None while the history is empty."""
        return self._samples[-1] if self._samples else None

    def last(self, seconds: float) -> list[Sample]:
        """The samples at most ``seconds`` older than the newest, oldest first."""
        recent: list[Sample] = []
        for sample in reversed(self._samples):
            if self._samples[-1].at_s - sample.at_s > seconds:
                break
            recent.append(sample)
        return recent[::-1]


def spread(values: Iterable[float | None]) -> Spread | None:
    """Minimum, mean and maximum of the known values; None when none is known."""
    known = [value for value in values if value is not None]
    return Spread(min(known), math.fsum(known) / len(known), max(known), len(known)) if known else None


def fit_line(points: Sequence[tuple[float, float]]) -> Trend | None:
    """The least-squares line through (seconds, value); None for fewer than three points or a single time."""
    count = len(points)
    if count < 3:
        return None
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    variation = sum((x - mean_x) ** 2 for x, _ in points)
    if variation <= 0.0:
        return None
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / variation
    end = mean_y + slope * (points[-1][0] - mean_x)
    residuals = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return Trend(slope, math.sqrt(residuals / (count - 2) / variation), end)


def seconds_to_exhaustion(points: Sequence[tuple[float, float]]) -> float | None:
    """Seconds until the headroom, as (seconds, bytes), reaches 0 at its trend; None when it does not clearly fall.

    Each third of the points must fall significantly, and the smallest slope counts: loading a model is one step in one
    third and not a leak, and running batches have no trend.
    """
    if len(points) < FORECAST_SAMPLES_MIN:
        return None
    third = len(points) // 3
    lines = [fit_line(points[:third]), fit_line(points[third : 2 * third]), fit_line(points[2 * third :])]
    falls = [-line.slope for line in lines if line and line.slope < -SIGNIFICANT_ERRORS * line.error]
    last = lines[-1]
    if len(falls) < 3 or last is None:
        return None
    left_s = max(0.0, last.end) / min(falls)
    return left_s if left_s <= FORECAST_REACH * (points[-1][0] - points[0][0]) else None


def headroom(history: History, batch_bytes: int | None) -> Headroom:
    """The memory left: in bytes, in full batches of ``batch_bytes``, and in time."""
    recent = [sample.headroom_bytes for sample in history.last(HEADROOM_WINDOW_S)]
    largest = max((count for count in recent if count is not None), default=None)
    batches = largest / batch_bytes if largest is not None and batch_bytes else None
    forecasts = [_forecast(history, window_s) for window_s in FORECAST_WINDOWS_S]
    return Headroom(largest, batches, min((seconds for seconds in forecasts if seconds is not None), default=None))


def _forecast(history: History, window_s: float) -> float | None:
    recent = history.last(window_s)
    points = [(item.at_s, float(item.headroom_bytes)) for item in recent if item.headroom_bytes is not None]
    if not points or points[-1][0] - points[0][0] < 0.9 * window_s:
        return None  # the history is still shorter than this window
    return seconds_to_exhaustion(points)


def retry_increases(samples: Sequence[Sample]) -> int:
    """How many samples have more allocator retries than the sample before."""
    return sum(after.retries > before.retries for before, after in pairwise(samples))


def alert_inputs(history: History, batch_bytes: int | None) -> AlertInputs:
    """Headroom, recent retries and loss of a device, from its history."""
    latest = history.latest
    return AlertInputs(
        headroom(history, batch_bytes), retry_increases(history.last(RETRIES_WINDOW_S)), latest.lost if latest else ""
    )


def active_alerts(before: frozenset[AlertKind], now: AlertInputs) -> frozenset[AlertKind]:
    """The alerts that are active now. An alert ends well past its threshold (hysteresis); unknown changes nothing."""
    batches, left_s = now.headroom.batches, now.headroom.exhaustion_s
    active = {
        AlertKind.HEADROOM: AlertKind.HEADROOM in before
        if batches is None
        else batches < (_CLEAR_BATCHES if AlertKind.HEADROOM in before else 1.0),
        AlertKind.EXHAUSTION: left_s is not None
        and left_s < (_CLEAR_S if AlertKind.EXHAUSTION in before else EXHAUSTION_S),
        AlertKind.RETRIES: now.retry_increases >= (1 if AlertKind.RETRIES in before else 2),
        AlertKind.LOST: bool(now.lost),
    }
    return frozenset(kind for kind, is_active in active.items() if is_active)


def new_alerts(before: frozenset[AlertKind], after: frozenset[AlertKind], now: AlertInputs) -> list[Alert]:
    """The alerts that begin now: active in ``after`` and not in ``before``."""
    return [Alert(kind, _message(kind, now)) for kind in AlertKind if kind in after - before]


def _message(kind: AlertKind, now: AlertInputs) -> str:
    left = now.headroom
    if kind is AlertKind.HEADROOM:
        return f"{_mebibytes(left.bytes)} are free, {left.batches or 0.0:.2f} of a full batch"
    if kind is AlertKind.EXHAUSTION:
        return f"free memory keeps falling; {_mebibytes(left.bytes)} left are gone in {left.exhaustion_s or 0.0:.0f} s"
    if kind is AlertKind.RETRIES:
        return (
            f"the allocator had to empty its cache at {now.retry_increases} looks of the last {RETRIES_WINDOW_S:.0f} s"
        )
    return now.lost


def _mebibytes(count: int | None) -> str:
    return "unknown bytes" if count is None else f"{count / 2**20:.0f} MiB"
