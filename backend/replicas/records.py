"""What replicas share: records with versions, who runs, and turns. The protocol of the stores, and how copies merge.

Every replica keeps copies of what it has seen, so that a store that was emptied, or was set back by a failover, gets
back what it lost: of two versions of a record the greater one stands everywhere. Versions are counted by the store, and
leases run by its clock: the clocks of two machines are never compared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

TOMBSTONES_MAX = 1000  # deletions that a store remembers of one kind; below the oldest of them it keeps ``floor``


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """Orders the writes of one record, and those that two stores made apart: equal everywhere, whoever compares."""

    number: int
    id: str  # of the write: 16 hexadecimal digits, random


@dataclass(frozen=True, slots=True)
class Entry:
    """The newest version of one record, or that it was deleted."""

    version: Version
    is_deleted: bool
    header: bytes  # small, of the record's kind; empty of a deleted one


@dataclass(frozen=True, slots=True)
class Index:
    """All records of a kind."""

    mark: str = ""  # another one after every change; "" before the first
    floor: int = 0  # deletions up to this number are forgotten: an older copy of what is absent was deleted
    entries: Mapping[str, Entry] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()  # whose values are gone, and wait for a replica that has them


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a write."""

    status: Literal["done", "other", "full"]  # other: the record is not of the expected version
    entry: Entry | None = None  # what stands in the store now, unless it is full


@dataclass(frozen=True, slots=True)
class Merge:
    """What a replica has to do where its copies and the store differ."""

    take: tuple[str, ...]  # the store's is newer, or not here
    offer: tuple[str, ...]  # the store lost it, or was set back
    forget: tuple[str, ...]  # deleted, so long ago that the store only knows its floor


def new_id() -> str:
    """For a version or a mark."""
    return os.urandom(8).hex()


def merge(copies: Mapping[str, Version], index: Index) -> Merge:
    """Compare copies, deletions among them, with a store."""
    entries = index.entries
    absent = [name for name in copies if name not in entries]
    return Merge(
        take=tuple(name for name, entry in entries.items() if name not in copies or copies[name] < entry.version),
        offer=(
            *(name for name, version in copies.items() if name in entries and entries[name].version < version),
            *(name for name in copies if name in index.lost and entries[name].version == copies[name]),
            *(name for name in absent if copies[name].number > index.floor),
        ),
        forget=tuple(name for name in absent if copies[name].number <= index.floor),
    )


class SharedRecords(Protocol):
    """A store of records that all replicas reach; `RedisRecords`, `PostgresRecords`.

    Every method raises Unavailable while the store does not answer or refuses; a write whose answer was lost is
    repeated once, and is not done twice.
    """

    address: str  # for logs and reports, without a password
    store: str  # "redis" or "postgres"

    async def start(self) -> None:
        """Look whether the store can be used; one that is away is tried again later. Raises: SetupError."""

    async def close(self) -> None:
        """Close every connection; what waits for an answer raises Unavailable."""

    async def mark(self, kind: str) -> str:
        """`Index.mark`, cheaply."""

    async def index(self, kind: str) -> Index:
        """All records of a kind, without their parts."""

    async def write(
        self,
        kind: str,
        name: str,
        write_id: str,
        *,
        expected: Version | None,
        header: bytes,
        parts: Mapping[str, bytes] | None,
        limit: int = 0,
    ) -> Outcome:
        """Replace a record if it is still of the ``expected`` version (None: there never was one).

        Args:
            write_id: of the new version.
            parts: large values by their names; None deletes the record.
            limit: records of this kind; 0: any number. Only a new one can be one too many.
        """

    async def offer(self, kind: str, name: str, entry: Entry, parts: Mapping[str, bytes]) -> bool:
        """Write a version that the store has lost; False where it has this one or a newer one."""

    async def part(self, kind: str, name: str, version: Version, part: str) -> bytes | None:
        """One large value of a version; None where there is none, or the version was replaced."""

    async def add_part(self, kind: str, name: str, version: Version, part: str, value: bytes) -> bool:
        """Add a value to a version that still stands, has others, and has none of this name."""

    async def drop_lost(self, kind: str, name: str, version: Version) -> None:
        """Note in `Index.lost` that a version's parts are gone, so that a replica that has them offers it again.

        The version itself stays: it is not deleted, and whoever owns it still does.
        """

    async def report(self, replica: str, payload: bytes, keep_s: float) -> dict[str, bytes]:
        """Say that this replica runs, for ``keep_s``; what every running one said last, this one too."""

    async def leave(self, replica: str) -> None:
        """This replica ends: its report and its turns are given up."""

    async def take_turn(self, what: str, replica: str, *, at_once: int, lease_s: float) -> bool:
        """Have a turn, or keep it for another ``lease_s``; at most ``at_once`` replicas have one."""

    async def end_turn(self, what: str, replica: str) -> None:
        """Give the turn to the next."""
