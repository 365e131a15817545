"""Rolling restarts of three replicas behind deploy/haproxy under load: which requests and jobs are lost.

    python -m benchmarks.rolling                      # 100,000 requests while replicas restart; ten minutes
    python -m benchmarks.rolling --requests 2000      # short; prints its result

Three replicas of the service share one Redis, and clients send texts, documents and background jobs without a pause.
In the first phase replicas are killed (SIGKILL), in the second Redis is, in the third every replica is restarted in
turn: SIGTERM, and again on the same address when it has ended. Exit status 1 when a request or job was lost or wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.load import percentile
from benchmarks.machine import facts
from benchmarks.rolling.traffic import Clients, ClosedTraffic, right_answers
from benchmarks.soak.cluster import PLACES, Cluster, interruptible
from benchmarks.soak.end import keep, leave
from benchmarks.soak.ledger import Ledger

RESULT = Path(__file__).parents[1] / "results" / "rolling.json"
_KEPT_REQUESTS = 100_000  # the least that is published
_FAULT_SHARE = 0.05  # of the requests, in each of the other phases
_REDIS_DOWN_S = 3.0
_MAX_LISTED = 50


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for."""

    requests: int  # that are answered while replicas restart, at least
    seed: int
    clients: Clients
    between: int  # requests from the end of one fault to the begin of the next
    faults: int  # of each kind, at least; of restarts, of every replica


@dataclass(frozen=True, slots=True)
class Phase:
    """What happened to requests and jobs while one kind of fault came again and again."""

    kind: str  # of the faults, a key of schedule.FAULTS
    faults: int
    span_s: float
    requests: int  # texts and documents
    documents: int  # of them
    jobs: int
    refused: int  # attempts answered 429: sent again, as Retry-After says
    late: int  # attempts answered 504, as on a machine whose cores others take: sent again
    failed_attempts: int  # others without an answer: lost by a client that sends once
    failed_as: dict[str, int]
    lost: int  # requests and jobs without an answer after all attempts
    wrong: int
    violations: list[str]  # what the kind of fault does not excuse
    text_p50_s: float
    text_p99_s: float
    slowest_s: float

    @property
    def passed(self) -> bool:
        return not self.violations


class Rolling:
    """One run on a cluster that is up."""

    def __init__(self, cluster: Cluster, expected: Mapping[str, Any], options: Options) -> None:
        self._cluster, self._expected, self._options = cluster, expected, options
        self._next_place = 0

    async def phase(self, kind: str, requests: int) -> Phase:
        """Load until so many requests were answered, faults coming all the time. Raises: ClusterError."""
        ledger, loop, options = Ledger(), asyncio.get_running_loop(), self._options
        least = options.faults * (PLACES if kind == "replica_replaced" else 1)
        ledger.origin_s = loop.time()
        traffic = ClosedTraffic(self._cluster.port, ledger, self._expected, seed=options.seed, clients=options.clients)
        traffic.start()
        try:
            while traffic.answered < requests or len(ledger.windows) < least:
                await traffic.answered_more_than(traffic.answered + options.between)
                await self._fault(kind, ledger)
                _print_progress(kind, ledger, traffic.answered)
            await traffic.answered_more_than(traffic.answered + options.between)
        finally:
            await traffic.stop()
        return _summary(kind, ledger, late=traffic.late, span_s=loop.time() - ledger.origin_s)

    async def _fault(self, kind: str, ledger: Ledger) -> None:
        faults: Mapping[str, Callable[[int], Awaitable[str]]] = {
            "replica_replaced": self._restart_replica,
            "replica_killed": self._kill_replica,
            "redis_killed": self._kill_redis,
        }
        loop = asyncio.get_running_loop()
        place, self._next_place = self._next_place, (self._next_place + 1) % PLACES
        number = ledger.begin(kind, loop.time(), f"replica {place + 1}")
        note = await faults[kind](place)
        window = ledger.lift(number, loop.time())
        if note:
            ledger.report("fault", note, window.start_s, window.lifted_s)

    async def _restart_replica(self, place: int) -> str:
        status = await self._cluster.end(self._cluster.at(place))
        await self._cluster.start_replica(place)
        return f"replica {place + 1} ended with status {status} after SIGTERM" if status else ""

    async def _kill_replica(self, place: int) -> str:
        await self._cluster.kill(self._cluster.at(place))
        await self._cluster.start_replica(place)
        return ""

    async def _kill_redis(self, _place: int) -> str:
        await self._cluster.kill_redis()
        await asyncio.sleep(_REDIS_DOWN_S)
        await self._cluster.start_redis()
        return ""


def _print_progress(kind: str, ledger: Ledger, answered: int) -> None:
    broken = ledger.all_violations()
    last = f"; last: {broken[-1]}" if broken else ""
    print(
        f"{kind}: {len(ledger.windows)} faults, {answered} requests, {len(broken)} rules broken{last}", file=sys.stderr
    )


def _summary(kind: str, ledger: Ledger, *, late: int, span_s: float) -> Phase:
    requests = [request for request in ledger.requests if request.kind != "job"]
    failures = Counter(attempt.failure for request in ledger.requests for attempt in request.failures)
    refused = failures.pop("429", 0)
    outcomes = ledger.counts(ledger.requests)
    times_s = sorted(request.took_s for request in ledger.texts())
    return Phase(
        kind=kind,
        faults=len(ledger.windows),
        span_s=round(span_s, 1),
        requests=len(requests),
        documents=sum(request.kind == "scan" for request in requests),
        jobs=len(ledger.requests) - len(requests),
        refused=refused,
        late=late,
        failed_attempts=failures.total(),
        failed_as=dict(sorted(failures.items())),
        lost=outcomes["lost"],
        wrong=outcomes["wrong"],
        violations=[str(violation) for violation in ledger.all_violations()[:_MAX_LISTED]],
        text_p50_s=round(percentile(times_s, 0.5), 4),
        text_p99_s=round(percentile(times_s, 0.99), 4),
        slowest_s=round(max((request.took_s for request in requests), default=0.0), 2),
    )


async def run(options: Options, work: Path) -> dict[str, object]:
    """Start the cluster, run all phases, stop it. Raises: ClusterError."""
    cluster = Cluster(work, work / "state")
    try:
        await cluster.start_redis()
        first = await cluster.start_replica(0)
        expected = await right_answers(first.port, options.clients.pages)
        await cluster.start_proxy()
        for place in range(1, PLACES):
            await cluster.start_replica(place)
        rolling = Rolling(cluster, expected, options)
        share = int(options.requests * _FAULT_SHARE)
        phases = [
            await rolling.phase("replica_killed", share),
            await rolling.phase("redis_killed", share),
            await rolling.phase("replica_replaced", options.requests),
        ]
    finally:
        statuses = await cluster.stop()
    ended = statuses[-PLACES:]
    passed = all(phase.passed for phase in phases) and not any(ended)
    return {
        "passed": passed,
        "starts": cluster.starts,
        "exit_statuses": ended,
        "phases": [asdict(phase) for phase in phases],
    }


def main() -> None:
    """Run, write the result, print what was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rolling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requests", type=int, default=_KEPT_REQUESTS, help="while replicas restart (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--texts", type=int, default=Clients().texts, help="clients of texts (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=Clients().jobs, help="clients of jobs (default: %(default)s)")
    parser.add_argument("--pages", type=int, default=Clients().pages, help="of a file, at most (default: %(default)s)")
    parser.add_argument("--between", type=int, default=200, help="requests between faults (default: %(default)s)")
    parser.add_argument("--faults", type=int, default=3, help="of each kind, at least (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, help=f"default: results/{RESULT.name} for {_KEPT_REQUESTS} requests and more"
    )
    flags = parser.parse_args()
    clients = Clients(texts=flags.texts, jobs=flags.jobs, pages=flags.pages)
    options = Options(flags.requests, flags.seed, clients, flags.between, flags.faults)
    circumstances = facts(["benchmarks.rolling", *sys.argv[1:]])
    work = Path(tempfile.mkdtemp(prefix="rolling-"))
    (work / "state").mkdir()
    found = uvloop.run(interruptible(run(options, work)))
    result = circumstances | {"options": asdict(options), **found}
    keep(result, flags.out or (RESULT if flags.requests >= _KEPT_REQUESTS else None))
    leave(work, passed=bool(found["passed"]))


if __name__ == "__main__":
    main()
