"""OCR of one page: chooses the engines, runs them on the lanes, and turns their result into a page of a document."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from backend.batching.batcher import Batcher
from backend.batching.policy import portions
from backend.batching.work_item import WorkItem
from backend.documents.pages import POINTS_PER_INCH, Box, Page, RawWord, make_page
from backend.documents.parsing.records import Raster
from backend.documents.parsing.text_source import ChosenSource
from backend.engines.engine import Engine
from backend.engines.ocr.ctc_words import RecognizedLine, page_confidence
from backend.engines.ocr.engine_choice import OcrEngineName, accept_first, choose_result, reason_for_doubt
from backend.engines.ocr.page_time import too_long
from backend.engines.ocr.rapidocr_detector import DetectedPage
from backend.engines.ocr.rapidocr_recognizer import bucket_px, words_on_page
from backend.engines.ocr.records import OcrImage, OcrResult, PixelBox
from backend.errors import InferenceFailed, InvalidField, Overloaded, TooLarge, Unavailable
from backend.services.bulk_retry import retry_bulk
from backend.services.documents.ocr_backlog import OcrBacklog
from backend.services.documents.ocr_engines import OcrEngines, RapidOcrEngines, TesseractInfo, cannot_read, unsupported
from backend.services.idle_trim import IdleTrim
from backend.services.inference import Urgency

_PIXELS_A_TOKEN = 256  # a page then weighs in the queue what texts of the same time on a lane do
_LINES_AT_ONCE = 64  # of a page; its time limit is checked between them
_WARM_UP_S = 20.0
_BLANK_LEVELS = 8  # gray levels within which a page is one color


@dataclass(slots=True)
class _LaneTime:
    """Seconds of work that a page has cost, against its limit.

    Lanes that run its lines in parallel count once; waiting for a core, and lines of other pages, do not.
    """

    limit_s: float
    on_device: bool  # then the lane's thread waits while the device works
    seconds: float = 0.0

    def add(self, items: Sequence[WorkItem]) -> None:
        """Count items that ran in parallel. Raises: TooLarge when the limit has passed."""
        passed_s = max(item.finished_s for item in items) - min(item.started_s for item in items)
        worked_s = sum(item.lane_s if self.on_device else item.work_s for item in items)
        self.seconds += min(passed_s, worked_s)
        if self.seconds > self.limit_s:
            raise too_long(
                self.seconds, self.limit_s, "Send the page at a lower resolution, or ask for engine=tesseract"
            )


@dataclass(slots=True)
class _PageRun:
    """How urgent a page is, and what it has cost."""

    urgency: Urgency
    lane_s: float = 0.0  # all lanes and engines together


@dataclass(frozen=True, slots=True)
class _Plan:
    """The engines for a page. With both, RapidOCR runs only where Tesseract's result is in doubt."""

    tesseract: TesseractInfo | None
    rapidocr: RapidOcrEngines | None
    why: str  # why one of them alone


class OcrService:
    """Recognises pages with the engines of this machine. Used on the event loop only.

    Args:
        cpu_lanes: for engines that run on the CPU.
        model_lanes: lanes of the device that models run on; the same object where that is the CPU.
        idle_trim: returns what pages have freed.
    """

    def __init__(
        self, engines: OcrEngines, cpu_lanes: Batcher, model_lanes: Batcher, *, idle_trim: IdleTrim | None = None
    ) -> None:
        self._engines, self._cpu_lanes = engines, cpu_lanes
        on_device = engines.rapidocr is not None and engines.rapidocr.on_device
        self._rapidocr_lanes = model_lanes if on_device else cpu_lanes
        self._idle_trim = idle_trim or IdleTrim()
        self.backlog = OcrBacklog(lambda: cpu_lanes.status().lanes_alive)
        if engines.rapidocr is not None:
            self._idle_trim.add(engines.rapidocr.release_memory)

    @property
    def engines(self) -> tuple[str, ...]:
        """Names that a request may choose, beside "auto"."""
        return self._engines.names

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

    async def warm_up(self, lanes: int, languages: Sequence[str]) -> None:
        """Load Tesseract's data on every lane: half a second that the first pages need not wait for.

        RapidOCR's networks are not loaded: they take 0.7 GB, and many services never need them.
        """
        if self._engines.tesseract is None or self._engines.default not in ("auto", "tesseract"):
            return
        bars = np.full((64, 256), 255, np.uint8)
        bars[24:40, 32:224:8] = 0
        image = OcrImage(bars, None, tuple(languages), _WARM_UP_S)
        pages = [self.recognize(image, "tesseract") for _ in range(lanes)]
        await asyncio.gather(*pages, return_exceptions=True)  # a fault shows again with the first request, as its error

    async def recognize(
        self, image: OcrImage, engine: OcrEngineName = "auto", urgency: Urgency | None = None
    ) -> OcrResult:
        """The words of a page. Cancelling gives up what still waits for a lane.

        Args:
            engine: "auto" is the setting OCR_ENGINE, and by default a choice page by page (`engine_choice`).

        Raises: InvalidField for an engine or a language that is not here; TooLarge over the page's seconds; Overloaded,
            Unavailable, DeadlineExceeded, InferenceFailed for the service.
        """
        plan = self._plan(image.languages, self._engines.default if engine == "auto" else engine)
        with self._idle_trim.busy():
            run = _PageRun(urgency or Urgency())
            result = await self._run_plan(plan, image, run)
        if run.lane_s:
            self.backlog.measured(run.lane_s)
        return result

    async def _run_plan(self, plan: _Plan, image: OcrImage, run: _PageRun) -> OcrResult:
        if await asyncio.to_thread(_is_blank, image.pixels):
            return OcrResult((), 0, None, "none", "the page is blank: no engine was asked", ())
        if plan.tesseract is None:
            assert plan.rapidocr is not None  # a plan has one of them
            return replace(await self._rapidocr(plan.rapidocr, image, run), why=f"RapidOCR read it: {plan.why}")
        if plan.rapidocr is None:
            result = await self._tesseract(plan.tesseract, image, run)
            return replace(result, why=f"{result.why}; {plan.why}")
        return await self._tesseract_then_rapidocr(plan.tesseract, plan.rapidocr, image, run)

    async def _tesseract_then_rapidocr(
        self, tesseract: TesseractInfo, rapidocr: RapidOcrEngines, image: OcrImage, run: _PageRun
    ) -> OcrResult:
        try:
            first = await self._tesseract(tesseract, image, run)
        except InferenceFailed as error:
            return replace(await self._rapidocr(rapidocr, image, run), why=f"RapidOCR read it: {error}")
        why = reason_for_doubt(first)
        if not why:
            return accept_first(first)
        try:
            return choose_result(first, await self._rapidocr(rapidocr, image, run), why)
        except (Overloaded, TooLarge, InferenceFailed) as error:  # a doubtful result is better than none
            return replace(first, why=f"{first.why}; {why}, but RapidOCR could not read it: {error}")

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
        why = f"{engine} was asked for"
        return _Plan(None, chosen, why) if isinstance(chosen, RapidOcrEngines) else _Plan(chosen, None, why)

    async def _tesseract(self, tesseract: TesseractInfo, image: OcrImage, run: _PageRun) -> OcrResult:
        [result], _ = await _run(self._cpu_lanes, tesseract.engine, [image], [_cost(image.pixels)], run)
        return cast("OcrResult", result)

    async def _rapidocr(self, rapidocr: RapidOcrEngines, image: OcrImage, run: _PageRun) -> OcrResult:
        lane_time = _LaneTime(image.limit_s, rapidocr.on_device)
        [detected] = await self._on_lanes(rapidocr.detect, [image.pixels], [_cost(image.pixels)], run, lane_time)
        page = cast("DetectedPage", detected)
        recognizer = rapidocr.recognizer(image.languages)
        lines: list[RecognizedLine] = []
        for start in range(0, len(page.lines), _LINES_AT_ONCE):
            crops = [line.pixels for line in page.lines[start : start + _LINES_AT_ONCE]]
            costs = [bucket_px(crop.shape[1]) for crop in crops]
            lines += await self._on_lanes(recognizer, crops, costs, run, lane_time)
        blocks = await asyncio.to_thread(words_on_page, page.lines, lines)
        steps = (f"turn {page.rotation}°",) if page.rotation else ()
        return OcrResult(blocks, page.rotation, page_confidence(lines), rapidocr.version, "RapidOCR read it", steps)

    async def _on_lanes(
        self, engine: Engine, payloads: Sequence[Any], costs: Sequence[int], run: _PageRun, lane_time: _LaneTime
    ) -> list[Any]:
        """Lines of one page go in parts that the queue can hold: none of them is refused for its neighbours."""
        results: list[Any] = []
        for part in portions(costs, self._rapidocr_lanes.bulk_tokens):
            values, items = await _run(self._rapidocr_lanes, engine, payloads[part], costs[part], run)
            lane_time.add(items)
            results += values
        return results


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
    why = "; ".join(reason for reason in (chosen.why, result.why, raster.why, raster.incomplete) if reason)
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
    )


def _page_box(box: PixelBox, scale_x: float, scale_y: float) -> Box:
    return Box(box.left / scale_x, box.top / scale_y, box.right / scale_x, box.bottom / scale_y)


def _units_per_inch(raster: Raster, kind: str) -> float:
    if kind == "pdf" or raster.dpi is None:
        return POINTS_PER_INCH
    return float(np.float64(raster.dpi) / max(raster.scale_x, raster.scale_y))


async def _run(
    lanes: Batcher, engine: Engine, payloads: Sequence[Any], costs: Sequence[int], page: _PageRun
) -> tuple[list[Any], list[WorkItem]]:
    """The results in order, and their items. Bulk work that the lanes refuse for now is tried again."""
    priority, deadline_s = page.urgency

    async def run() -> tuple[list[Any], list[WorkItem]]:
        items = lanes.submit(engine, payloads, costs, priority=priority, deadline_s=deadline_s)
        try:
            return [await item.future for item in items], items
        finally:
            for item in items:
                item.abandon()  # when one fails or the caller leaves, those that still wait are dropped

    values, items = await retry_bulk(page.urgency, run)
    page.lane_s += sum(item.lane_s for item in items)
    return values, items


def _automatic(engines: OcrEngines, languages: Sequence[str]) -> _Plan:
    """Tesseract, then RapidOCR for doubtful results; one alone where the other is absent or lacks a language."""
    tesseract, rapidocr = engines.any_tesseract, engines.rapidocr
    why = list(engines.absent)
    if tesseract is not None and (unknown := unsupported(languages, tesseract)):
        tesseract, why = None, [*why, f"Tesseract has no data for {', '.join(unknown)}"]
    if rapidocr is not None and (unknown := unsupported(languages, rapidocr)):
        rapidocr, why = None, [*why, f"RapidOCR does not know {', '.join(unknown)}"]
    if tesseract is None and rapidocr is None:
        raise cannot_read(languages, "no engine", engines.languages)
    return _Plan(tesseract, rapidocr, "; ".join(why))


def _is_blank(pixels: NDArray[np.uint8]) -> bool:
    return int(pixels.max(initial=0)) - int(pixels.min(initial=255)) <= _BLANK_LEVELS


def _cost(pixels: NDArray[np.uint8]) -> int:
    height, width_px = pixels.shape[:2]
    return max(1, int(height * width_px) // _PIXELS_A_TOKEN)
