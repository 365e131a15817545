"""A worker whose pages fail in one way each. Tests start it as a WorkerProcess."""

import ctypes
import mmap
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from backend.files import worker
from backend.files.pdf_file import PdfFile

# page numbers; page 1 is read
HANGS, CRASHES, OUT_OF_MEMORY, EXITS, INCONSISTENT, BAD_FRAME, RAISES, CRASHES_IF_USED, SLOW, WORKS, TAKEN_OVER = range(
    2, 13
)
_text_layer = PdfFile.text_layer


def text_layer(self: PdfFile, number: int) -> Any:  # noqa: C901  # a branch a fault
    if number == HANGS:
        time.sleep(600)
    while number == WORKS:
        pass
    if number == CRASHES or (number == CRASHES_IF_USED and pages_read):
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == OUT_OF_MEMORY:
        np.ones(1 << 40, np.uint8)
    if number == EXITS:
        os._exit(7)
    if number == INCONSISTENT:
        words, stats, size, rulings = _text_layer(self, 1)
        return words._replace(texts=[*words.texts, "one more"]), stats, size, rulings
    if number == BAD_FRAME:
        os.write(int(sys.argv[-1]), b"x" * 100)
        time.sleep(600)
    if number == RAISES:
        raise RuntimeError("a parser's own words")
    if number == TAKEN_OVER:
        raise RuntimeError(f"got: {attacks(Path(sys.argv[1]), os.getppid())}")
    if number == SLOW:
        time.sleep(1.2)
    pages_read.append(number)
    return _text_layer(self, 1)


def attacks(state: Path, service: int) -> list[str]:
    """What a process that a file took over can do, of all that it would try.

    Args:
        state: a folder with a file ``secret``.
        service: its process.
    """
    tries: dict[str, Callable[[], object]] = {
        "its own secrets": lambda: os.environ["API_KEYS"],
        "the service's secrets": lambda: Path(f"/proc/{service}/environ").read_bytes(),
        "the service's memory": lambda: Path(f"/proc/{service}/mem").open("rb").close(),
        "STATE_DIR": lambda: list(state.iterdir()),
        "a stored file": (state / "secret").read_bytes,
        "settings": lambda: Path(worker.__file__).parents[1].joinpath("config.py").read_bytes(),
        "a file of its own": (state / "written").touch,
        "TCP": lambda: socket.socket(socket.AF_INET).close(),
        "UDP over IPv6": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close(),
        "sockets of this machine": lambda: socket.socket(socket.AF_UNIX).close(),
        "a child": _fork,
        "a signal": lambda: os.kill(service, 0),
        "the service's limits": lambda: resource.prlimit(service, resource.RLIMIT_NOFILE),
        "a descriptor of the service": lambda: _system_call(434, service, 0),  # pidfd_open
        "memory that counts as shared": lambda: mmap.mmap(-1, 2**34, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x4000),
    }
    return [name for name, attack in tries.items() if _succeeds(attack)]


def _succeeds(attack: Callable[[], object]) -> bool:
    try:
        attack()
    except (OSError, KeyError):
        return False
    return True


def _fork() -> None:
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)


def _system_call(*arguments: int) -> None:
    if (result := ctypes.CDLL(None).syscall(*arguments)) < 0:
        raise OSError
    os.close(result)


pages_read: list[int] = []

if __name__ == "__main__":
    PdfFile.text_layer = text_layer  # type: ignore[method-assign]
    worker.main(int(sys.argv[-1]))
