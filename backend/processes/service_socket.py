"""Where the service process listens for its HTTP workers: a Unix socket in a folder that only this user may enter."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

from backend.errors import SetupError

_PREFIX = "financia-http-"
_SOCKET = "service.sock"
_PATH_BYTES = 103  # of a Unix socket's path on macOS; Linux takes 107
SHORT = ("/tmp", "/dev/shm")  # noqa: S108 - the folder in it is this user's alone
_SETTLED_S = 60.0  # a younger socket may be about to listen


def create_folder() -> Path:
    """A new folder, once those of service processes that were killed are gone.

    It is in TMPDIR, or in a folder of a shorter name where a socket's path would be too long for the system.

    Raises: SetupError where no folder can be made.
    """
    faults = []
    for parent in dict.fromkeys((tempfile.gettempdir(), *SHORT)):
        path_bytes = len(os.fsencode(socket_in(Path(parent, f"{_PREFIX}12345678"))))  # as many as mkdtemp adds
        if path_bytes > _PATH_BYTES:
            faults.append(f"{parent}: {path_bytes} bytes")
            continue
        try:
            return _create_in(Path(parent))
        except OSError as error:
            faults.append(f"{parent}: {error.strerror or error}")
    raise SetupError(
        "SERVER_PROCESSES needs a folder for a Unix socket, whose path may have "
        f"{_PATH_BYTES} bytes ({'; '.join(faults)}); set TMPDIR to a short path that may be written to"
    )


def _create_in(parent: Path) -> Path:
    for folder in parent.glob(f"{_PREFIX}*"):
        if _is_left_over(folder / _SOCKET):
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))


def socket_in(folder: Path) -> Path:
    """The path of the socket."""
    return folder / _SOCKET


def _is_left_over(path: Path) -> bool:
    """Whether nobody listens there any more."""
    try:
        if time.time() - path.stat().st_mtime < _SETTLED_S:  # noqa: TID251 - a file's time is the wall clock's
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)  # one whose queue is full listens
            probe.connect(str(path))
    except ConnectionRefusedError:
        return True
    except OSError:  # it is another user's, has gone meanwhile, or is no socket
        return False
    return False
