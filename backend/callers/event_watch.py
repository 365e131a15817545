"""Clients that wait for what happens to jobs and documents: how many there may be, and the place that each has."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from backend.callers.callers import ANYBODY
from backend.errors import Overloaded

Event = TypeVar("Event")

WATCHERS_MAX = 64  # of one process; each holds a connection, and one to Redis too where jobs are kept there
_RETRY_AFTER_S = 5.0
_SHARE = 4  # of these one key may have a quarter


class Watchers:
    """Gives places to clients that wait for events. Used on the event loop only.

    Args:
        limit: of all clients; one key has at most a quarter of them, and the callers of a service without keys all.
    """

    def __init__(self, limit: int = WATCHERS_MAX) -> None:
        self._limit = limit
        self._of_owner: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self._of_owner.total()

    def watch(self, events: AsyncGenerator[Event, None], owner: str = ANYBODY.owner) -> EventWatch[Event]:
        """A place for a client of these events, to be closed by the caller.

        Raises: Overloaded at once, before anything was answered, where all places are taken.
        """
        if self.count >= self._limit:
            raise _too_many("clients", self.count + 1, self._limit)
        share, own = max(1, self._limit // _SHARE), self._of_owner[owner]
        if owner != ANYBODY.owner and own >= share:
            raise _too_many("clients with this key", own + 1, share)
        self._of_owner[owner] += 1
        return EventWatch(events, lambda: self._leave(owner))

    def _leave(self, owner: str) -> None:
        self._of_owner[owner] -= 1
        self._of_owner += Counter()  # drops owners without clients


class EventWatch(Generic[Event]):
    """Events for one client, whose place is free again once they have ended or this is closed.

    No generator: one that is closed before its first event was asked for would not run its ``finally``.
    """

    def __init__(self, events: AsyncGenerator[Event, None], leave: Callable[[], None]) -> None:
        self._events, self._leave = events, leave
        self._has_place = True

    def __aiter__(self) -> EventWatch[Event]:
        return self

    async def __anext__(self) -> Event:
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


def _too_many(who: str, value: int, limit: int) -> Overloaded:
    message = (
        f"{value} {who} that wait for events of this process are over the limit of {limit} (fixed); "
        "try again when some have left"
    )
    return Overloaded(value, limit, _RETRY_AFTER_S, message)
