"""What callers used by minute, day and month (UTC), and the protocol of who keeps it for all replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol

Period = Literal["minute", "day", "month"]
KEPT_MONTHS = 13  # this one and a year
COUNTED = ("requests", "tokens", "pages", "refused")


class Counts(NamedTuple):
    """What was used. ``requests`` are those that were admitted, ``refused`` those that a quota refused."""

    requests: int = 0
    tokens: int = 0
    pages: int = 0
    refused: int = 0


NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Slice:
    """What one caller used within a second, or within a quarter of an hour while its store was away."""

    owner: str
    age_s: float  # how long ago that was
    counts: Counts


@dataclass(frozen=True, slots=True)
class Batch:
    """What one process tells at once. Told again under the same number, it is not counted again."""

    source: str  # of the process; no other one has it
    number: int  # from 1, one more each time
    slices: tuple[Slice, ...]

    def older(self, by_s: float) -> Batch:
        """The same, told so much later."""
        return replace(self, slices=tuple(replace(one, age_s=one.age_s + by_s) for one in self.slices))


@dataclass(frozen=True, slots=True)
class Usage:
    """What a caller has used, by the clock of who keeps it."""

    now_s: float  # Unix
    minute: Counts = NOTHING
    day: Counts = NOTHING
    month: Counts = NOTHING
    previous_month: Counts = NOTHING


class Stamps(NamedTuple):
    """The numbers of a minute, day and month: since 1970, those of months as year * 12 + month - 1."""

    minute: int
    day: int
    month: int


class UsageStore(Protocol):
    """Keeps usage for all processes that reach it. All calls raise Unavailable where it is away."""

    @property
    def shared_by(self) -> str:
        """Whose usage it adds up, for GET /v1/usage."""

    async def add(self, batch: Batch) -> None: ...

    async def read(self, owners: Sequence[str]) -> Mapping[str, Usage]: ...

    async def close(self) -> None: ...


def stamps(unix_s: float) -> Stamps:
    moment = datetime.fromtimestamp(unix_s, UTC)
    return Stamps(int(unix_s // 60), int(unix_s // 86_400), moment.year * 12 + moment.month - 1)


def usage_of(now_s: float, found: Mapping[tuple[str, int], Counts]) -> Usage:
    """What counts now, of counts by period and stamp."""
    now = stamps(now_s)
    keys = (("minute", now.minute), ("day", now.day), ("month", now.month), ("month", now.month - 1))
    return Usage(now_s, *(found.get(key, NOTHING) for key in keys))
