"""What SQLite's errors mean for the service: away for now, or broken."""

from __future__ import annotations

import errno
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from backend.errors import FinanciaError, StorageCorrupt, Unavailable

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
