"""Requests a second, latency, memory and processor time of one process, of HTTP workers and of replicas behind HAProxy.

    python -m benchmarks.processes                     # two workers and two replicas; about five minutes
    python -m benchmarks.processes --workers 4         # where there are cores for them and for the load
    python -m benchmarks.processes --pause             # starts all servers, then waits for Enter

All servers run, and take the loads in turns, so that a change of the machine meets all of them. The load generator is a
process of its own on the same cores: what a service gains by more processes is less here than beside a quiet client.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.arrangements import BUNDLED, FREE, Arrangement, Engine, Running, run_arrangement
from benchmarks.load import Shape, run_in_subprocess
from benchmarks.machine import facts

RESULT = Path(__file__).parent / "results" / "processes.json"
SHAPES = {
    "1 text, 32 clients": Shape(clients=32, texts=1, encoding_format="base64"),
    "32 texts, 8 clients": Shape(clients=8, texts=32, encoding_format="base64"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One load on one arrangement."""

    engine: str
    arrangement: str
    load: str
    requests_per_s: float
    p50_s: float
    p99_s: float
    lost: int
    cpu_ms_per_request: float  # of all its processes
    memory_bytes: int  # after the load


def main() -> None:
    """Measure, print the ratios, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="HTTP workers, and replicas (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--state", type=Path, help="STATE_DIR of the servers; unset: an empty one")
    parser.add_argument("--pause", action="store_true", help="wait for Enter before the first load")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        logs = Path(folder)
        servers = [
            (engine, stack.enter_context(run_arrangement(arrangement, engine, options.state or logs / "state", logs)))
            for engine in (FREE, BUNDLED)
            for arrangement in arrangements(options.workers)
        ]
        if options.pause:
            input("all servers are ready; Enter begins")
        circumstances = facts()
        rows = [
            _measure(engine, server, load, replace(shape, duration_s=options.seconds))
            for _ in range(options.rounds)
            for load, shape in SHAPES.items()
            for engine, server in servers
        ]
    print("\n".join(_ratios(rows)))
    options.out.write_text(json.dumps({**circumstances, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


def arrangements(workers: int) -> tuple[Arrangement, ...]:
    """What is compared; replicas share the cores that one process has."""
    lanes = {"LANES": "1"}  # one process has a lane a core
    return (
        Arrangement("one process"),
        Arrangement(f"SERVER_PROCESSES={workers}", settings={"SERVER_PROCESSES": str(workers)}),
        Arrangement(f"{workers} replicas", replicas=workers, proxied=True, settings=lanes),
    )


def _measure(engine: Engine, server: Running, load: str, shape: Shape) -> Row:
    before_s = server.cpu_s()
    report = run_in_subprocess(server.port, shape)
    asked_s = shape.warmup_s + shape.duration_s
    requests = report.requests_per_s * asked_s  # those of the warm-up took processor time too
    row = Row(
        engine=engine.name,
        arrangement=server.arrangement.name,
        load=load,
        requests_per_s=round(report.requests_per_s, 1),
        p50_s=round(report.p50_s, 5),
        p99_s=round(report.p99_s, 5),
        lost=sum(count for status, count in report.statuses.items() if status != "200"),
        cpu_ms_per_request=round(1000 * (server.cpu_s() - before_s) / max(requests, 1.0), 3),
        memory_bytes=server.memory_bytes(),
    )
    print(row, file=sys.stderr)
    return row


def _ratios(rows: Sequence[Row]) -> list[str]:
    """For each engine and load, the median rate of each arrangement over that of one process."""
    rates: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        rates.setdefault((row.engine, row.load), {}).setdefault(row.arrangement, []).append(row.requests_per_s)
    lines = []
    for (engine, load), by_name in rates.items():
        medians = {name: statistics.median(values) for name, values in by_name.items()}
        one = next(iter(medians.values()))
        told = ", ".join(f"{name}: {rate:.0f}/s ({rate / one:.2f})" for name, rate in medians.items())
        lines.append(f"{engine}, {load}: {told}")
    return lines


if __name__ == "__main__":
    main()
