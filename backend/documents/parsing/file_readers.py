"""The front door: files in, facts, text layers and images out. For threads; no foreign byte is parsed here."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from backend.documents.page_codec import pack_document
from backend.documents.pages import Document
from backend.documents.parsing import worker_answers
from backend.documents.parsing.file_types import Kind, sniff
from backend.documents.parsing.frames import MAX_HEADER_BYTES, BadFrame, Frame
from backend.documents.parsing.limits import FileLimits
from backend.documents.parsing.open_file import OpenFile
from backend.documents.parsing.records import LayerStats, Raster, TextLayer
from backend.documents.parsing.resolution import USUAL, Resolution, most_dpi
from backend.documents.parsing.stored_file import StoredFile
from backend.documents.parsing.worker_call import Asked, failure_of
from backend.documents.parsing.worker_pool import PoolCounts, WorkerPool
from backend.documents.parsing.worker_process import WorkerAbsent, WorkerGone, WorkerLate, WorkerProcess
from backend.errors import CallerGone, InvalidField
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
_PAGES_A_LIMIT = 10  # of a searchable PDF are written in LIMIT_PAGE_S; a dense one takes about a second
_IMAGE_STATS = LayerStats(objects=1, drawings=1, image_ratio=1.0)


class FileReaders:
    """Reads files in worker processes: a file that crashes, hangs or swells takes down its own call and nothing else.

    Calls block, and are safe on any number of threads. All of them raise:
        UnreadableFile: the file or the page is broken, or its worker died of it (on two workers, unless it was new).
        TooLarge: over LIMIT_PAGE_S, LIMIT_PAGE_PIXELS or LIMIT_READER_BYTES; the message says which.
        CallerGone: the file was cancelled or closed meanwhile.
        DeadlineExceeded: ``until`` came first, while waiting for a worker or in the call, which then is killed.
        Unavailable: stopping, or no process can be started.

    Args:
        count: workers at most; they start when they are needed. A page keeps one busy, so as many as cores are useful.
    """

    def __init__(
        self,
        count: int,
        limits: FileLimits,
        *,
        start_worker: Callable[[], WorkerProcess] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._pool = WorkerPool(count, start_worker or (lambda: WorkerProcess(limits)), clock=clock)
        self._numbers = itertools.count(1)

    def start(self) -> None:
        """Have a first worker ready before the first file comes."""
        self._pool.warm_up()

    def close(self) -> None:
        """End the workers; no process is left when the last running call has returned."""
        self._pool.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def counts(self) -> PoolCounts:
        """For metrics."""
        return self._pool.counts()

    def open(
        self,
        source: bytes | bytearray | memoryview | Path | StoredFile,
        *,
        password: str | None = None,
        until: float | None = None,
    ) -> OpenFile:
        """Recognise a file by its bytes and read its facts; to be closed by the caller.

        Args:
            source: a `StoredFile` is taken over: it is closed with the file, and here when opening fails.
            until: when nobody needs the answer any more, on the monotonic clock; None: LIMIT_PAGE_S alone.

        Raises: further
            WrongMediaType: not a file that is read; says what it looks like.
            PasswordRequired: encrypted; WrongPassword: and not with this one.
        """
        stored = source if isinstance(source, StoredFile) else StoredFile.of(source, self.limits)
        try:
            kind = sniff(stored.head)
            stored.seal()
            file = OpenFile(next(self._numbers), stored, kind, password, self._pool)
            read = partial(worker_answers.file_info, kind=kind, sha256=stored.sha256)
            file.info = self._ask(file, Asked({}, until), read)
        except BaseException:
            stored.close()
            raise
        return file

    def page_text(self, file: OpenFile, number: int, *, until: float | None = None) -> TextLayer:
        """The text layer of a page from 1, with numbers to judge it by; an image has an empty one, and asks nobody."""
        _check_page(file, number)
        if file.kind is not Kind.PDF:
            size = file.info.size(number)
            return TextLayer(size.width, size.height, 0, (), _IMAGE_STATS)
        request = {"call": "layer", "page": number}
        return self._ask(file, Asked(request, until, MAX_HEADER_BYTES), worker_answers.text_layer)

    def render(
        self,
        file: OpenFile,
        number: int,
        *,
        resolution: Resolution | None = None,
        turn: int = 0,
        color: bool = False,
        until: float | None = None,
    ) -> Raster:
        """A page from 1 as an image: a PDF's drawn, an image's decoded.

        Args:
            resolution: of a PDF's page, from `choose_resolution`; None takes 200 dpi. An image keeps its own pixels.
                Neither has more than LIMIT_RENDER_PIXELS.
            turn: degrees clockwise, a multiple of 90, after /Rotate or the EXIF orientation was obeyed.
            color: RGB where there is colour; else gray.
        """
        request, drawn = self._drawing("draw", file, number, turn, resolution, color=color)
        read = partial(worker_answers.raster, turn=turn % 360, resolution=drawn)
        most_payload_bytes = request["most_pixels"] * (3 if color else 1)
        return self._ask(file, Asked(request, until, most_payload_bytes), read)

    def picture(self, file: OpenFile, number: int, *, dpi: float, turn: int = 0, until: float | None = None) -> bytes:
        """A page from 1 as a PNG in colour; the arguments are those of `render`, ``dpi`` is a PDF's."""
        wish = Resolution(dpi, "asked for")
        request, _ = self._drawing("picture", file, number, turn, wish, color=True)
        return self._ask(file, Asked(request, until, self.limits.worker_bytes), _payload)

    def searchable_pdf(self, file: OpenFile, document: Document, *, until: float | None = None) -> bytes:
        """The file as a PDF in which the words that were read of it are found.

        Args:
            document: of this file. Several pages may take a multiple of LIMIT_PAGE_S.
        """
        limit_s = self.limits.page_s * (1 + len(document.pages) / _PAGES_A_LIMIT)
        words = StoredFile(replace(self.limits, file_bytes=self.limits.worker_bytes))
        try:
            words.write(pack_document(document))
            request = {"call": "searchable", "limit_s": limit_s}
            return self._ask(file, Asked(request, until, self.limits.worker_bytes, words), _payload)
        finally:
            words.close()

    def _drawing(
        self, call: str, file: OpenFile, number: int, turn: int, wish: Resolution | None, *, color: bool
    ) -> tuple[dict[str, Any], Resolution | None]:
        _check_page(file, number)
        drawn = self._within_budget(file, number, wish) if file.kind is Kind.PDF else None
        request = {"call": call, "page": number, "turn": turn % 360, "color": color}
        return {**request, "most_pixels": self.limits.render_pixels, "dpi": drawn.dpi if drawn else None}, drawn

    def _within_budget(self, file: OpenFile, number: int, wish: Resolution | None) -> Resolution:
        wish = wish or USUAL
        size = file.info.size(number)
        most = most_dpi(size.width, size.height, self.limits.render_pixels)
        return Resolution(most, f"{most:.0f} dpi, the most within LIMIT_RENDER_PIXELS") if wish.dpi > most else wish

    def _ask(self, file: OpenFile, asked: Asked, read: Callable[[Frame], Answer]) -> Answer:
        """Ask some worker that has the file open; no request at all asks for the facts that opening it gives.

        A worker may die of what an earlier file left behind in it, or of others' hunger for memory: unless it was new,
        the call is made once more on another.
        """
        is_second = False
        while True:
            self._check_wanted(file)
            worker = self._pool.take(file.number, asked.until)
            was_new = worker.served <= {file.number}
            try:
                frame = self._exchange(worker, file, asked)
                answer = None if "error" in frame.header else _believed(frame, read)
            except (WorkerAbsent, WorkerGone, WorkerLate, BadFrame) as fault:
                self._pool.discard(worker, late=isinstance(fault, WorkerLate) or file.is_cancelled)
                self._check_wanted(file)
                told = f"{type(fault).__name__}: {fault}"
                log_event(_log, logging.WARNING, "reader lost", fault=told, kind=file.kind, page=asked.page)
                if isinstance(fault, WorkerGone) and not is_second and (not was_new or fault.how == "SIGKILL"):
                    is_second = True
                    continue
                raise failure_of(fault, asked, self.limits, self._clock()) from fault
            except BaseException:  # an interrupt amid an exchange: its wire is out of step
                self._pool.discard(worker, late=True)
                raise
            self._pool.give(worker)
            if answer is None:
                worker_answers.raise_fault(frame.header, asked.where)
            return cast("Answer", answer)

    def _exchange(self, worker: WorkerProcess, file: OpenFile, asked: Asked) -> Frame:
        worker.served.add(file.number)
        limit_s = self._limit_s(asked)
        if file.number not in worker.files:
            opening = {"call": "open", "file": file.number, "kind": file.kind, "password": file.password}
            with file.lent() as fd:
                frame = worker.call(opening, limit_s=limit_s, fds=(fd,))
            if "error" in frame.header:
                return frame
            worker.files[file.number] = None
            if not asked.request:
                return frame
        worker.files[file.number] = worker.files.pop(file.number)  # the last used stands last
        worker.calls += 1
        request = {**asked.request, "file": file.number}
        with asked.lent() as fds:
            return worker.call(request, limit_s=limit_s, fds=fds, most_payload_bytes=asked.most_payload_bytes)

    def _limit_s(self, asked: Asked) -> float:
        limit_s = float(asked.request.get("limit_s", self.limits.page_s))
        return limit_s if asked.until is None else min(limit_s, max(asked.until - self._clock(), 0.001))

    def _check_wanted(self, file: OpenFile) -> None:
        self._pool.check_open()
        if file.is_cancelled:
            raise CallerGone("reading the file was cancelled")


def _believed(frame: Frame, read: Callable[[Frame], Answer]) -> Answer:
    """The answer as a record. Raises: BadFrame when it is none: the worker is out of order, or no longer ours."""
    try:
        return read(frame)
    except (KeyError, TypeError, ValueError) as error:
        raise BadFrame(repr(error)) from error


def _payload(frame: Frame) -> bytes:
    return bytes(frame.payload)


def _check_page(file: OpenFile, number: int) -> None:
    if not 1 <= number <= file.info.page_count:
        raise InvalidField(f"pages: there is no page {number}; the file has {file.info.page_count}", param="pages")
