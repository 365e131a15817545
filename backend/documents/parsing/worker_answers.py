"""What workers answer, read into records and errors. A worker is not trusted: what does not fit is not believed."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from backend.documents.pages import POINTS_PER_INCH, Box, Seen
from backend.documents.parsing.file_types import Kind
from backend.documents.parsing.frames import BadFrame, Frame
from backend.documents.parsing.records import FileInfo, LayerStats, PageSize, Raster, TextLayer
from backend.documents.parsing.resolution import Resolution
from backend.errors import PasswordRequired, TooLarge, UnreadableFile, WrongPassword

_SIDES, _NUMBERS = 16, 8  # bytes of a word's box, and of its line and block


def raise_fault(header: dict[str, Any], where: str) -> None:
    """Raise the error that an answer carries; nothing when it carries none.

    Args:
        where: "page 3" or "file", for errors that do not say it themselves.
    """
    fault = header.get("error")
    if fault is None:
        return
    page = header.get("page")
    if fault == "too_large":
        raise TooLarge(header["what"], header["value"], header["limit"], header["setting"], param="file")
    if fault == "memory":
        granted_bytes = int(header["message"])
        raise TooLarge(f"{where}: bytes of memory, at least", granted_bytes + 1, granted_bytes, "LIMIT_READER_BYTES",
                       param="file")  # fmt: skip
    if fault == "wrong_password":
        raise WrongPassword
    if fault == "password_required":
        raise PasswordRequired
    message = str(header.get("message", ""))
    if header.get("foreign"):  # a parser's own words, which name neither file nor page
        message = f"{where}: it cannot be read: {message}"
    raise UnreadableFile(message, page=page if isinstance(page, int) else None)


def file_info(frame: Frame, kind: Kind, sha256: str) -> FileInfo:
    """The facts of an opened file."""
    header = frame.header
    return FileInfo(
        kind=kind.value,
        page_count=int(header["page_count"]),
        sizes=tuple(PageSize(float(width), float(height)) for width, height in header["sizes"]),
        metadata={str(name): str(value) for name, value in header["metadata"].items()},
        sha256=sha256,
    )


def text_layer(frame: Frame) -> TextLayer:
    """A page's words, nested into lines and blocks. Raises: BadFrame when their numbers do not fit together."""
    header, texts = frame.header, frame.header["texts"]
    count = len(texts)
    if len(frame.payload) != count * (_SIDES + _NUMBERS):
        raise BadFrame(f"{count} words in {len(frame.payload)} bytes")
    boxes = np.frombuffer(frame.payload, np.float32, count * 4).reshape(count, 4)
    lines, blocks = np.frombuffer(frame.payload, np.int32, offset=count * _SIDES).reshape(2, count).tolist()
    sides = np.round(boxes.astype(np.float64), 2).tolist()  # a hundredth of a point is finer than any printer
    words = [
        (block, line, Seen(str(text), Box(*box)))
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
    """A page's image.

    Args:
        turn: that was asked for; a PDF's page is answered as a viewer shows it, an image's after the turn.
        resolution: that a PDF's page was drawn with; None for an image.

    Raises:
        BadFrame: its shape does not fit its bytes.
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
