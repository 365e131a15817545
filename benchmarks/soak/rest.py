"""What must be true when all traffic has ended: nothing waits, nothing is left over, memory is given back."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import psutil

from benchmarks.soak.alone import Alone
from benchmarks.soak.caller import Patience, call
from benchmarks.soak.cluster import PREFIX, Cluster, Replica
from benchmarks.soak.http_client import HttpClient
from benchmarks.soak.job_client import JobBook
from benchmarks.soak.ledger import Ledger

SETTLE_S = 90.0  # for queues to empty and idle memory to be given back; a start more than enough
_PROBE = Patience(5.0, 10.0)
_TRIM_S = (
    22.0  # memory is given back ten seconds after the last page (docs/operations.md), connections after twice that
)
_POLL_S = 1.0
_ZERO = ("queue_jobs", "queue_tokens", "lanes_busy", "document_jobs_live")  # sums over their labels
_QUEUES = (f"{PREFIX}:jobs:queue", f"{PREFIX}:jobs:kept", f"{PREFIX}:jobs:stops")  # these have no TTL
_CLASSIFIERS = f"{PREFIX}:shared:classifiers"  # nor have these: the versions, and a key with the values of each
_BOUNDED = ("resident_bytes", "files", "threads")
# Over the count at the beginning. Files: a database connection is two of them and each of its six reading threads keeps
# one; a parser's socket a core. Connections to Redis and between processes are closed when nobody has used them.
_EXTRA_FILES, _EXTRA_THREADS = 24, 12
_MEMORY_RATIO = 1.3
_EXTRA_BYTES = 96 * 2**20  # the cache's 16 MiB and what allocators keep


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a replica holds: its own process and those that parse files."""

    resident_bytes: int
    files: int
    threads: int
    zombies: int
    kinds_of_files: Mapping[str, int]  # sockets, pipes, …: who holds what is too much


def footprint(pid: int) -> Footprint:
    """Raises: psutil.Error where the process has ended."""
    process = psutil.Process(pid)
    resident, zombies = process.memory_info().rss, 0
    for child in process.children(recursive=True):
        try:
            zombies += child.status() == psutil.STATUS_ZOMBIE
            resident += child.memory_full_info().uss
        except psutil.Error:  # it has just ended
            continue
    kinds = Counter(_kind_of_file(link) for link in Path(f"/proc/{pid}/fd").iterdir())
    return Footprint(resident, kinds.total(), process.num_threads(), zombies, dict(sorted(kinds.items())))


def _kind_of_file(link: Path) -> str:
    """What an open file is: "socket", "pipe", "anon_inode", or the beginning of its path."""
    try:
        target = str(link.readlink())
    except OSError:  # it has just been closed
        return "closed"
    return target.partition(":")[0] if not target.startswith("/") else "/".join(target.split("/")[:3])


async def settled_footprints(replicas: list[Replica]) -> dict[str, Footprint]:
    """Of each replica, once idle memory was given back."""
    await asyncio.sleep(_TRIM_S)
    return {replica.name: footprint(replica.pid) for replica in replicas}


async def check_rest(
    cluster: Cluster,
    alone: Alone,
    ledger: Ledger,
    before: Mapping[str, Footprint],
    *,
    book: JobBook,
) -> dict[str, object]:
    """Enter whatever is not at rest into the ledger; the numbers for the result."""
    loop = asyncio.get_running_loop()
    now_s = loop.time()
    services = [*cluster.running, alone.running]
    busy = await _until_idle(cluster, services, loop.time() + SETTLE_S)
    for what in busy:
        ledger.report("stuck", what, now_s, now_s)
    after = await settled_footprints(services)
    most = {name: max(getattr(each, name) for each in before.values()) for name in _BOUNDED}
    for name, each in after.items():
        for fault in footprint_faults(most, each):
            ledger.report("left over", f"{name}: {fault}", now_s, now_s)
    keys = await check_redis(cluster, ledger, book)
    await _check_jobs(cluster, ledger, book)
    await alone.check()
    return {
        "before": {name: asdict(each) for name, each in before.items()},
        "after": {name: asdict(each) for name, each in after.items()},
        **keys,
    }


def footprint_faults(most: Mapping[str, int], after: Footprint) -> list[str]:
    """What a replica holds too much of, beside the most that one held at the beginning."""
    found = []
    limit_bytes = int(most["resident_bytes"] * _MEMORY_RATIO) + _EXTRA_BYTES
    if after.resident_bytes > limit_bytes:
        mib, limit_mib = after.resident_bytes // 2**20, limit_bytes // 2**20
        found.append(f"{mib} MiB resident at rest, the limit is {limit_mib}")
    if after.files > most["files"] + _EXTRA_FILES:
        found.append(f"{after.files} open files, {most['files']} at the beginning")
    if after.threads > most["threads"] + _EXTRA_THREADS:
        found.append(f"{after.threads} threads, {most['threads']} at the beginning")
    if after.zombies:
        found.append(f"{after.zombies} zombies")
    return found


async def _until_idle(cluster: Cluster, services: list[Replica], end_s: float) -> list[str]:
    """What is still busy when time is up; empty as soon as nothing is."""
    while True:
        busy = [what for replica in services for what in await _busy(replica)]
        lengths = {key: int(await cluster.admin.xlen(key)) for key in _QUEUES[:2]}
        busy += [f"{key} has {length} entries" for key, length in lengths.items() if length]
        if not busy or asyncio.get_running_loop().time() > end_s:
            return busy
        await asyncio.sleep(_POLL_S)


async def _busy(replica: Replica) -> list[str]:
    async with HttpClient(replica.port) as client:
        ready = (await call(client, "GET", "/health/ready", patience=_PROBE)).answer
        scraped = (await call(client, "GET", "/metrics", patience=_PROBE)).answer
    name = replica.name
    if ready is None or ready.status != 200 or scraped is None:
        return [f"{name} is not ready: {ready.body[:300]!r}" if ready else f"{name} is not ready"]
    values = sums(scraped.body.decode("utf-8"))
    found = [f"{name}: {metric} is {values.get(metric, 0):g}" for metric in _ZERO if values.get(metric, 0)]
    if values.get("requests_in_flight", 0) > 1:  # the scrape itself is one
        found.append(f"{name}: {values['requests_in_flight']:g} requests in flight")
    return found


def sums(exposition: str) -> dict[str, float]:
    """Each of the service's metrics, summed over its labels; names without their prefix."""
    values: dict[str, float] = {}
    for line in exposition.splitlines():
        if line.startswith(f"{PREFIX}_"):
            series, _, value = line.rpartition(" ")
            name = series.partition("{")[0].removeprefix(f"{PREFIX}_")
            values[name] = values.get(name, 0.0) + float(value)
    return values


async def check_redis(cluster: Cluster, ledger: Ledger, book: JobBook) -> dict[str, object]:
    """Every key expires but the queues' and what replicas share; every job is known, but where an answer was lost."""
    now_s = asyncio.get_running_loop().time()
    keys, jobs, kept = 0, set[str](), {*_QUEUES, *await _shared(cluster)}
    async for raw in cluster.admin.scan_iter(count=1000):
        key = raw.decode()
        keys += 1
        if key.startswith(f"{PREFIX}:job:") and key.count(":") == 2:
            jobs.add(key.rpartition(":")[2])
        if key not in kept and await cluster.admin.pttl(key) == -1:
            ledger.report("left over", f"the key {key} never expires", now_s, now_s)
    unknown = jobs - set(book.jobs)
    # A Redis that came back empty has forgotten the keys of submissions whose answer it had just cut off.
    explained = book.lost_answers + sum(window.kind == "redis_emptied" for window in ledger.windows)
    if len(unknown) > explained:
        what = f"{len(unknown)} jobs in Redis that no client knows, {explained} answers to submissions were lost"
        ledger.report("doubled", f"{what}: {', '.join(sorted(unknown)[:5])}", now_s, now_s)
    return {"redis_keys": keys, "unknown_jobs": len(unknown)}


async def _shared(cluster: Cluster) -> set[str]:
    """The keys of taught classifiers, of the versions that hold alone: those of older ones must be gone."""
    rows = cast("dict[bytes, bytes]", await cluster.admin.hgetall(_CLASSIFIERS))
    names = {name.decode(): entry.split(b" ", 3)[:3] for name, entry in rows.items() if not name.startswith(b":")}
    live = {f"{_CLASSIFIERS}:{name}:{version.decode()}" for name, (_, version, gone) in names.items() if gone == b"0"}
    return {_CLASSIFIERS, *live}


async def _check_jobs(cluster: Cluster, ledger: Ledger, book: JobBook) -> None:
    """Ended jobs stand as they ended: deleted ones stay deleted, cancelled ones cancelled, results are kept."""
    async with HttpClient(cluster.port) as client:
        for job in book.jobs.values():
            made = await call(client, "GET", f"/v1/jobs/{job.id}?result=false")
            now_s = asyncio.get_running_loop().time()
            if made.answer is None:
                ledger.report("lost", f"no answer about job {job.id} at rest", now_s, now_s)
                continue
            forgotten = ledger.may_have_forgotten(job.accepted_s, now_s)
            if fault := job_fault(job.state, made.answer.status, made.answer.body, forgotten=forgotten):
                ledger.report("job", f"{job.id}, last {job.state}: {fault}", job.accepted_s, now_s)


def job_fault(state: str, status: int, body: bytes, *, forgotten: bool) -> str:
    """What is wrong with a job at rest that was last seen in ``state``; empty where nothing is."""
    if status == 404:
        return "" if state in ("deleted", "gone") or forgotten else "404, though nobody deleted it"
    if status != 200:
        return f"{status} {body[:200]!r}"
    if state == "deleted":
        return f"it was deleted and is back: {body[:200]!r}"
    if state in ("succeeded", "failed", "cancelled") and f'"status":"{state}"'.encode() not in body.replace(b" ", b""):
        return f"it is another now: {body[:200]!r}"
    return ""
