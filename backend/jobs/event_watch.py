"""Clients that wait for what happens to jobs: how many there may be, and the place that each of them has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from backend.jobs.records import JobEvent
from backend.jobs.states import too_many

WATCHERS_MAX = 64  # of one process; each holds a connection, and one to Redis too where jobs are kept there


class Watchers:
    """Gives places to clients that wait for events. Used on the event loop only."""

    def __init__(self, limit: int = WATCHERS_MAX) -> None:
        self._limit = limit
        self.count = 0

    def watch(self, events: AsyncGenerator[JobEvent, None]) -> EventWatch:
        """A place for a client of these events, to be closed by the caller.

        Raises: Overloaded at once, before anything was answered, where all places are taken.
        """
        if self.count >= self._limit:
            raise too_many("clients of this process that wait for events", self.count + 1, self._limit, "fixed")
        self.count += 1
        return EventWatch(events, self._leave)

    def _leave(self) -> None:
        self.count -= 1


class EventWatch:
    """The events of a job for one client, whose place is free again once they have ended or this is closed.

    No generator: one that is closed before its first event was asked for would not run its ``finally``.
    """

    def __init__(self, events: AsyncGenerator[JobEvent, None], leave: Callable[[], None]) -> None:
        self._events, self._leave = events, leave
        self._has_place = True

    def __aiter__(self) -> EventWatch:
        return self

    async def __anext__(self) -> JobEvent:
        try:
            return await anext(self._events)
        except StopAsyncIteration:
            self._free()
            raise

    async def aclose(self) -> None:
        """Close the events, and give up the place. May be called again."""
        try:
            await self._events.aclose()
        finally:
            self._free()

    def _free(self) -> None:
        if self._has_place:
            self._has_place = False
            self._leave()
