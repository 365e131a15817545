"""Brings each fault about, keeps it up, and lifts it. What hits which replica is in the plan."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import orjson
import psutil

from benchmarks.ocr_pages import slip
from benchmarks.soak.alone import Alone
from benchmarks.soak.caller import Patience, call
from benchmarks.soak.cluster import Cluster, Replica
from benchmarks.soak.content import lesson
from benchmarks.soak.http_client import AUTHORIZATION, HttpClient
from benchmarks.soak.job_client import Known
from benchmarks.soak.ledger import GRACE_S, Ledger
from benchmarks.soak.replica import LANE_DEATH
from benchmarks.soak.schedule import FAULTS, PlannedFault
from benchmarks.soak.traffic import Traffic, teach

_OVERLOAD = 10.0
_AT_ONCE = Patience(5.0, 5.0)
_HOSTILE_A_SECOND = 8.0
_STALLED = 12
_JOBS_BEFORE, _JOBS_BEFORE_S = 6, 1.0  # sent before each fault: two replicas run four of them
_FULL_BYTES = 2**20  # maxmemory of a full Redis: less than it holds
_DISK_BYTES = 16 * 2**20


class FaultInjector:
    """Runs one planned fault at a time.

    Args:
        full_disk: whether the cluster's STATE_DIR is a file system of its own, which may be filled.
    """

    def __init__(
        self, cluster: Cluster, alone: Alone, traffic: Traffic, ledger: Ledger, *, full_disk: bool, seed: int
    ) -> None:
        self._cluster, self._alone, self._traffic, self._ledger = cluster, alone, traffic, ledger
        self._rng = random.Random(f"faults-{seed}")
        self._makers: Mapping[str, Callable[[Replica, float], Awaitable[str]]] = {
            "replica_killed": self._kill_replica,
            "replica_replaced": self._replace_replica,
            "replica_restarted": self._restart_replica,
            "replica_frozen": self._freeze_replica,
            "worker_frozen": self._freeze_worker,
            "redis_killed": self._kill_redis,
            "redis_emptied": self._empty_redis,
            "redis_failover": self._fail_over,
            "redis_paused": self._pause_redis,
            "redis_full": self._fill_redis,
            "lane_killed": self._kill_lane,
            "reader_killed": self._kill_readers,
            "stalled_clients": self._stall_clients,
            "hostile_files": self._send_hostile_files,
            "overload": self._overload,
            "alone_killed": self._kill_alone,
            **({"disk_full": self._fill_disk} if full_disk else {}),
        }

    @property
    def kinds(self) -> frozenset[str]:
        """The faults that can be brought about on this machine."""
        return frozenset(self._makers)

    async def run(self, fault: PlannedFault) -> None:
        """From its begin until it is lifted. Raises: ClusterError when the service does not come back."""
        loop = asyncio.get_running_loop()
        self._traffic.send_jobs(_JOBS_BEFORE)
        await asyncio.sleep(_JOBS_BEFORE_S)
        running = self._cluster.running
        replica = running[int(fault.choice * len(running))]
        number = self._ledger.begin(fault.kind, loop.time(), f"replica {replica.place + 1}, {fault.hold_s:g} s")
        since_s = loop.time() - self._ledger.origin_s
        print(f"{since_s:7.1f} s  {FAULTS[fault.kind].title}, {fault.hold_s:g} s", flush=True)
        note = await self._makers[fault.kind](replica, fault.hold_s)
        window = self._ledger.lift(number, loop.time())
        if note:
            self._ledger.report("fault", f"{fault.kind}: {note}", window.start_s, window.lifted_s)

    async def _kill_replica(self, replica: Replica, _hold_s: float) -> str:
        await self._cluster.kill(replica)
        await self._cluster.start_replica(replica.place)
        return ""

    async def _replace_replica(self, replica: Replica, _hold_s: float) -> str:
        return _ended(await self._cluster.replace(replica))

    async def _restart_replica(self, replica: Replica, _hold_s: float) -> str:
        status = await self._cluster.end(replica)
        await self._cluster.start_replica(replica.place)
        return _ended(status)

    async def _freeze_replica(self, replica: Replica, hold_s: float) -> str:
        replica.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(hold_s)
        finally:
            replica.process.send_signal(signal.SIGCONT)
        return ""

    async def _freeze_worker(self, replica: Replica, hold_s: float) -> str:
        """The service kills it, and another one takes its place."""
        worker = self._cluster.workers(replica)[0]
        worker.suspend()
        await asyncio.sleep(hold_s)
        return "" if not worker.is_running() else "the frozen HTTP worker was not replaced"

    async def _kill_redis(self, _replica: Replica, hold_s: float) -> str:
        await self._cluster.kill_redis()
        await asyncio.sleep(hold_s)
        await self._cluster.start_redis()
        return ""

    async def _empty_redis(self, replica: Replica, hold_s: float) -> str:
        """What it forgets is its callers' to bring again: jobs, and what was taught."""
        running = await self._running_jobs()
        await self._cluster.kill_redis()
        logs = "".join(each.log.read_text(encoding="utf-8", errors="replace") for each in self._cluster.running)
        for job in running:
            job.outlives_redis = f"job ended job={job.id}" not in logs  # else it ended in the moment before
        self._cluster.forget_redis()
        await asyncio.sleep(hold_s)
        await self._cluster.start_redis()
        await teach(replica.port)
        return ""

    async def _running_jobs(self) -> list[Known]:
        found = []
        for job in self._traffic.book.live():
            answer = (await call(self._traffic.client, "GET", f"/v1/jobs/{job.id}?result=false")).answer
            if answer is not None and answer.status == 200 and orjson.loads(answer.body)["status"] == "running":
                found.append(job)
        return found

    async def _fail_over(self, _replica: Replica, hold_s: float) -> str:
        """The old master lives on, read-only: whoever stays connected to it can write nothing."""
        old = await self._cluster.fail_over()
        try:
            await asyncio.sleep(hold_s)
            return "; ".join([why for replica in self._cluster.running if (why := await _cannot_write(replica))])
        finally:
            old.kill()
            await old.wait()

    async def _kill_alone(self, _replica: Replica, _hold_s: float) -> str:
        await self._alone.kill()
        return ""

    async def _pause_redis(self, _replica: Replica, hold_s: float) -> str:
        self._cluster.freeze_redis()
        try:
            await asyncio.sleep(hold_s)
        finally:
            self._cluster.thaw_redis()
        return ""

    async def _fill_redis(self, _replica: Replica, hold_s: float) -> str:
        """No room, and nothing may be dropped: every write is refused."""
        admin = self._cluster.admin
        await admin.config_set("maxmemory-policy", "noeviction")
        await admin.config_set("maxmemory", _FULL_BYTES)
        try:
            await asyncio.sleep(hold_s)
        finally:
            await admin.config_set("maxmemory", 0)
            await admin.config_set("maxmemory-policy", "volatile-ttl")
        return ""

    async def _fill_disk(self, _replica: Replica, hold_s: float) -> str:
        filler = self._cluster.state / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as stream:
            while stream.write(bytes(2**16)):
                pass
        try:
            await asyncio.sleep(hold_s)
        finally:
            filler.unlink()
        return ""

    async def _kill_lane(self, replica: Replica, _hold_s: float) -> str:
        """The next batch of this replica dies with its thread; waits until the log tells of it."""
        before = _lane_deaths(replica)
        replica.process.send_signal(signal.SIGUSR1)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GRACE_S
        while loop.time() < end_s:
            if _lane_deaths(replica) > before:
                return ""
            await asyncio.sleep(0.2)
        return "no lane took a batch meanwhile"

    async def _kill_readers(self, replica: Replica, _hold_s: float) -> str:
        for reader in self._cluster.readers(replica):
            with contextlib.suppress(psutil.Error):
                reader.kill()
        return ""

    async def _send_hostile_files(self, _replica: Replica, hold_s: float) -> str:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + hold_s
        async with asyncio.TaskGroup() as tasks:
            while loop.time() < end_s:
                tasks.create_task(self._traffic.hostile(loop.time()))
                await asyncio.sleep(self._rng.expovariate(_HOSTILE_A_SECOND))
        return ""

    async def _overload(self, _replica: Replica, hold_s: float) -> str:
        self._traffic.boost = _OVERLOAD
        try:
            await asyncio.sleep(hold_s)
        finally:
            self._traffic.boost = 1.0
        return ""

    async def _stall_clients(self, replica: Replica, hold_s: float) -> str:
        """Half of them past the proxy; half send half a body, half ask much and read nothing."""
        sockets = []
        for index in range(_STALLED):
            port = self._cluster.port if index % 2 else replica.port
            sockets.append(await asyncio.to_thread(_stalled, port, reads=index % 4 < 2))
        try:
            await asyncio.sleep(hold_s)
        finally:
            for each in sockets:
                each.close()
        return ""


async def _cannot_write(replica: Replica) -> str:
    """What is wrong with a replica that shall write to Redis now; empty where it does."""
    question = lesson("soak-failover")
    async with HttpClient(replica.port) as client:
        made = await call(client, "PUT", question.path, question.body, question.headers, patience=_AT_ONCE)
        if made.answer is None or made.answer.status != 200:
            return f"{replica.name} does not write to the new master: {made.answer or made.failures[-1]}"
        await call(client, "DELETE", question.path, patience=_AT_ONCE)
    return ""


def _ended(status: int) -> str:
    """What is wrong with the exit status of a replica that SIGTERM stopped."""
    return "" if status == 0 else f"the replica ended with status {status} after SIGTERM"


def _lane_deaths(replica: Replica) -> int:
    return replica.log.read_text(encoding="utf-8", errors="replace").count(LANE_DEATH)


def _stalled(port: int, *, reads: bool) -> socket.socket:
    """A connection that stops in the middle: of its file, or (``reads``) of reading a large answer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.settimeout(5.0)
    if reads:
        body = orjson.dumps({"input": [f"stalled {index}" for index in range(256)]})
        client.sendall(_head("/v1/embeddings", "application/json", len(body)) + body)
    else:
        file = slip(0).png
        client.sendall(_head("/v1/documents", "application/octet-stream", len(file)) + file[: len(file) // 2])
    return client


def _head(path: str, media_type: str, length: int) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: {AUTHORIZATION}",
        f"Content-Type: {media_type}",
        f"Content-Length: {length}",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a tmpfs of 16 MiB on ``folder`` where this user may; gives whether it is one."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)
