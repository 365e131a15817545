"""Reads a page with RapidOCR on lanes: detects its lines, then recognises them."""

from __future__ import annotations

import asyncio
from typing import cast

from backend.documents.ocr_engines import RapidOcrEngines
from backend.documents.page_run import PageRun, page_cost, run_within
from backend.lanes.batcher import Batcher
from backend.ocr.ctc_words import RecognizedLine, page_confidence
from backend.ocr.page_time import PageBudget, time_is_over
from backend.ocr.rapidocr_detector import DetectedPage
from backend.ocr.rapidocr_recognizer import bucket_px, words_on_page
from backend.ocr.records import OcrResult
from backend.ocr.text_boxes import Crop

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
        if self._detection is not None:
            self._detection.cancel()
            await asyncio.gather(self._detection, return_exceptions=True)

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
            why="RapidOCR read it",
            steps=(f"turn {page.rotation}°",) if page.rotation else (),
            incomplete=time_is_over(self._budget.limit_s) if len(recognized) < len(lines) else "",
        )


def _top(crop: Crop) -> float:
    return float(crop.line.quad[:, 1].min())
