"""OCR of one page: chooses the engines, runs them on the lanes, and turns their result into a page of a document."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.documents.engine_pages import PageRun, RapidOcrPage, TesseractReading
from backend.documents.ocr_engines import OcrEngines, RapidOcrEngines, TesseractInfo, cannot_read, unsupported
from backend.errors import InferenceFailed, InvalidField, Overloaded, Unavailable
from backend.files.pages import POINTS_PER_INCH, Box, Grid, Page, RawWord, Ruling, blocks_of, make_page
from backend.files.records import PlacedPicture, Raster
from backend.files.text_files import ChosenSource
from backend.lanes.backlog import Backlog
from backend.lanes.batcher import Batcher
from backend.lanes.inference import Urgency
from backend.lanes.memory_keeper import IdleTrim
from backend.models.resting_process import Measurement
from backend.ocr.engine_choice import (
    OcrEngineName,
    accept_first,
    choose_result,
    legible_letters,
    reason_for_doubt,
    reason_to_leave,
)
from backend.ocr.records import OcrImage, OcrResult, PixelBox
from backend.ocr.tesseract_words import TesseractResult
from backend.reasons import because

# To be raised when the same engines give other words, another order or other lines: cached pages are then read again.
_READING_VERSION = 7
REST_S = 300.0  # MODEL_KEEP_ALIVE_S goes before it, as for the speech model
_WARM_UP_S = 20.0
_BLANK_LEVELS = 8  # gray levels within which a page is one color
_READING_ERRORS = (Overloaded, InferenceFailed)  # of one engine; the other one may read the page


@dataclass(frozen=True, slots=True)
class _Plan:
    """The engines for a page. With both, RapidOCR runs only where Tesseract's result is in doubt."""

    tesseract: TesseractInfo | None
    rapidocr: RapidOcrEngines | None
    why: str  # why one of them alone


def page_backlog(lanes: Callable[[], int], *, clock: Callable[[], float] = time.monotonic) -> Backlog:
    """Counts pages that are still to be recognised."""
    return Backlog(lanes, of="pages of other documents", clock=clock)


class OcrService:
    """Recognises pages with the engines of this machine. Used on the event loop only.

    Args:
        cpu_lanes: for engines that run on the CPU.
        model_lanes: lanes of the device that models run on; the same object where that is the CPU.
        idle_trim: returns what pages have freed.
        rest_s: without work before RapidOCR's networks leave memory.
    """

    def __init__(
        self,
        engines: OcrEngines,
        cpu_lanes: Batcher,
        model_lanes: Batcher,
        *,
        idle_trim: IdleTrim | None = None,
        rest_s: float = REST_S,
    ) -> None:
        self._engines, self._cpu_lanes = engines, cpu_lanes
        on_device = engines.rapidocr is not None and engines.rapidocr.on_device
        self._rapidocr_lanes = model_lanes if on_device else cpu_lanes
        self._idle_trim = idle_trim or IdleTrim()
        self._pages = 0  # that are being read
        self.backlog = page_backlog(lambda: cpu_lanes.status().lanes_alive)
        if engines.rapidocr is not None:
            self._idle_trim.add(engines.rapidocr.release_memory)
            self._idle_trim.add(engines.rapidocr.unload, rest_s)

    @property
    def engines(self) -> tuple[str, ...]:
        """Names that a request may choose, beside "auto"."""
        return self._engines.names

    @property
    def fingerprint(self) -> str:
        """What a page's words depend on beside the request: part of the keys of cached pages, the same on all replicas.

        The runtime that executes RapidOCR's networks is not: it was chosen because it reads alike.
        """
        versions = sorted((name, engine.version) for name, engine in self._engines.by_name.items())
        return repr((_READING_VERSION, self._engines.default, versions, self._engines.tessdata_digest))

    def report(self) -> dict[str, Any]:
        """The engines with their versions and languages, and what ``auto`` does, for GET /v1/system."""
        engines = self._engines
        return {
            "engine": engines.default,
            "why": engines.why,
            "engines": {
                name: {"version": engine.version, "languages": list(engine.languages)}
                for name, engine in engines.by_name.items()
            },
            "rapidocr_runs_on": engines.rapidocr.why if engines.rapidocr else None,
            "absent": list(engines.absent),
            "tessdata": engines.tessdata_digest,
        }

    async def warm_up(self, languages: Sequence[str]) -> None:
        """Load what reads pages first, on one lane: Tesseract's data, or RapidOCR's networks where they are first.

        The first page on which Tesseract is not sure loads them, as one after ``rest_s`` does.
        """
        engines = self._engines
        loading: list[Coroutine[Any, Any, None]] = []
        is_first = engines.default == "rapidocr" or (engines.default == "auto" and engines.any_tesseract is None)
        if engines.rapidocr is not None and is_first:
            loading.append(asyncio.to_thread(engines.rapidocr.warm_up))
        if engines.tesseract is not None and engines.default in ("auto", "tesseract"):
            bars = np.full((64, 256), 255, np.uint8)
            bars[24:40, 32:224:8] = 0
            image = OcrImage(bars, None, tuple(languages), _WARM_UP_S)
            loading.append(self._warm_lane(image))
        with self._idle_trim.busy():  # the networks leave memory again where no page comes
            await asyncio.gather(*loading, return_exceptions=True)  # a fault shows with the first request, as its error

    def measurements(self) -> Sequence[Measurement]:
        """Of RapidOCR's runtime, where its networks run and are not measured yet."""
        rapidocr = self._engines.rapidocr
        if rapidocr is None or rapidocr.measure is None or self._engines.default not in ("auto", "rapidocr"):
            return ()
        adopt = partial(asyncio.to_thread, rapidocr.adopt)
        return (Measurement(f"RapidOCR, {rapidocr.why}", rapidocr.measure, adopt),)

    async def _warm_lane(self, image: OcrImage) -> None:
        await self.recognize(image, "tesseract")

    async def recognize(
        self, image: OcrImage, engine: OcrEngineName = "auto", urgency: Urgency | None = None
    ) -> OcrResult:
        """The words of a page. Cancelling gives up what still waits for a lane.

        A page whose time is over (``limit_s``) is what was read of it by then, and its ``incomplete`` says so.

        Args:
            engine: "auto" is the setting OCR_ENGINE, and by default a choice page by page (`engine_choice`).

        Raises: InvalidField for an engine or a language that is not here; Overloaded, Unavailable, DeadlineExceeded,
            InferenceFailed for the service.
        """
        plan = self._plan(image.languages, self._engines.default if engine == "auto" else engine)
        run = PageRun(image, urgency or Urgency(), on_device=plan.rapidocr is not None and plan.rapidocr.on_device)
        self._pages += 1
        try:
            with self._idle_trim.busy():
                result = await self._run_plan(plan, run)
                if result.blocks:
                    result = await asyncio.to_thread(_with_rulings, result, image.pixels)
        finally:
            self._pages -= 1
        self.backlog.measured(1, run.lane_s)
        return result

    async def _run_plan(self, plan: _Plan, run: PageRun) -> OcrResult:
        if await asyncio.to_thread(_is_blank, run.image.pixels):
            return OcrResult((), 0, None, "none", because("blank_unread"), ())
        async with AsyncExitStack() as stack:
            tesseract = rapidocr = None
            if plan.tesseract is not None:
                tesseract = TesseractReading(plan.tesseract, self._cpu_lanes, run)
                stack.push_async_callback(tesseract.close)
            if plan.rapidocr is not None:
                rapidocr = RapidOcrPage(plan.rapidocr, self._rapidocr_lanes, run)
                stack.push_async_callback(rapidocr.close)
            if tesseract is not None and rapidocr is not None:
                return await self._read_by_either(tesseract, rapidocr)
            if tesseract is not None:
                await tesseract.prepare()
                result = await tesseract.result(searches=True)
                return replace(result, why=f"{result.why}; {plan.why}")
            assert rapidocr is not None  # a plan has one of them
            return replace(await rapidocr.read(), why=f"{because('rapidocr')}; {plan.why}")

    async def _read_by_either(self, tesseract: TesseractReading, rapidocr: RapidOcrPage) -> OcrResult:
        """Tesseract's result, or RapidOCR's where that of a few lines, or of the whole page, is in doubt."""
        try:
            await tesseract.prepare()
            self._use_free_lanes(tesseract, rapidocr)
            lines, why = await tesseract.first_lines(reason_to_leave)
            if why:
                await tesseract.close()
                return await _read_by_rapidocr(tesseract, rapidocr, lines, why)
            first = await tesseract.result(searches=False)
        except InferenceFailed as error:
            return replace(await rapidocr.read(), why=f"{because('rapidocr')}; {error}")
        doubt = first.incomplete or reason_for_doubt(first)
        if not doubt:
            return accept_first(first)
        try:
            return _better(first, await rapidocr.read(), doubt)
        except _READING_ERRORS as error:  # a doubtful result is better than none
            return replace(first, why=f"{first.why}; {doubt}, {because('rapidocr_failed', error=error)}")

    def _use_free_lanes(self, tesseract: TesseractReading, rapidocr: RapidOcrPage) -> None:
        """Lanes without a page begin with what the page will most likely need after its first lines."""
        if self._pages >= self._cpu_lanes.status().lanes_alive:
            return
        if tesseract.is_cut:  # prose on clean paper
            tesseract.start()
        else:
            rapidocr.start()

    def tesseract_of(self, engine: OcrEngineName) -> OcrEngineName | None:
        """The Tesseract that reads where a request names ``engine``; None where RapidOCR reads alone."""
        name = self._engines.default if engine == "auto" else engine
        if name == "auto":
            name = "tesseract" if self._engines.tesseract is not None else "pytesseract"
        return name if isinstance(self._engines.by_name.get(name), TesseractInfo) else None

    def _plan(self, languages: Sequence[str], engine: OcrEngineName) -> _Plan:
        engines = self._engines
        if not engines.names:
            raise Unavailable(f"no page can be read here: {'; '.join(engines.absent)}")
        if engine == "auto":
            return _automatic(engines, languages)
        chosen = engines.by_name.get(engine)
        if chosen is None:
            known = "; ".join([f"there are {', '.join(('auto', *engines.names))}", *engines.absent])
            raise InvalidField(f"engine: '{engine}' is not here; {known}", param="engine")
        if unknown := unsupported(languages, chosen):
            raise cannot_read(unknown, engine, chosen.languages)
        why = because("engine_asked_for", engine=engine)
        return _Plan(None, chosen, why) if isinstance(chosen, RapidOcrEngines) else _Plan(chosen, None, why)


async def _read_by_rapidocr(
    tesseract: TesseractReading, rapidocr: RapidOcrPage, lines: TesseractResult, why: str
) -> OcrResult:
    """RapidOCR's result, unless it is far behind the few lines that Tesseract has read: then the better of both."""
    try:
        second = await rapidocr.read()
    except _READING_ERRORS as error:
        first = await tesseract.result(searches=True)
        return replace(first, why=f"{first.why}; {why}, {because('rapidocr_failed', error=error)}")
    if legible_letters(second.blocks) >= legible_letters(lines.blocks):
        return replace(second, why=f"{second.why}; {why}")
    return _better(await tesseract.result(searches=True), second, why)


def _better(first: OcrResult, second: OcrResult, why: str) -> OcrResult:
    """The choice of `choose_result`, and of two results where RapidOCR's is not whole the one with more letters."""
    if second.incomplete and legible_letters(first.blocks) > legible_letters(second.blocks):
        return replace(first, why=f"{first.why}; {why}, {because('rapidocr_less', reason=second.incomplete)}")
    return choose_result(first, second, why)


def page_of(raster: Raster, result: OcrResult, number: int, kind: str, chosen: ChosenSource) -> Page:
    """The page of a document that an OCR result makes. Pure.

    Args:
        raster: the image that was recognised; its scale turns pixels into page units.
        result: its boxes are in pixels after its rotation.
        kind: of the file; a PDF's page units are points, an image's its own pixels.
    """
    width, height, scale_x, scale_y = raster.width, raster.height, raster.scale_x, raster.scale_y
    if result.rotation % 180:
        width, height, scale_x, scale_y = height, width, scale_y, scale_x
    blocks = [
        [
            [RawWord(word.text, _page_box(word.box, scale_x, scale_y), word.confidence) for word in line]
            for line in block
        ]
        for block in result.blocks
    ]
    missing = (result.incomplete, raster.incomplete)
    why = "; ".join(reason for reason in (chosen.why, result.why, raster.why, *missing) if reason)
    return make_page(
        blocks,
        number=number,
        width=width,
        height=height,
        units_per_inch=_units_per_inch(raster, kind),
        rotation=result.rotation,
        source="ocr",
        why=why,
        engine=result.engine,
        confidence=result.confidence,
        incomplete=any(missing),
        rulings=[Ruling(x0 / scale_x, y0 / scale_y, x1 / scale_x, y1 / scale_y) for x0, y0, x1, y1 in result.rulings],
    )


def with_pictures(page: Page, pictures: Sequence[tuple[PlacedPicture, Page]]) -> Page:
    """A page that was set, with the words of the pictures on it at their places. Pure.

    Args:
        pictures: in reading order, each with what OCR read of it.
    """
    blocks: list[list[list[RawWord]]] = []
    waiting, added = deque(pictures), 0
    shifts: list[int] = []  # by how many words each of the page's is moved
    for block in [*blocks_of(page), []]:
        while waiting and (not block or waiting[0][0].first <= len(shifts)):
            place, read = waiting.popleft()
            blocks += _on_page(place, read)
            added += len(read.words)
        blocks.append([[RawWord(word.text, word.box, word.confidence) for word in line] for line in block])
        shifts += [added] * sum(map(len, block))
    made = make_page(
        blocks, number=page.number, width=page.width, height=page.height, source=page.source if page.words else "ocr",
        why=page.why, engine=page.engine, rotation=page.rotation, rulings=page.rulings,
    )  # fmt: skip
    return replace(made, grids=page.grids and tuple(_shifted(grid, shifts) for grid in page.grids))


def _on_page(picture: PlacedPicture, read: Page) -> Iterator[list[list[RawWord]]]:
    """The blocks of a picture, in units of the page that it is on; a picture on its side stays so."""
    for block in blocks_of(read):
        yield [[RawWord(word.text, _placed(word.box, picture.box, read), word.confidence) for word in line]
               for line in block]  # fmt: skip


def _placed(box: Box, place: Box, read: Page) -> Box:
    left, top, right, bottom = (
        box.left / read.width,
        box.top / read.height,
        box.right / read.width,
        box.bottom / read.height,
    )
    for _ in range(read.rotation // 90):  # a quarter back, against the clock
        left, top, right, bottom = top, 1 - right, bottom, 1 - left
    return Box(
        place.left + left * place.width, place.top + top * place.height,
        place.left + right * place.width, place.top + bottom * place.height,
    )  # fmt: skip


def _shifted(grid: Grid, shifts: Sequence[int]) -> Grid:
    """The same table with pictures' words before it."""
    cells = [
        cell._replace(first=cell.first + shifts[cell.first], past=cell.past + shifts[cell.first]) for cell in grid.cells
    ]
    return grid._replace(cells=tuple(cells))


def _page_box(box: PixelBox, scale_x: float, scale_y: float) -> Box:
    return Box(box.left / scale_x, box.top / scale_y, box.right / scale_x, box.bottom / scale_y)


def _units_per_inch(raster: Raster, kind: str) -> float:
    if kind == "pdf" or raster.dpi is None:
        return POINTS_PER_INCH
    return float(np.float64(raster.dpi) / max(raster.scale_x, raster.scale_y))


def _automatic(engines: OcrEngines, languages: Sequence[str]) -> _Plan:
    """Tesseract, then RapidOCR for doubtful results; one alone where the other is absent or lacks a language."""
    tesseract, rapidocr = engines.any_tesseract, engines.rapidocr
    why = list(engines.absent)
    if tesseract is not None and (unknown := unsupported(languages, tesseract)):
        tesseract, why = None, [*why, because("tesseract_lacks", languages=unknown)]
    if rapidocr is not None and (unknown := unsupported(languages, rapidocr)):
        rapidocr, why = None, [*why, because("rapidocr_lacks", languages=unknown)]
    if tesseract is None and rapidocr is None:
        raise cannot_read(languages, "the engines together", engines.languages)
    return _Plan(tesseract, rapidocr, "; ".join(why))


def _with_rulings(result: OcrResult, pixels: NDArray[np.uint8]) -> OcrResult:
    """The result with the printed lines of its page."""
    from backend.ocr.image_rulings import find_rulings, rotate_lines  # lazily: they load OpenCV

    height, width_px = pixels.shape[:2]
    return replace(result, rulings=rotate_lines(find_rulings(pixels), result.rotation, width_px, height))


def _is_blank(pixels: NDArray[np.uint8]) -> bool:
    return int(pixels.max(initial=0)) - int(pixels.min(initial=255)) <= _BLANK_LEVELS
