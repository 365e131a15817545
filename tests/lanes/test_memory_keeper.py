"""A process keeps within MEMORY_LIMIT_BYTES: step by step, in order, and no step that is not needed."""

import pytest

from backend.errors import Overloaded
from backend.lanes.memory_keeper import MemoryKeeper
from tests.fakes import ManualClock

LIMIT = 1_000


class Process:
    """What a process holds; each step gives its part back."""

    def __init__(self, **parts: int) -> None:
        self.parts, self.taken = parts, list[str]()
        self.clock = ManualClock()
        self.keeper = MemoryKeeper(
            LIMIT,
            {name: self._step(name) for name in ("freed", "cached", "idle")},
            {"cached": lambda: self.parts["cached"]},
            resident=lambda: sum(self.parts.values()),
            clock=self.clock,
        )

    def _step(self, name: str):
        async def give() -> None:
            self.taken.append(name)
            self.parts[name] = 0

        return give


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({"freed": 500, "cached": 200, "idle": 200}, [], id="below-nine-tenths"),
        pytest.param({"freed": 500, "cached": 300, "idle": 300}, ["freed"], id="the-first-is-enough"),
        pytest.param({"freed": 50, "cached": 400, "idle": 950}, ["freed", "cached", "idle"], id="all-are-needed"),
    ],
)
async def test_steps_are_taken_in_order_until_it_is_enough(parts, expected):
    process = Process(**parts)
    await process.keeper.look()

    assert expected == process.taken
    process.keeper.require_room()


async def test_above_the_limit_bodies_are_refused_and_steps_pause():
    """Caches and models are not taken again each second from those who still work; room again is noticed at once."""
    process = Process(freed=1, cached=1, idle=1, models=2_000)
    for _ in range(3):
        await process.keeper.look()
    with pytest.raises(Overloaded, match="MEMORY_LIMIT_BYTES") as refused:
        process.keeper.require_room()
    process.parts["models"] = 500
    await process.keeper.look()
    process.keeper.require_room()

    assert ["freed", "cached", "idle"] == process.taken
    assert refused.value.retry_after_s == 5.0


async def test_steps_are_tried_again_after_the_pause():
    process = Process(freed=1, cached=1, idle=1, models=2_000)
    await process.keeper.look()
    process.clock.advance(15.0)
    await process.keeper.look()

    assert 2 == process.taken.count("idle")


def test_the_report_says_who_holds_it():
    process = Process(freed=10, cached=30, idle=10**12)
    report = process.keeper.report()

    assert (10**12 + 40, LIMIT) == (report["resident_bytes"], report["limit_bytes"])
    assert 30 == report["parts"]["cached"]
    assert report["resident_bytes"] == sum(report["parts"].values())
    assert {"freed": 0, "cached": 0, "idle": 0} == report["steps"]
