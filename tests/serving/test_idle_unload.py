"""Unused models are unloaded after the idle time, and not before."""

import asyncio
from collections.abc import Callable

import pytest

from backend.lanes.engine import UnloadableEncoder
from backend.serving import model_swap
from backend.serving.model_swap import IdleUnloader
from backend.telemetry import Telemetry
from tests.fakes import ManualClock


class Weights:
    padding_cost = 1.0


class Loop:
    """An event loop whose timers a test fires; other work runs on the real one."""

    def __init__(self) -> None:
        self.real = asyncio.get_running_loop()
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, act: Callable[..., None], *arguments: object) -> asyncio.TimerHandle:
        self.timers.append((delay_s, lambda: act(*arguments)))
        return self.real.call_later(3600, lambda: None)

    def call_soon_threadsafe(self, act: Callable[..., None], *arguments: object) -> None:
        act(*arguments)

    def create_task(self, work) -> asyncio.Task[None]:
        return self.real.create_task(work)

    def is_closed(self) -> bool:
        return False

    def fire(self) -> None:
        """Fire the oldest timer."""
        self.timers.pop(0)[1]()


def value(telemetry: Telemetry, name: str) -> float | None:
    return telemetry.registry.get_sample_value(f"financia_{name}", {"model": "m"})


async def start(clock: ManualClock, telemetry: Telemetry, keep_alive_s: float | None):
    resident = UnloadableEncoder(Weights(), Weights, name="m", clock=clock)
    unloader = IdleUnloader(keep_alive_s, telemetry)
    loop = Loop()
    unloader.add(loop, [resident])
    return resident, unloader, loop


async def settled(unloader: IdleUnloader) -> None:
    await asyncio.gather(*unloader._unloading)


@pytest.mark.slow
async def test_an_idle_model_is_unloaded(clock, telemetry):
    """Unloaded after the idle time; the metric shows it."""
    resident, unloader, loop = await start(clock, telemetry, 60)
    assert [60] == [delay_s for delay_s, _ in loop.timers]
    clock.advance(60)
    loop.fire()
    await settled(unloader)

    assert not resident.is_loaded
    assert 0 == value(telemetry, "model_loaded")


async def test_a_model_in_use_stays(clock, telemetry):
    """The timer is set again for the rest of the idle time."""
    resident, unloader, loop = await start(clock, telemetry, 60)
    clock.advance(40)
    resident.get()
    clock.advance(20)
    loop.fire()
    await settled(unloader)

    assert resident.is_loaded
    assert [40] == [delay_s for delay_s, _ in loop.timers]


@pytest.mark.slow
async def test_a_reloaded_model_is_watched_again(clock, telemetry):
    """A reload is counted, and sets the timer again."""
    resident, unloader, loop = await start(clock, telemetry, 60)
    clock.advance(60)
    loop.fire()
    await settled(unloader)
    assert not loop.timers
    resident.get()

    assert [60] == [delay_s for delay_s, _ in loop.timers]
    assert 1 == value(telemetry, "model_loaded")
    assert 2 == value(telemetry, "model_loads_total")


async def test_stop_cancels_the_timers(clock, telemetry):
    """No timer fires in a service that has closed."""
    _, unloader, _ = await start(clock, telemetry, 60)
    unloader.stop()

    assert not unloader._timers


async def test_a_model_that_was_replaced_is_left_alone(clock, telemetry):
    """Its timer is cancelled, and a reload sets none."""
    resident, unloader, loop = await start(clock, telemetry, 60)
    unloader.remove([resident])
    assert 0 == value(telemetry, "model_loaded")
    resident.unload()
    resident.get()

    assert not unloader._timers
    assert 1 == len(loop.timers)  # the first one, cancelled


async def test_every_device_of_a_model_is_freed(clock, telemetry, monkeypatch):
    """Each card gives back the memory of its own copy; the metric falls with the last one."""
    released: list[str] = []
    monkeypatch.setattr(model_swap, "release", released.append)
    cards = ("cuda:0", "cuda:1")
    residents = [UnloadableEncoder(Weights(), Weights, name="m", device=card, clock=clock) for card in cards]
    unloader, loop = IdleUnloader(60, telemetry), Loop()
    unloader.add(loop, residents)
    clock.advance(60)
    residents[0].get()  # used now, the other card is idle
    loop.fire()
    loop.fire()
    await settled(unloader)
    assert ["cuda:1"] == released
    assert 1 == value(telemetry, "model_loaded")
    clock.advance(60)
    loop.fire()
    await settled(unloader)

    assert ["cuda:1", "cuda:0"] == released
    assert 0 == value(telemetry, "model_loaded")


def test_what_was_loaded_beside_a_model_leaves_with_it():
    """The float32 copy of a model that once was not finite."""
    dropped: list[str] = []
    resident = UnloadableEncoder(Weights(), Weights, name="m", companions=(lambda: dropped.append("float32"),))
    resident.unload()
    resident.unload()

    assert ["float32"] == dropped
