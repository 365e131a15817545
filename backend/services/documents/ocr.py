"""A page's image in, its words out: engines on the lanes, the choice between them, one page a call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from backend.batching.batcher import Batcher
from backend.batching.work_item import Job
from backend.device.memory.release import trim_heap
from backend.engines.engine import Engine
from backend.engines.ocr.ctc_words import ReadLine, page_confidence
from backend.engines.ocr.engine_choice import EngineWish, better, doubt, kept
from backend.engines.ocr.rapidocr_detector import DetectedPage
from backend.engines.ocr.rapidocr_lines import placed
from backend.engines.ocr.rapidocr_recognizer import bucket_px
from backend.engines.ocr.records import OcrImage, OcrResult, too_long
from backend.errors import InferenceFailed, InvalidField, Overloaded, TooLarge, Unavailable
from backend.services.documents.idle_trim import Rest
from backend.services.documents.ocr_engines import OcrEngines, RapidEngines, TesseractFacts, cannot_read, unread
from backend.services.inference import Urgency

__all__ = ["EngineWish", "PageReader"]  # what the floors above need of OCR

_PIXELS_A_TOKEN = 256  # a page then weighs in the queue what texts of the same time on a lane do
_LINES_AT_ONCE = 64  # of a page; the limit of seconds is looked at between them
_WARM_UP_S = 20.0
_REST_S = 10.0  # without a page, before memory is given back: RapidOCR then takes 0.15 s to have it again (measured)
_BLANK_LEVELS = 8  # gray levels within which a page is one color


@dataclass(slots=True)
class _Spent:
    """Seconds that a page's jobs have had on lanes, against its limit."""

    limit_s: float
    seconds: float = 0.0

    def add(self, jobs: Sequence[Job]) -> None:
        """Count jobs that ran beside each other. Raises: TooLarge when the limit has passed."""
        self.seconds += max(job.finished_s for job in jobs) - min(job.started_s for job in jobs)
        if self.seconds > self.limit_s:
            raise too_long(
                self.seconds, self.limit_s, "Send the page at a lower resolution, or ask for engine=tesseract"
            )


@dataclass(frozen=True, slots=True)
class _Plan:
    """Who reads a page: Tesseract, RapidOCR, or the one and then the other where it is in doubt."""

    tesseract: TesseractFacts | None
    rapid: RapidEngines | None
    why: str  # why one of them alone


class PageReader:
    """Reads pages by the engines that are here. Belongs to the loop's thread.

    Args:
        pages: lanes on the CPU, for engines that run there.
        device: lanes of the device that models run on; the same object where that is the CPU.
        rest_s: without a page, after which memory is given back.
    """

    def __init__(self, engines: OcrEngines, pages: Batcher, device: Batcher, *, rest_s: float = _REST_S) -> None:
        self._engines, self._pages = engines, pages
        self._rapid_lanes = device if engines.rapid is not None and engines.rapid.on_device else pages
        self._rest = Rest(self._give_back, rest_s)

    @property
    def engines(self) -> tuple[str, ...]:
        """Names that a request may ask for, beside "auto"."""
        return self._engines.names

    def report(self) -> dict[str, Any]:
        """What there is and what ``auto`` does, for GET /v1/system."""
        engines = self._engines
        return {
            "engine": engines.wish,
            "why": engines.why,
            "engines": {
                name: {"version": one.version, "languages": list(one.languages)}
                for name, one in engines.by_name.items()
            },
            "rapidocr_runs_on": engines.rapid.why if engines.rapid else None,
            "absent": list(engines.absent),
        }

    async def warm_up(self, lanes: int, languages: Sequence[str]) -> None:
        """Have Tesseract's data read on every lane, half a second that the first pages need not wait for.

        RapidOCR's networks are left alone: they take 0.7 GB, and many services never need them.
        """
        if self._engines.tesseract is None or self._engines.wish not in ("auto", "tesseract"):
            return
        bars = np.full((64, 256), 255, np.uint8)
        bars[24:40, 32:224:8] = 0
        pages = [self.read(OcrImage(bars, None, tuple(languages), _WARM_UP_S), "tesseract") for _ in range(lanes)]
        await asyncio.gather(*pages, return_exceptions=True)  # what fails here fails again where somebody is told

    async def read(self, image: OcrImage, engine: EngineWish = "auto", urgency: Urgency | None = None) -> OcrResult:
        """The words of a page.

        Leaving early (cancelling) gives up what still waits for a lane.

        Args:
            engine: "auto" is the setting's, and by default the choice between engines (``ml.ocr.choice``).

        Raises: InvalidField for an engine or a language that is not here; TooLarge over the page's seconds; Overloaded,
            Unavailable, DeadlineExceeded, InferenceFailed for the service.
        """
        plan = self._plan(image.languages, self._engines.wish if engine == "auto" else engine)
        with self._rest.busy():
            return await self._by_plan(plan, image, urgency or Urgency())

    async def _by_plan(self, plan: _Plan, image: OcrImage, urgency: Urgency) -> OcrResult:
        if await asyncio.to_thread(_is_blank, image.pixels):
            return OcrResult((), 0, None, "none", "the page is blank: no engine was asked", ())
        if plan.tesseract is None:
            assert plan.rapid is not None  # a plan has one of them
            return replace(await self._by_rapid(plan.rapid, image, urgency), why=f"RapidOCR read it: {plan.why}")
        if plan.rapid is None:
            first = await self._by_tesseract(plan.tesseract, image, urgency)
            return replace(first, why=f"{first.why}; {plan.why}")
        return await self._by_both(plan.tesseract, plan.rapid, image, urgency)

    async def _by_both(
        self, tesseract: TesseractFacts, rapid: RapidEngines, image: OcrImage, urgency: Urgency
    ) -> OcrResult:
        try:
            first = await self._by_tesseract(tesseract, image, urgency)
        except InferenceFailed as error:
            return replace(await self._by_rapid(rapid, image, urgency), why=f"RapidOCR read it: {error}")
        why = doubt(first)
        if not why:
            return kept(first)
        try:
            return better(first, await self._by_rapid(rapid, image, urgency), why)
        except (Overloaded, TooLarge, InferenceFailed) as error:  # a doubtful reading is better than none
            return replace(first, why=f"{first.why}; {why}, but RapidOCR could not read it: {error}")

    def _give_back(self) -> None:
        if self._engines.rapid is not None:
            self._engines.rapid.give_back()
        trim_heap()  # not ``release``: collecting garbage would hold the loop

    def _plan(self, languages: Sequence[str], engine: EngineWish) -> _Plan:
        engines = self._engines
        if not engines.names:
            raise Unavailable(f"no page can be read here: {'; '.join(engines.absent)}")
        if engine == "auto":
            return _automatic(engines, languages)
        chosen = engines.by_name.get(engine)
        if chosen is None:
            there = "; ".join([f"there are {', '.join(('auto', *engines.names))}", *engines.absent])
            raise InvalidField(f"engine: '{engine}' is not here; {there}", param="engine")
        if unknown := unread(languages, chosen):
            raise cannot_read(unknown, engine, chosen.languages)
        why = f"{engine} was asked for"
        return _Plan(None, chosen, why) if isinstance(chosen, RapidEngines) else _Plan(chosen, None, why)

    async def _by_tesseract(self, tesseract: TesseractFacts, image: OcrImage, urgency: Urgency) -> OcrResult:
        jobs = self._pages.submit(
            tesseract.engine,
            [image],
            [_cost(image.pixels)],
            priority=urgency.priority,
            deadline_s=urgency.deadline_s,
        )
        [result] = await _answers(jobs)
        return cast("OcrResult", result)

    async def _by_rapid(self, rapid: RapidEngines, image: OcrImage, urgency: Urgency) -> OcrResult:
        spent = _Spent(image.limit_s)
        [found] = await self._on_lanes(rapid.detect, [image.pixels], [_cost(image.pixels)], urgency, spent)
        page = cast("DetectedPage", found)
        recognizer = rapid.recognizer(image.languages)
        lines: list[ReadLine] = []
        for start in range(0, len(page.lines), _LINES_AT_ONCE):
            crops = [line.pixels for line in page.lines[start : start + _LINES_AT_ONCE]]
            costs = [bucket_px(crop.shape[1]) for crop in crops]
            lines += await self._on_lanes(recognizer, crops, costs, urgency, spent)
        blocks = await asyncio.to_thread(placed, page.lines, lines)
        steps = (f"turn {page.rotation}°",) if page.rotation else ()
        return OcrResult(blocks, page.rotation, page_confidence(lines), rapid.version, "RapidOCR read it", steps)

    async def _on_lanes(
        self, engine: Engine, payloads: Sequence[Any], costs: Sequence[int], urgency: Urgency, spent: _Spent
    ) -> list[Any]:
        jobs = self._rapid_lanes.submit(
            engine, payloads, costs, priority=urgency.priority, deadline_s=urgency.deadline_s
        )
        answers = await _answers(jobs)
        spent.add(jobs)
        return answers


async def _answers(jobs: Sequence[Job]) -> list[Any]:
    """Of all jobs, in order; when one fails or the caller leaves, those that still wait are given up."""
    try:
        return [await job.future for job in jobs]
    finally:
        for job in jobs:
            job.abandon()


def _automatic(engines: OcrEngines, languages: Sequence[str]) -> _Plan:
    """Tesseract, then RapidOCR where it is in doubt; one alone where the other is absent or lacks the language."""
    first, rapid = engines.first, engines.rapid
    why = list(engines.absent)
    if first is not None and (unknown := unread(languages, first)):
        first, why = None, [*why, f"Tesseract has no data for {', '.join(unknown)}"]
    if rapid is not None and (unknown := unread(languages, rapid)):
        rapid, why = None, [*why, f"RapidOCR does not know {', '.join(unknown)}"]
    if first is None and rapid is None:
        raise cannot_read(languages, "no engine", engines.languages)
    return _Plan(first, rapid, "; ".join(why))


def _is_blank(pixels: NDArray[np.uint8]) -> bool:
    return int(pixels.max(initial=0)) - int(pixels.min(initial=255)) <= _BLANK_LEVELS


def _cost(pixels: NDArray[np.uint8]) -> int:
    height, width_px = pixels.shape[:2]
    return max(1, int(height * width_px) // _PIXELS_A_TOKEN)
