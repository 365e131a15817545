"""Tesseract in this process: one recognition a page, on the lane's own thread, without the interpreter's lock."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.engines.ocr.records import Gray
from backend.engines.ocr.tessdata import Tessdata
from backend.engines.ocr.tesseract_words import Found, Reading, reading_of
from backend.errors import InferenceFailed, SetupError
from backend.telemetry import log_event

logger = logging.getLogger(__name__)

_SETS_A_THREAD = 3  # of languages kept loaded by each lane; Spanish with English takes 54 MB with the fast data
_PAGES_A_READER = 500  # then it is made anew: 120 like pages leaked nothing, others might, and it costs one page's time
_SILENT = 6  # leptonica's L_SEVERITY_NONE
_starting = threading.Lock()  # its parameters are global to the process while one is being made


class LibraryReader:
    """tesserocr, each thread with its own readers by languages, which no other thread ever touches."""

    def __init__(self, data: Tessdata) -> None:
        """Load nothing yet.

        Raises:
            SetupError: tesserocr cannot be imported here.
        """
        self._data = data
        self._tesserocr = _load()
        self._mine = threading.local()

    @property
    def version(self) -> str:
        return str(self._tesserocr.tesseract_version()).split()[1]

    @property
    def why(self) -> str:
        return "in the process"

    def read(self, gray: Gray, codes: tuple[str, ...], dpi: float, limit_s: float) -> Reading:
        """See `TesseractReader`. Layout analysis, a fifth of the time, does not look at the clock."""
        height, width_px = gray.shape
        api = self._reader(codes)
        try:
            api.SetImageBytes(gray.tobytes(), width_px, height, 1, width_px)
            api.SetSourceResolution(round(dpi))
            if not api.Recognize(timeout=max(1, round(limit_s * 1000))):
                raise TimeoutError
            return reading_of(self._words(api), width_px, height)
        except RuntimeError as error:
            self._forget(codes)
            raise InferenceFailed(f"Tesseract failed on this page: {error}") from error
        finally:
            api.Clear()

    def _words(self, api: Any) -> Iterator[Found]:
        """What was recognised, word by word: a third of the time that its TSV takes, with nothing to parse."""
        levels = self._tesserocr.RIL
        paragraph = line = -1
        words = api.GetIterator()
        if words is None:  # nothing was found
            return
        for word in self._tesserocr.iterate_level(words, levels.WORD):
            if word.Empty(levels.WORD):
                continue
            paragraph += word.IsAtBeginningOf(levels.PARA)
            line += word.IsAtBeginningOf(levels.TEXTLINE)
            box = word.BoundingBox(levels.WORD)
            if box is not None:
                yield Found(word.GetUTF8Text(levels.WORD), box, word.Confidence(levels.WORD) / 100, paragraph, line)

    def _reader(self, codes: tuple[str, ...]) -> Any:
        """This thread's reader of these languages; made anew when it has read its pages."""
        readers = self._readers()
        api, pages = readers.pop(codes, (None, 0))
        if api is None or pages >= _PAGES_A_READER:
            if api is not None:
                api.End()
            api, pages = self._start(codes), 0
        readers[codes] = (api, pages + 1)
        while len(readers) > _SETS_A_THREAD:
            _, (oldest, _) = readers.popitem(last=False)
            oldest.End()
        return api

    def _forget(self, codes: tuple[str, ...]) -> None:
        self._readers().pop(codes, None)

    def _readers(self) -> OrderedDict[tuple[str, ...], tuple[Any, int]]:
        if not hasattr(self._mine, "readers"):
            self._mine.readers = OrderedDict()
        readers: OrderedDict[tuple[str, ...], tuple[Any, int]] = self._mine.readers
        return readers

    def _start(self, codes: tuple[str, ...]) -> Any:
        folder = f"{self._data.folder}/"
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
        import tesserocr  # has no wheel for Windows, where the program serves
    except ImportError as error:
        raise SetupError(
            f"tesserocr cannot be imported ({error}); install it, or use the tesseract program (OCR_ENGINE=pytesseract)"
        ) from error
    _silence(Path(tesserocr.__file__).parent)
    return tesserocr


def _silence(package: Path) -> None:
    """Leptonica writes a line to stderr for every empty box it meets; a server's log has no use for them."""
    for path in sorted(package.parent.glob("tesserocr.libs/libleptonica*.so*")):
        try:
            ctypes.CDLL(str(path)).setMsgSeverity(_SILENT)
        except (OSError, AttributeError) as error:
            log_event(logger, logging.DEBUG, "leptonica could not be silenced", error=str(error))
