"""What a text costs the service process of SERVER_PROCESSES, by thread: without HTTP, before cards that are simulated.

    python -m benchmarks.service_process    # some ten minutes

One process sends ids as HTTP workers do, and this one is the service process: channel, queue, lanes, results. A lane's
card is fed by its thread, or by a process of its own. CPU time counts, not what is served a second: the machine may
have fewer cores than processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import uvloop

from backend.lanes.batcher import Batcher
from backend.lanes.engine import Engine, UnlimitedBatches
from backend.lanes.policy import QueueLimits
from backend.processes.channel import Channel, Message
from backend.processes.engine_host import WorkerItems
from backend.processes.remote_batcher import RemoteBatcher, RemoteEngine
from backend.processes.ring import RING_BYTES, RingReader, RingWriter, create_memory, map_memory
from backend.telemetry import Telemetry
from benchmarks.machine import facts
from benchmarks.simulated_card import CardEngine, ProcessEngine

RESULT = Path(__file__).parent / "results" / "service_process.json"
_LOADS = ((32, 24), (1, 24), (32, 200))  # texts a request, tokens a text
_CARDS = (1, 2, 4)
_TEXTS_WAITING = 4096  # at most, of all requests together: six batches of short texts
_WARM_UP_S = 1.0
_BATCHES_AT_LEAST = 20
_QUEUE_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class Row:
    """One load on so many cards."""

    texts_a_request: int
    tokens_a_text: int
    cards: int
    lane: str  # "thread" or "process": what launches a card's work
    texts_per_s: float
    texts_a_batch: float
    loop_s_per_text: float  # CPU time of the event loop's thread
    lanes_s_per_text: float  # of all lanes' threads; a card's own process is not in it
    launch_p90_s: float | None  # by the clock, of a batch, where the thread launches; it has GIL and core to wait for


@dataclass(frozen=True, slots=True)
class _Spent:
    loop_s: float
    lanes_s: float
    texts: float
    batches: float


class _Cards:
    """The engine of all cards, as a placement of several devices has one."""

    name, budget, padding_cost, launch_cost, batch_limits = "embeddings", 16_384, 0.0, 0, UnlimitedBatches()

    def __init__(self, engines: list[CardEngine] | list[ProcessEngine]) -> None:
        self._engines = engines

    def on(self, device_index: int) -> Engine:
        return self._engines[device_index]

    prepare = forward = finish = None


async def measure(texts: int, tokens: int, cards: int, lane: str, seconds: float) -> Row:
    """One load for some seconds."""
    engines: list[CardEngine] | list[ProcessEngine]
    engines = [CardEngine() for _ in range(cards)] if lane == "thread" else [ProcessEngine() for _ in range(cards)]
    telemetry = Telemetry()
    batcher = Batcher(1, QueueLimits(_QUEUE_TOKENS), telemetry, depth=2, devices=cards)
    batcher.start(asyncio.get_running_loop())
    client = _client(batcher, _Cards(engines), texts, tokens)
    await asyncio.sleep(_WARM_UP_S)
    began_s, before = time.monotonic(), _spent(telemetry)
    while _spent(telemetry).batches < before.batches + _BATCHES_AT_LEAST:  # noqa: ASYNC110 - a time to measure
        await asyncio.sleep(seconds)
    spent = _spent(telemetry)
    client.kill()
    client.wait()
    batcher.stop()
    for engine in engines:
        if isinstance(engine, ProcessEngine):
            engine.close()
    done = spent.texts - before.texts
    launches_s = sorted(launch_s for engine in engines for launch_s in engine.launch_s)
    return Row(
        texts,
        tokens,
        cards,
        lane,
        done / (time.monotonic() - began_s),
        done / (spent.batches - before.batches),
        (spent.loop_s - before.loop_s) / done,
        (spent.lanes_s - before.lanes_s) / done,
        launches_s[len(launches_s) * 9 // 10] if launches_s else None,
    )


def _client(batcher: Batcher, cards: _Cards, texts: int, tokens: int) -> subprocess.Popen[bytes]:
    """A process that keeps texts waiting, as one HTTP worker's channel brings them."""
    here, there = socket.socketpair()
    written, read = create_memory("to-client", RING_BYTES), create_memory("from-client", RING_BYTES)
    passed = (there.fileno(), read, written)
    argv = (sys.executable, "-m", "benchmarks.service_process", "--client", *map(str, (*passed, texts, tokens)))
    process = subprocess.Popen(argv, pass_fds=passed)
    there.close()
    items: list[WorkerItems] = []
    channel = _channel(here, written, read, lambda message: items[0].take(message), _gone)  # noqa: PLW0108 - there are none yet
    items.append(WorkerItems(batcher, {1: cards}, channel))  # type: ignore[dict-item]  # its lanes take ``on`` alone
    channel.start(asyncio.get_running_loop())
    return process


async def _send_texts(descriptor: int, writes: int, reads: int, texts: int, tokens: int) -> None:
    remote = RemoteBatcher(_QUEUE_TOKENS)
    sock = socket.socket(fileno=descriptor)
    channel = _channel(sock, writes, reads, remote.take, lambda: os._exit(0))
    channel.start(asyncio.get_running_loop())
    remote.connect(channel)
    engine = RemoteEngine(1, "embeddings", 16_384, 0.0)
    payloads = [np.arange(tokens, dtype=np.int64)] * texts

    async def requests() -> None:
        while True:
            items = remote.submit(engine, payloads, [tokens] * texts)
            await asyncio.gather(*(item.future for item in items))

    await asyncio.gather(*(requests() for _ in range(_TEXTS_WAITING // texts)))


def _gone() -> None:
    """The client was killed: nothing waits any more."""


def _channel(
    sock: socket.socket, writes: int, reads: int, take: Callable[[Message], None], close: Callable[[], None]
) -> Channel:
    return Channel(sock, RingWriter(map_memory(writes)), RingReader(map_memory(reads)), on_message=take, on_close=close)


def _spent(telemetry: Telemetry) -> _Spent:
    lanes = [thread.native_id for thread in threading.enumerate() if thread.name.startswith("lane-")]
    counted = dict(line.rsplit(" ", 1) for line in telemetry.render().decode().splitlines() if line[0] != "#")
    return _Spent(
        _cpu_s(os.getpid()),
        sum(_cpu_s(lane) for lane in lanes if lane),
        float(counted["financia_batch_jobs_sum"]),
        float(counted["financia_batch_jobs_count"]),
    )


def _cpu_s(thread: int) -> float:
    return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0]) / 1e9


def main() -> None:
    """Measure all, print a line each, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--client", type=int, nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        uvloop.run(_send_texts(*options.client))
        return
    cases = [(*load, cards, lane) for load in _LOADS for cards in _CARDS for lane in ("thread", "process")]
    rows = [uvloop.run(measure(*case, options.seconds)) for _ in range(options.rounds) for case in cases]
    for case in cases:
        of_case = [row for row in rows if (row.texts_a_request, row.tokens_a_text, row.cards, row.lane) == case]
        loop_us = statistics.median(row.loop_s_per_text for row in of_case) * 1e6
        lanes_us = statistics.median(row.lanes_s_per_text for row in of_case) * 1e6
        print(*case, f"loop {loop_us:.1f} us, lanes {lanes_us:.1f} us a text")
    options.out.write_text(json.dumps({"facts": facts(), "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
