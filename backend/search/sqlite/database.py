"""The connections to the database and the threads they are used on: one writer, a few readers.

Whoever holds the writer's lock writes; every process reads. A read sees one state of the database from its begin to its
end (WAL), whatever is written meanwhile. What `write` returns from is on the disk: writes that wait at the same time
share one transaction, each undone alone where it fails, and so one wait for the disk. SQLite's errors mean that it is
away for now, or broken.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import re
import socket
import sqlite3
import threading
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from backend.errors import FinanciaError, SetupError, StorageCorrupt, Unavailable
from backend.search.sqlite import schema
from backend.telemetry import log_event

_BROKEN = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT", "SQLITE_IOERR_SHORT_READ")
_FULL = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_SHMSIZE")
_RECOVERY = (
    "Nothing is answered from it. Its operator stops the service, keeps a copy of the folder, puts the search.db of a "
    "backup in its place and starts again. The folder files stays as it is: what that search.db does not know of it is "
    "moved to the folder lost, not deleted"
)
_FULL_ERRNOS = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class Repairable(sqlite3.DataError):
    """Data that are made anew from others."""


class DiskFull(Unavailable):
    """What is deleted makes room."""

    def __init__(self) -> None:
        super().__init__(
            "search storage: the disk of the service is full or cannot be written; nothing was changed. Delete files "
            "or vector stores that are not needed, or have the operator free some space: searching goes on, and "
            "writing as soon as there is room",
            retry_after_s=30.0,
        )


def corrupt(what: str) -> StorageCorrupt:
    """Callers get this sentence: folders and SQLite's words stand in the log."""
    return StorageCorrupt(f"search storage: {what}. {_RECOVERY}")


def unwritable() -> Unavailable:
    """The folder is not there and cannot be made, or this process may not write to it."""
    return Unavailable(
        "search storage: its folder cannot be opened for writing, so that no file and no vector store is kept; the "
        "service's operator makes STATE_DIR writable and starts it again (the log tells why)",
        kind="for_good",
    )


def is_full(error: sqlite3.Error) -> bool:
    return _name(error).startswith(_FULL)


def is_disk_fault(error: sqlite3.Error) -> bool:
    return _name(error).startswith((*_FULL, "SQLITE_IOERR"))


@contextmanager
def translated() -> Iterator[None]:
    """Turns errors of SQLite and of the disk into the service's.

    Raises: StorageCorrupt, Unavailable.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _meaning(error) from error
    except zlib.error as error:
        raise corrupt("packed data cannot be read") from error
    except OSError as error:
        if error.errno in _FULL_ERRNOS:
            raise DiskFull from error
        reason = error.strerror or type(error).__name__  # the text names the server's folder
        raise Unavailable(f"search storage: {reason}; nothing was changed", retry_after_s=10.0) from error


def _meaning(error: sqlite3.Error) -> FinanciaError:
    name = _name(error)
    is_no_text = str(error).startswith("Could not decode to UTF-8")  # raised by the module sqlite3, without a code
    if name.startswith(_BROKEN) or is_no_text or isinstance(error, sqlite3.DataError):
        return corrupt("the database is broken")
    if is_full(error):
        return DiskFull()
    return Unavailable(f"search storage: {error}; nothing was changed", retry_after_s=5.0)


def _name(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", ""))  # absent where the sqlite3 module itself raised


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class WriterLock:
    """Used by the writer's thread alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    @property
    def is_held(self) -> bool:
        return self._handle is not None

    def acquire(self) -> bool:
        """Become the writer, unless another process (or another storage of this one) is. Raises: OSError."""
        if self._handle is not None:
            return True
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except OSError:
            os.close(handle)
            raise
        with contextlib.suppress(OSError):  # a full disk: the name of the writer is only for messages
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        self._handle = handle
        return True

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def holder(self) -> str:
        """Who writes, for messages."""
        try:
            return self._path.read_text(encoding="utf-8", errors="replace") or "another process"
        except OSError:
            return "another process"


_BYTES = 4 * 2**20


class Reserve:
    """A file that is given up when the disk is full. Used by the writer's thread alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> None:
        """Take the space, where it is not taken yet and there is room."""
        if self._path.exists():
            return
        try:
            with self._path.open("wb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, _BYTES)
                else:
                    file.write(bytes(_BYTES))
        except OSError:
            self.give_up()

    def give_up(self) -> bool:
        """False: there was none."""
        with suppress(OSError):
            self._path.unlink()
            return True
        return False


T = TypeVar("T")
_log = logging.getLogger(__name__)
_ANY = re.compile(r"= ANY\(\$(\d+)\)")

NAME = "search.db"
_READERS = 2  # threads that read, as many that search, and as many that compute
_BUSY_S = 10.0  # the other process holds the database for moments only: a checkpoint, a first start
_LOG_BUSY_MS = 200
_CHECKED_BYTES = 256 * 2**20  # a start checks every page of a smaller database, in about a second
_CACHE_KIB = 16_384  # of pages, each connection
_WRITTEN_AT_ONCE = 32  # writes that share a transaction at most: what searches read and the log hold stay small


@dataclass(slots=True, eq=False)
class _Write:
    """One call of `write`: what it does, and what became of it, kept until the disk has it."""

    work: Callable[[sqlite3.Connection], Any]
    frees: bool
    future: Future[Any] = field(default_factory=Future)
    result: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def _translated(work: Callable[[], T]) -> T:
    with translated():
        return work()


def fetched(connection: sqlite3.Connection, query: str, arguments: Sequence[Any]) -> list[Any]:
    """The rows of a query in PostgreSQL's words: arguments are $1, $2, …, and lists those of `= ANY`."""
    query = _ANY.sub(r"IN (SELECT value FROM json_each($\1))", query).replace("$", "?")
    values = [json.dumps(value) if isinstance(value, list) else value for value in arguments]
    return connection.execute(query, values).fetchall()


@dataclass(frozen=True, slots=True)
class Transaction:
    """Rows of the transaction on this thread: what awaits them never waits."""

    connection: sqlite3.Connection

    async def fetch(self, query: str, /, *arguments: Any) -> list[Any]:
        return fetched(self.connection, query, arguments)


def _finished(work: Awaitable[T]) -> T:
    """What ``work``, which awaits a `Transaction` alone, comes to."""
    try:
        next(work.__await__())
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a transaction waits for something else than its rows")


class Database:
    """Opened and closed once. `read` and `write` are called on the event loop and run their function on a thread.

    Args:
        check_new: called before tables are made where none are; raises SetupError where there were some before.
        prepare: run on the writer's thread, without a transaction, when this process becomes the writer.
    """

    def __init__(
        self, folder: Path, *, check_new: Callable[[], None], prepare: Callable[[sqlite3.Connection], None]
    ) -> None:
        self.folder = folder
        self._check_new, self._prepare = check_new, prepare
        self._is_closed = False
        self._refusal: Callable[[], FinanciaError] | None = None  # of every call, until the next start
        self._fault, self._logged = "", ""
        self._lock = WriterLock(folder / "writer.lock")
        self._reserve = Reserve(folder / "reserve")
        self._writer: sqlite3.Connection | None = None
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._opened_lock = threading.Lock()
        self._writes: deque[_Write] = deque()
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="search-write")
        self._searching = ThreadPoolExecutor(_READERS, thread_name_prefix="search-rank")
        self._reading = ThreadPoolExecutor(_READERS, thread_name_prefix="search-read")
        self._computing = ThreadPoolExecutor(_READERS, thread_name_prefix="search-compute")

    @property
    def path(self) -> Path:
        return self.folder / NAME

    @property
    def is_writer(self) -> bool:
        return self._lock.is_held

    def writer(self) -> str:
        """Who writes, in words."""
        return "this process" if self.is_writer else self._lock.holder()

    async def open(self) -> None:
        """Start also with a broken database or a folder that cannot be written: `fault` tells it, every call refuses.

        Raises: SetupError, also for a full disk.
        """
        try:
            await asyncio.get_running_loop().run_in_executor(self._writing, self._open)
        except StorageCorrupt as error:
            self._refuse_all(partial(corrupt, "the database is broken"), error.__cause__)
        except OSError as error:
            self._refuse_all(unwritable, error)

    @property
    def fault(self) -> str:
        """What was found to be broken or out of reach since the start; empty while nothing was."""
        return self._fault

    async def close(self) -> None:
        """Waits for what runs; the last process to close merges the write-ahead log into the database."""
        if self._is_closed:
            return
        self._is_closed = True
        loop = asyncio.get_running_loop()
        for pool in (self._reading, self._searching, self._computing):
            await loop.run_in_executor(None, pool.shutdown)
        with self._opened_lock:
            connections, self._opened = self._opened, []
        for connection in connections:
            connection.close()
        await loop.run_in_executor(self._writing, self._close_writer)
        await loop.run_in_executor(None, self._writing.shutdown)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` in a transaction that only reads. Raises: StorageCorrupt, Unavailable, what ``work`` raises."""
        return await self._run(self._reading, lambda: self._read(work))

    async def search(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `read`, on threads of its own: while they load a large store, others go on reading."""
        return await self._run(self._searching, lambda: self._read(work))

    async def compute(self, work: Callable[[], T]) -> T:
        """Run ``work``, which needs no database, beside the event loop. Raises: as `read`.

        On threads of its own: the terms of a book take seconds, and others go on reading meanwhile.
        """
        return await self._run(self._computing, partial(_translated, work))

    async def must_write(self) -> None:
        """Become the writer unless this process is. Raises: Unavailable where another process writes."""
        if not self._lock.is_held:
            await self.write(lambda _: None)

    async def write(self, work: Callable[[sqlite3.Connection], T], *, frees: bool = False) -> T:
        """Run ``work``, all of it or nothing, with what others write at the time; it is durable on return.

        Args:
            frees: it deletes, so a full disk does not stop it while there is a reserve.

        Raises: Unavailable where another process writes or the disk is full; StorageCorrupt; what ``work`` raises.
        """
        self._check_open()
        write = _Write(work, frees)
        self._writes.append(write)
        self._writing.submit(self._write_waiting)
        try:
            result: T = await asyncio.wrap_future(write.future)
        except (StorageCorrupt, Unavailable) as error:
            self._note(error)
            raise
        return result

    async def fetch(self, query: str, /, *arguments: Any) -> list[Any]:
        return await self.read(lambda connection: fetched(connection, query, arguments))

    async def change(self, query: str, /, *arguments: Any) -> list[Any]:
        return await self.write(lambda connection: fetched(connection, query, arguments))

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self.write(lambda connection: _finished(work(Transaction(connection))))

    async def unpack(self, work: Callable[[], T]) -> T:
        return await self._run(self._reading, partial(_translated, work))

    async def empty_log(self) -> bool:
        """Move the write-ahead log into the database, and empty it; False where a read still needs it.

        Until then what was deleted can be read in the log.
        """
        return await self._run(self._writing, self._empty_log)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        self._check_open()
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except (StorageCorrupt, Unavailable) as error:
            self._note(error)
            raise

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable("search storage: it is closed, as the service stops", kind="for_good")
        if self._refusal is not None:
            raise self._refusal()

    def _note(self, error: StorageCorrupt | Unavailable) -> None:
        """Log what callers are not told: the folder, and SQLite's own words."""
        cause = error.__cause__
        if cause is None or isinstance(cause, Repairable):
            return
        self._log(str(error), cause)
        if isinstance(error, StorageCorrupt):
            self._fault = str(corrupt("some data are broken, the log tells which"))

    def _refuse_all(self, refusal: Callable[[], FinanciaError], cause: BaseException | None) -> None:
        self._refusal, self._fault = refusal, str(refusal())
        self._log(self._fault, cause)

    def _log(self, why: str, cause: BaseException | None) -> None:
        if repr(cause) != self._logged:  # a disk that is full is met every few seconds
            self._logged = repr(cause)
            log_event(_log, logging.ERROR, "search storage fails", folder=str(self.folder), why=why, cause=self._logged)

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        is_writer = self._lock.acquire()
        try:
            with translated():
                if is_writer:
                    self._become_writer()
                else:
                    self._check_as_reader()
        except Unavailable as error:
            self._close_writer()
            raise SetupError(f"{error} ({self.folder}: {error.__cause__})") from error
        except BaseException:
            self._close_writer()
            raise

    def _become_writer(self) -> None:
        if not self.path.exists() or self.path.stat().st_size == 0:
            self._check_new()  # before SQLite drops a write-ahead log that lies there
        connection = self._writer_connection()
        if self.path.stat().st_size <= _CHECKED_BYTES:
            faults = [fault for (fault,) in connection.execute("PRAGMA quick_check(3)")]
            if faults != ["ok"]:
                raise corrupt("the database is broken") from sqlite3.DatabaseError("; ".join(faults))
        if schema.version_of(connection) == 0:
            self._check_new()
        schema.upgrade(connection, str(self.path))
        self._prepare(connection)
        self._reserve.make()

    def _check_as_reader(self) -> None:
        connection = self._connect()
        try:
            schema.check_version(connection, str(self.path))
            if schema.version_of(connection) < schema.VERSION:
                raise SetupError(
                    f"search storage: {self._lock.holder()} is still preparing {self.path}, or is of an earlier "
                    "release; start this process again later, or give it a STATE_DIR of its own"
                )
        finally:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA page_size = {schema.PAGE_BYTES}")  # of a database that is not there yet
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
        except BaseException:
            connection.close()
            raise
        return connection

    def _writer_connection(self) -> sqlite3.Connection:
        if self._writer is None:
            connection = self._connect()
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")  # zeros in place of what was deleted: words, NIFs, IBANs
            self._writer = connection
        return self._writer

    def _write_waiting(self) -> None:
        """Write what waits, in one transaction; nothing where an earlier call has written it."""
        writes: list[_Write] = []
        while self._writes and len(writes) < _WRITTEN_AT_ONCE:
            write = self._writes.popleft()
            if write.future.set_running_or_notify_cancel():
                writes.append(write)
        if not writes:
            return
        full = self._try_all(writes)
        freeing = [write for write in writes if write.frees]
        if full and freeing and self._reserve.give_up():
            self._try_all(freeing)
            with suppress(sqlite3.Error):  # gives back what the log has taken of the reserve
                self._writer_connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._reserve.make()
        for write in writes:
            write.settle()

    def _try_all(self, writes: list[_Write]) -> bool:
        """Write them, or leave each its error; whether it is that the disk is full."""
        for write in writes:
            write.error = None
        try:
            with translated():
                self._write_all(writes)
            self._reserve.make()
        except BaseException as error:  # noqa: BLE001 - each caller gets it
            for write in writes:
                write.error = write.error or error
            return isinstance(error.__cause__, sqlite3.Error) and is_full(error.__cause__)
        return False

    def _write_all(self, writes: list[_Write]) -> None:
        if not self._lock.is_held:
            self._take_over()
        connection = self._writer_connection()
        try:
            connection.execute("BEGIN IMMEDIATE")
            for write in writes:
                self._write_one(connection, write)
            connection.execute("COMMIT")
        except BaseException as error:
            self._roll_back(connection, error)
            raise

    def _write_one(self, connection: sqlite3.Connection, write: _Write) -> None:
        """Raises: what leaves the transaction unusable; what only this write is to blame for is its own error."""
        connection.execute("SAVEPOINT one")
        try:
            with translated():
                write.result = write.work(connection)
        except BaseException as error:
            cause = error.__cause__ if isinstance(error, FinanciaError) else error
            if not connection.in_transaction or (isinstance(cause, sqlite3.Error) and is_disk_fault(cause)):
                raise
            connection.execute("ROLLBACK TO one")
            write.error = error
        connection.execute("RELEASE one")

    def _take_over(self) -> None:
        """Become the writer where the one before has ended. Raises: Unavailable."""
        if not self._lock.acquire():
            raise Unavailable(
                "search storage: another process of the service writes to it; this one can only read and search, until "
                "that one ends. Send the request there (GET /v1/system names it to the operator); for several replicas "
                "that write set SEARCH_URL=postgresql://…",
                retry_after_s=5.0,
            )
        try:
            self._become_writer()
        except BaseException:
            self._close_writer()
            raise

    def _roll_back(self, connection: sqlite3.Connection, error: BaseException) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._drop_writer_connection()
        cause = error.__cause__ if isinstance(error, FinanciaError) else error
        if isinstance(cause, sqlite3.Error) and is_disk_fault(cause):
            self._drop_writer_connection()  # what it has cached may not be what the disk has

    def _drop_writer_connection(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _empty_log(self) -> bool:
        with translated():
            connection = self._writer_connection()
            connection.execute(f"PRAGMA busy_timeout = {_LOG_BUSY_MS}")  # those that want to write wait meanwhile
            try:
                (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(1000 * _BUSY_S)}")
        return not is_busy

    def _close_writer(self) -> None:
        self._drop_writer_connection()
        self._lock.release()

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated():
            connection = self._reader_connection()
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _reader_connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
            self._local.connection = connection
            with self._opened_lock:
                self._opened.append(connection)
        return connection
