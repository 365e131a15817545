"""Load generator for a local server: measures throughput and latency of a closed or an open loop.

Closed loop: a number of clients, each sending its next request when the last one is answered. It shows throughput, and
hides queueing: a slow server gets fewer requests. Open loop: requests arrive by a Poisson process, and latency counts
from the moment a request was due, so that it includes waiting for a slow server.

    python -m benchmarks.load --port 8000 --clients 32
    python -m benchmarks.load --port 8000 --rate-per-s 200
"""

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

from benchmarks.http_connection import LOST, request_bytes
from benchmarks.load_loops import ClosedLoop, LoadRecorder, OpenLoop
from benchmarks.texts import LANGUAGES, distinct_texts, mix

ROOT = Path(__file__).resolve().parents[1]

_DISTINCT_TEXTS = 8192  # of a run without a hit ratio; then its requests repeat
_MAX_FILL_S = 60.0  # for sending every hot text once
_MISSES = 8192  # of a run with a hit ratio; it ends early when they are used up, since a repeat would be a hit


@dataclass(frozen=True, slots=True)
class Shape:
    """What to send and how fast. Either ``clients`` or ``rate_per_s`` is set."""

    clients: int = 0  # closed loop
    rate_per_s: float = 0.0  # open loop, requests a second
    texts: int = 1  # in a request
    language: str = ""  # of the texts, one of texts.LANGUAGES; empty: all of them. Not with a hit ratio
    hit_ratio: float = -1.0  # share of texts sent before, 0 to 1; negative: ignored, for servers without a cache
    warmup_s: float = 1.0
    duration_s: float = 5.0  # after the warm-up
    first_text: int = 0  # of the endless sequence in texts.py
    path: str = "/v1/embeddings"
    encoding_format: str = "float"  # or base64; empty for routes without vectors


@dataclass(frozen=True, slots=True)
class Report:
    """Result of one load. Rates count responses inside the measured window; times are of responses with status 200."""

    requests_per_s: float
    texts_per_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float
    requests: int  # answered with 200 in the window
    span_s: float  # duration that the rates refer to; see LoadRecorder
    statuses: dict[str, int]  # responses by HTTP status; "lost": the connection ended first
    unfinished: int  # open loop: due in the window and not answered after the drain; counted in the times at their age
    lag_p99_s: float  # open loop: delay of requests in the generator while a connection was free
    generator_cpu_s: float
    generator_cpu_ratio: float  # of all cores of the machine


def percentile(ascending: Sequence[float], share: float) -> float:
    """Nearest-rank percentile: the smallest value that ``share`` of all values do not exceed; 0.0 for no values."""
    if not ascending:
        return 0.0
    rank = -int(-share * len(ascending) // 1)  # rounded up
    return ascending[max(rank, 1) - 1]


def arrivals_s(rate_per_s: float, duration_s: float, *, seed: int = 1) -> list[float]:
    """Arrival times from 0 to ``duration_s`` of a Poisson process, which models many independent clients."""
    rng = random.Random(seed)
    gaps = iter(lambda: rng.expovariate(rate_per_s), None)
    return list(itertools.takewhile(lambda moment_s: moment_s < duration_s, itertools.accumulate(gaps)))


def bodies(texts: Sequence[str], *, per_request: int, encoding_format: str = "float") -> list[bytes]:
    """JSON bodies in OpenAI format; a single text is sent as a string, as most clients do.

    Without an encoding only ``input`` is sent, as for tasks without vectors.
    """
    groups = [list(texts[first : first + per_request]) for first in range(0, len(texts) - per_request + 1, per_request)]
    options = {"encoding_format": encoding_format, "model": "bundled"} if encoding_format else {}
    return [
        json.dumps({"input": group[0] if per_request == 1 else group, **options}, ensure_ascii=False).encode()
        for group in groups
    ]


def requests(shape: Shape) -> tuple[list[bytes], Iterator[bytes]]:
    """The requests that fill the cache first (none without a hit ratio), and the requests to measure."""
    if shape.hit_ratio < 0:
        languages = (shape.language,) if shape.language else LANGUAGES
        texts = distinct_texts(max(_DISTINCT_TEXTS, shape.texts), shape.first_text, languages=languages)
        return [], itertools.cycle(_requests(shape, texts))
    if shape.hit_ratio == 1:
        hot = _requests(shape, mix(0, 1.0, first=shape.first_text).hot)
        return hot, itertools.cycle(hot)
    count = int(_MISSES / (1 - shape.hit_ratio))
    texts_mix = mix(count, shape.hit_ratio, first=shape.first_text)
    return _requests(shape, texts_mix.hot), iter(_requests(shape, texts_mix.texts))


def _requests(shape: Shape, texts: Sequence[str]) -> list[bytes]:
    request_bodies = bodies(texts, per_request=shape.texts, encoding_format=shape.encoding_format)
    return [request_bytes(shape.path, body) for body in request_bodies]


async def measure(port: int, shape: Shape) -> Report:
    """Run one load on the server at ``port``, in this process. Raises ``OSError`` when nothing listens there."""
    fill, measured = requests(shape)
    if fill:
        await ClosedLoop(port, iter(fill), LoadRecorder(time.monotonic(), time.monotonic() + _MAX_FILL_S)).run(4)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    recorder = await (_closed if shape.clients else _open)(port, shape, measured)
    return _report(shape, recorder, cpu_s=time.process_time() - cpu_s, wall_s=time.perf_counter() - wall_s)


async def _closed(port: int, shape: Shape, measured: Iterator[bytes]) -> LoadRecorder:
    opens_s = time.monotonic() + shape.warmup_s
    recorder = LoadRecorder(opens_s, opens_s + shape.duration_s)
    await ClosedLoop(port, measured, recorder).run(shape.clients)
    return recorder


async def _open(port: int, shape: Shape, measured: Iterator[bytes]) -> LoadRecorder:
    loop = OpenLoop(port, measured)
    await loop.connect(min(max(int(shape.rate_per_s), 4), 64))  # each used about once a second
    starts_s = time.monotonic()
    opens_s = starts_s + shape.warmup_s
    recorder = LoadRecorder(opens_s, opens_s + shape.duration_s)
    dues_s = arrivals_s(shape.rate_per_s, shape.warmup_s + shape.duration_s)
    await loop.run([starts_s + due_s for due_s in dues_s], recorder)
    return recorder


def _report(shape: Shape, recorder: LoadRecorder, *, cpu_s: float, wall_s: float) -> Report:
    times_s = sorted(recorder.latencies_s)
    span_s = max(recorder.span_s, 1e-9)
    return Report(
        requests_per_s=recorder.finished / span_s,
        texts_per_s=recorder.finished * shape.texts / span_s,
        p50_s=percentile(times_s, 0.50),
        p95_s=percentile(times_s, 0.95),
        p99_s=percentile(times_s, 0.99),
        max_s=percentile(times_s, 1.0),
        requests=recorder.finished,
        span_s=span_s,
        statuses={"lost" if status == LOST else str(status): n for status, n in sorted(recorder.statuses.items())},
        unfinished=recorder.unfinished,
        lag_p99_s=percentile(sorted(recorder.lags_s), 0.99),
        generator_cpu_s=cpu_s,
        generator_cpu_ratio=cpu_s / wall_s / (os.cpu_count() or 1),
    )


def run_in_subprocess(port: int, shape: Shape) -> Report:
    """Run ``measure`` in a separate process, so that the caller's memory and threads do not disturb it.

    Raises ``subprocess.CalledProcessError`` when the load could not be run.
    """
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(shape).items()]
    argv = [sys.executable, "-m", "benchmarks.load", f"--port={port}", *flags]
    completed = subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return Report(**json.loads(completed.stdout))


def main() -> None:
    """Run one load from the command line and print its report as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    for field in fields(Shape):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    flags = vars(parser.parse_args())
    port = flags.pop("port")
    shape = Shape(**flags)
    if bool(shape.clients) == bool(shape.rate_per_s):
        parser.error("give either --clients or --rate-per-s")
    gc.disable()  # a collection would delay every request in flight; a run's memory is bounded
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        report = runner.run(measure(port, shape))
    print(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
