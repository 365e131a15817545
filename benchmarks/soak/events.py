"""Server-sent events of a job, over as many connections as it takes, and whether they are complete."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from benchmarks.soak.http_client import CutOff, HttpClient
from benchmarks.soak.ledger import Attempt

_AGAIN_S = 0.5  # as browsers wait before they connect again, only shorter


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    id: str
    kind: str
    data: Any


@dataclass(slots=True)
class Watched:
    """What a watcher saw of one job."""

    events: list[Event] = field(default_factory=list)
    connections: int = 0
    missing: bool = False  # 404: Redis has forgotten the job
    ended: bool = False  # the end event came, or 204
    failures: list[Attempt] = field(default_factory=list)  # connections that were refused; a stream may always break


async def watch(client: HttpClient, job_id: str, *, patience_s: float) -> Watched:
    """Follow a job to its end; connects again with Last-Event-ID wherever the stream breaks."""
    watched = Watched()
    try:
        async with asyncio.timeout(patience_s):
            while not (watched.ended or watched.missing):
                await _connect_once(client, job_id, watched)
    except TimeoutError:
        pass
    return watched


async def _connect_once(client: HttpClient, job_id: str, watched: Watched) -> None:
    headers = {"Last-Event-ID": watched.events[-1].id} if watched.events else {}
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    watched.connections += 1
    try:
        async with client.stream(f"/v1/jobs/{job_id}/events", headers) as answer:
            status = answer.status_code
            watched.missing = status == 404
            watched.ended = status == 204
            if status not in (200, 204, 404):
                watched.failures.append(Attempt(str(status), began_s, loop.time(), "GET …/events"))
            if status == 200:
                async for event in parsed(answer.aiter_raw()):
                    watched.events.append(event)
                    watched.ended = event.kind == "end"
                    if watched.ended:
                        return
    except CutOff:
        pass
    if not (watched.ended or watched.missing):
        await asyncio.sleep(_AGAIN_S)


async def parsed(chunks: AsyncIterator[bytes]) -> AsyncGenerator[Event, None]:
    """Events from the bytes of a stream; one that is cut off in its middle is not given."""
    rest = b""
    async for chunk in chunks:
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
            if b"data" in fields and b"id" in fields:
                yield Event(fields[b"id"].decode(), fields[b"event"].decode(), orjson.loads(fields[b"data"]))


def faults(events: Iterable[Event], pages: int, attempts: int) -> list[str]:
    """What is wrong with the events of a job that succeeded: order, an absent page, a page too often, no end.

    Args:
        attempts: how often the job was begun; each may give every page once.
    """
    rows = list(events)
    found = []
    places = [tuple(int(part) for part in event.id.split("-")) for event in rows]
    if any(later <= earlier for earlier, later in itertools.pairwise(places)):
        found.append(f"ids do not grow: {[event.id for event in rows]}")
    seen = [event.data["number"] for event in rows if event.kind == "page"]
    if set(seen) != set(range(1, pages + 1)):
        found.append(f"pages {sorted(set(seen))} of {pages}")
    if any(seen.count(number) > max(attempts, 1) for number in set(seen)):
        found.append(f"page events {seen} in {attempts} attempts")
    if not rows or rows[-1].kind != "end":
        found.append(f"the last event is {rows[-1].kind if rows else 'absent'}, not end")
    return found
