"""Tesseract as engines of the lanes: one makes a page ready and cuts it into parts, one recognises parts.

In this process through tesserocr, on the lane's thread, which releases the GIL; else as a program.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backend.errors import InferenceFailed, InvalidField, SetupError
from backend.lanes.engine import BatchLimits, UnlimitedBatches
from backend.ocr.page_time import LaneShares, PageBudget
from backend.ocr.records import PREPARE, PROGRAM, TESSERACT, Gray, OcrImage, OcrWord
from backend.ocr.tessdata import TESSERACT_CODES, Tessdata
from backend.ocr.tesseract_words import TesseractBackend, TesseractResult, TesseractWord, confidence_of, result_of
from backend.telemetry import log_event

if TYPE_CHECKING:
    from backend.ocr.orientation import UprightPage
    from backend.ocr.preprocessing import Strip

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
        self._tesserocr = _load_library()
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


def _load_library() -> Any:
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


_MARGIN_PX = 10  # of white at a cut; Tesseract loses letters that touch the border of their image
_WORD = "5"  # the level of a row of TSV that is a word
_COLUMNS = 12
_VERSION_TIMEOUT_S = 10.0
# Environment variables that the program needs.
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


@dataclass(frozen=True, slots=True)
class TesseractPart:
    """Rows of a page, made ready: the payload of `TesseractEngine`."""

    gray: Gray  # dark ink on light paper
    codes: tuple[str, ...]  # Tesseract's names of its languages
    dpi: float
    budget: PageBudget  # of the page


@dataclass(frozen=True, slots=True)
class TesseractPage:
    """A page that was made ready for Tesseract."""

    upright: UprightPage
    strips: tuple[Strip, ...]  # from the top; none for a page without print
    parts: tuple[TesseractPart, ...]  # of each strip
    sample: TesseractPart | None = None  # its densest lines, where it has one strip and is much larger
    sample_share: float = 0.0  # of the page's ink that is in them

    @property
    def probe(self) -> int:
        """Which part shows whether Tesseract can read the page: one of its middle, where its text is."""
        return len(self.parts) // 2

    def joined(self, results: Sequence[TesseractResult]) -> TesseractResult:
        """The result of the page, with boxes on the upright page.

        Args:
            results: of each part.
        """
        blocks: list[tuple[tuple[OcrWord, ...], ...]] = []
        for strip, result in zip(self.strips, results, strict=True):
            more = list(self.upright.words_on_page(result.blocks, strip.top - _margin_above(strip)))
            if strip.continues and blocks and more:
                more[0] = (*blocks.pop(), *more[0])
            blocks += more
        complete = all(result.complete for result in results)
        return TesseractResult(tuple(blocks), confidence_of(tuple(blocks)), complete)


def rows_of(gray: Gray, strip: Strip) -> Gray:
    """The rows of a strip; at a cut its last row, which has no ink, is repeated as a margin."""
    rows = gray[strip.top : strip.bottom]
    margins = (_margin_above(strip), _MARGIN_PX if strip.bottom < len(gray) else 0)
    return np.pad(rows, (margins, (0, 0)), mode="edge") if any(margins) else rows


def _margin_above(strip: Strip) -> int:
    return _MARGIN_PX if strip.top else 0


DEFAULT_DPI = 200.0  # of images without a resolution; Tesseract uses it for its layout analysis only


@dataclass(frozen=True, slots=True)
class TesseractEngine:
    """An `Engine`: TesseractPart -> TesseractResult, one part a batch. All lanes may run it at once."""

    backend: TesseractBackend
    shares: LaneShares = field(default_factory=LaneShares, compare=False)
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)
    name: str = TESSERACT
    budget: int = 1  # one part a batch: parts share no arithmetic
    padding_cost: float = 1.0
    launch_cost: int = 0

    @property
    def version(self) -> str:
        """Name and version: "tesseract 5.5.4"."""
        return f"tesseract {self.backend.version}"

    def on(self, device_index: int) -> TesseractEngine:  # noqa: ARG002 - the protocol's arguments
        """The same engine: it runs on the CPU, whatever the device of the lane."""
        return self

    def prepare(self, payloads: Sequence[TesseractPart]) -> Sequence[TesseractPart]:
        """The parts as they are: `PreparationEngine` has prepared them."""
        return payloads

    def forward(self, prepared: Sequence[TesseractPart]) -> list[TesseractResult]:
        return [self.recognize(part) for part in prepared]

    def finish(self, output: list[TesseractResult]) -> list[TesseractResult]:
        """The results as they are: nothing is left to do."""
        return output

    def recognize(self, part: TesseractPart) -> TesseractResult:
        """The words of a part, or those so far when the budget of its page is spent.

        Tesseract knows the clock only. Where it was stopped while a busy machine gave it too little of a core, it is
        started again with the time that such a share needs.
        """
        part_time = self.shares.begin(part.budget, self.backend.work_clock)
        result = TesseractResult((), None, complete=False)
        try:
            while not result.complete and (timeout_s := part_time.timeout_s()) > 0:
                result = self.backend.recognize(part.gray, part.codes, part.dpi, timeout_s)
        finally:
            self.shares.end(part_time)
        return result


@dataclass(frozen=True, slots=True)
class PreparationEngine:
    """An `Engine`: OcrImage -> TesseractPage, one page a batch: turned upright, preprocessed and cut into parts.

    Args:
        reader: recognises samples of a page that may lie on its side.
        searches: in every direction, for pages that were badly recognised; otherwise only where lines run down.
    """

    reader: TesseractEngine
    data: Tessdata
    searches: bool = False
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)
    name: str = PREPARE
    budget: int = 1
    padding_cost: float = 1.0
    launch_cost: int = 0

    def on(self, device_index: int) -> PreparationEngine:  # noqa: ARG002 - the protocol's arguments
        return self

    def prepare(self, payloads: Sequence[OcrImage]) -> list[tuple[OcrImage, tuple[str, ...]]]:
        """The pages, and Tesseract's names of their languages.

        Raises:
            InvalidField: a language without data.
        """
        return [(image, self.codes_of(image.languages)) for image in payloads]

    def forward(self, prepared: list[tuple[OcrImage, tuple[str, ...]]]) -> list[TesseractPage]:
        return [self._page(image, codes) for image, codes in prepared]

    def finish(self, output: list[TesseractPage]) -> list[TesseractPage]:
        return output

    def codes_of(self, languages: Sequence[str]) -> tuple[str, ...]:
        """Tesseract's names of languages.

        Raises:
            InvalidField: one without data, or no language at all.
        """
        codes = tuple(dict.fromkeys(code for language in languages if (code := TESSERACT_CODES.get(language))))
        missing = [language for language in languages if TESSERACT_CODES.get(language) not in self.data.codes]
        if missing or not codes:
            raise InvalidField(
                f"language: Tesseract has no data for '{','.join(missing)}' in {self.data.folder}, only for "
                f"{', '.join(self.data.languages)}; install tesseract-ocr-<language> and start again, or ask "
                "for another language or engine",
                param="language",
            )
        return codes

    def _page(self, image: OcrImage, codes: tuple[str, ...]) -> TesseractPage:
        from backend.ocr.orientation import densest_lines, turn_upright  # lazily: they load OpenCV
        from backend.ocr.preprocessing import cut_into_strips

        budget = PageBudget(image.limit_s, deadline_s=image.deadline_s)

        def recognize(gray: Gray, dpi: float) -> TesseractResult:
            return self.reader.recognize(TesseractPart(gray, codes, dpi, budget))

        page = turn_upright(image.pixels, image.dpi or DEFAULT_DPI, recognize, search=self.searches)
        if page.gray is None:
            return TesseractPage(page, (), ())
        strips = cut_into_strips(page.gray, page.glyph_height)
        parts = tuple(TesseractPart(rows_of(page.gray, strip), codes, page.dpi, budget) for strip in strips)
        lines = densest_lines(page) if len(strips) == 1 else None
        if lines is None:
            return TesseractPage(page, strips, parts)
        return TesseractPage(page, strips, parts, TesseractPart(lines[0], codes, page.dpi, budget), lines[1])


def start_tesseract(data: Tessdata) -> TesseractEngine:
    """Tesseract in the process.

    Raises:
        SetupError: tesserocr is absent.
    """
    return TesseractEngine(TesseractLibrary(data))


def start_tesseract_program(data: Tessdata) -> TesseractEngine:
    """Tesseract as a program.

    Raises:
        SetupError: the program or pytesseract is absent.
    """
    return TesseractEngine(TesseractProgram(data), name=PROGRAM)


class TesseractProgram:
    """A `TesseractBackend` that starts the ``tesseract`` program for each page, and kills it at the time limit."""

    def __init__(self, data: Tessdata, program: str = "tesseract") -> None:
        """Check the version of the program.

        Raises:
            SetupError: pytesseract or the program is absent.
        """
        self.data = data
        self._version = _version_of(program)
        self._pytesseract = _load(program)

    @property
    def version(self) -> str:
        return self._version

    @property
    def why(self) -> str:
        return "as a program"

    def work_clock(self) -> float:
        """The time of ended programs on cores, of other pages too: never less than what this page has cost."""
        if sys.platform == "win32":  # tells nothing about programs that have ended
            return time.monotonic()
        times = os.times()
        return times.children_user + times.children_system

    def recognize(self, gray: Gray, codes: tuple[str, ...], dpi: float, limit_s: float) -> TesseractResult:
        height, width_px = gray.shape
        with tempfile.TemporaryDirectory(prefix="ocr-") as folder:
            page = Path(folder) / "page.pgm"  # raw pixels: no time for a PNG
            page.write_bytes(b"P5 %d %d 255\n" % (width_px, height) + gray.tobytes())
            table = self._table(page, codes, dpi, limit_s)
        return result_of(_words(table or ""), width_px, height)._replace(complete=table is not None)

    def _table(self, page: Path, codes: tuple[str, ...], dpi: float, limit_s: float) -> str | None:
        """Its output; None when its time was over."""
        config = f'--dpi {round(dpi)} --psm 3 --tessdata-dir "{self.data.folder.as_posix()}"'
        try:
            return str(self._pytesseract.image_to_data(str(page), lang="+".join(codes), config=config, timeout=limit_s))
        except self._pytesseract.TesseractError as error:
            raise InferenceFailed(f"Tesseract failed on this page: {str(error.message)[:300]}") from error
        except RuntimeError:  # of pytesseract, after it has killed the program
            return None


def _words(table: str) -> Iterator[TesseractWord]:
    """The rows of words: level, page, block, paragraph, line, word, left, top, width, height, confidence, text."""
    paragraph = line = -1
    previous = ("", "")
    for row in table.splitlines():
        cells = row.split("\t")
        if cells[0] != _WORD or len(cells) < _COLUMNS:
            continue
        ids = ("/".join(cells[2:4]), "/".join(cells[2:5]))
        paragraph += ids[0] != previous[0]
        line += ids[1] != previous[1]
        previous = ids
        left, top, width_px, height = (int(cell) for cell in cells[6:10])
        box = (left, top, left + width_px, top + height)
        yield TesseractWord(cells[11], box, float(cells[10]) / 100, paragraph, line)


def _version_of(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise SetupError(f"the program '{program}' is not on this machine (install tesseract-ocr)")
    try:
        answer = subprocess.run(  # noqa: S603 - a program of this machine, found by name
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=True,
            errors="replace",
        )
        return (answer.stdout or answer.stderr).split()[1].removeprefix("v")
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise SetupError(f"the program '{path}' does not say its version: {error}") from error


def _load(program: str) -> Any:
    try:
        import pytesseract  # lazily: only where the library is absent or the setting asks for it
    except ImportError as error:
        raise SetupError(f"pytesseract cannot be imported ({error}); install it") from error
    inner = pytesseract.pytesseract
    inner.tesseract_cmd = program
    # What the program inherits: no secrets of this service. One thread a page: OpenMP's four would take other lanes'
    # cores for 8 % less time. Set for the program only, as torch uses OpenMP in this process.
    inherited = {name: inner.environ[name] for name in _INHERITED if name in inner.environ}
    inner.environ = {**inherited, "OMP_THREAD_LIMIT": "1"}
    return pytesseract
