"""Opens files and reads their pages in worker processes; no untrusted byte is parsed in the service's process.

A worker is not trusted either: its answers are validated where they become records and errors.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np
import orjson
from numpy.typing import NDArray

from backend.errors import (
    CallerGone,
    DeadlineExceeded,
    FinanciaError,
    InferenceFailed,
    InvalidField,
    NotInstalled,
    PasswordRequired,
    TooLarge,
    Unavailable,
    UnreadableFile,
    WrongMediaType,
    WrongPassword,
)
from backend.files.einvoice.records import EInvoice
from backend.files.file_types import IMAGES, FileType, sniff
from backend.files.frames import MAX_HEADER_BYTES, BadFrame, Frame
from backend.files.limits import FileLimits
from backend.files.office_converter import TARGETS, converted
from backend.files.page_codec import grids_of, pack_document
from backend.files.pages import POINTS_PER_INCH, Barcode, BarcodeFormats, Box, Document, RawWord, Ruling
from backend.files.records import (
    FileInfo,
    FilePart,
    Framing,
    LayerStats,
    ModelPage,
    PageSize,
    PlacedPicture,
    Raster,
    TextLayer,
)
from backend.files.resolution import DEFAULT, Resolution, for_model, most_dpi
from backend.files.speech_records import SAMPLE_RATE, AudioInfo, AudioSlice
from backend.files.stored_file import StoredFile
from backend.files.worker_pool import PoolCounts, WorkerGone, WorkerLate, WorkerNotStarted, WorkerPool, WorkerProcess
from backend.reasons import because
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
_GRACE_S = 2.0  # most pages take a tenth of it; a hostile file holds its worker no longer than this
_PAGES_PER_LIMIT = 10  # of a searchable PDF are written in LIMIT_PAGE_S; a dense one takes about a second
_AUDIO_S_PER_LIMIT = 600.0  # of a recording are decoded in LIMIT_PAGE_S; measured: a tenth of a second to two
_BOX_BYTES, _INDEX_BYTES, _RULING_BYTES = 16, 8, 16  # of one word: its box; its line and block; of a ruling
_CODEC_CHARS, _SENTENCE_CHARS = 40, 500
_IMAGE_STATS = LayerStats(objects=1, drawings=1, image_ratio=1.0)


class WorkerRequest(NamedTuple):
    """A call on an open file, for whichever worker is free."""

    fields: Mapping[str, Any]  # the header; empty to only open the file
    deadline_s: float | None = None  # when the caller stops waiting, on the monotonic clock
    most_payload_bytes: int = 0  # of the answer
    attachment: StoredFile | None = None  # sent along as a descriptor

    @property
    def page(self) -> int | None:
        """The page that the call is about; None for the file."""
        page: int | None = self.fields.get("page")
        return page

    @property
    def where(self) -> str:
        """What the call is about, for messages: "page 3" or "file"."""
        return "file" if self.page is None else f"page {self.page}"

    @contextmanager
    def descriptors(self) -> Iterator[tuple[int, ...]]:
        """Descriptors to send with the request, closed afterwards."""
        if self.attachment is None:
            yield ()
            return
        with self.attachment.borrowed() as fd:
            yield (fd,)


class OpenFile:
    """A file whose pages can be read until it is closed. Made by `FileReaders.open`; safe on any thread."""

    def __init__(
        self, number: int, stored: StoredFile, kind: FileType, password: str | None, *, pool: WorkerPool, grace_s: float
    ) -> None:
        self.number = number  # identifies the file to workers
        self.kind = kind
        self.password = password
        self.is_cancelled = False
        self._info: FileInfo | None = None
        self._stored, self._pool, self._grace_s = stored, pool, grace_s

    @property
    def info(self) -> FileInfo:
        assert self._info is not None, "set by FileReaders.open before anyone has the file"
        return self._info

    @info.setter
    def info(self, info: FileInfo) -> None:
        self._info = info

    def page_kind(self, number: int) -> FileType:
        """What a page (from 1) is read as: in a file of several parts they differ."""
        return FileType(self.info.part(number).kind)

    @contextmanager
    def descriptor(self) -> Iterator[int]:
        """A descriptor to send to a worker, closed afterwards. Raises: CallerGone after `close`."""
        try:
            fd = self._stored.lend()
        except ValueError as error:
            raise CallerGone("the file was closed while it was read") from error
        try:
            yield fd
        finally:
            os.close(fd)

    def cancel(self) -> None:
        """Refuse further calls on the file with CallerGone; a running one ends so too, killed after the grace."""
        self.is_cancelled = True
        self._pool.kill_after(self._grace_s, self.number)

    def close(self) -> None:
        """Free the file's memory, here and in the workers. Running calls may end as usual."""
        self._stored.close()
        self._pool.close_file(self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class FileReaders:
    """Reads files in worker processes: a file that crashes, hangs or swells one fails its own call and nothing else.

    Calls block, and are safe on any number of threads. All of them raise:
        UnreadableFile: the file or the page is broken, or its worker died of it (twice, unless the worker was new).
        TooLarge: over LIMIT_PAGE_S, LIMIT_PAGE_PIXELS or LIMIT_READER_BYTES; the message says which.
        CallerGone: the file was cancelled or closed meanwhile.
        DeadlineExceeded: ``until`` passed while waiting for a worker, or by ``grace_s`` in the call.
        Unavailable: stopping, no process can be started, or it got too little of a core for the page.
        NotInstalled: the extra that reads recordings is absent.

    A worker whose caller has left, or is late, gets ``grace_s`` to end its call, then it is killed. Starting another
    takes half a second of a core, and callers with tiny deadlines would have every worker started again and again.

    Args:
        count: maximum number of workers, which start on demand. A page keeps one busy: as many as cores are useful.
    """

    def __init__(
        self,
        count: int,
        limits: FileLimits,
        *,
        start_worker: Callable[[], WorkerProcess] | None = None,
        grace_s: float = _GRACE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._clock, self._grace_s = clock, grace_s
        self._pool = WorkerPool(count, start_worker or (lambda: WorkerProcess(limits)), clock=clock)
        self._numbers = itertools.count(1)

    def start(self) -> None:
        """Start a first worker before the first file comes."""
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
        """Numbers of workers, for metrics."""
        return self._pool.counts()

    def report(self) -> dict[str, Any]:
        """Numbers of workers, and what keeps them from other files and the network: empty before the first file."""
        return {**asdict(self._pool.counts()), "confined": self._pool.confined}

    def open(
        self,
        source: bytes | bytearray | memoryview | Path | StoredFile,
        *,
        password: str | None = None,
        deadline_s: float | None = None,
    ) -> OpenFile:
        """Recognise a file by its bytes and read its page count, sizes and metadata. The caller closes it.

        Args:
            source: a `StoredFile` is taken over: it is closed with the file, and here when opening fails.
            deadline_s: when the caller stops waiting, on the monotonic clock; None: LIMIT_PAGE_S alone.

        Raises: also
            WrongMediaType: not a supported type; the message says what it looks like.
            PasswordRequired: encrypted; WrongPassword: encrypted, and not with this one.
        """
        stored = source if isinstance(source, StoredFile) else StoredFile.of(source, self.limits)
        try:
            kind = sniff(stored.head)
            stored.seal()
            file = OpenFile(next(self._numbers), stored, kind, password, pool=self._pool, grace_s=self._grace_s)
            parse = partial(parse_file_info, kind=kind, sha256=stored.sha256)
            file.info = self._call(file, WorkerRequest({}, deadline_s), parse)
        except BaseException:
            stored.close()
            raise
        return file if file.info.kind not in TARGETS else self._converted(file, stored, password, deadline_s)

    def _converted(self, old: OpenFile, stored: StoredFile, password: str | None, deadline_s: float | None) -> OpenFile:
        """An old office file as what LibreOffice makes of it; it stays of its own kind."""
        with old:
            data = converted(stored.content(), old.info.kind, self.limits, deadline_s)
            file = self.open(data, password=password, deadline_s=deadline_s)
            file.info = replace(file.info, kind=old.info.kind, sha256=old.info.sha256)
            return file

    def einvoice(self, file: OpenFile, *, deadline_s: float | None = None) -> EInvoice | None:
        """The electronic invoice that a file is or has attached; None where there is none. Images need no worker."""
        if not file.info.attachments:
            return None
        request = WorkerRequest({"call": "einvoice"}, deadline_s, MAX_HEADER_BYTES)
        return self._call(file, request, parse_einvoice)

    def page_text(self, file: OpenFile, number: int, *, deadline_s: float | None = None) -> TextLayer:
        """The text layer of a page (from 1) with statistics about it; an image's is empty and needs no worker."""
        _check_page(file, number)
        if file.page_kind(number) in IMAGES:
            size = file.info.size(number)
            return TextLayer(size.width, size.height, 0, (), _IMAGE_STATS)
        fields = {"call": "text_layer", "page": number}
        return self._call(file, WorkerRequest(fields, deadline_s, MAX_HEADER_BYTES), parse_text_layer)

    def render(
        self,
        file: OpenFile,
        number: int,
        *,
        resolution: Resolution | None = None,
        turn: int = 0,
        color: bool = False,
        picture: int | None = None,
        deadline_s: float | None = None,
    ) -> Raster:
        """A page (from 1) as an image: a PDF's rendered, an image's decoded.

        Args:
            resolution: of a PDF's page, from `choose_resolution`; None takes 200 dpi. An image keeps its own pixels.
                Neither has more than LIMIT_RENDER_PIXELS.
            turn: degrees clockwise, a multiple of 90, after /Rotate or the EXIF orientation was applied.
            color: RGB where there is colour; else gray.
            picture: index of one of the page's `TextLayer.pictures`, alone and with its own pixels; None: the page.
        """
        fields, used = self._render_fields("render", file, number, turn, resolution, color=color)
        fields["picture"] = picture
        parse = partial(parse_raster, turn=turn % 360, resolution=used)
        most_payload_bytes = fields["most_pixels"] * (3 if color else 1)
        return self._call(file, WorkerRequest(fields, deadline_s, most_payload_bytes), parse)

    def barcodes(
        self, file: OpenFile, number: int, *, formats: BarcodeFormats, turn: int = 0, deadline_s: float | None = None
    ) -> list[Barcode]:
        """The barcodes of a page (from 1), with boxes in page units after the turn."""
        fields, _ = self._render_fields("barcodes", file, number, turn, DEFAULT, color=False)
        fields["formats"] = formats
        return self._call(file, WorkerRequest(fields, deadline_s), partial(parse_barcodes, page=number))

    def picture(
        self, file: OpenFile, number: int, *, dpi: float, turn: int = 0, deadline_s: float | None = None
    ) -> bytes:
        """A page (from 1) as a PNG in colour; arguments as in `render`, ``dpi`` is for a PDF."""
        requested = Resolution(dpi, because("asked_for"))
        fields, _ = self._render_fields("render_png", file, number, turn, requested, color=True)
        return self._call(file, WorkerRequest(fields, deadline_s, self.limits.worker_bytes), _payload)

    def model_page(
        self, file: OpenFile, number: int, framing: Framing, *, turn: int = 0, deadline_s: float | None = None
    ) -> ModelPage:
        """A page (from 1) as an image model takes it: resized and cropped in the worker, a few hundred kilobytes.

        Args:
            turn: as in `render`.

        Raises: also
            WrongMediaType: a recording, which has no picture.
        """
        if file.kind is FileType.AUDIO:
            raise WrongMediaType("file: it is a recording, and has no pages to look at; send a document or an image")
        size, side_px = file.info.size(number), framing.shortest_px or max(framing.size)
        resolution = for_model(size.width, size.height, side_px)
        fields, _ = self._render_fields("model_page", file, number, turn, resolution, color=True)
        height, width_px = framing.size
        request = WorkerRequest({**fields, "framing": asdict(framing)}, deadline_s, 3 * height * width_px)
        return self._call(file, request, partial(parse_model_page, size=framing.size))

    def searchable_pdf(self, file: OpenFile, document: Document, *, deadline_s: float | None = None) -> bytes:
        """The file as a PDF with the document's words as its text layer.

        Args:
            document: the pages read from this file. The time limit is LIMIT_PAGE_S for every ten of them.
        """
        limit_s = self.limits.page_s * (1 + len(document.pages) / _PAGES_PER_LIMIT)
        words = StoredFile(replace(self.limits, file_bytes=self.limits.worker_bytes))
        try:
            words.write(pack_document(document))
            fields = {"call": "searchable_pdf", "limit_s": limit_s}
            return self._call(file, WorkerRequest(fields, deadline_s, self.limits.worker_bytes, words), _payload)
        finally:
            words.close()

    def audio(self, file: OpenFile, start: int, seconds: float, *, deadline_s: float | None = None) -> AudioSlice:
        """A stretch of a recording. Slices asked for in order decode the file once, and once more in another worker.

        Behind the end it is empty, and the last.

        Args:
            start: samples at SAMPLE_RATE before it.
            seconds: its length, less only at the end; up to a minute or so, that it stays small in memory. The time
                limit is LIMIT_PAGE_S for every ten minutes up to its end.

        Raises: also
            TooLarge: over LIMIT_AUDIO_S or LIMIT_AUDIO_CHANNELS, as soon as that many were decoded.
            WrongMediaType: it is no recording.
        """
        if file.kind is not FileType.AUDIO:
            raise WrongMediaType(f"file: it is of type {file.kind}, which has no sound; send a recording")
        samples = round(seconds * SAMPLE_RATE)
        limit_s = self.limits.page_s * (1 + (start / SAMPLE_RATE + seconds) / _AUDIO_S_PER_LIMIT)
        fields = {"call": "audio", "start": start, "samples": samples, "limit_s": limit_s}
        parse = partial(parse_audio_slice, start=start, samples=samples)
        return self._call(file, WorkerRequest(fields, deadline_s, 2 * samples), parse)

    def _render_fields(
        self, call: str, file: OpenFile, number: int, turn: int, resolution: Resolution | None, *, color: bool
    ) -> tuple[dict[str, Any], Resolution | None]:
        _check_page(file, number)
        used = (
            self._within_budget(file, number, resolution or DEFAULT) if file.page_kind(number) is FileType.PDF else None
        )
        fields = {"call": call, "page": number, "turn": turn % 360, "color": color}
        return {**fields, "most_pixels": self.limits.render_pixels, "dpi": used.dpi if used else None}, used

    def _within_budget(self, file: OpenFile, number: int, requested: Resolution) -> Resolution:
        size = file.info.size(number)
        most = most_dpi(size.width, size.height, self.limits.render_pixels)
        if requested.dpi <= most:
            return requested
        return Resolution(most, because("most_dpi", dpi=most))

    def _call(self, file: OpenFile, request: WorkerRequest, parse: Callable[[Frame], Answer]) -> Answer:
        """Run a request on a worker, preferably one that has the file open; without fields it only opens the file.

        A worker may die of what an earlier file left behind in it, or be killed for memory that others use: unless it
        was new, the call is retried once on another.
        """
        is_retry = False
        while True:
            self._check_wanted(file)
            worker = self._pool.acquire(file.number, request.deadline_s)
            if file.is_cancelled or self._is_late(request):  # while it waited: no call that has to be killed is begun
                self._pool.release(worker)
                raise _no_longer_wanted(file)
            was_new = worker.served <= {file.number}
            try:
                frame = self._exchange(worker, file, request)
                answer = None if "error" in frame.header else _parsed(frame, parse)
            except (WorkerNotStarted, WorkerGone, WorkerLate, BadFrame) as failure:
                self._pool.discard(worker, late=isinstance(failure, WorkerLate) or file.is_cancelled)
                self._check_wanted(file)
                _log_failure(failure, file, request)
                if isinstance(failure, WorkerGone) and not is_retry and (not was_new or failure.how == "SIGKILL"):
                    is_retry = True
                    continue
                raise _error_for(failure, request, self.limits, self._clock()) from failure
            except BaseException:  # an interrupt amid an exchange: half a message may be on the wire
                self._pool.discard(worker, late=True)
                raise
            self._pool.release(worker)
            if file.is_cancelled:
                raise _no_longer_wanted(file)
            if answer is None:
                _raise_error(frame.header, request.where)
            return cast("Answer", answer)

    def _exchange(self, worker: WorkerProcess, file: OpenFile, request: WorkerRequest) -> Frame:
        worker.served.add(file.number)
        limit_s, most_wait_s = self._limits_s(request)
        if file.number not in worker.files:
            opening = {"call": "open", "file": file.number, "kind": file.kind, "password": file.password}
            with file.descriptor() as fd:
                frame = worker.call(opening, limit_s=limit_s, most_wait_s=most_wait_s, fds=(fd,))
            if "error" in frame.header:
                return frame
            worker.files[file.number] = file.kind is FileType.AUDIO
            if not request.fields:
                return frame
        worker.files[file.number] = worker.files.pop(file.number)  # most recently used last
        worker.calls += 1
        fields = {**request.fields, "file": file.number}
        with request.descriptors() as fds:
            return worker.call(
                fields, limit_s=limit_s, most_wait_s=most_wait_s, fds=fds, most_payload_bytes=request.most_payload_bytes
            )

    def _limits_s(self, request: WorkerRequest) -> tuple[float, float]:
        """Seconds of work, and how long the caller waits."""
        limit_s = float(request.fields.get("limit_s", self.limits.page_s))
        if request.deadline_s is None:
            return limit_s, math.inf
        return limit_s, max(request.deadline_s - self._clock(), 0.0) + self._grace_s

    def _is_late(self, request: WorkerRequest) -> bool:
        return request.deadline_s is not None and self._clock() >= request.deadline_s

    def _check_wanted(self, file: OpenFile) -> None:
        self._pool.check_open()
        if file.is_cancelled:
            raise _no_longer_wanted(file)


def _no_longer_wanted(file: OpenFile) -> CallerGone | DeadlineExceeded:
    if file.is_cancelled:
        return CallerGone("reading the file was cancelled")
    return DeadlineExceeded(0.0, "the caller's time was over before its file was read")


def _parsed(frame: Frame, parse: Callable[[Frame], Answer]) -> Answer:
    """The answer as a record. Raises: BadFrame for a malformed one: the worker is broken or was taken over."""
    try:
        return parse(frame)
    except (KeyError, TypeError, ValueError) as error:
        raise BadFrame(repr(error)) from error


def _payload(frame: Frame) -> bytes:
    return bytes(frame.payload)


def _log_failure(failure: Exception, file: OpenFile, request: WorkerRequest) -> None:
    description = f"{type(failure).__name__}: {failure}"
    log_event(_log, logging.WARNING, "reader lost", fault=description, kind=file.kind, page=request.page)


def _check_page(file: OpenFile, number: int) -> None:
    if not 1 <= number <= file.info.page_count:
        raise InvalidField(f"pages: there is no page {number}; the file has {file.info.page_count}", param="pages")


def _error_for(failure: Exception, request: WorkerRequest, limits: FileLimits, now_s: float) -> FinanciaError:
    """The service's error for a call whose worker died, was late, did not start or sent nonsense."""
    where = request.where
    if isinstance(failure, WorkerNotStarted):
        return Unavailable(f"the process that reads files did not start ({failure}); see its stderr")
    if isinstance(failure, BadFrame):
        return InferenceFailed(f"{where}: its reader gave an answer that is none ({failure})")
    if not isinstance(failure, WorkerLate):
        return UnreadableFile(
            f"{where}: the process that read it ended ({failure}); it is damaged in a way that readers do not "
            f"survive, or needs more than {limits.worker_bytes} bytes of memory (LIMIT_READER_BYTES)",
            page=request.page,
        )
    return _late_error(failure, request, limits, now_s)


def _late_error(failure: WorkerLate, request: WorkerRequest, limits: FileLimits, now_s: float) -> FinanciaError:
    waited_s, worked_s = round(failure.waited_s, 1), round(failure.worked_s, 1)
    limit_s = float(request.fields.get("limit_s", limits.page_s))
    if failure.worked_s >= limit_s:
        what, advice = f"{request.where}: seconds of reading", "Send the page as an image, or split the file."
        if request.fields.get("call") == "audio":
            advice = "Convert the recording to WAV or MP3, or split it."
        return TooLarge(what, worked_s, limit_s, "LIMIT_PAGE_S", advice=advice, param="file")
    if request.deadline_s is not None and now_s >= request.deadline_s:
        return DeadlineExceeded(waited_s)
    return Unavailable(
        f"{request.where}: its reader was ended after {waited_s} s, of which it worked {worked_s} s; its limit of work "
        f"is {limit_s:g} s (LIMIT_PAGE_S). This machine is too busy: try again, or send the file to /v1/jobs",
        kind="starved",
    )


def _raise_error(header: dict[str, Any], where: str) -> None:
    """Raise the error that an answer carries, if any.

    Args:
        where: "page 3" or "file", for errors that do not name it themselves.
    """
    error = header.get("error")
    if error is None:
        return
    page = header.get("page")
    if error == "too_large":
        what, value, limit, setting = (header[name] for name in ("what", "value", "limit", "setting"))
        raise TooLarge(what, value, limit, setting, advice=str(header.get("advice", "")), param="file")
    if error == "memory":
        granted_bytes = int(header["message"])
        raise TooLarge(f"{where}: bytes of memory, at least", granted_bytes + 1, granted_bytes, "LIMIT_READER_BYTES",
                       param="file")  # fmt: skip
    if error == "wrong_password":
        raise WrongPassword
    if error == "password_required":
        raise PasswordRequired
    message = str(header.get("message", ""))
    if error == "not_installed":
        raise NotInstalled(message)
    if header.get("foreign"):  # a parser's own message, which names neither file nor page
        message = f"{where}: it cannot be read: {message}"
    raise UnreadableFile(message, page=page if isinstance(page, int) else None)


def parse_file_info(frame: Frame, kind: FileType, sha256: str) -> FileInfo:
    """The answer to "open"."""
    header = frame.header
    return FileInfo(
        kind=FileType(header.get("kind", kind)).value,  # a container is told apart by what is in it
        page_count=int(header["page_count"]),
        sizes=tuple(PageSize(float(width), float(height)) for width, height in header["sizes"]),
        metadata={str(name): str(value) for name, value in header["metadata"].items()},
        sha256=sha256,
        attachments=int(header.get("attachments", 0)),
        audio=_audio_info(header["audio"]) if kind is FileType.AUDIO else None,
        parts=tuple(
            FilePart(str(name)[:_SENTENCE_CHARS], FileType(part).value, int(pages), int(attachment))
            for name, part, pages, attachment in header.get("parts", ())
        ),
    )


def _audio_info(fields: dict[str, Any]) -> AudioInfo:
    declared = fields["declared_s"]
    return AudioInfo(
        codec=str(fields["codec"])[:_CODEC_CHARS],
        rate=int(fields["rate"]),
        channels=int(fields["channels"]),
        declared_s=None if declared is None else float(declared),
        tracks=int(fields["tracks"]),
    )


def parse_audio_slice(frame: Frame, start: int, samples: int) -> AudioSlice:
    """The answer to "audio".

    Args:
        start, samples: that were asked for.

    Raises:
        BadFrame: more samples than that, half of one, or fewer although it is not the last.
    """
    header, size = frame.header, len(frame.payload)
    is_last = header["is_last"] is True
    if size % 2 or size > 2 * samples or (size < 2 * samples and not is_last):
        raise BadFrame(f"{size} bytes of sound for {samples} samples, the last: {is_last}")
    incomplete = str(header["incomplete"])[:_SENTENCE_CHARS]
    return AudioSlice(np.frombuffer(frame.payload, np.int16), start, is_last, incomplete)


def parse_einvoice(frame: Frame) -> EInvoice | None:
    """The answer to "einvoice"."""
    return EInvoice.of(orjson.loads(bytes(frame.payload)))


def parse_barcodes(frame: Frame, *, page: int) -> list[Barcode]:
    """The answer to "barcodes"."""
    return [Barcode(page, str(kind), str(text), Box(*map(float, box))) for kind, text, box in frame.header["codes"]]


def parse_text_layer(frame: Frame) -> TextLayer:
    """The answer to "text_layer", nested into blocks and lines. Raises: BadFrame when its sizes do not match."""
    header, texts = frame.header, frame.header["texts"]
    count, rulings = len(texts), int(header["rulings"])
    words_bytes = count * (_BOX_BYTES + _INDEX_BYTES)
    if rulings < 0 or len(frame.payload) != words_bytes + rulings * _RULING_BYTES:
        raise BadFrame(f"{count} words and {rulings} rulings in {len(frame.payload)} bytes")
    boxes = np.frombuffer(frame.payload, np.float32, count * 4).reshape(count, 4)
    lines, blocks = np.frombuffer(frame.payload, np.int32, 2 * count, count * _BOX_BYTES).reshape(2, count).tolist()
    ends = np.frombuffer(frame.payload, np.float32, 4 * rulings, words_bytes).reshape(rulings, 4).astype(np.float64)
    sides = np.round(boxes.astype(np.float64), 2)  # a hundredth of a point is finer than any printer
    known: dict[str, str] = {}
    shared = map(known.setdefault, map(str, texts), map(str, texts))
    words = [
        (block, line, RawWord(text, box))
        for text, box, line, block in zip(shared, _boxes(sides), lines, blocks, strict=True)
    ]
    nested = tuple(
        tuple(tuple(word for *_, word in line) for _, line in groupby(block, key=lambda word: word[1]))
        for _, block in groupby(words, key=lambda word: word[0])
    )
    turn = int(header["turn"])
    width, height = float(header["width"]), float(header["height"])
    if turn % 180:
        width, height = height, width
    drawn = tuple(Ruling(*side) for side in np.round(ends, 2).tolist())
    grids = None if header.get("grids") is None else grids_of(header["grids"])
    pictures = tuple(PlacedPicture(int(first), Box(*map(float, box))) for first, *box in header.get("pictures", ()))
    return TextLayer(width, height, turn, nested, LayerStats(**header["stats"]), drawn, grids, pictures)


def _boxes(sides: NDArray[np.floating[Any]]) -> Iterator[Box]:
    """The boxes of words (words, 4). Equal numbers are one object: a million words stand in lines and columns."""
    values, places = np.unique(sides, return_inverse=True)
    numbers = map(values.tolist().__getitem__, places.ravel().tolist())
    return map(Box._make, zip(*[numbers] * 4, strict=True))


def parse_model_page(frame: Frame, size: tuple[int, int]) -> ModelPage:
    """The answer to "model_page", of ``size`` (height, width_px). Raises: BadFrame for another number of bytes."""
    if len(frame.payload) != 3 * size[0] * size[1]:
        raise BadFrame(f"{len(frame.payload)} bytes of a page of {size[0]} x {size[1]} px")
    pixels = np.frombuffer(frame.payload, np.uint8).reshape(*size, 3)
    return ModelPage(pixels, str(frame.header["incomplete"])[:_SENTENCE_CHARS])


def parse_raster(frame: Frame, turn: int, resolution: Resolution | None) -> Raster:
    """The answer to "render".

    Args:
        turn: the turn requested; the answer gives a PDF page's size before it, an image's after it.
        resolution: that a PDF's page was rendered with; None for an image.

    Raises:
        BadFrame: its shape does not match its bytes.
    """
    header = frame.header
    shape = tuple(int(side) for side in header["shape"])
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3) or np.prod(shape) != len(frame.payload):
        raise BadFrame(f"an image of {shape} in {len(frame.payload)} bytes")
    pixels = np.frombuffer(frame.payload, np.uint8).reshape(shape)
    width, height = float(header["width"]), float(header["height"])
    if resolution is None:
        scale_x, scale_y = float(header["scale_x"]), float(header["scale_y"])
        is_own = scale_x == scale_y == 1
        why = because("image_pixels") if is_own else because("made_pixels", width=shape[1], height=shape[0])
        return Raster(pixels, width, height, scale_x, scale_y, header["dpi"], why, str(header["incomplete"]))
    if turn % 180:
        width, height = height, width
    scale = resolution.dpi / POINTS_PER_INCH
    return Raster(pixels, width, height, scale, scale, resolution.dpi, resolution.why)
