"""OCR of one page: chooses the engines, runs its parts on the lanes, and makes a page of a document of the result."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from backend.abandoned import end_tasks
from backend.documents.ocr_engines import OcrEngines, RapidOcrEngines, TesseractInfo, cannot_read, unsupported
from backend.errors import InferenceFailed, InvalidField, Overloaded, Unavailable
from backend.files.pages import POINTS_PER_INCH, Box, Grid, Page, RawWord, Ruling, blocks_of, make_page
from backend.files.records import PlacedPicture, Raster
from backend.files.text_files import ChosenSource
from backend.lanes.backlog import Backlog
from backend.lanes.batcher import Batcher
from backend.lanes.engine import Engine
from backend.lanes.inference import Urgency, retry_bulk, run_one
from backend.lanes.memory_keeper import IdleTrim
from backend.lanes.work_queue import WorkItem, portions
from backend.models.resting_process import Measurement
from backend.ocr.engine_choice import (
    OcrEngineName,
    accept_first,
    choose_result,
    legible_letters,
    reason_for_doubt,
    reason_to_leave,
)
from backend.ocr.page_time import PageBudget, time_is_over
from backend.ocr.rapidocr_engines import DetectedPage, RecognizedLine, bucket_px, page_confidence, words_on_page
from backend.ocr.records import OcrImage, OcrResult, PixelBox
from backend.ocr.tesseract import TesseractPage, TesseractPart
from backend.ocr.tesseract_words import TesseractResult, confidence_of, without_edge_words
from backend.ocr.text_boxes import Crop
from backend.reasons import because

_PIXELS_A_TOKEN = 256  # a page then weighs in the queue what texts of the same time on a lane do


@dataclass(slots=True)
class PageRun:
    """One page that is read: how urgent it is, and what it has cost."""

    image: OcrImage
    urgency: Urgency
    on_device: bool = False  # RapidOCR runs on a device: its lanes wait while that works, which is what counts
    lane_s: float = 0.0  # all lanes and engines together

    def spend(self, item: WorkItem, budget: PageBudget) -> bool:
        """Count an item that has ended; True when nothing is left of the budget."""
        budget.spend(item.lane_s if self.on_device else item.work_s)
        return budget.left_s <= 0

    async def alone(self, lanes: Batcher, engine: Engine, payload: Any, cost: int) -> Any:
        """The result of one payload."""
        return await run_one(lanes, engine, payload, cost, self.urgency, ended=self._count)

    def _count(self, item: WorkItem) -> None:
        self.lane_s += item.lane_s


def page_cost(pixels: NDArray[np.uint8]) -> int:
    """Tokens that a page or a part of it counts in the queue."""
    height, width_px = pixels.shape[:2]
    return max(1, int(height * width_px) // _PIXELS_A_TOKEN)


async def run_within(
    budget: PageBudget, lanes: Batcher, engine: Engine, payloads: Sequence[Any], *, costs: Sequence[int], run: PageRun
) -> list[Any]:
    """The results in order, up to the one with which the budget is spent; those after it are given up.

    They go in portions that the queue can hold: none of them is refused for its neighbours.
    """
    results: list[Any] = []
    for part in portions(costs, lanes.bulk_tokens):
        if budget.left_s > 0:
            submit = partial(lanes.submit, engine, payloads[part], costs[part])
            results += await retry_bulk(run.urgency, partial(_results, submit, run, budget))
    return results


async def _results(submit: Callable[..., list[WorkItem]], page: PageRun, budget: PageBudget) -> list[Any]:
    """The results in order, up to the budget."""
    items = submit(priority=page.urgency.priority, deadline_s=page.urgency.deadline_s)
    values: list[Any] = []
    try:
        for item in items:
            values.append(await item.future)
            if page.spend(item, budget):
                break
    finally:
        page.lane_s += sum(item.lane_s for item in items)
        for item in items:
            item.abandon()  # when one fails or the caller leaves, those that still wait are dropped
    return values


Doubt = Callable[[TesseractResult, float], str]
_Task = asyncio.Task[TesseractResult]


class TesseractReading:
    """One page that Tesseract reads. Its result does not depend on which parts ran when, or on which lane.

    ``close`` gives up what still runs.
    """

    def __init__(self, info: TesseractInfo, lanes: Batcher, run: PageRun) -> None:
        self._info, self._lanes, self._run = info, lanes, run
        self._page: TesseractPage | None = None
        self._parts: dict[int, _Task] = {}

    async def prepare(self) -> None:
        """Make the page ready; comes before everything else."""
        self._page = await self._prepared(searches=False)

    @property
    def is_cut(self) -> bool:
        """Whether several lanes can read it."""
        return len(self._ready.parts) > 1

    def start(self) -> None:
        """Begin to read all parts, those first that tell most about the page. They wait for lanes in this order."""
        page = self._ready
        self._start([page.probe, *range(len(page.parts))] if page.parts else [])

    async def first_lines(self, doubt: Doubt) -> tuple[TesseractResult, str]:
        """What was read until ``doubt`` gave a reason to stop, and the reason; "" when it never did.

        Args:
            doubt: asked after each part with what was read so far and its share of the page's ink.
        """
        page = self._ready
        if page.sample is not None:
            height, width_px = page.sample.gray.shape
            lines = without_edge_words(await self._read(page.sample), width_px, height)
            return lines, doubt(lines, page.sample_share)
        lines, share = TesseractResult((), None), 0.0
        if self.is_cut:
            for index in (page.probe, *(index for index in range(len(page.parts)) if index != page.probe)):
                self._start([index])
                result = await self._parts[index]
                blocks = (*lines.blocks, *result.blocks)
                lines, share = TesseractResult(blocks, confidence_of(blocks)), share + page.strips[index].ink_share
                if blocks and (why := doubt(lines, share)):  # a part may be a picture
                    return lines, why
                self.start()
        return lines, ""

    async def result(self, *, searches: bool) -> OcrResult:
        """The whole page.

        Args:
            searches: a page that is badly recognised is tried in other directions.
        """
        page = self._ready
        self.start()
        result = page.joined([await self._parts[index] for index in range(len(page.parts))])
        if searches and page.upright.may_be_rotated(result.confidence) and not page.upright.rotation:
            turned = await self._prepared(searches=True)
            if turned.upright.rotation:
                self._page, self._parts = turned, {}
                return await self.result(searches=False)
        return self._ocr_result(page, result)

    async def close(self) -> None:
        """Give up the parts that are not read yet; ``result`` would read them again."""
        tasks, self._parts = self._parts, {}
        self._parts = {index: task for index, task in tasks.items() if task.done() and not task.cancelled()}
        await end_tasks(*tasks.values())

    def _start(self, parts: Sequence[int]) -> None:
        for index in parts:
            if index not in self._parts:
                self._parts[index] = asyncio.create_task(self._read(self._ready.parts[index]))

    @property
    def _ready(self) -> TesseractPage:
        assert self._page is not None  # prepare() comes first
        return self._page

    async def _prepared(self, *, searches: bool) -> TesseractPage:
        engine = self._info.search if searches else self._info.prepare
        image = self._run.image
        return cast("TesseractPage", await self._run.alone(self._lanes, engine, image, page_cost(image.pixels)))

    async def _read(self, part: TesseractPart) -> TesseractResult:
        result = await self._run.alone(self._lanes, self._info.read, part, page_cost(part.gray))
        return cast("TesseractResult", result)

    def _ocr_result(self, page: TesseractPage, result: TesseractResult) -> OcrResult:
        steps = page.upright.steps
        return OcrResult(
            blocks=result.blocks,
            rotation=page.upright.rotation,
            confidence=result.confidence,
            engine=self._info.version,
            why=_why(self._info.where, steps, result.confidence),
            steps=steps,
            incomplete="" if result.complete else time_is_over(self._run.image.limit_s),
        )


def _why(where: str, steps: Sequence[str], confidence: float | None) -> str:
    if confidence is None:
        return because("tesseract_no_words", where=where)
    return because("tesseract_after", where=where, steps=steps) if steps else because("tesseract", where=where)


# Times LIMIT_PAGE_S that its work may take: it takes two to three times as long as Tesseract, and a book page took 21 s
# on a slow machine. It leaves its lane to others after each few lines.
_WORK_RATIO = 3.0


class RapidOcrPage:
    """One page that RapidOCR reads.

    Args:
        lanes: of the CPU, or of the device where its sessions run.
    """

    def __init__(self, engines: RapidOcrEngines, lanes: Batcher, run: PageRun) -> None:
        self._engines, self._lanes, self._run = engines, lanes, run
        self._budget = PageBudget(_WORK_RATIO * run.image.limit_s)
        self._detection: asyncio.Task[DetectedPage] | None = None

    def start(self) -> None:
        """Begin to look for its lines, where a lane is free and `read` is likely."""
        self._detection = asyncio.create_task(self._detect())

    async def read(self) -> OcrResult:
        """Its words; those of the upper lines where its time is over before the last one."""
        return await self._recognize(await (self._detection or self._detect()))

    async def close(self) -> None:
        """Give up what was started."""
        await end_tasks(self._detection)

    async def _detect(self) -> DetectedPage:
        pixels = self._run.image.pixels
        costs = [page_cost(pixels)]
        detect = self._engines.detect
        [page] = await run_within(self._budget, self._lanes, detect, [pixels], costs=costs, run=self._run)
        return cast("DetectedPage", page)

    async def _recognize(self, page: DetectedPage) -> OcrResult:
        lines = sorted(page.lines, key=_top)
        crops = [line.pixels for line in lines]
        costs = [bucket_px(crop.shape[1]) for crop in crops]
        recognizer = self._engines.recognizer(self._run.image.languages)
        recognized: list[RecognizedLine] = await run_within(
            self._budget, self._lanes, recognizer, crops, costs=costs, run=self._run
        )
        blocks = await asyncio.to_thread(words_on_page, lines[: len(recognized)], recognized)
        return OcrResult(
            blocks=blocks,
            rotation=page.rotation,
            confidence=page_confidence(recognized),
            engine=self._engines.version,
            why=because("rapidocr"),
            steps=(f"turn {page.rotation}°",) if page.rotation else (),
            incomplete=time_is_over(self._budget.limit_s) if len(recognized) < len(lines) else "",
        )


def _top(crop: Crop) -> float:
    return float(crop.line.quad[:, 1].min())


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
        loading: list[Coroutine[Any, Any, Any]] = []
        is_first = engines.default == "rapidocr" or (engines.default == "auto" and engines.any_tesseract is None)
        if engines.rapidocr is not None and is_first:
            loading.append(asyncio.to_thread(engines.rapidocr.warm_up))
        if engines.tesseract is not None and engines.default in ("auto", "tesseract"):
            bars = np.full((64, 256), 255, np.uint8)
            bars[24:40, 32:224:8] = 0
            image = OcrImage(bars, None, tuple(languages), _WARM_UP_S)
            loading.append(self.recognize(image, "tesseract"))
        with self._idle_trim.busy():  # the networks leave memory again where no page comes
            await asyncio.gather(*loading, return_exceptions=True)  # a fault shows with the first request, as its error

    def measurements(self) -> Sequence[Measurement]:
        """Of RapidOCR's runtime, where its networks run and are not measured yet."""
        rapidocr = self._engines.rapidocr
        if rapidocr is None or rapidocr.measure is None or self._engines.default not in ("auto", "rapidocr"):
            return ()
        adopt = partial(asyncio.to_thread, rapidocr.adopt)
        return (Measurement(f"RapidOCR, {rapidocr.why}", rapidocr.measure, adopt),)

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
    left, top = box.left / read.width, box.top / read.height
    right, bottom = box.right / read.width, box.bottom / read.height
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
