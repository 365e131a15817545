"""PURE: a check-up written out, for people on a terminal and for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from backend.device.checkup.examine import Checkup, Extras, Row, Status
from backend.device.records import MachineFacts

PAGE = "docs/gpu.md"
_WIDTH, _INDENT = 110, 23  # columns of the report, and of status and topic in it


def render(checkup: Checkup, title: str) -> str:
    """A row a line, and under it what to do. Plain text: no colours, nothing that a log would spoil."""
    lines = [title, ""]
    topic = ""
    for row in checkup.rows:
        lines += _lines(row, "" if row.topic == topic else row.topic)
        topic = row.topic
    return "\n".join([*lines, "", _last_line(checkup), ""])


def as_json(checkup: Checkup, facts: MachineFacts | None, extras: Extras, simulated: str = "") -> dict[str, Any]:
    """The same and everything that it was read from. ``facts`` is null where wrong settings kept us from looking."""
    return {
        "verdict": checkup.verdict.value,
        "exit_code": checkup.verdict.exit_code,
        "devices": list(checkup.devices),
        "simulated": simulated or None,
        "rows": [asdict(row) for row in checkup.rows],
        "placements": [asdict(placement) for placement in extras.placements],
        "attention": {device: asdict(report) for device, report in extras.attention.items()},
        "readings": {uuid: asdict(sample) for uuid, sample in extras.samples.items()},
        "facts": asdict(facts) if facts else None,
    }


def _last_line(checkup: Checkup) -> str:
    count = len(checkup.wanting)
    parts = [f"runs on {', '.join(checkup.devices)}"] if checkup.devices else []
    parts += [f"{count} {'row wants' if count == 1 else 'rows want'} something done"] if count else []
    return f"Verdict: {checkup.verdict}: {'; '.join(parts) or 'does not start'} (exit code {checkup.verdict.exit_code})"


def _lines(row: Row, topic: str) -> Iterator[str]:
    yield from _wrapped(f"  {row.status:<5} {topic}", row.what)
    if row.fix:
        yield from _wrapped("", f"{'hint' if row.status is Status.OK else 'fix'}: {row.fix}")
    if row.command:
        yield f"{' ' * _INDENT}  {row.command}"  # not wrapped: it is to be copied
    if row.anchor and (row.fix or row.status is not Status.OK):
        yield f"{' ' * _INDENT}see {PAGE}#{row.anchor}"


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=head.ljust(_INDENT),
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
