"""PURE: facts in, a verdict with its rows out: does the GPU work, what is used, and what to do where it does not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from backend.device.checkup.cards import card_rows
from backend.device.checkup.choice import choice_rows
from backend.device.checkup.findings import Extras, Row, Status
from backend.device.checkup.machine import machine_rows
from backend.device.records import MachineFacts

__all__ = ["Checkup", "Extras", "Row", "Status", "Verdict", "examine", "verdict_of"]


class Verdict(StrEnum):
    """What it all comes to. The exit code of check_gpu is its place in this list."""

    GOOD = "good"  # everything that is there is used; no GPU is good when none was asked for
    DEGRADED = "degraded"  # it runs, but something costs speed or was fallen back from
    UNUSABLE = "unusable"  # the service would not start: a wish cannot be granted, or the device fails

    @property
    def exit_code(self) -> int:
        """0, 1 or 2."""
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Checkup:
    """The answer: what it comes to, and every row it follows from."""

    verdict: Verdict
    rows: tuple[Row, ...]
    devices: tuple[str, ...] = ()  # what the service would run on, as torch calls them; () where it would not start

    @property
    def wanting(self) -> tuple[Row, ...]:
        """The rows that somebody should do something about."""
        return tuple(row for row in self.rows if row.status is not Status.OK)


def examine(facts: MachineFacts, extras: Extras | None = None) -> Checkup:
    """Everything worth saying about this machine, the ground first, then the cards, then what would be used."""
    extras = extras or Extras()
    rows = (*machine_rows(facts, extras), *card_rows(facts, extras), *choice_rows(facts, extras))
    verdict = verdict_of(rows)
    starts = verdict is not Verdict.UNUSABLE
    return Checkup(verdict, rows, tuple(placement.device for placement in extras.placements if starts))


def verdict_of(rows: tuple[Row, ...]) -> Verdict:
    """As bad as the worst row."""
    found = {row.status for row in rows}
    if Status.FAIL in found:
        return Verdict.UNUSABLE
    return Verdict.DEGRADED if Status.WARN in found else Verdict.GOOD
