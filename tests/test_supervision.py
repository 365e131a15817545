"""Background tasks outlive their faults, and say so."""

import asyncio
from collections.abc import Callable

import pytest

from backend.supervision import FAILING_AFTER, STABLE_S, Supervisor
from backend.telemetry import Telemetry
from tests.fakes import ManualClock


class Restarts:
    """A work that fails each time it is started, and the pauses between its starts."""

    def __init__(self, clock: ManualClock, *, most: int, runs_s: float = 0.0) -> None:
        self.starts, self.pauses = 0, list[float]()
        self.enough = asyncio.Event()
        self._clock, self._most, self._runs_s = clock, most, runs_s

    async def work(self) -> None:
        self.starts += 1
        if self.starts > self._most:
            self.enough.set()
            await asyncio.Event().wait()
        self._clock.advance(self._runs_s)
        raise KeyError("broken on purpose")

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._clock.advance(seconds)


async def kept(restarts: Restarts, clock: ManualClock) -> tuple[Supervisor, Telemetry]:
    """A supervisor after it has started the work again as often as the work fails."""
    telemetry = Telemetry()
    supervisor = Supervisor(telemetry, clock=clock, sleep=restarts.sleep)
    task = supervisor.keep("renew_claims", restarts.work)
    await restarts.enough.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return supervisor, telemetry


def count(telemetry: Telemetry) -> float:
    return telemetry.total("background_failures_total")


async def test_a_task_that_fails_is_started_again(clock, caplog):
    """After pauses that grow up to half a minute; each failure is logged with its trace and counted."""
    restarts = Restarts(clock, most=8)
    _, telemetry = await kept(restarts, clock)

    assert [0.5, 1, 2, 4, 8, 16, 30, 30] == restarts.pauses
    assert 8 == count(telemetry)
    assert 8 == len([record for record in caplog.records if record.exc_info])
    assert "broken on purpose" in caplog.text


async def test_a_task_that_keeps_failing_is_told(clock):
    """By its name and the kind of error, never its message; until it has run for a while."""
    supervisor, _ = await kept(Restarts(clock, most=FAILING_AFTER), clock)
    [sentence] = supervisor.failing()
    clock.advance(STABLE_S)

    assert "renew_claims" in sentence
    assert "KeyError" in sentence
    assert "purpose" not in sentence
    assert () == supervisor.failing()


async def test_faults_far_apart_are_not_a_failing_task(clock):
    restarts = Restarts(clock, most=5, runs_s=STABLE_S)
    supervisor, _ = await kept(restarts, clock)

    assert [0.5] * 5 == restarts.pauses
    assert () == supervisor.failing()


async def test_a_task_that_runs_once(clock, caplog):
    """Its failure reaches nobody who waits for it, and is logged and counted."""
    telemetry = Telemetry()
    supervisor = Supervisor(telemetry, clock=clock)

    async def work() -> None:
        raise KeyError("broken on purpose")

    await supervisor.run("trim_memory", work)

    assert 1 == count(telemetry)
    assert "broken on purpose" in caplog.text


@pytest.mark.parametrize("start", [lambda supervisor, work: supervisor.keep("take_jobs", work),
                                   lambda supervisor, work: supervisor.run("take_jobs", work)],
                         ids=["kept", "run"])  # fmt: skip
async def test_an_end_is_no_failure(clock, start: Callable):
    """A task that returns or is cancelled is over."""
    telemetry = Telemetry()
    supervisor = Supervisor(telemetry, clock=clock)

    async def returns() -> None:
        await asyncio.sleep(0)

    async def waits() -> None:
        await asyncio.Event().wait()

    await start(supervisor, returns)
    start(supervisor, waits).cancel()  # before it began: nothing is left that was never awaited
    cancelled = start(supervisor, waits)
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)

    assert cancelled.cancelled()
    assert 0 == count(telemetry)
