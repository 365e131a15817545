"""Models nobody asks for leave memory after their time, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from backend.models.encoder_source import UnloadableEncoder
from backend.services.idle_unload import KeepAlive
from backend.telemetry import Telemetry
from tests.fakes import ManualClock


class Weights:
    padding_cost = 1.0


class Loop:
    """An event loop whose timers a test rings; other work runs on the real one."""

    def __init__(self) -> None:
        self.real = asyncio.get_running_loop()
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, after_s: float, act: Callable[..., None], *arguments: object) -> asyncio.TimerHandle:
        self.timers.append((after_s, lambda: act(*arguments)))
        return self.real.call_later(3600, lambda: None)

    def call_soon_threadsafe(self, act: Callable[..., None], *arguments: object) -> None:
        act(*arguments)

    def create_task(self, work) -> asyncio.Task[None]:
        return self.real.create_task(work)

    def is_closed(self) -> bool:
        return False

    def ring(self) -> None:
        """Let the oldest timer ring."""
        self.timers.pop(0)[1]()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


def value(telemetry: Telemetry, name: str) -> float | None:
    return telemetry.registry.get_sample_value(f"financia_{name}", {"model": "m"})


async def start(clock: ManualClock, telemetry: Telemetry, keep_alive_s: float | None):
    resident = UnloadableEncoder(Weights(), Weights, name="m", clock=clock)
    keeper = KeepAlive(keep_alive_s, "cpu", telemetry)
    loop = Loop()
    keeper.watch(loop, [resident])
    return resident, keeper, loop


async def settled(keeper: KeepAlive) -> None:
    await asyncio.gather(*keeper._going)


async def test_an_idle_model_is_unloaded(clock, telemetry):
    """After its time without a batch; the metric shows it."""
    resident, keeper, loop = await start(clock, telemetry, 60)
    assert [60] == [after_s for after_s, _ in loop.timers]
    clock.advance(60)
    loop.ring()
    await settled(keeper)

    assert not resident.is_loaded
    assert 0 == value(telemetry, "model_loaded")


async def test_a_model_in_use_stays(clock, telemetry):
    """The timer is set for what is left of its time, no sooner and no later."""
    resident, keeper, loop = await start(clock, telemetry, 60)
    clock.advance(40)
    resident.get()
    clock.advance(20)
    loop.ring()
    await settled(keeper)

    assert resident.is_loaded
    assert [40] == [after_s for after_s, _ in loop.timers]


async def test_it_comes_back_and_is_watched_again(clock, telemetry):
    """Loads are counted: one that happens every minute asks for a longer time."""
    resident, keeper, loop = await start(clock, telemetry, 60)
    clock.advance(60)
    loop.ring()
    await settled(keeper)
    assert not loop.timers
    resident.get()

    assert [60] == [after_s for after_s, _ in loop.timers]
    assert 1 == value(telemetry, "model_loaded")
    assert 2 == value(telemetry, "model_loads_total")


async def test_without_a_time_models_stay_for_ever(clock, telemetry):
    """The default sets no timer at all."""
    resident, _, loop = await start(clock, telemetry, None)

    assert not loop.timers
    assert 1 == value(telemetry, "model_loaded")
    assert resident.is_loaded


async def test_stop_lets_the_timers_go(clock, telemetry):
    """Nothing rings in a service that has closed."""
    _, keeper, _ = await start(clock, telemetry, 60)
    keeper.stop()

    assert not keeper._alarms


async def test_a_model_that_was_replaced_is_left_alone(clock, telemetry):
    """Neither its timer nor its return concern anybody any more."""
    resident, keeper, loop = await start(clock, telemetry, 60)
    keeper.forget([resident])
    assert 0 == value(telemetry, "model_loaded")
    resident.unload()
    resident.get()

    assert not keeper._alarms
    assert 1 == len(loop.timers)  # the first one, cancelled
