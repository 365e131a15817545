"""The system under test: one Redis behind a name, HAProxy, and replicas in up to three places."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from redis.asyncio import Redis
from redis.exceptions import RedisError

from backend.abandoned import together
from benchmarks.machine import ROOT
from benchmarks.soak.http_client import KEY, CutOff, HttpClient

PLACES = 3  # addresses that the proxy knows
WORKER = "backend.processes.worker "  # of one that speaks HTTP
READER = "backend.files.worker"  # in the command line of a process that parses files
PREFIX = "financia"  # CACHE_PREFIX
# Small where a fault should show soon: little memory for the cache, a short queue of texts, short lives of vectors.
SETTINGS: Mapping[str, str] = {
    "HOST": "127.0.0.1",
    "MODEL_PROFILE": "bundled",
    "RUNTIME": "onnx",
    "PRECISION": "exact",
    "MEASURE_WHEN_IDLE": "false",  # or replicas would change their arithmetic at different times
    "OCR_ENGINE": "tesseract",
    "HF_HUB_OFFLINE": "1",
    "LOG_LEVEL": "INFO",
    "CACHE_MEMORY_BYTES": str(16 * 2**20),
    "CACHE_TTL_S": "600",
    "JOB_TTL_S": "7200",
    "JOB_WORKERS": "2",
    "LIMIT_QUEUE_TOKENS": "40000",
    "LIMIT_JOBS": "100",
    "SERVER_PROCESSES": "2",
    "API_KEYS": f"soak={KEY}",
    "QUOTA_REQUESTS_PER_MINUTE": "1000000",  # counted and shared, never reached
    "QUOTA_TOKENS_PER_MINUTE": "1000000000",
}
_REDIS = "--save '' --appendonly yes --appendfsync everysec --maxmemory-policy volatile-ttl --maxmemory-samples 10"
_READY_S = 600.0  # for a start on a machine that is busy with everything else
_STOP_S = 75.0  # 3 + 2 x LIMIT_DRAIN_S seconds in the worst case (docs/operations.md)
_POLL_S = 0.05


class ClusterError(RuntimeError):
    """A process ended or did not become ready: the soak cannot go on."""


@dataclass(slots=True)
class Replica:
    """One process of the service."""

    place: int  # index of the proxy's address
    port: int
    process: asyncio.subprocess.Process
    log: Path
    name: str

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None


class RedisName:
    """An address that leads to the master of the moment, as a DNS name does: connections stay where they were made."""

    def __init__(self) -> None:
        self.target_port = 0
        self._server: asyncio.Server | None = None

    async def open(self, port: int) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", port)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            from_redis, to_redis = await asyncio.open_connection("127.0.0.1", self.target_port)
            ends.append(to_redis)
            await together(_copied(reader, to_redis), _copied(from_redis, writer))
        except OSError:  # the master is not there, or one end has left
            pass
        finally:
            for end in ends:
                end.transport.abort()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Raises: OSError at the end, so that the other way ends too."""
    while part := await reader.read(2**16):
        writer.write(part)
        await writer.drain()
    raise ConnectionResetError("one end has closed")


class Cluster:
    """Starts, stops and breaks the processes. ``work`` holds logs and Redis' files; ``state`` is STATE_DIR of all."""

    def __init__(self, work: Path, state: Path) -> None:
        self._work, self.state = work, state
        self._redis_port, self.port, *self._ports = free_ports(2 + PLACES)
        self._redis: asyncio.subprocess.Process | None = None
        self._redis_name = RedisName()
        self._proxy: asyncio.subprocess.Process | None = None
        self.replicas: list[Replica] = []
        self.starts = 0
        self.admin = Redis(port=self._redis_port, socket_timeout=5.0)

    @property
    def running(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.alive]

    async def start_replica(self, place: int | None = None) -> Replica:
        """A replica in a free place, ready for requests and known to the proxy. Raises: ClusterError."""
        taken = {replica.place for replica in self.running}
        place = next(index for index in range(PLACES) if index not in taken) if place is None else place
        self.starts += 1
        replica = await start_service(
            self._ports[place],
            self._work / f"replica-{place + 1}.log",
            {"STATE_DIR": str(self.state), "REDIS_URL": f"redis://127.0.0.1:{self._redis_port}/0"},
            name=f"replica-{place + 1}",
            place=place,
        )
        self.replicas = [*self.running, replica]
        await asyncio.sleep(1.1)  # two checks of the proxy
        return replica

    async def replace(self, replica: Replica) -> int:
        """Start another one first, then stop this one with SIGTERM; its exit status. Raises: ClusterError."""
        await self.start_replica()
        return await self.end(replica)

    async def end(self, replica: Replica) -> int:
        """Stop a replica with SIGTERM; its exit status. Raises: ClusterError."""
        replica.process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                return await replica.process.wait()
        except TimeoutError:
            replica.process.kill()
            raise ClusterError(f"replica {replica.pid} did not end within {_STOP_S:g} s of SIGTERM") from None

    async def kill(self, replica: Replica) -> None:
        """SIGKILL; its children end by themselves."""
        replica.process.kill()
        await replica.process.wait()

    def readers(self, replica: Replica) -> list[psutil.Process]:
        """The processes of a replica that parse files."""
        return [child for child in _children(replica.pid) if READER in _command(child)]

    def workers(self, replica: Replica) -> list[psutil.Process]:
        """The processes of a replica that speak HTTP."""
        return [child for child in _children(replica.pid) if WORKER in _command(child)]

    async def open_redis(self) -> None:
        """Start the first Redis and the name that leads to it. Raises: ClusterError."""
        await self._redis_name.open(self._redis_port)
        [self._redis_name.target_port] = free_ports(1)
        await self.start_redis()

    async def start_redis(self) -> None:
        """Start Redis and wait until it has read its log. Raises: ClusterError."""
        self._redis = await self._spawn_redis(self._redis_name.target_port)
        await _until(self._redis_answers, self._redis, "Redis")

    async def fail_over(self) -> asyncio.subprocess.Process:
        """Make a new replica of Redis the master; the old one, read-only now, with all connections to it.

        Raises: ClusterError.
        """
        [port] = free_ports(1)
        replica = await self._spawn_redis(port, "--replicaof", "127.0.0.1", str(self._redis_name.target_port))
        heir = Redis(port=port, socket_timeout=5.0)
        try:
            await _until(partial(_has, heir, "master_link_status", "up"), replica, "the replica of Redis")
            await self.admin.execute_command("FAILOVER")  # type: ignore[no-untyped-call]
            await _until(partial(_has, heir, "role", "master"), replica, "the new master of Redis")
        finally:
            await heir.aclose()
        old, self._redis, self._redis_name.target_port = self._running_redis(), replica, port
        await self.admin.connection_pool.disconnect()
        return old

    async def _spawn_redis(self, port: int, *flags: str) -> asyncio.subprocess.Process:
        folder = self._redis_folder(port)
        folder.mkdir(parents=True, exist_ok=True)
        words = [*_REDIS.replace("''", "").split(" "), "--port", str(port), "--bind", "127.0.0.1", *flags]
        return await _spawn(["redis-server", *words, "--dir", str(folder)], self._work / "redis.log")

    def _redis_folder(self, port: int) -> Path:
        return self._work / "redis" / str(port)

    async def kill_redis(self) -> None:
        """SIGKILL, as an out-of-memory kill."""
        redis = self._running_redis()
        redis.kill()
        await redis.wait()
        await self.admin.connection_pool.disconnect()

    def forget_redis(self) -> None:
        """Remove the log of a killed Redis, so that it comes back empty."""
        shutil.rmtree(self._redis_folder(self._redis_name.target_port))

    def freeze_redis(self) -> None:
        self._running_redis().send_signal(signal.SIGSTOP)

    def thaw_redis(self) -> None:
        self._running_redis().send_signal(signal.SIGCONT)

    async def stop(self) -> list[int]:
        """Stop everything; the exit statuses of the replicas after SIGTERM."""
        for replica in self.running:
            replica.process.terminate()
        statuses = [await _ended(replica.process) for replica in self.replicas]
        await self.admin.aclose()
        self._redis_name.close()
        for process in (self._proxy, self._redis):
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()
        return statuses

    def log_faults(self, lines: int = 30) -> dict[str, list[str]]:
        """The last lines of each replica's log that are no ordinary event."""
        logs = [*sorted(self._work.glob("replica-*.log")), *self._work.glob("alone.log")]
        texts = {log.stem: log.read_text(encoding="utf-8", errors="replace").splitlines() for log in logs}
        return {name: [line[:300] for line in text if " INFO " not in line][-lines:] for name, text in texts.items()}

    def _running_redis(self) -> asyncio.subprocess.Process:
        assert self._redis is not None, "Redis was started"
        return self._redis

    async def _redis_answers(self) -> bool:
        try:
            return bool(await self.admin.ping())
        except (RedisError, OSError):  # refused, or loading its log
            return False

    async def start_proxy(self) -> None:
        haproxy = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if haproxy is None:
            raise ClusterError("haproxy is not installed (tools/system_packages.sh installs it)")
        addresses = {f"REPLICA_{place + 1}": f"127.0.0.1:{port}" for place, port in enumerate(self._ports)}
        config = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
        self._proxy = await _spawn(
            [haproxy, "-db", "-f", str(config)],
            self._work / "haproxy.log",
            addresses | {"PROXY_ADDRESS": f"127.0.0.1:{self.port}"},
        )


async def interruptible(work: Coroutine[None, None, dict[str, object]]) -> dict[str, object]:
    """Ctrl-C and SIGTERM end the run as an error does, so that no process stays behind."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


async def _has(redis: Redis, name: str, value: str) -> bool:
    """Whether it says so of its replication."""
    try:
        return bool((await redis.info("replication")).get(name) == value)
    except (RedisError, OSError):  # it is starting
        return False


async def start_service(
    port: int, log: Path, settings: Mapping[str, str], *, name: str = "quiet", place: int = -1
) -> Replica:
    """One service on a port, ready. Raises: ClusterError with the end of its log."""
    environment = {**SETTINGS, "PORT": str(port), **settings}
    process = await _spawn([sys.executable, "-m", "benchmarks.soak.replica"], log, environment)

    async def is_ready() -> bool:
        try:
            async with HttpClient(port) as client:
                return (await client.request("GET", "/health/ready", timeout_s=5.0)).status == 200
        except CutOff:
            return False

    try:
        await _until(is_ready, process, f"the service ({log})")
    except BaseException:  # nobody knows this process yet, so nobody else would stop it
        if process.returncode is None:
            process.kill()
        raise
    return Replica(place, port, process, log, name)


async def stop_service(replica: Replica) -> int:
    """SIGTERM, and SIGKILL for one that does not end; its exit status."""
    replica.process.terminate()
    return await _ended(replica.process)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


async def _spawn(
    argv: Sequence[str], log: Path, settings: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *argv,
            cwd=ROOT,
            env={**os.environ, **(settings or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


async def _until(ready: Callable[[], Awaitable[bool]], process: asyncio.subprocess.Process, name: str) -> None:
    """Ask until a process is ready: another process tells nobody. Raises: ClusterError."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _READY_S
    while not await ready():
        if process.returncode is not None:
            raise ClusterError(f"{name} ended with status {process.returncode} before it was ready")
        if loop.time() > end_s:
            raise ClusterError(f"{name} was not ready within {_READY_S:g} s")
        await asyncio.sleep(_POLL_S)


async def _ended(process: asyncio.subprocess.Process) -> int:
    try:
        async with asyncio.timeout(_STOP_S):
            return await process.wait()
    except TimeoutError:
        process.kill()
        return await process.wait()


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""
