"""Reads a page with Tesseract on lanes: its parts at once where lanes are free, a few of its lines first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from backend.documents.ocr_engines import TesseractInfo
from backend.documents.page_run import PageRun, page_cost, run_one
from backend.lanes.batcher import Batcher
from backend.ocr.page_time import time_is_over
from backend.ocr.records import OcrResult
from backend.ocr.tesseract_page import TesseractPage, TesseractPart
from backend.ocr.tesseract_words import TesseractResult, confidence_of, without_edge_words

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
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

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
        return cast("TesseractPage", await run_one(self._lanes, engine, image, page_cost(image.pixels), self._run))

    async def _read(self, part: TesseractPart) -> TesseractResult:
        result = await run_one(self._lanes, self._info.read, part, page_cost(part.gray), self._run)
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
        return f"Tesseract, {where}, found no words"
    return f"Tesseract, {where}, after {', '.join(steps)}" if steps else f"Tesseract, {where}, on the page as it is"
