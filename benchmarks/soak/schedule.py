"""Which fault comes when, from a seed; and what each fault may do to a request. No clock, no process: only the plan."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

CALM = "none"  # the name of the time without a fault

# How one attempt of a request may fail; a client that tries again gets its answer.
CUT_OFF = "cut off"  # the connection was refused, reset, or ended before the answer was complete
BAD_GATEWAY = "502"  # the proxy's, for a replica that went away in the middle of an answer
BUSY = "429"
AWAY = "503"
LATE = "504"
FULL_DISK = "507"

# The way of a request: through the proxy; the same, to /v1/jobs, which need Redis; or to one replica, past the proxy,
# to teach it what all replicas share, which needs Redis too; or to the service that has no Redis and no replica.
Route = Literal["proxy", "jobs", "replica", "alone"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    title: str  # its row in docs/reliability.md
    hold_s: tuple[float, float]  # least and most time that it is kept up; (0, 0): it happens at one moment
    failures: frozenset[str] = frozenset()  # how an attempt may fail that takes any way
    redis_failures: frozenset[str] = frozenset()  # and how one that needs Redis
    replica_failures: frozenset[str] = frozenset()  # and how one that asks a replica past the proxy
    alone_failures: frozenset[str] = frozenset()  # and how one of the service without Redis: no other fault excuses it
    forgets: Route | None = None  # of which way the jobs are gone afterwards


_STOPPED = frozenset({CUT_OFF, BAD_GATEWAY, AWAY, LATE})  # a process died with requests in it
_AWAY = frozenset({AWAY})
FAULTS: Mapping[str, Fault] = {
    "replica_killed": Fault("a replica killed (SIGKILL), then started again", (0, 0), _STOPPED),
    "replica_replaced": Fault(
        "a replica replaced: the new one first, then SIGTERM", (0, 0), replica_failures=frozenset({CUT_OFF, AWAY})
    ),
    "replica_restarted": Fault(
        "a replica stopped (SIGTERM), started again on its address", (0, 0), replica_failures=frozenset({CUT_OFF, AWAY})
    ),
    "replica_frozen": Fault("a replica's service process frozen (SIGSTOP) for 8 s", (8, 8), _STOPPED),
    "worker_frozen": Fault("an HTTP worker of a replica frozen (SIGSTOP), until it is replaced", (15, 15), _STOPPED),
    "redis_killed": Fault("Redis killed (SIGKILL), started again with its log", (1, 6), redis_failures=_AWAY),
    "redis_emptied": Fault("Redis killed, started again empty", (1, 3), redis_failures=_AWAY, forgets="jobs"),
    "redis_failover": Fault(
        "a replica of Redis promoted, the old master read-only for 8 s", (8, 8), redis_failures=_AWAY
    ),
    "redis_paused": Fault("Redis frozen (SIGSTOP) for 10 s", (10, 10), redis_failures=_AWAY),
    "redis_full": Fault("Redis full (`maxmemory`, `noeviction`)", (5, 10), redis_failures=_AWAY),
    "disk_full": Fault("the disk of `STATE_DIR` full", (8, 12), replica_failures=frozenset({AWAY, FULL_DISK})),
    "lane_killed": Fault("a lane's thread killed with a batch", (0, 0), _AWAY),
    "reader_killed": Fault("every process that parses files killed (SIGKILL)", (0, 0), _AWAY),
    "stalled_clients": Fault("12 clients that send half a body or do not read their answer", (10, 15)),
    "hostile_files": Fault("a burst of broken and hostile files", (6, 10)),
    "overload": Fault(
        "ten times the texts and scans", (8, 12), frozenset({AWAY, LATE}), alone_failures=frozenset({AWAY, LATE})
    ),
    "alone_killed": Fault(
        "the service without Redis killed (SIGKILL), then started again",
        (0, 0),
        alone_failures=_STOPPED,
        forgets="alone",
    ),
}


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault of a run."""

    kind: str  # a key of FAULTS
    hold_s: float  # how long it is kept up; 0 for one that happens at one moment
    calm_s: float  # time without a fault before it
    choice: float  # 0 to 1; which replica it hits


def plan(seed: int, *, calm_s: tuple[float, float] = (5.0, 15.0)) -> Iterator[PlannedFault]:
    """Endless faults: every kind once in a random order, then every kind once in another, and so on."""
    rng = random.Random(seed)
    kinds = list(FAULTS)
    while True:
        rng.shuffle(kinds)
        for kind in kinds:
            hold_s = round(rng.uniform(*FAULTS[kind].hold_s), 1)
            yield PlannedFault(kind, hold_s, round(rng.uniform(*calm_s), 1), rng.random())


def excused(kinds: frozenset[str], failure: str, route: Route) -> bool:
    """Whether an attempt that met these faults may have failed like this. A 429 with Retry-After always may."""
    if failure == BUSY:
        return True
    for kind in kinds - {CALM}:
        fault = FAULTS[kind]
        if route == "alone":
            if failure in fault.alone_failures:
                return True
            continue
        of_redis = fault.redis_failures if route != "proxy" else frozenset()
        of_replica = fault.replica_failures if route == "replica" else frozenset()
        if failure in fault.failures | of_redis | of_replica:
            return True
    return False
