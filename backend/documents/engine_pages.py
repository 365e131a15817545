"""Runs the parts of one page on lanes, and counts what the page costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from backend.abandoned import end_tasks
from backend.documents.ocr_engines import RapidOcrEngines, TesseractInfo
from backend.lanes.batcher import Batcher
from backend.lanes.bulk_retry import retry_bulk
from backend.lanes.engine import Engine
from backend.lanes.inference import Urgency, run_one
from backend.lanes.policy import portions
from backend.lanes.work_item import WorkItem
from backend.ocr.page_time import PageBudget, time_is_over
from backend.ocr.rapidocr_detector import DetectedPage
from backend.ocr.rapidocr_recognizer import RecognizedLine, bucket_px, page_confidence, words_on_page
from backend.ocr.records import OcrImage, OcrResult
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
