"""Requests to workers, and their answers as records and errors. A worker is not trusted: answers are validated."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from backend.errors import (
    DeadlineExceeded,
    FinanciaError,
    InferenceFailed,
    NotInstalled,
    PasswordRequired,
    TooLarge,
    Unavailable,
    UnreadableFile,
    WrongPassword,
)
from backend.files.einvoice.records import EInvoice
from backend.files.file_types import FileType
from backend.files.frames import BadFrame, Frame
from backend.files.limits import FileLimits
from backend.files.page_codec import grids_of
from backend.files.pages import POINTS_PER_INCH, Barcode, Box, RawWord, Ruling
from backend.files.records import FileInfo, FilePart, LayerStats, ModelPage, PageSize, PlacedPicture, Raster, TextLayer
from backend.files.resolution import Resolution
from backend.files.speech_records import AudioInfo, AudioSlice
from backend.files.stored_file import StoredFile
from backend.files.worker_pool import WorkerLate, WorkerNotStarted
from backend.reasons import because

_BOX_BYTES, _INDEX_BYTES = 16, 8  # of one word: its box; its line and block
_RULING_BYTES = 16
_CODEC_CHARS, _SENTENCE_CHARS = 40, 500


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


def file_info(frame: Frame, kind: FileType, sha256: str) -> FileInfo:
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


def audio_slice(frame: Frame, start: int, samples: int) -> AudioSlice:
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


def einvoice(frame: Frame) -> EInvoice | None:
    """The answer to "einvoice"."""
    return EInvoice.of(orjson.loads(bytes(frame.payload)))


def barcodes(frame: Frame, *, page: int) -> list[Barcode]:
    """The answer to "barcodes"."""
    return [Barcode(page, str(kind), str(text), Box(*map(float, box))) for kind, text, box in frame.header["codes"]]


def text_layer(frame: Frame) -> TextLayer:
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


def model_page(frame: Frame, size: tuple[int, int]) -> ModelPage:
    """The answer to "model_page", of ``size`` (height, width_px). Raises: BadFrame for another number of bytes."""
    if len(frame.payload) != 3 * size[0] * size[1]:
        raise BadFrame(f"{len(frame.payload)} bytes of a page of {size[0]} x {size[1]} px")
    pixels = np.frombuffer(frame.payload, np.uint8).reshape(*size, 3)
    return ModelPage(pixels, str(frame.header["incomplete"])[:_SENTENCE_CHARS])


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
        is_own = scale_x == scale_y == 1
        why = because("image_pixels") if is_own else because("made_pixels", width=shape[1], height=shape[0])
        return Raster(pixels, width, height, scale_x, scale_y, header["dpi"], why, str(header["incomplete"]))
    if turn % 180:
        width, height = height, width
    scale = resolution.dpi / POINTS_PER_INCH
    return Raster(pixels, width, height, scale, scale, resolution.dpi, resolution.why)
