"""Pytest plugin: a real Redis server, and a TCP proxy to it that can delay, reset or replace replies."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import redis


class RedisServer:
    """One redis-server process on a Unix socket in a folder of its own; can be killed and started again."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.socket = folder / "redis.sock"
        self._command = ["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--dir", str(folder)]
        self._command += ["--save", "", "--appendonly", "no", *options]
        self._process: subprocess.Popen[str] | None = None
        self.client = redis.Redis(unix_socket_path=str(self.socket))

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        output = []
        for line in self._process.stdout:
            output.append(line)
            if "eady to accept connections" in line:  # "Ready" since 7, "ready" before
                return
        raise RuntimeError("redis-server ended at once:\n" + "".join(output))

    def kill(self) -> None:
        """Kill the process without a clean shutdown."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
        self.client.connection_pool.disconnect()

    def calls(self, command: str) -> int:
        """How often the server ran this command since it started."""
        stats = self.client.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


class RedisProxy:
    """A TCP proxy to a server, on the test's loop; the test decides what passes."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._listener: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.open = asyncio.Event()  # cleared: answers are held back until it is set again
        self.open.set()
        self.instead: bytes | None = None  # MGET is answered with these bytes and does not reach the server
        self.connections = self.answers = 0  # made, and chunks of answers passed on, so far
        self.asked = 0  # bytes of questions so far
        self._heard = asyncio.Condition()

    @property
    def url(self) -> str:
        assert self._listener is not None
        return f"redis://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}/0"

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._join, "127.0.0.1", 0)

    def cut(self) -> None:
        """Reset every connection; new ones are taken."""
        for writer in self._writers:
            writer.transport.abort()

    async def asked_more_than(self, size: int) -> None:
        """Wait until more bytes of questions than these have come."""
        async with self._heard:
            await self._heard.wait_for(lambda: self.asked > size)

    async def close(self) -> None:
        assert self._listener is not None
        self._listener.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        self.cut()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            upstream, upstream_writer = await asyncio.open_unix_connection(self._server.socket)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, upstream_writer}
        for pump in (self._ask(reader, writer, upstream_writer), self._answer(upstream, writer)):
            task = asyncio.get_running_loop().create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _ask(self, source: asyncio.StreamReader, back: asyncio.StreamWriter, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                if self.instead is not None and b"MGET" in data:
                    back.write(self.instead)
                else:
                    sink.write(data)
                async with self._heard:
                    self.asked += len(data)
                    self._heard.notify_all()
        except OSError:
            pass
        finally:
            sink.transport.abort()

    async def _answer(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self.open.wait()
                self.answers += 1
                sink.write(data)
        except OSError:
            pass
        finally:
            sink.transport.abort()


@pytest.fixture
def start_redis() -> Iterator[Callable[..., RedisServer]]:
    """Start a server with further redis-server options; all are killed after the test.

    Without redis-server on this machine the test is skipped, or fails where CI=true promises one.
    """
    if shutil.which("redis-server") is None:
        absent = "redis-server is not installed (make test installs it; apt-get install redis-server)"
        pytest.fail(absent) if os.environ.get("CI", "").lower() in {"1", "true"} else pytest.skip(absent)
    servers: list[RedisServer] = []
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:  # a socket's path is short; tmp_path may not be

        def start(*options: str) -> RedisServer:
            home = Path(folder) / str(len(servers))
            home.mkdir()
            server = RedisServer(home, *options)
            servers.append(server)
            server.start()
            return server

        yield start
        for server in servers:
            server.kill()


@pytest.fixture
def redis_server(start_redis: Callable[..., RedisServer]) -> RedisServer:
    """A server with its defaults and nothing in it."""
    return start_redis()


@pytest.fixture
async def redis_proxy(redis_server: RedisServer) -> AsyncIterator[RedisProxy]:
    """A controllable proxy to `redis_server`."""
    proxy = RedisProxy(redis_server)
    await proxy.start()
    yield proxy
    await proxy.close()
