"""Requests a second of one, two and three replicas behind HAProxy, before lanes that wait instead of computing.

    python -m benchmarks.replicas            # two minutes
    python -m benchmarks.replicas --pause    # starts all servers, then waits for Enter: quiet the machine first

Each batch waits as long as a slow device would compute, and needs no core for it. So the replicas of one machine stand
for as many machines: what is shared is shown (the proxy, the balance of its choice, the batches that become smaller),
the cores are not. The load grows with the replicas, 32 clients each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.arrangements import Arrangement, Running, run_arrangement, waiting_engine
from benchmarks.load import Shape, run_in_subprocess
from benchmarks.machine import facts
from benchmarks.soak.cluster import PLACES

RESULT = Path(__file__).parent / "results" / "replicas.json"
# Two lanes of 3,000 tokens a second each: a model several times larger than the bundled one.
BATCH_S, TOKEN_S = 0.005, 0.0003
CLIENTS = 32  # for each replica


@dataclass(frozen=True, slots=True)
class Row:
    """One round on so many replicas."""

    replicas: int
    clients: int
    requests_per_s: float
    p50_s: float
    p99_s: float
    lost: int
    cpu_cores: float  # that the replicas and the proxy kept busy


def main() -> None:
    """Measure, print the ratios, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--pause", action="store_true", help="wait for Enter before the first load")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    engine = waiting_engine(BATCH_S, TOKEN_S)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        logs = Path(folder)
        servers = [
            stack.enter_context(run_arrangement(arrangement, engine, logs / "state", logs))
            for arrangement in (
                Arrangement(f"{count} replicas", replicas=count, proxied=True, settings={"LANES": "2"})
                for count in range(1, PLACES + 1)
            )
        ]
        if options.pause:
            input("all servers are ready; Enter begins")
        circumstances = facts()
        rows = [_measure(server, options.seconds) for _ in range(options.rounds) for server in servers]
    rates = {
        count: statistics.median(row.requests_per_s for row in rows if row.replicas == count)
        for count in range(1, PLACES + 1)
    }
    print(", ".join(f"{count}: {rate:.0f}/s ({rate / rates[1]:.2f})" for count, rate in rates.items()))
    result = {**circumstances, "batch_s": BATCH_S, "token_s": TOKEN_S, "rows": [asdict(row) for row in rows]}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


def _measure(server: Running, seconds: float) -> Row:
    count = server.arrangement.replicas
    shape = Shape(clients=CLIENTS * count, texts=1, encoding_format="base64", duration_s=seconds)
    before_s = server.cpu_s()
    report = run_in_subprocess(server.port, shape)
    row = Row(
        replicas=count,
        clients=shape.clients,
        requests_per_s=round(report.requests_per_s, 1),
        p50_s=round(report.p50_s, 5),
        p99_s=round(report.p99_s, 5),
        lost=sum(number for status, number in report.statuses.items() if status != "200"),
        cpu_cores=round((server.cpu_s() - before_s) / (shape.warmup_s + shape.duration_s), 2),
    )
    print(row, file=sys.stderr)
    return row


if __name__ == "__main__":
    main()
