"""Headroom, forecast and alerts, computed from synthetic histories."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.device.watch.history import (
    FORECAST_SAMPLES_MIN,
    AlertInputs,
    AlertKind,
    Headroom,
    History,
    Sample,
    active_alerts,
    fit_line,
    headroom,
    new_alerts,
    seconds_to_exhaustion,
)

GIB = 2**30
NONE: frozenset[AlertKind] = frozenset()


def history_of(headrooms: list[int | None], *, every_s: float = 1.0, max_samples: int = 1000) -> History:
    """A history of samples with these headrooms."""
    history = History(max_samples)
    for index, available in enumerate(headrooms):
        history.add(Sample(index * every_s, headroom_bytes=available))
    return history


def falling(bytes_a_second: float, *, start: float = 10.0 * GIB, seconds: int = 120) -> list[tuple[float, float]]:
    """A leak, sampled once a second."""
    return [(float(second), start - bytes_a_second * second) for second in range(seconds + 1)]


def test_line_agrees_with_numpy():
    """Slope and standard error are those of an ordinary least-squares fit."""
    numpy = pytest.importorskip("numpy")
    points = [(float(x), y) for x, y in enumerate([4.0, 3.0, 5.0, 1.0, 2.0])]
    (slope, _), covariance = numpy.polyfit(*zip(*points, strict=True), 1, cov=True)

    fitted = fit_line(points)

    assert (slope, covariance[0, 0] ** 0.5) == pytest.approx((fitted.slope, fitted.error))


@pytest.mark.parametrize("points", [[], [(0.0, 1.0), (1.0, 0.0)], [(1.0, 3.0)] * 5], ids=["none", "two", "at-once"])
def test_no_line(points):
    """Two points always lie on one, and a moment has no slope."""
    assert fit_line(points) is None


@given(st.floats(1e4, 1e8))
def test_exhaustion_of_a_steady_leak(bytes_a_second):
    """What is left, divided by how fast it goes, whatever the pace."""
    start = bytes_a_second * 500.0

    seconds = seconds_to_exhaustion(falling(bytes_a_second, start=start))

    assert seconds == pytest.approx(380.0, rel=1e-6)


def test_exhaustion_through_noise():
    """Batches that come and go hide neither a leak nor its pace."""
    chance = random.Random(7)
    points = [(second, room - chance.uniform(0.0, GIB)) for second, room in falling(0.02 * GIB, seconds=300)]

    assert seconds_to_exhaustion(points) == pytest.approx(175.0, rel=0.3)  # (10 - 6 - 0.5 GiB) / 0.02 GiB/s


@given(st.integers(0, 60), st.floats(1.0, 1e10))
def test_a_step_is_no_leak(at, size):
    """A model that is loaded takes its memory once: no step, wherever it lies, is foretold to go on."""
    points = [(float(second), 2e10 - size * (second >= at)) for second in range(61)]

    assert seconds_to_exhaustion(points) is None


@given(st.integers(0, 10_000))
def test_noise_is_no_leak(seed):
    """Ten minutes of batches of random size around the same level never warn."""
    chance = random.Random(seed)
    points = [(float(second), 4.0 * GIB + chance.uniform(0.0, GIB)) for second in range(600)]

    assert seconds_to_exhaustion(points) is None


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(falling(1e6)[: FORECAST_SAMPLES_MIN - 1], id="too-few-samples"),
        pytest.param(falling(0.0), id="level"),
        pytest.param(falling(-1e6), id="rising"),
        pytest.param(falling(1e6), id="too-far-ahead"),
    ],
)
def test_no_forecast(points):
    """No forecast without enough samples or a falling trend."""
    assert seconds_to_exhaustion(points) is None


@pytest.mark.parametrize(
    ("headrooms", "batch_bytes", "expected"),
    [
        pytest.param([], 2, Headroom(), id="nothing-seen"),
        pytest.param([None], 2, Headroom(), id="unknown"),
        pytest.param([7], None, Headroom(7), id="size-of-a-batch-unknown"),
        pytest.param([7], 2, Headroom(7, 3.5), id="in-batches"),
        pytest.param([8, 2, None], 2, Headroom(8, 4.0), id="memory-of-a-running-batch-counts-as-free"),
        pytest.param([80, *[2] * 11], 2, Headroom(2, 1.0), id="memory-it-keeps-does-not"),
        pytest.param([0], 2, Headroom(0, 0.0), id="nothing-left-is-known"),
    ],
)
def test_headroom(headrooms, batch_bytes, expected):
    """The maximum of the last ten seconds, in bytes and in full batches."""
    assert expected == headroom(history_of(headrooms), batch_bytes)


def test_a_young_leak_is_not_hidden_by_a_long_calm():
    """The short window sees what the long one cannot yet."""
    rooms = [10 * GIB] * 540 + [10 * GIB - second * GIB // 50 for second in range(65)]

    assert headroom(history_of(rooms), None).exhaustion_s == pytest.approx(436.0, rel=0.01)


def headrooms_of(*batches: float | None) -> list[AlertInputs]:
    """Alert inputs with a headroom of so many batches."""
    return [AlertInputs(Headroom(GIB, count)) for count in batches]


def forecasts(*seconds: float | None) -> list[AlertInputs]:
    """Alert inputs with these forecasts."""
    return [AlertInputs(Headroom(GIB, None, left_s)) for left_s in seconds]


@pytest.mark.parametrize(
    ("kind", "states", "expected"),
    [
        pytest.param(AlertKind.HEADROOM, headrooms_of(1.0, 0.9, 1.4, 0.9, None, 1.5, 0.9), [1, 6], id="headroom"),
        pytest.param(
            AlertKind.EXHAUSTION, forecasts(600.0, 599.0, 700.0, 599.0, 900.0, 1.0, None, 1.0), [1, 5, 7], id="forecast"
        ),
        pytest.param(
            AlertKind.RETRIES,
            [AlertInputs(retry_increases=count) for count in (1, 2, 5, 1, 2, 0, 2)],
            [1, 6],
            id="retries",
        ),
        pytest.param(
            AlertKind.LOST, [AlertInputs(lost=why) for why in ("", "gone", "gone", "", "gone")], [1, 4], id="lost"
        ),
    ],
)
def test_alerts_are_raised_once(kind, states, expected):
    """An alert begins on crossing its threshold, survives flapping and gaps, ends well past it, and can begin again."""
    active, raised = NONE, []
    for index, now in enumerate(states):
        after = active_alerts(active, now)
        raised += [(index, alert.kind) for alert in new_alerts(active, after, now)]
        active = after

    assert [(index, kind) for index in expected] == raised


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(AlertInputs(Headroom(GIB, 0.25)), "1024 MiB are free, 0.25 of a full batch", id="headroom"),
        pytest.param(AlertInputs(Headroom(GIB, None, 61.4)), "1024 MiB left are gone in 61 s", id="exhaustion"),
        pytest.param(AlertInputs(retry_increases=3), "empty its cache at 3 looks of the last 60 s", id="retries"),
        pytest.param(AlertInputs(lost="fell off the bus"), "fell off the bus", id="lost"),
    ],
)
def test_alert_messages_have_numbers(now, expected):
    (alert,) = new_alerts(NONE, active_alerts(NONE, now), now)

    assert expected in alert.message
