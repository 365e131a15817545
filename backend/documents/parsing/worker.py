"""The process that parses foreign bytes: ``python -m backend.documents.parsing.worker FD``.

It may crash, hang or run out of memory; the service notices and starts another. So it has no secrets (an environment of
its own), writes no files, takes no more memory than it was granted, and ends when the service does: a thread waits on
the socket, whose end means that nobody is there, and an alarm ends calls that no one waits for any more.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import queue
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.documents.parsing import frames, rendering
from backend.documents.parsing.file_types import Kind
from backend.documents.parsing.image_file import ImageDocument
from backend.documents.parsing.limits import FileLimits
from backend.documents.parsing.pdf_file import PdfFile
from backend.errors import BadInput, PasswordRequired, TooLarge, UnreadableFile, WrongPassword

_GRACE_S = 2.0  # between the service's deadline, which kills, and our own alarm, for the case that it is gone
_NICENESS = 10  # a page is drawn while others are read; whoever waits for a text goes first
_OOM_SCORE = Path("/proc/self/oom_score_adj")  # -1000 to 1000; Linux
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

Answer = tuple[dict[str, Any], bytes | memoryview]


class Worker:
    """Open files by the service's number, and the calls on them. Everything here runs on the main thread."""

    def __init__(self) -> None:
        self._limits = FileLimits()
        self._files: dict[int, PdfFile | ImageDocument] = {}
        self._sources: dict[int, tuple[mmap.mmap, str | None]] = {}  # each file's bytes and its password
        self._calls: dict[str, Callable[[dict[str, Any], tuple[int, ...]], Answer]] = {
            "limits": self._set_limits,
            "open": self._open,
            "layer": self._layer,
            "draw": self._draw,
            "picture": self._picture,
            "searchable": self._searchable,
            "drop": self._drop,
        }

    def answer(self, frame: frames.Frame) -> Answer:
        """What a call gives, or what was wrong with the file, as the header's ``error``."""
        limit_s = frame.header.get("limit_s", self._limits.page_s)
        signal.setitimer(signal.ITIMER_REAL, limit_s + _GRACE_S)  # its default action ends the process
        try:
            header, payload = self._calls[frame.header["call"]](frame.header, frame.fds)
        except Exception as error:  # noqa: BLE001  # the border: foreign parsers raise anything, and the file is at fault
            header, payload = _fault(error, self._limits), b""
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for fd in frame.fds:
                with contextlib.suppress(OSError):
                    os.close(fd)
        header["rss_bytes"] = _resident_bytes()
        return header, payload

    def _set_limits(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        self._limits = FileLimits(**header["limits"])
        _confine(self._limits.worker_bytes)
        return {"pid": os.getpid()}, b""

    def _open(self, header: dict[str, Any], fds: tuple[int, ...]) -> Answer:
        data = mmap.mmap(fds[0], 0, access=mmap.ACCESS_READ)
        kind = Kind(header["kind"])
        file = PdfFile(data, header["password"]) if kind is Kind.PDF else ImageDocument(data, kind, self._limits)
        facts = file.facts()
        self._files[header["file"]], self._sources[header["file"]] = file, (data, header["password"])
        return facts, b""

    def _layer(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        file = self._files[header["file"]]
        assert isinstance(file, PdfFile)
        words, stats, size = file.layer(header["page"])
        numbers = np.concatenate([words.lines, words.blocks])
        payload = words.boxes.tobytes() + numbers.tobytes()
        told = {
            "texts": words.texts,
            "turn": words.turn,
            "stats": asdict(stats),
            "width": size.width,
            "height": size.height,
        }
        return told, payload

    def _draw(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        pixels, told = self._drawn(header)
        told["shape"] = pixels.shape
        return told, pixels.data.cast("B")

    def _drawn(self, header: dict[str, Any]) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        file, page, turn = self._files[header["file"]], header["page"], header["turn"]
        color, most_pixels = header["color"], header["most_pixels"]
        if isinstance(file, PdfFile):
            pixels, size = file.draw(page, header["dpi"], turn, color=color, most_pixels=most_pixels)
            return pixels, {"width": size.width, "height": size.height}
        told = file.draw(page, turn, color=color, most_pixels=most_pixels)
        return told.pop("pixels"), told

    def _picture(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        pixels, _ = self._drawn(header)
        return {}, rendering.png(pixels)

    def _searchable(self, header: dict[str, Any], fds: tuple[int, ...]) -> Answer:
        data, password = self._sources[header["file"]]
        words = mmap.mmap(fds[0], 0, access=mmap.ACCESS_READ)
        return {}, rendering.searchable(self._files[header["file"]], data, password, words[:], self._limits)

    def _drop(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        for number in header["files"]:
            self._sources.pop(number, None)
            if file := self._files.pop(number, None):
                file.close()
        return {}, b""


def _fault(error: Exception, limits: FileLimits) -> dict[str, Any]:
    """An error as data: which of the service's it is, and its parts."""
    told: dict[str, Any] = {"error": "unreadable", "message": str(error)[:500], "page": None}
    if isinstance(error, TooLarge):
        told |= {"error": "too_large", "what": error.what, "value": error.value, "limit": error.limit}
        told |= {"setting": error.setting}
    elif isinstance(error, WrongPassword):
        told["error"] = "wrong_password"
    elif isinstance(error, PasswordRequired):
        told["error"] = "password_required"
    elif isinstance(error, UnreadableFile):
        told["page"] = error.page
    elif isinstance(error, MemoryError):
        told |= {"error": "memory", "message": f"{limits.worker_bytes}"}
    elif not isinstance(error, BadInput):
        told["message"] = f"{type(error).__name__}: {error}"[:500]
        told["foreign"] = True
    return told


def _resident_bytes() -> int:
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):  # not Linux
        return 0


def _confine(granted_bytes: int) -> None:
    """No more memory than now and this much, no files written, no core dumped. POSIX only."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    # private writable memory: the files themselves are mapped, read only, and do not count (Linux 4.7)
    now = _data_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (now + granted_bytes, now + granted_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _data_bytes() -> int:
    try:
        return int(_STATM.read_text(encoding="ascii").split()[5]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 256 * 2**20


def _listen(link: socket.socket, calls: queue.SimpleQueue[frames.Frame]) -> None:
    """Hand on what comes; the end of the socket is the end of the process, whatever the main thread is doing."""
    while True:
        try:
            calls.put(frames.receive(link, max_payload_bytes=0))
        except (EOFError, OSError, frames.BadFrame):
            os._exit(0)


def main(fd: int) -> None:
    """Answer calls until the socket ends."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    with contextlib.suppress(OSError):  # where memory is short, it is a file's reader that goes, not the service
        _OOM_SCORE.write_text("500", encoding="ascii")
    for number in (signal.SIGINT, signal.SIGTERM):  # both go to whole groups; the service ends us when it has drained
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    link = socket.socket(fileno=fd)
    frames.widen(link)
    calls: queue.SimpleQueue[frames.Frame] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(link, calls), daemon=True, name="listen").start()
    worker = Worker()
    with contextlib.suppress(OSError):  # the service is gone
        frames.send(link, {"ready": True})
        _be_quiet()
        while True:
            frames.send(link, *worker.answer(calls.get()))


def _be_quiet() -> None:
    """From here on what libraries print about broken files goes nowhere; what failed before was worth reading."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)


if __name__ == "__main__":
    main(int(sys.argv[1]))
