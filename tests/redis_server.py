"""Pytest plugin: a real Redis server, a Sentinel, and a TCP proxy that can delay, reset or replace replies."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.tcp_proxy import TcpProxy


class RedisServer:
    """One redis-server process on a Unix socket in a folder of its own; can be killed and started again."""

    ready = "eady to accept connections"  # "Ready" since 7, "ready" before

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
            if self.ready in line:
                return
        raise RuntimeError("redis-server ended at once:\n" + "".join(output))

    def kill(self) -> None:
        """Kill the process without a clean shutdown."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            self._process = None
        self.client.connection_pool.disconnect()

    def calls(self, command: str) -> int:
        """How often the server ran this command since it started."""
        stats = self.client.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


class RedisSentinel(RedisServer):
    """A Sentinel that watches a master on a port of this machine; ``settings`` are lines of its file."""

    ready = "+monitor master"

    def __init__(self, folder: Path, *settings: str) -> None:
        super().__init__(folder)
        file = folder / "sentinel.conf"  # which Sentinel writes itself
        file.write_text("\n".join((f"dir {folder}", "bind 127.0.0.1", *settings, "")))
        self._command = ["redis-server", str(file), "--sentinel"]


class RedisProxy(TcpProxy):
    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


@pytest.fixture
def start_redis() -> Iterator[Callable[..., RedisServer]]:
    """Start a server, or a ``kind`` of one, with further options; all are killed after the test.

    Without redis-server on this machine the test is skipped, or fails where CI=true promises one.
    """
    if shutil.which("redis-server") is None:
        absent = "redis-server is not installed (make test installs it; apt-get install redis-server)"
        pytest.fail(absent) if os.environ.get("CI", "").lower() in {"1", "true"} else pytest.skip(absent)
    servers: list[RedisServer] = []
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:  # a socket's path is short; tmp_path may not be

        def start(*options: str, kind: type[RedisServer] = RedisServer) -> RedisServer:
            home = Path(folder) / str(len(servers))
            home.mkdir()
            server = kind(home, *options)
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
    proxy = RedisProxy(lambda: asyncio.open_unix_connection(redis_server.socket))
    await proxy.start()
    yield proxy
    await proxy.close()
