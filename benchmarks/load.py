"""Load on a server of this machine: how many answers, how fast, at how many clients or at which rate.

Closed loop: so many clients, each sending its next request when the last one is answered. It shows throughput, and
hides queueing: a slow server is asked less. Open loop: requests arrive by a clock that does not care (Poisson), and
latency counts from the moment a request was due, so that time spent waiting for a slow server is in it.

    python -m benchmarks.load --port 8000 --clients 32
    python -m benchmarks.load --port 8000 --rate-per-s 200
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import uvloop

from benchmarks.loops import Clock, ClosedLoop, OpenLoop, Tally
from benchmarks.texts import distinct_texts, mix
from benchmarks.wire import LOST, request_bytes

ROOT = Path(__file__).resolve().parents[1]

_DISTINCT_TEXTS = 8192  # of a run without a hit ratio; its requests repeat after that many texts
_FILL_S = 60.0  # at most, for sending every hot text once
_MISSES = 8192  # of a run with a hit ratio; it ends early when they are used up, for a repeat would be a hit


@dataclass(frozen=True, slots=True)
class Shape:
    """What to send and how fast. Either ``clients`` or ``rate_per_s`` is set."""

    clients: int = 0  # closed loop
    rate_per_s: float = 0.0  # open loop, requests a second
    texts: int = 1  # in a request
    hit_ratio: float = -1.0  # share of texts sent before, 0 to 1; negative: not looked at, for servers without a cache
    warmup_s: float = 1.0
    duration_s: float = 5.0  # after the warm-up
    first_text: int = 0  # of the endless sequence in texts.py
    path: str = "/v1/embeddings"
    encoding_format: str = "float"  # or base64; empty where no vectors are asked for


@dataclass(frozen=True, slots=True)
class Report:
    """What one load gave. Rates count answers inside the measured window; times are of answers with status 200."""

    requests_per_s: float
    texts_per_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float
    requests: int  # answered with 200 in the window
    span_s: float  # what the rates count over; see Tally
    statuses: dict[str, int]  # answers by HTTP status; "lost": the connection ended first
    unfinished: (
        int  # open loop: due in the window and still not answered after the drain; counted in the times at their age
    )
    lag_p99_s: float  # open loop: how late requests left the generator while a connection was free
    generator_cpu_s: float
    generator_cpu_ratio: float  # of all cores of the machine


def percentile(ascending: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all values do not exceed; 0.0 of nothing (nearest rank)."""
    if not ascending:
        return 0.0
    rank = -int(-share * len(ascending) // 1)  # rounded up
    return ascending[max(rank, 1) - 1]


def arrivals_s(rate_per_s: float, duration_s: float, *, seed: int = 1) -> list[float]:
    """Moments from 0 to ``duration_s`` of a Poisson process: what many independent clients look like."""
    choice = random.Random(seed)
    gaps = iter(lambda: choice.expovariate(rate_per_s), None)
    return list(itertools.takewhile(lambda moment_s: moment_s < duration_s, itertools.accumulate(gaps)))


def bodies(texts: Sequence[str], *, per_request: int, encoding_format: str = "float") -> list[bytes]:
    """JSON bodies in OpenAI shape; a request of one text carries it as a string, as most clients do.

    Without an encoding there are no vectors to encode: only the input is sent, as every other task wants it.
    """
    groups = [list(texts[at : at + per_request]) for at in range(0, len(texts) - per_request + 1, per_request)]
    rest = {"encoding_format": encoding_format, "model": "bundled"} if encoding_format else {}
    return [
        json.dumps({"input": group[0] if per_request == 1 else group, **rest}, ensure_ascii=False).encode()
        for group in groups
    ]


def requests(shape: Shape) -> tuple[list[bytes], Iterator[bytes]]:
    """Requests that fill the cache first (none without a hit ratio), and the requests to measure."""
    if shape.hit_ratio < 0:
        texts = distinct_texts(max(_DISTINCT_TEXTS, shape.texts), shape.first_text)
        return [], itertools.cycle(_requests(shape, texts))
    if shape.hit_ratio == 1:
        hot = _requests(shape, mix(0, 1.0, first=shape.first_text).hot)
        return hot, itertools.cycle(hot)
    count = int(_MISSES / (1 - shape.hit_ratio))
    texts_mix = mix(count, shape.hit_ratio, first=shape.first_text)
    return _requests(shape, texts_mix.hot), iter(_requests(shape, texts_mix.texts))


def _requests(shape: Shape, texts: Sequence[str]) -> list[bytes]:
    made = bodies(texts, per_request=shape.texts, encoding_format=shape.encoding_format)
    return [request_bytes(shape.path, body) for body in made]


async def measure(port: int, shape: Shape, clock: Clock = time.monotonic) -> Report:
    """Put one load on the server at ``port``, in this process. Raises ``OSError`` when nobody listens."""
    fill, measured = requests(shape)
    if fill:
        await ClosedLoop(port, iter(fill), Tally(clock(), clock() + _FILL_S), clock).run(4)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    tally = await (_closed if shape.clients else _open)(port, shape, measured, clock)
    return _report(shape, tally, cpu_s=time.process_time() - cpu_s, wall_s=time.perf_counter() - wall_s)


async def _closed(port: int, shape: Shape, measured: Iterator[bytes], clock: Clock) -> Tally:
    opens_s = clock() + shape.warmup_s
    tally = Tally(opens_s, opens_s + shape.duration_s)
    await ClosedLoop(port, measured, tally, clock).run(shape.clients)
    return tally


async def _open(port: int, shape: Shape, measured: Iterator[bytes], clock: Clock) -> Tally:
    loop = OpenLoop(port, measured, clock)
    await loop.connect(min(max(int(shape.rate_per_s), 4), 64))  # each is used about once a second
    starts_s = clock()
    opens_s = starts_s + shape.warmup_s
    tally = Tally(opens_s, opens_s + shape.duration_s)
    dues_s = arrivals_s(shape.rate_per_s, shape.warmup_s + shape.duration_s)
    await loop.run([starts_s + due_s for due_s in dues_s], tally)
    return tally


def _report(shape: Shape, tally: Tally, *, cpu_s: float, wall_s: float) -> Report:
    times_s = sorted(tally.latencies_s)
    span_s = max(tally.span_s, 1e-9)
    return Report(
        requests_per_s=tally.finished / span_s,
        texts_per_s=tally.finished * shape.texts / span_s,
        p50_s=percentile(times_s, 0.50),
        p95_s=percentile(times_s, 0.95),
        p99_s=percentile(times_s, 0.99),
        max_s=percentile(times_s, 1.0),
        requests=tally.finished,
        span_s=span_s,
        statuses={"lost" if status == LOST else str(status): n for status, n in sorted(tally.statuses.items())},
        unfinished=tally.unfinished,
        lag_p99_s=percentile(sorted(tally.lags_s), 0.99),
        generator_cpu_s=cpu_s,
        generator_cpu_ratio=cpu_s / wall_s / (os.cpu_count() or 1),
    )


def run_apart(port: int, shape: Shape) -> Report:
    """``measure`` in a process of its own, so that neither the caller's memory nor its threads disturb it.

    Raises ``subprocess.CalledProcessError`` when the load could not be run.
    """
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(shape).items()]
    argv = [sys.executable, "-m", "benchmarks.load", f"--port={port}", *flags]
    done = subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return Report(**json.loads(done.stdout))


def main() -> None:
    """Run one load from the command line and print its report as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    for one in fields(Shape):
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default)
    flags = vars(parser.parse_args())
    port = flags.pop("port")
    shape = Shape(**flags)
    if bool(shape.clients) == bool(shape.rate_per_s):
        parser.error("give either --clients or --rate-per-s")
    gc.disable()  # a collection would stop the clock of every request under way; a run's memory is bounded
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        report = runner.run(measure(port, shape))
    print(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
