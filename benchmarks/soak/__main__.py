"""Soak test: two replicas on one Redis behind HAProxy, a service without Redis, mixed traffic, and faults at random.

    python -m benchmarks.soak                       # 30 minutes; the result as JSON
    python -m benchmarks.soak --minutes 3 --seed 7
    python -m benchmarks.soak --once                # each kind of fault once, as short as it may be

Every request and job is accounted for: what was accepted is answered right or failed with a retryable error.
Exit status 1 when anything was lost, wrong, stuck or left over; the log of every process is then kept.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.load import percentile
from benchmarks.machine import facts
from benchmarks.soak.alone import Alone
from benchmarks.soak.cluster import Cluster, Replica, free_ports, interruptible, start_service, stop_service
from benchmarks.soak.faults import FaultInjector, small_disk
from benchmarks.soak.ledger import GRACE_S, Ledger
from benchmarks.soak.rest import check_rest, settled_footprints
from benchmarks.soak.schedule import FAULTS, PlannedFault, plan
from benchmarks.soak.summary import as_json, late_texts, rows
from benchmarks.soak.traffic import Traffic, quiet_answers, teach, wrong_samples

_QUIET_STATE = "quiet-state"  # STATE_DIR of the service that computes the right answers
_KEPT_MINUTES = 30.0  # the least that is published
_SHORT_MINUTES, _SHORT_CALM_S, _CALM_S = 10.0, (2.0, 5.0), (5.0, 15.0)  # a short run has less time between faults
_ONCE_S = 3.0  # from one fault to the next where each comes once: those before may excuse what fails
RESULT = Path(__file__).parents[1] / "results" / "soak.json"


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for, and what it must keep to."""

    minutes: float
    seed: int
    text_p99_s: float  # bound on small texts while no fault is on
    only: tuple[str, ...] = ()  # kinds of faults; empty: all
    once: bool = False  # each kind once, as short as it may be, whatever ``minutes`` says


class Soak:
    """One run. ``work`` holds logs and what Redis writes; ``state`` is STATE_DIR of the replicas."""

    def __init__(self, options: Options, work: Path, state: Path, *, full_disk: bool) -> None:
        self._options, self._work, self._full_disk = options, work, full_disk
        self._cluster, self._ledger = Cluster(work, state), Ledger()
        self._alone: Alone | None = None

    async def run(self) -> dict[str, object]:
        """From the right answers to the verdict. Raises: ClusterError when the service does not start or come back."""
        print("computing right answers on a quiet service", flush=True)
        expected = await self._expected()
        try:
            print("starting Redis, HAProxy, two replicas and a service without Redis", flush=True)
            seed, cluster = self._options.seed, self._cluster
            alone = self._alone = Alone(self._work, self._ledger, expected, seed=seed)
            await asyncio.gather(self._start(), alone.open())
            before = await settled_footprints([*cluster.running, alone.running])
            traffic = self._traffic(expected)
            injector = FaultInjector(cluster, alone, traffic, self._ledger, full_disk=self._full_disk, seed=seed)
            await self._run_faults(traffic, alone, injector)
            at_rest = await check_rest(cluster, alone, self._ledger, before, book=traffic.book)
        finally:
            statuses = [*await self._cluster.stop(), *([] if self._alone is None else await self._alone.close())]
        self._check_ends(statuses)
        at_rest |= {"fresh_texts_compared": await self._compare(traffic), "starts": self._cluster.starts}
        left_out = sorted(FAULTS.keys() - injector.kinds)
        return {**self._result(traffic), "left_out": left_out, "at_rest": at_rest}

    async def _expected(self) -> dict[str, Any]:
        """Right answers, from a service that does nothing else: no Redis, no cache, no proxy."""
        service = await self._quiet_service()
        try:
            await teach(service.port)
            return await quiet_answers(service.port)
        finally:
            await stop_service(service)

    async def _compare(self, traffic: Traffic) -> int:
        service = await self._quiet_service()
        try:
            return await wrong_samples(service.port, traffic.samples, self._ledger)
        finally:
            await stop_service(service)

    async def _quiet_service(self) -> Replica:
        settings = {"STATE_DIR": str(self._work / _QUIET_STATE), "CACHE_ENABLED": "false"}
        return await start_service(free_ports(1)[0], self._work / "quiet.log", settings)

    async def _start(self) -> None:
        """The first replica learns the classifier; every later one reads it from Redis or from STATE_DIR."""
        cluster = self._cluster
        await cluster.open_redis()
        first = await cluster.start_replica()
        await teach(first.port)
        await cluster.start_proxy()
        await cluster.start_replica()
        for replica in cluster.running:
            await quiet_answers(replica.port)  # both have done everything once before their memory is measured

    def _traffic(self, expected: Mapping[str, Any]) -> Traffic:
        cluster = self._cluster
        return Traffic(
            cluster.port,
            self._ledger,
            expected,
            seed=self._options.seed,
            replica_ports=lambda: [replica.port for replica in cluster.running],
        )

    async def _run_faults(self, traffic: Traffic, alone: Alone, injector: FaultInjector) -> None:
        options = self._options
        self._ledger.origin_s = asyncio.get_running_loop().time()
        calm_s = _SHORT_CALM_S if options.minutes < _SHORT_MINUTES else _CALM_S
        kinds = frozenset(options.only or injector.kinds) & injector.kinds
        faults = (fault for fault in plan(options.seed, calm_s=calm_s) if fault.kind in kinds)
        traffic.start()
        alone.send()
        try:
            if options.once:
                for fault in islice(faults, len(kinds)):
                    await injector.run(replace(fault, hold_s=FAULTS[fault.kind].hold_s[0]))
                    await asyncio.sleep(_ONCE_S)
            else:
                await self._run_until_end(faults, injector)
        finally:
            await asyncio.gather(traffic.stop(), alone.streams.stop())

    async def _run_until_end(self, faults: Iterable[PlannedFault], injector: FaultInjector) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._options.minutes * 60
        for fault in faults:
            if loop.time() + fault.calm_s + fault.hold_s + GRACE_S > end_s:
                break
            await asyncio.sleep(fault.calm_s)
            await injector.run(fault)
            await asyncio.sleep(GRACE_S)
        await asyncio.sleep(max(0.0, end_s - loop.time()))

    def _check_ends(self, statuses: Sequence[int]) -> None:
        now_s = asyncio.get_running_loop().time()
        for status in statuses:
            if status != 0:
                self._ledger.report("fault", f"a replica ended with status {status} after SIGTERM", now_s, now_s)

    def _result(self, traffic: Traffic) -> dict[str, object]:
        found = rows(self._ledger, self._options.text_p99_s)
        violations = [*self._ledger.all_violations(), *late_texts(found, self._options.text_p99_s)]
        for violation in violations:
            print(violation, file=sys.stderr)
        book = traffic.book
        return {
            "options": asdict(self._options),
            **as_json(self._ledger, found, violations),
            "jobs": {
                "accepted": len(book.jobs),
                "watched": book.watched,
                "event_connections": book.connections,
                "submissions_without_answer": book.lost_answers,
            },
            "generator_lag_p99_s": round(percentile(sorted(traffic.streams.lags_s), 0.99), 4),
            "log_excerpts": self._cluster.log_faults() if violations else {},
        }


def main() -> None:
    """Run, write the result, print what was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of traffic and faults (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=14, help="of faults and traffic (default: %(default)s)")
    parser.add_argument("--text-p99-s", type=float, default=1.0, help="bound on small texts without a fault")
    parser.add_argument("--only", nargs="+", default=(), choices=sorted(FAULTS), help="these faults alone")
    parser.add_argument("--once", action="store_true", help="each kind of fault once, as short as it may be")
    parser.add_argument("--logs", type=Path, help="keep all logs here")
    parser.add_argument(
        "--out", type=Path, help=f"default: results/{RESULT.name} for {_KEPT_MINUTES:g} minutes and more"
    )
    flags = parser.parse_args()
    options = Options(flags.minutes, flags.seed, flags.text_p99_s, tuple(flags.only), once=flags.once)
    environment = facts(["benchmarks.soak", *sys.argv[1:]])
    work = Path(tempfile.mkdtemp(prefix="soak-"))
    with small_disk(work / "state") as full_disk:
        result = uvloop.run(interruptible(Soak(options, work, work / "state", full_disk=full_disk).run()))
    is_kept = options.minutes >= _KEPT_MINUTES and not options.once
    out = flags.out or (RESULT if is_kept else None)  # a short run replaces no published one
    text = json.dumps(environment | result, indent=1) + "\n"
    if out is None:
        print(text)
    else:
        out.write_text(text, encoding="utf-8")
    if flags.logs:
        shutil.copytree(work, flags.logs, dirs_exist_ok=True, ignore=shutil.ignore_patterns("redis", "*state"))
    if result["passed"]:
        shutil.rmtree(work)
    else:
        sys.exit(f"logs: {work}")


if __name__ == "__main__":
    main()
