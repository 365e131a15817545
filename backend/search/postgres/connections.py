"""Connections to PostgreSQL: opened when it can be reached, bounded in number and in time, its errors translated."""

from __future__ import annotations

import asyncio
import logging
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg
import numpy as np
from numpy.typing import NDArray

from backend.errors import BadSettings, SetupError, StorageCorrupt, Unavailable
from backend.models.encoder import Vectors
from backend.search.postgres.schema import SCHEMA, ServerFacts, prepare
from backend.telemetry import log_event

# pgvector's type -> how it sends a component: big-endian, behind the count of components and two bytes of nothing.
VECTOR_COMPONENTS: Mapping[str, str] = {"halfvec": ">f2", "vector": ">f4"}
_VECTOR_HEAD = struct.Struct(">HH")
# PostgreSQL's text has no U+0000. Two characters stand for it and for the one they begin with, which keeps the order.
_NUL, _ESCAPE = "\x00", "\x01"
_ESCAPED_NUL, _ESCAPED_ESCAPE = "\x01\x01", "\x01\x02"


def encode_text(text: str) -> bytes:
    """UTF-8 without U+0000, in the same order by code point as the texts themselves."""
    if _NUL in text or _ESCAPE in text:
        text = text.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_NUL, _ESCAPED_NUL)
    return text.encode()


def decode_text(content: bytes) -> str:
    text = content.decode()
    if _ESCAPE in text:
        return text.replace(_ESCAPED_NUL, _NUL).replace(_ESCAPED_ESCAPE, _ESCAPE)
    return text


def vector_encoder(type_name: str) -> Callable[[Vectors], bytes]:
    """What makes the binary form of a vector (width) for this type of pgvector."""
    component = VECTOR_COMPONENTS[type_name]

    def encode(vector: Vectors) -> bytes:
        return _VECTOR_HEAD.pack(vector.size, 0) + vector.astype(component).tobytes()

    return encode


def vector_decoder(type_name: str) -> Callable[[bytes], Vectors]:
    component = VECTOR_COMPONENTS[type_name]

    def decode(content: bytes) -> Vectors:
        vector: NDArray[Any] = np.frombuffer(content, component, offset=_VECTOR_HEAD.size)
        return vector.astype(np.float32)

    return decode


_RETRY_S = 1.0  # after a failed connection nobody tries for so long
_WANTED = "not postgresql://user:password@host:port/database; special characters of a password must be percent-encoded"
T = TypeVar("T")
_logger = logging.getLogger(__name__)
# Errors of a server that cannot serve now: of connections, resources (a full disk too), its operator, access, missing
# database, read-only standby, deadlocks, locks. Classes of SQLSTATE, or whole ones.
_PASSING = ("08", "25006", "28", "3D000", "40", "42501", "53", "55P03", "57", "58")
_ABSENT = ("3F000", "42P01", "42883")  # no such schema, table, function: somebody emptied the database
_CORRUPT = ("XX001", "XX002")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections: int = 10  # of this process at once; further calls wait for one
    connect_s: float = 5.0  # to connect, or to wait for a connection
    command_s: float = 60.0  # of one command: an exact search through a million chunks takes a second


class PostgresConnections:
    """One pool, opened by the first call that reaches the server. Loop only.

    A call raises Unavailable within ``connect_s`` + ``command_s``; while the server cannot be reached, all but one a
    second at once.

    Args:
        url: SEARCH_URL.
        what: is kept there, for messages.

    Raises: BadSettings for a bad URL.
    """

    def __init__(
        self, url: str, limits: ConnectionLimits, *, clock: Callable[[], float], what: str = "files and vector stores"
    ) -> None:
        self.address = _address(url)
        self.facts: ServerFacts | None = None  # once it was reached
        self._url, self._what = url, what
        self._limits = limits
        self._clock = clock
        self._opening = asyncio.Lock()
        self._pool: asyncpg.Pool | None = None
        self._closed = False
        self._failed: tuple[float, str] | None = None  # when the last connection failed, and why
        self._down = False

    async def start(self) -> None:
        """Open the pool. A server that is away is tried again by later calls. Raises: SetupError for an unfit one."""
        with suppress(Unavailable):
            await self._open()

    async def close(self) -> None:
        """Close every connection; commands in progress raise Unavailable."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(self._limits.connect_s):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection of the pool. Raises: Unavailable, StorageCorrupt."""
        pool = self._pool or await self._open_later()
        self._refuse_while_failing()
        with self._translated():
            connection = await self._acquired(pool)
            try:
                yield connection
            finally:
                await pool.release(connection)

    @asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[asyncpg.Connection]:
        """A transaction on a connection of its own, undone by any exception."""
        async with self.connection() as connection, connection.transaction(**options):
            yield connection

    async def fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self.connection() as connection:
            rows: list[asyncpg.Record] = await connection.fetch(query, *arguments)
            return rows

    change = fetch

    async def transact(self, work: Callable[[asyncpg.Connection], Awaitable[T]], /) -> T:
        async with self.transaction() as connection:
            return await work(connection)

    async def unpack(self, work: Callable[[], T], /) -> T:
        """`work` on a thread: a long document takes milliseconds. Raises: StorageCorrupt."""
        try:
            return await asyncio.to_thread(work)
        except (zlib.error, ValueError) as error:
            raise StorageCorrupt(
                "a stored document in PostgreSQL is not what was written; delete it and send its file again, or "
                "restore a backup"
            ) from error

    async def fetchrow(self, query: str, *arguments: Any) -> asyncpg.Record | None:
        async with self.connection() as connection:
            return await connection.fetchrow(query, *arguments)

    async def fetchval(self, query: str, *arguments: Any) -> Any:
        async with self.connection() as connection:
            return await connection.fetchval(query, *arguments)

    async def _acquired(self, pool: asyncpg.Pool) -> asyncpg.Connection:
        try:
            connection = await pool.acquire(timeout=self._limits.connect_s)
        except asyncpg.InterfaceError:  # the pool was closed, or dropped for another
            raise self._unavailable("is being closed" if self._closed else "is being connected to again") from None
        except (asyncpg.PostgresError, OSError, TimeoutError) as error:
            if pool.get_idle_size() == 0 and pool.get_size() >= self._limits.connections:
                raise self._unavailable("has all connections of this process busy") from error
            self._failed = self._clock(), _reason(error)
            raise self._unavailable(_reason(error)) from error
        self._failed = None
        if self._down:
            self._down = False
            log_event(_logger, logging.INFO, "PostgreSQL answers again", postgres=self.address)
        return connection

    async def _open_later(self) -> asyncpg.Pool:
        try:
            return await self._open()
        except SetupError as error:
            self._failed = self._clock(), str(error)
            raise self._unavailable(f"cannot be used: {error}") from error

    async def _open(self) -> asyncpg.Pool:
        async with self._opening:
            if self._pool is not None:
                return self._pool
            self._refuse_while_failing()
            try:
                self.facts = await self._prepare()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
                self._failed = self._clock(), _reason(error)
                raise self._unavailable(_reason(error)) from error
            self._pool = self._new_pool(self.facts)
            await self._pool
            if self._closed:
                await self.close()
                raise self._unavailable("is being closed")
            return self._pool

    async def _prepare(self) -> ServerFacts:
        limits = self._limits
        connection = await self._connect(limits)
        try:
            return await prepare(connection, self.address)
        finally:
            with suppress(asyncpg.InterfaceError, asyncpg.PostgresError, OSError, TimeoutError):
                await connection.close(timeout=limits.connect_s)

    async def _connect(self, limits: ConnectionLimits) -> asyncpg.Connection:
        return await asyncpg.connect(self._url, timeout=limits.connect_s, command_timeout=limits.command_s)

    def _new_pool(self, facts: ServerFacts) -> asyncpg.Pool:
        async def prepare_connection(connection: asyncpg.Connection) -> None:
            await connection.set_type_codec(
                "text", schema="pg_catalog", encoder=encode_text, decoder=decode_text, format="binary"
            )
            await connection.set_type_codec(
                facts.vector_type,
                schema=facts.vector_schema,
                encoder=vector_encoder(facts.vector_type),
                decoder=vector_decoder(facts.vector_type),
                format="binary",
            )

        path = f'{SCHEMA}, "{facts.vector_schema}"'
        return asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=self._limits.connections,
            timeout=self._limits.connect_s,
            command_timeout=self._limits.command_s,
            server_settings={"search_path": path, "application_name": SCHEMA},
            init=prepare_connection,
        )

    def _refuse_while_failing(self) -> None:
        if self._closed:
            raise self._unavailable("is being closed")
        if self._failed is not None and self._clock() - self._failed[0] < _RETRY_S:
            raise self._unavailable(self._failed[1])

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except asyncpg.PostgresError as error:
            raise self._translation(error) from error
        except (asyncpg.ProtocolError, asyncpg.InterfaceError) as error:
            if isinstance(error, ValueError):  # DataError: what we passed
                raise
            raise self._unavailable(_reason(error)) from error
        except (OSError, TimeoutError) as error:
            raise self._unavailable(_reason(error)) from error

    def _translation(self, error: Exception) -> Exception:
        code = getattr(error, "sqlstate", None) or ""
        if code in _CORRUPT:
            return StorageCorrupt(
                f"{self._what}: the data of PostgreSQL ({self.address}) are damaged ({_reason(error)}). "
                "Restore a backup, or repair it (REINDEX for an index), then try again"
            )
        if code in _ABSENT:
            pool, self._pool = self._pool, None  # the next call makes the tables
            if pool is not None:
                pool.terminate()
            return self._unavailable(f"has lost its tables ({_reason(error)})")
        if code.startswith(_PASSING):
            return self._unavailable(_reason(error))
        return error

    def _unavailable(self, reason: str) -> Unavailable:
        if not self._down and not self._closed:
            self._down = True
            log_event(
                _logger, logging.WARNING, "PostgreSQL fails", keeps=self._what, postgres=self.address, what=reason
            )
        return Unavailable(
            f"{self._what}: PostgreSQL (SEARCH_URL), where all replicas keep them, {reason}. Try again",
            retry_after_s=_RETRY_S,
        )


def _reason(error: BaseException) -> str:
    """The kind of error. Its message may quote what was sent."""
    if isinstance(error, asyncpg.DiskFullError):
        return "has a full disk"
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return "takes no changes (a standby)"
    return f"does not answer ({type(error).__name__})"


def _address(url: str) -> str:
    """Host, port and database, without user and password."""
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        good = parts.scheme in {"postgresql", "postgres"} and "@" not in parts.path + parts.query + parts.fragment
        for host in hosts.split(","):
            good = good and (urlsplit(f"//{host}").port or 1) > 0  # raises ValueError for what is no number
    except ValueError:
        good = False
        hosts, parts = "", urlsplit("")
    if not good or "#" in url:
        raise BadSettings([f"SEARCH_URL: {_WANTED}"])
    return hosts + parts.path
