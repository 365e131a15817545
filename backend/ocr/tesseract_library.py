"""Tesseract in this process, through tesserocr: runs on the lane's thread and releases the GIL."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.errors import InferenceFailed, SetupError
from backend.ocr.records import Gray
from backend.ocr.tessdata import Tessdata
from backend.ocr.tesseract_words import TesseractResult, TesseractWord, result_of
from backend.telemetry import log_event

logger = logging.getLogger(__name__)

APIS_A_THREAD = 3  # sets of languages that each lane keeps loaded; Spanish with English takes 54 MB (fast data)
# Then replaced, in case of leaks. Rarely: 200 pages grew by 0.15 KB each, while a replacement in the running service
# left 7 MB of holes in the heap, as 54 MB are freed between other allocations: every 500 pages that was 14 KB a page.
PAGES_AN_API = 10_000
_SILENT = 6  # leptonica's L_SEVERITY_NONE
_starting = threading.Lock()  # Tesseract's parameters are process-wide while an API starts


class TesseractLibrary:
    """A `TesseractBackend` by tesserocr. Each thread has its own APIs, one for each set of languages."""

    def __init__(self, data: Tessdata) -> None:
        """Loads no data yet.

        Raises:
            SetupError: tesserocr cannot be imported here.
        """
        self.data = data
        self._tesserocr = _load()
        self._local = threading.local()

    @property
    def version(self) -> str:
        return str(self._tesserocr.tesseract_version()).split()[1]

    @property
    def why(self) -> str:
        return "in the process"

    def work_clock(self) -> float:
        """The time of this thread on a core: waiting for one is not the page's work."""
        return time.thread_time()

    def recognize(self, gray: Gray, codes: tuple[str, ...], dpi: float, limit_s: float) -> TesseractResult:
        """See `TesseractBackend`. Layout analysis, a fifth of the time, does not check the time limit."""
        ends_s = time.monotonic() + limit_s
        height, width_px = gray.shape
        api = self._api(codes)
        try:
            api.SetImageBytes(gray.tobytes(), width_px, height, 1, width_px)
            api.SetSourceResolution(round(dpi))
            done = api.Recognize(timeout=max(1, round(limit_s * 1000)))
            result = result_of(self._words(api), width_px, height)
            return result._replace(complete=done or time.monotonic() < ends_s)  # it also fails where it finds no block
        except RuntimeError as error:
            self._drop(codes)
            raise InferenceFailed(f"Tesseract failed on this page: {error}") from error
        finally:
            api.Clear()

    def _words(self, api: Any) -> Iterator[TesseractWord]:
        """The recognised words, from the iterator: a third of the time that the TSV takes."""
        levels = self._tesserocr.RIL
        paragraph = line = -1
        words = api.GetIterator()
        if words is None:  # no words
            return
        for word in self._tesserocr.iterate_level(words, levels.WORD):
            if word.Empty(levels.WORD):
                continue
            paragraph += word.IsAtBeginningOf(levels.PARA)
            line += word.IsAtBeginningOf(levels.TEXTLINE)
            box = word.BoundingBox(levels.WORD)
            if box is not None:
                yield TesseractWord(
                    word.GetUTF8Text(levels.WORD), box, word.Confidence(levels.WORD) / 100, paragraph, line
                )

    def _api(self, codes: tuple[str, ...]) -> Any:
        """This thread's API for these languages; a new one after `PAGES_AN_API` pages."""
        apis = self._apis()
        api, pages = apis.pop(codes, (None, 0))
        if api is None or pages >= PAGES_AN_API:
            if api is not None:
                api.End()
            api, pages = self._start(codes), 0
        apis[codes] = (api, pages + 1)
        while len(apis) > APIS_A_THREAD:
            _, (oldest, _) = apis.popitem(last=False)
            oldest.End()
        return api

    def _drop(self, codes: tuple[str, ...]) -> None:
        self._apis().pop(codes, None)

    def _apis(self) -> OrderedDict[tuple[str, ...], tuple[Any, int]]:
        if not hasattr(self._local, "apis"):
            self._local.apis = OrderedDict()
        apis: OrderedDict[tuple[str, ...], tuple[Any, int]] = self._local.apis
        return apis

    def _start(self, codes: tuple[str, ...]) -> Any:
        folder = f"{self.data.folder}/"
        try:
            with _starting:
                return self._tesserocr.PyTessBaseAPI(
                    path=folder, lang="+".join(codes), psm=self._tesserocr.PSM.AUTO, oem=self._tesserocr.OEM.DEFAULT
                )
        except RuntimeError as error:
            message = f"Tesseract cannot load {'+'.join(codes)} from {folder}: {error}; install these data anew"
            raise InferenceFailed(message) from error


def _load() -> Any:
    try:
        import tesserocr  # lazily: has no wheel for Windows, where the program is used
    except ImportError as error:
        raise SetupError(
            f"tesserocr cannot be imported ({error}); it has no wheel for Windows, where the tesseract program can "
            "take its place"
        ) from error
    _silence(Path(tesserocr.__file__).parent)
    return tesserocr


def _silence(package: Path) -> None:
    """Stop Leptonica from writing a line to stderr for every empty box."""
    for path in sorted(package.parent.glob("tesserocr.libs/libleptonica*.so*")):
        try:
            ctypes.CDLL(str(path)).setMsgSeverity(_SILENT)
        except (OSError, AttributeError) as error:
            log_event(logger, logging.DEBUG, "leptonica could not be silenced", error=str(error))
