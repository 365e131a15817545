"""Numbers that all processes of one service read and write: what each holds, and what each caller has used.

Each process writes the numbers of its own slot only. Quotas are written by all, under a lock of the file, which the
kernel releases when its holder dies.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from backend.bootstrap.metering import Metering
from backend.callers.callers import Rated
from backend.callers.quotas import RATED, Level, OwnLevel
from backend.config import Settings
from backend.lanes.text_work import TextWork
from backend.processes.channel import create_memory, map_memory

_NUMBERS = 8  # of a slot: a cache line, so that two processes never write the same one
_CHARACTERS = 0  # the slot's first number
_BYTES = 8  # of a number
MAX_OWNERS = (
    100_000  # that a service knows in its life, those of tenants that left included; pages nobody wrote are free
)


class SharedPage:
    """The numbers of ``slots`` processes, and of the quotas of callers by their ``owner``.

    Belongs to the loop's thread: the lock is the process's, so it holds back other processes and no other thread.

    Args:
        slot: of this process.
    """

    def __init__(self, descriptor: int, slots: int, slot: int, owners: Sequence[str]) -> None:
        self.descriptor = descriptor
        self._numbers = map_memory(descriptor).cast("d")
        self._slots, self._slot = slots, slot
        self._owners: dict[str, int] = {}
        self.add_owners(owners)

    @classmethod
    def create(cls, settings: Settings, owners: Sequence[str]) -> SharedPage:
        """A page of zeros for a service process, which has the first slot. Raises: SetupError."""
        numbers = (settings.server_processes + 1) * _NUMBERS + MAX_OWNERS * len(RATED)
        return cls.open(create_memory("numbers", numbers * _BYTES), settings, 0, owners)

    @classmethod
    def open(cls, descriptor: int, settings: Settings, slot: int, owners: Sequence[str]) -> SharedPage:
        """The page behind a descriptor, which stays open: closing it would let go of locks.

        Args:
            owners: those of the service process, in its order.
        """
        return cls(descriptor, settings.server_processes + 1, slot, owners)

    @property
    def owners(self) -> tuple[str, ...]:
        """The callers that have a slot, in the order of their slots."""
        return tuple(self._owners)

    def add_owners(self, owners: Iterable[str]) -> None:
        """Give each owner that has none the next slot. Nobody loses one: a process may still write to it.

        Those that are too many count in each process alone.
        """
        for owner in owners:
            if len(self._owners) < MAX_OWNERS:
                self._owners.setdefault(owner, len(self._owners))

    def clear(self, slot: int) -> None:
        """The process of this slot has ended."""
        for number in range(slot * _NUMBERS, (slot + 1) * _NUMBERS):
            self._numbers[number] = 0.0

    def hold_characters(self, characters: int) -> None:
        """This process works on texts of so many characters now."""
        self._numbers[self._slot * _NUMBERS + _CHARACTERS] = characters

    def characters_elsewhere(self) -> int:
        """Characters that the other processes work on."""
        return int(sum(self._numbers[at * _NUMBERS + _CHARACTERS] for at in self._others()))

    def level(self, owner: str, kind: Rated) -> Level:
        """What a caller has used of a quota, in all processes together."""
        if owner not in self._owners:
            return OwnLevel()
        index = self._slots * _NUMBERS + self._owners[owner] * len(RATED) + RATED.index(kind)
        return _SharedLevel(self, index)

    def share(self, text_work: TextWork, metering: Metering) -> None:
        """Have the limits of this process be those of all. With Redis, quotas are shared as by replicas."""
        text_work.share(self.hold_characters, self.characters_elsewhere)
        if metering.sync is None:
            metering.meters.share(self.level)

    def get(self, index: int) -> float:
        return self._numbers[index]

    @contextmanager
    def locked(self) -> Iterator[memoryview[float]]:
        """The numbers, while no other process changes one."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            yield self._numbers
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def _others(self) -> Iterator[int]:
        return (slot for slot in range(self._slots) if slot != self._slot)


class _SharedLevel:
    """A `Level` on the page."""

    def __init__(self, page: SharedPage, index: int) -> None:
        self._page, self._index = page, index

    @property
    def full_at_s(self) -> float:
        return self._page.get(self._index)

    def add(self, now_s: float, cost_s: float) -> None:
        with self._page.locked() as numbers:
            numbers[self._index] = max(numbers[self._index], now_s) + cost_s

    def set(self, full_at_s: float) -> None:
        with self._page.locked() as numbers:
            numbers[self._index] = full_at_s
