"""What replicas share: records with versions, who runs, and turns. The protocol of the stores.

The store is the truth, and every replica follows it. A record is replaced only where it is of the version that the
writer knows. Versions are counted by the store, and leases run by its clock: the clocks of two machines are never
compared.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from backend.errors import InvalidField

_CONFLICTS = 8  # of one write with those of other replicas
TOMBSTONES_MAX = 1000  # deletions that a store remembers of one kind


@dataclass(frozen=True, slots=True)
class Version:
    """One write of a record."""

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
    entries: Mapping[str, Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a write."""

    status: Literal["done", "other", "full"]  # other: the record is not of the expected version
    entry: Entry | None = None  # what stands in the store now, unless it is full


# What to write in place of the version that a replica knows: that version, the header, and the parts (`write`).
Replacement = tuple[Version | None, bytes, Mapping[str, bytes] | None]


def new_id() -> str:
    """For a version or a mark."""
    return os.urandom(8).hex()


class Records(Protocol):
    """A store of records; `FolderRecords` of this process, or `SharedRecords`.

    Every method raises Unavailable while the store does not answer or refuses; a write whose answer was lost is
    repeated once, and is not done twice.
    """

    @property
    def address(self) -> str | Path:
        """For logs and reports, without a password."""

    @property
    def store(self) -> str:
        """What kind of store it is: "folder", "redis" or "postgres"."""

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

    async def part(self, kind: str, name: str, version: Version, part: str) -> bytes | None:
        """One large value of a version; None where there is none, or the version was replaced."""

    async def add_part(self, kind: str, name: str, version: Version, part: str, value: bytes) -> bool:
        """Add a value to a version that still stands, has others, and has none of this name."""


class SharedRecords(Records, Protocol):
    """A store that all replicas reach; `RedisRecords`, `PostgresRecords`. Raises: as `Records`."""

    async def start(self) -> None:
        """Look whether the store can be used; one that is away is tried again later. Raises: SetupError."""

    async def close(self) -> None:
        """Close every connection; what waits for an answer raises Unavailable."""

    async def report(self, replica: str, payload: bytes, keep_s: float) -> dict[str, bytes]:
        """Say that this replica runs, for ``keep_s``; what every running one said last, this one too."""

    async def leave(self, replica: str) -> None:
        """This replica ends: its report and its turns are given up."""

    async def take_turn(self, what: str, replica: str, *, at_once: int, lease_s: float) -> bool:
        """Have a turn, or keep it for another ``lease_s``; at most ``at_once`` replicas have one."""

    async def end_turn(self, what: str, replica: str) -> None:
        """Give the turn to the next."""


async def replace_known(
    records: Records,
    kind: str,
    name: str,
    replacement: Callable[[str], Replacement],
    catch_up: Callable[[], Awaitable[None]],
    *,
    limit: int = 0,
) -> Outcome | None:
    """Replace a record as this replica knows it; where another one has, get to know that, and check it again.

    Args:
        replacement: for a write's id; raises what forbids it, as far as this replica knows.

    Returns: the outcome, "done" or "full"; None where other replicas keep replacing it.
    """
    write_id = new_id()
    for _ in range(_CONFLICTS):
        expected, header, parts = replacement(write_id)
        outcome = await records.write(kind, name, write_id, expected=expected, header=header, parts=parts, limit=limit)
        if outcome.status != "other":
            return outcome
        await catch_up()
    return None


async def take_over(kind: str, parts: Sequence[str], source: Records, target: Records, limit: int) -> list[str]:
    """Copy what ``source`` has and ``target`` never had, with these parts. Returns: the names. Raises: Unavailable."""
    known, taken = (await target.index(kind)).entries, []
    for name, entry in (await source.index(kind)).entries.items():
        if entry.is_deleted or name in known:
            continue
        values = [(part, await source.part(kind, name, entry.version, part)) for part in parts]
        copies = {part: value for part, value in values if value is not None}
        if not copies:
            continue
        with suppress(InvalidField):  # a name that is none
            write = target.write(kind, name, new_id(), expected=None, header=entry.header, parts=copies, limit=limit)
            if (await write).status == "done":
                taken.append(name)
    return taken
