"""Requests to workers, and their answers as records and errors. A worker is not trusted: answers are validated."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from backend.documents.pages import POINTS_PER_INCH, Box, RawWord
from backend.documents.parsing.file_types import FileType
from backend.documents.parsing.frames import BadFrame, Frame
from backend.documents.parsing.limits import FileLimits
from backend.documents.parsing.records import FileInfo, LayerStats, PageSize, Raster, TextLayer
from backend.documents.parsing.resolution import Resolution
from backend.documents.parsing.stored_file import StoredFile
from backend.documents.parsing.worker_process import WorkerLate, WorkerNotStarted
from backend.errors import (
    DeadlineExceeded,
    FinanciaError,
    InferenceFailed,
    PasswordRequired,
    TooLarge,
    Unavailable,
    UnreadableFile,
    WrongPassword,
)

_BOX_BYTES, _INDEX_BYTES = 16, 8  # of one word: its box; its line and block


class WorkerRequest(NamedTuple):
    """A call on an open file, for whichever worker is free."""

    fields: Mapping[str, Any]  # the header; empty to only open the file
    until: float | None = None  # when the caller stops waiting, on the monotonic clock
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
        fd = self.attachment.lend()
        try:
            yield (fd,)
        finally:
            os.close(fd)


def error_for(failure: Exception, request: WorkerRequest, limits: FileLimits, now_s: float) -> FinanciaError:
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
    return _error_for_late(failure, request, limits, now_s)


def _error_for_late(failure: WorkerLate, request: WorkerRequest, limits: FileLimits, now_s: float) -> FinanciaError:
    waited_s, worked_s = round(failure.waited_s, 1), round(failure.worked_s, 1)
    limit_s = float(request.fields.get("limit_s", limits.page_s))
    if failure.worked_s >= limit_s:
        what, advice = f"{request.where}: seconds of reading", "Send the page as an image, or split the file."
        return TooLarge(what, worked_s, limit_s, "LIMIT_PAGE_S", advice=advice, param="file")
    if request.until is not None and now_s >= request.until:
        return DeadlineExceeded(waited_s)
    return Unavailable(
        f"{request.where}: its reader was ended after {waited_s} s, of which it worked {worked_s} s; its limit of work "
        f"is {limit_s:g} s (LIMIT_PAGE_S). This machine is too busy: try again, or send the file to /v1/jobs",
        kind="starved",
    )


def raise_error(header: dict[str, Any], where: str) -> None:
    """Raise the error that an answer carries, if any.

    Args:
        where: "page 3" or "file", for errors that do not name it themselves.
    """
    error = header.get("error")
    if error is None:
        return
    page = header.get("page")
    if error == "too_large":
        raise TooLarge(header["what"], header["value"], header["limit"], header["setting"], param="file")
    if error == "memory":
        granted_bytes = int(header["message"])
        raise TooLarge(f"{where}: bytes of memory, at least", granted_bytes + 1, granted_bytes, "LIMIT_READER_BYTES",
                       param="file")  # fmt: skip
    if error == "wrong_password":
        raise WrongPassword
    if error == "password_required":
        raise PasswordRequired
    message = str(header.get("message", ""))
    if header.get("foreign"):  # a parser's own message, which names neither file nor page
        message = f"{where}: it cannot be read: {message}"
    raise UnreadableFile(message, page=page if isinstance(page, int) else None)


def file_info(frame: Frame, kind: FileType, sha256: str) -> FileInfo:
    """The answer to "open"."""
    header = frame.header
    return FileInfo(
        kind=kind.value,
        page_count=int(header["page_count"]),
        sizes=tuple(PageSize(float(width), float(height)) for width, height in header["sizes"]),
        metadata={str(name): str(value) for name, value in header["metadata"].items()},
        sha256=sha256,
    )


def text_layer(frame: Frame) -> TextLayer:
    """The answer to "text_layer", nested into blocks and lines. Raises: BadFrame when its sizes do not match."""
    header, texts = frame.header, frame.header["texts"]
    count = len(texts)
    if len(frame.payload) != count * (_BOX_BYTES + _INDEX_BYTES):
        raise BadFrame(f"{count} words in {len(frame.payload)} bytes")
    boxes = np.frombuffer(frame.payload, np.float32, count * 4).reshape(count, 4)
    lines, blocks = np.frombuffer(frame.payload, np.int32, offset=count * _BOX_BYTES).reshape(2, count).tolist()
    sides = np.round(boxes.astype(np.float64), 2).tolist()  # a hundredth of a point is finer than any printer
    words = [
        (block, line, RawWord(str(text), Box(*box)))
        for text, box, line, block in zip(texts, sides, lines, blocks, strict=True)
    ]
    nested = tuple(
        tuple(tuple(word for *_, word in line) for _, line in groupby(block, key=lambda word: word[1]))
        for _, block in groupby(words, key=lambda word: word[0])
    )
    turn = int(header["turn"])
    width, height = float(header["width"]), float(header["height"])
    if turn % 180:
        width, height = height, width
    return TextLayer(width, height, turn, nested, LayerStats(**header["stats"]))


def raster(frame: Frame, turn: int, resolution: Resolution | None) -> Raster:
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
        why = "the image's own pixels" if scale_x == scale_y == 1 else f"{shape[1]} x {shape[0]} pixels made of its own"
        return Raster(pixels, width, height, scale_x, scale_y, header["dpi"], why, str(header["incomplete"]))
    if turn % 180:
        width, height = height, width
    scale = resolution.dpi / POINTS_PER_INCH
    return Raster(pixels, width, height, scale, scale, resolution.dpi, resolution.why)
