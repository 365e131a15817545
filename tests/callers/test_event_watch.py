"""Places of clients that wait for events: a limit that refuses at once, and every way to give a place up."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from backend.callers.event_watch import Watchers
from backend.errors import Overloaded, Unavailable
from backend.jobs.records import JobEvent

EVENT = JobEvent("1", "progress", b"{}")


async def one_event() -> AsyncGenerator[JobEvent, None]:
    yield EVENT


async def failing() -> AsyncGenerator[JobEvent, None]:
    raise Unavailable("gone")
    yield EVENT


async def endless(closed: asyncio.Event) -> AsyncGenerator[JobEvent, None]:
    try:
        yield EVENT
        await asyncio.Event().wait()
    finally:
        closed.set()


async def test_one_too_many_is_refused_at_once():
    """Without asking for an event; a place that is given up is taken by the next."""
    watchers = Watchers(2)
    watches = [watchers.watch(one_event()) for _ in range(2)]

    with pytest.raises(Overloaded, match=r"3 clients .* limit of 2"):
        watchers.watch(one_event())
    await watches[0].aclose()
    third = watchers.watch(one_event())

    assert EVENT == await anext(third)


async def test_one_key_has_a_share():
    """A quarter; others still find a place, and without keys all belong to the callers there are."""
    watchers = Watchers(8)
    watches = [watchers.watch(one_event(), "busy") for _ in range(2)]

    with pytest.raises(Overloaded, match=r"3 clients with this key .* limit of 2"):
        watchers.watch(one_event(), "busy")
    watchers.watch(one_event(), "other")
    await watches[0].aclose()
    watchers.watch(one_event(), "busy")


async def test_every_end_gives_up_one_place():
    """Closed before the first event, and again; events that end though nobody closes them; events that fail."""
    watchers = Watchers(2)
    watch, _other = watchers.watch(one_event()), watchers.watch(one_event())
    for _ in range(2):
        await watch.aclose()
        assert 1 == watchers.count
    assert [EVENT] == [event async for event in watchers.watch(one_event())]
    assert 1 == watchers.count
    failed = watchers.watch(failing())
    with pytest.raises(Unavailable):
        await anext(failed)
    await failed.aclose()

    assert 1 == watchers.count


async def test_closing_closes_the_events():
    """Their connection is given back."""
    closed = asyncio.Event()
    watch = Watchers(1).watch(endless(closed))
    await anext(watch)

    await watch.aclose()

    assert closed.is_set()
