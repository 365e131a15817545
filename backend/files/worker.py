"""The process that parses untrusted files, started as ``python -m backend.files.worker FD``.

A file may crash it, hang it or use up its memory; the service notices and starts another. A file may also take it over:
it therefore gets an environment without secrets, reads no files but those it is sent, writes none, has no network
(`sandbox`), and has a memory limit. It exits when the service does: a thread waits
for the socket to close, and an alarm ends a call that the service should have ended long before.
"""

from __future__ import annotations

import contextlib
import io
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
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import orjson
import zxingcpp
from numpy.typing import NDArray
from PIL import Image

from backend.errors import BadInput, NotInstalled, PasswordRequired, TooLarge, UnreadableFile, WrongPassword
from backend.files import frames
from backend.files.file_types import IMAGES, FileType
from backend.files.image_file import ImageFile, framed
from backend.files.limits import MAX_OPEN_FILES, MAX_OPEN_STREAMS, WALL_RATIO, FileLimits
from backend.files.page_codec import grid_fields, unpack_document
from backend.files.pages import POINTS_PER_INCH
from backend.files.pdf_file import PdfFile
from backend.files.records import Framing
from backend.files.sandbox import confine
from backend.files.set_pages import SetFile

if TYPE_CHECKING:
    from backend.files.audio_file import AudioFile
    from backend.files.office.container import ContainerFile, PageFile


Sides = tuple[float, float, float, float]


def barcodes(pixels: NDArray[np.uint8], scale: float, formats: str) -> list[tuple[str, str, Sides]]:
    """Kind, content and box (left, top, right, bottom in page units) of each code.

    Args:
        pixels: (height, width) gray.
        scale: pixels per page unit.
        formats: a name of zxing's: a kind, or several together.
    """
    codes = []
    for code in zxingcpp.read_barcodes(pixels, formats=getattr(zxingcpp.BarcodeFormat, formats)):
        corners = [getattr(code.position, name) for name in ("top_left", "top_right", "bottom_left", "bottom_right")]
        across, down = [corner.x / scale for corner in corners], [corner.y / scale for corner in corners]
        codes.append((code.format.name, code.text, (min(across), min(down), max(across), max(down))))
    return codes


_GRACE_S = 30.0  # from the time at which the service kills us, however busy the machine, to our own alarm
_NICENESS = 10  # pages are rendered ahead of OCR; requests for text go first
_OOM_SCORE = Path("/proc/self/oom_score_adj")  # -1000 to 1000; Linux
_STATM = Path("/proc/self/statm")
_DATA_AT_START_BYTES = 256 * 2**20  # where nothing tells it
_LIBRARIES_BYTES = 512 * 2**20  # of address space, for those that are loaded with the first file that needs them
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_DPI_OF_PARTS = 150.0  # of a PDF's page in a searchable PDF of a file of several parts
_PNG_COMPRESSION = 1  # of zlib: a page in 30 ms; the image is shown once, not stored

ReadableFile: TypeAlias = "PdfFile | ImageFile | ContainerFile | AudioFile"
Answer = tuple[dict[str, Any], bytes | memoryview]  # header and payload


class Worker:
    """The open files, by the number that the service gave each, and the calls on them. Main thread only."""

    def __init__(self, statm: int) -> None:
        self._limits = FileLimits()
        self._statm = statm  # descriptor of _STATM, opened before the process was confined; -1: not Linux
        self._files: dict[int, ReadableFile] = {}
        self._sources: dict[int, tuple[mmap.mmap, str | None]] = {}  # each file's bytes and its password
        self._calls: dict[str, Callable[[dict[str, Any], tuple[int, ...]], Answer]] = {
            "set_limits": self._set_limits,
            "open": self._open,
            "einvoice": self._einvoice,
            "text_layer": self._text_layer,
            "barcodes": self._barcodes,
            "render": self._render,
            "render_png": self._render_png,
            "model_page": self._model_page,
            "searchable_pdf": self._searchable_pdf,
            "audio": self._audio,
            "close": self._close,
        }

    def answer(self, frame: frames.Frame) -> Answer:
        """The result of a call, or a header with ``error`` that says what is wrong with the file."""
        limit_s = frame.header.get("limit_s", self._limits.page_s)
        signal.setitimer(signal.ITIMER_REAL, WALL_RATIO * limit_s + _GRACE_S)  # its default action ends the process
        try:
            header, payload = self._calls[frame.header["call"]](frame.header, frame.fds)
        except Exception as error:  # noqa: BLE001  # the border: foreign parsers raise anything, and the file is at fault
            header, payload = _error_header(error, self._limits), b""
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for fd in frame.fds:
                with contextlib.suppress(OSError):
                    os.close(fd)
        header["rss_bytes"] = self._resident_bytes()
        return header, payload

    def _set_limits(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        self._limits = FileLimits(**header["limits"])
        _limit_resources(self._limits, self._statm)
        return {"pid": os.getpid()}, b""

    def _open(self, header: dict[str, Any], fds: tuple[int, ...]) -> Answer:
        data = mmap.mmap(fds[0], 0, access=mmap.ACCESS_READ)
        kind = FileType(header["kind"])
        file = _opened(data, kind, header["password"], self._limits)
        info = file.info()
        self._files[header["file"]], self._sources[header["file"]] = file, (data, header["password"])
        return info, b""

    def _einvoice(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        file = cast("PdfFile | ContainerFile", self._files[header["file"]])
        return {}, orjson.dumps(file.invoice)

    def _text_layer(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        file, page = _page_of(self._files[header["file"]], header["page"])
        assert isinstance(file, PdfFile | SetFile)
        words, stats, size, rulings = file.text_layer(page)
        indexes = np.concatenate([words.lines, words.blocks])
        payload = words.boxes.tobytes() + indexes.tobytes() + rulings.tobytes()
        answer = {
            "texts": words.texts,
            "turn": words.turn,
            "rulings": len(rulings),
            "stats": asdict(stats),
            "width": size.width,
            "height": size.height,
            "grids": grid_fields(file.grids(page)) if isinstance(file, SetFile) else None,
            "pictures": [[one.first, *one.box] for one in file.pictures(page)] if isinstance(file, SetFile) else [],
        }
        return answer, payload

    def _render(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        pixels, answer = self._rendered(header)
        answer["shape"] = pixels.shape
        return answer, pixels.data.cast("B")

    def _rendered(self, header: dict[str, Any]) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        file, page = _page_of(self._files[header["file"]], header["page"])
        if header.get("picture") is not None and isinstance(file, SetFile):
            file, page = file.pictures(page)[header["picture"]].file, 1
        turn = header["turn"]
        color, most_pixels = header["color"], header["most_pixels"]
        if isinstance(file, PdfFile):
            pixels, size = file.render(page, header["dpi"], turn, color=color, most_pixels=most_pixels)
            return pixels, {"width": size.width, "height": size.height}
        answer = file.render(page, turn, color=color, most_pixels=most_pixels)
        return answer.pop("pixels"), answer

    def _barcodes(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        pixels, answer = self._rendered(header)
        scale = header["dpi"] / POINTS_PER_INCH if header["dpi"] else answer["scale_x"]
        return {"codes": barcodes(pixels, scale, header["formats"])}, b""

    def _render_png(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        pixels, _ = self._rendered(header)
        return {}, _png(pixels)

    def _model_page(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        file, number = _page_of(self._files[header["file"]], header["page"])
        incomplete = ""
        if isinstance(file, ImageFile):
            page, incomplete = file.upright(number, header["turn"])
        else:
            page = Image.fromarray(self._rendered(header)[0])
        pixels = framed(page, Framing.of(header["framing"]), self._limits, header["page"])
        return {"incomplete": incomplete}, pixels.data.cast("B")

    def _searchable_pdf(self, header: dict[str, Any], fds: tuple[int, ...]) -> Answer:
        data, password = self._sources[header["file"]]
        packed_document = mmap.mmap(fds[0], 0, access=mmap.ACCESS_READ)
        file = self._files[header["file"]]
        return {}, _searchable_pdf(file, data, password, packed_document[:], self._limits)

    def _audio(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        file = self._files[header["file"]]
        samples, is_last, incomplete = cast("AudioFile", file).slice(header["start"], header["samples"])
        return {"is_last": is_last, "incomplete": incomplete}, samples.data.cast("B")

    def _close(self, header: dict[str, Any], _fds: tuple[int, ...]) -> Answer:
        for number in header["files"]:
            self._sources.pop(number, None)
            if file := self._files.pop(number, None):
                file.close()
        return {}, b""

    def _resident_bytes(self) -> int:
        """Memory of this process alone: the mapped files are the service's."""
        _, resident, shared, *_ = _memory_pages(self._statm)
        return (resident - shared) * _PAGE_BYTES


def _opened(data: mmap.mmap, kind: FileType, password: str | None, limits: FileLimits) -> ReadableFile:
    if kind is FileType.PDF:
        return PdfFile(data, password)
    if kind is FileType.AUDIO:
        return _recording(data, limits)
    if kind in IMAGES:
        return ImageFile(data, kind, limits)
    from backend.files.office.container import open_container  # lxml: 5 MB that PDFs and images never need

    return open_container(data, kind, password, limits)


def _page_of(file: ReadableFile, number: int) -> tuple[PageFile, int]:
    """The file that a page (from 1) is read from, and its number there: those of a container's part."""
    if isinstance(file, PdfFile | ImageFile):
        return file, number
    return cast("ContainerFile", file).at(number)


def _recording(data: mmap.mmap, limits: FileLimits) -> AudioFile:
    try:
        from backend.files.audio_file import AudioFile  # PyAV: 100 MB of an extra, which PDFs never need
    except ImportError as error:
        raise NotInstalled(
            "speech to text is not installed; install it with: pip install 'financia-inference[speech]', "
            f"or make serve without SPEECH=0 ({error})"
        ) from error
    return AudioFile(data, limits)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Pixels (height, width_px) or (height, width_px, 3) as a PNG."""
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "PNG", compress_level=_PNG_COMPRESSION)
    return target.getvalue()


def _searchable_pdf(
    file: ReadableFile, data: mmap.mmap, password: str | None, packed_document: bytes, limits: FileLimits
) -> bytes:
    """The file as a PDF with a text layer.

    Args:
        data: the file's bytes.
        packed_document: the words of its pages, from `page_codec.pack_document`.
    """
    from backend.files.searchable_pdf import searchable_images, searchable_pdf  # few workers are ever asked for one

    document = unpack_document(packed_document)
    if isinstance(file, PdfFile):
        return searchable_pdf(document, data[:], password=password)

    if document.kind == FileType.AUDIO:
        raise UnreadableFile("file: a recording has no pages that a PDF could show")

    def pixels_of(number: int) -> NDArray[np.uint8]:
        part, page = _page_of(file, number)
        if isinstance(part, PdfFile):
            return part.render(page, _DPI_OF_PARTS, 0, color=True, most_pixels=limits.render_pixels)[0]
        pixels: NDArray[np.uint8] = part.render(page, 0, color=True, most_pixels=limits.render_pixels)["pixels"]
        return pixels

    return searchable_images(document, data[:], pixels_of)


def _error_header(error: Exception, limits: FileLimits) -> dict[str, Any]:
    """An error as data, from which `file_readers` makes the service's error."""
    header: dict[str, Any] = {"error": "unreadable", "message": str(error)[:500], "page": None}
    if isinstance(error, TooLarge):
        header |= {"error": "too_large", "what": error.what, "value": error.value, "limit": error.limit}
        header |= {"setting": error.setting, "advice": error.advice}
    elif isinstance(error, WrongPassword):
        header["error"] = "wrong_password"
    elif isinstance(error, PasswordRequired):
        header["error"] = "password_required"
    elif isinstance(error, NotInstalled):
        header["error"] = "not_installed"
    elif isinstance(error, UnreadableFile):
        header["page"] = error.page
    elif isinstance(error, MemoryError):
        header |= {"error": "memory", "message": f"{limits.worker_bytes}"}
    elif isinstance(error, RecursionError):
        header["message"] = "file: what it holds lies in each other too deep"
    elif not isinstance(error, BadInput):
        header["message"] = f"{type(error).__name__}: {error}"[:500]
        header["foreign"] = True
    return header


def _limit_resources(limits: FileLimits, statm: int) -> None:
    """Allow this much memory beyond the current use, no writing of files and no core dumps. POSIX only."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    size, _, _, _, _, data, _ = _memory_pages(statm)
    # RLIMIT_DATA counts private writable memory (Linux 4.7); the files are mapped read-only and do not count
    data_bytes = data * _PAGE_BYTES + limits.worker_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))
    if size:  # shared memory counts here alone, as do the files: each at most once, and one beside them
        mapped_bytes = (MAX_OPEN_FILES + MAX_OPEN_STREAMS + 1) * limits.file_bytes + _LIBRARIES_BYTES
        address_bytes = size * _PAGE_BYTES + limits.worker_bytes + mapped_bytes
        resource.setrlimit(resource.RLIMIT_AS, (address_bytes, address_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _memory_pages(statm: int) -> tuple[int, ...]:
    """The seven numbers of /proc/self/statm."""
    try:
        return tuple(map(int, os.pread(statm, 200, 0).split()))
    except OSError:  # not Linux
        return (0, 0, 0, 0, 0, _DATA_AT_START_BYTES // _PAGE_BYTES, 0)


def _receive_calls(connection: socket.socket, calls: queue.SimpleQueue[frames.Frame]) -> None:
    """Queue incoming calls; exit the process when the socket closes, whatever the main thread is doing."""
    while True:
        try:
            calls.put(frames.receive(connection, max_payload_bytes=0))
        except (EOFError, OSError, frames.BadFrame):
            os._exit(0)


def main(fd: int) -> None:
    """Answer calls until the socket closes."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    with contextlib.suppress(OSError):  # under memory pressure the kernel should kill a worker, not the service
        _OOM_SCORE.write_text("500", encoding="ascii")
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to whole process groups; the service ends us once drained
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    statm = os.open(_STATM, os.O_RDONLY) if _STATM.exists() else -1
    confined = confine()
    connection = socket.socket(fileno=fd)
    frames.enlarge_buffers(connection)
    calls: queue.SimpleQueue[frames.Frame] = queue.SimpleQueue()
    threading.Thread(target=_receive_calls, args=(connection, calls), daemon=True, name="listen").start()
    worker = Worker(statm)
    with contextlib.suppress(OSError):  # the service is gone
        frames.send(connection, {"ready": True, "confined": confined})
        _silence_output()
        while True:
            frames.send(connection, *worker.answer(calls.get()))


def _silence_output() -> None:
    """Discard what libraries print about broken files from now on; errors at start-up were still printed."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)


if __name__ == "__main__":
    main(int(sys.argv[1]))
