"""OCR of a page: which engines run, what happens when one fails, and when the caller leaves."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from backend.batching.batcher import Batcher
from backend.batching.policy import QueueLimits
from backend.batching.work_item import Priority, WorkItem
from backend.documents.pages import Box
from backend.documents.parsing.records import Raster
from backend.documents.parsing.text_source import ChosenSource
from backend.engines.ocr.ctc_words import CropWord, RecognizedLine
from backend.engines.ocr.rapidocr_detector import DetectedPage
from backend.engines.ocr.records import OcrImage, OcrResult, OcrWord, PixelBox
from backend.engines.ocr.text_boxes import Crop, Line
from backend.errors import InferenceFailed, InvalidField, Overloaded, TooLarge, Unavailable
from backend.services.documents.ocr import OcrService, _LaneTime, page_of
from backend.services.documents.ocr_engines import OcrEngines, RapidOcrEngines, TesseractInfo
from backend.services.idle_trim import IdleTrim
from backend.services.inference import Urgency
from backend.telemetry import Telemetry
from tests.fakes import TEST_TIMEOUT_S, EchoEngine, GatedEngine

INK = np.full((40, 60), 255, np.uint8)
INK[10:20, 10:50] = 0
PAGE = OcrImage(INK, 200.0, ("es", "en"), limit_s=60.0)
LINES = 70  # more than go to a lane at once


@dataclass
class ScriptedEngine(EchoEngine):
    """Answers every payload with ``answer``, or raises it."""

    answer: Any = None
    payloads: list[Any] = field(default_factory=list)

    def finish(self, output: Any) -> list[Any]:
        self.payloads += output
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.answer for _ in output]


def tesseract(confidence: float = 0.95, words: int = 50) -> OcrResult:
    line = tuple(OcrWord("palabra", PixelBox(0, 0, 9, 9), confidence) for _ in range(words))
    return OcrResult(((line,),), 0, confidence, "tesseract 5", "Tesseract", ())


def detected(rotation: int = 0) -> DetectedPage:
    """A page of seventy lines, each ten pixels high."""
    quads = [np.array([[0, y], [90, y], [90, y + 10], [0, y + 10]], np.float32) for y in range(0, LINES * 12, 12)]
    return DetectedPage(rotation, tuple(Crop(Line(quad), np.zeros((48, 432, 3), np.uint8)) for quad in quads))


READ = RecognizedLine((CropWord("hola", 0, 200, 0.99), CropWord("mundo", 216, 432, 0.99)), 0.99)


@dataclass
class OcrUnderTest:
    """Scripted engines, and services over them."""

    tesseract: ScriptedEngine = field(default_factory=lambda: ScriptedEngine("ocr_tesseract", answer=tesseract()))
    detect: ScriptedEngine = field(default_factory=lambda: ScriptedEngine("ocr_detect", answer=detected()))
    latin: ScriptedEngine = field(default_factory=lambda: ScriptedEngine("ocr_recognize", budget=2000, answer=READ))
    every_script: ScriptedEngine = field(
        default_factory=lambda: ScriptedEngine("ocr_recognize", budget=2000, answer=READ)
    )
    batcher: Batcher = field(default_factory=lambda: Batcher(1, QueueLimits(1_000_000), Telemetry()))

    @property
    def all(self) -> OcrEngines:
        facts = TesseractInfo(self.tesseract, "tesseract 5", ("en", "es"))
        rapidocr = RapidOcrEngines("rapidocr 3", self.detect, self.latin, self.every_script, ("en", "es", "fr", "zh"))
        return OcrEngines(facts, None, rapidocr)

    def service(self, *, trim_after_s: float = 60.0, **changes: Any) -> OcrService:
        """``changes``: fields of OcrEngines."""
        return OcrService(
            dataclasses.replace(self.all, **changes),
            self.batcher,
            self.batcher,
            idle_trim=IdleTrim(after_s=trim_after_s),
        )


@pytest.fixture
async def ocr() -> AsyncIterator[OcrUnderTest]:
    ocr = OcrUnderTest()
    ocr.batcher.start(asyncio.get_running_loop())
    yield ocr
    await ocr.batcher.drain(0.0)


async def test_a_confident_result_needs_no_second_engine(ocr):
    """Clean print is recognised by Tesseract alone, and the answer says why."""
    result = await ocr.service().recognize(PAGE)

    assert "tesseract 5" == result.engine
    assert "sure of it" in result.why
    assert [] == ocr.detect.payloads


async def test_a_doubtful_page_goes_to_rapidocr(ocr):
    """RapidOCR's words, in their places, with its own confidence and the reason."""
    ocr.tesseract.answer = tesseract(0.5)
    result = await ocr.service().recognize(PAGE)

    assert "rapidocr 3" == result.engine
    assert "Tesseract was unsure" in result.why
    assert ["hola", "mundo"] * LINES == [word.text for word in result.words]
    assert 0.99 == pytest.approx(result.confidence)
    assert (45.0, 12.0, 90.0, 22.0) == pytest.approx(result.words[3].box)


async def test_every_line_is_recognised_once(ocr):
    """Long pages go to the lanes in groups of lines; lines of one group share batches."""
    await ocr.service().recognize(PAGE, "rapidocr")

    assert LINES == len(ocr.latin.payloads)
    assert len(ocr.latin.batches) < LINES


async def test_a_rotated_page_says_so(ocr):
    ocr.detect.answer = detected(180)
    result = await ocr.service().recognize(PAGE, "rapidocr")

    assert (180, ("turn 180°",)) == (result.rotation, result.steps)


@pytest.mark.parametrize("engine", ["auto", "rapidocr"])
async def test_a_blank_page_runs_no_engine(ocr, engine):
    """Its result has no words and says why."""
    blank = dataclasses.replace(PAGE, pixels=np.full((40, 60, 3), 253, np.uint8))
    result = await ocr.service().recognize(blank, engine)

    assert ((), None) == (result.blocks, result.confidence)
    assert "blank" in result.why
    assert [] == [*ocr.tesseract.payloads, *ocr.detect.payloads]


async def test_memory_is_released_when_idle(ocr):
    """Once after the last of several pages, and again after the next ones."""
    released = asyncio.Queue()
    loop = asyncio.get_running_loop()
    rapidocr = dataclasses.replace(
        ocr.all.rapidocr, release_memory=lambda: loop.call_soon_threadsafe(released.put_nowait, None)
    )
    service = ocr.service(trim_after_s=0.0, rapidocr=rapidocr)
    for _ in range(2):
        await asyncio.gather(*(service.recognize(PAGE) for _ in range(3)))
        await released.get()

    assert released.empty()


async def test_the_setting_is_what_auto_means(ocr):
    """OCR_ENGINE=rapidocr, and a request that names no engine."""
    result = await ocr.service(default="rapidocr").recognize(PAGE)

    assert "rapidocr 3" == result.engine
    assert [] == ocr.tesseract.payloads


async def test_a_request_may_choose_an_engine(ocr):
    ocr.tesseract.answer = tesseract(0.2)
    result = await ocr.service().recognize(PAGE, "tesseract")

    assert "tesseract 5" == result.engine
    assert [] == ocr.detect.payloads


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"rapidocr": None, "absent": ("rapidocr is not installed",)}, "tesseract 5", id="without-rapidocr"
        ),
        pytest.param({"tesseract": None, "absent": ("no language data",)}, "rapidocr 3", id="without-tesseract"),
    ],
)
async def test_one_engine_alone_recognises_everything(ocr, changes, expected):
    """Without a check for doubt; the answer says why there is no choice."""
    ocr.tesseract.answer = tesseract(0.2)
    result = await ocr.service(**changes).recognize(PAGE)

    assert expected == result.engine
    assert changes["absent"][0] in result.why


async def test_a_language_that_tesseract_lacks_is_rapidocrs(ocr):
    """Languages beyond Latin print have a recogniser of their own."""
    french = await ocr.service().recognize(dataclasses.replace(PAGE, languages=("fr",)))
    await ocr.service().recognize(dataclasses.replace(PAGE, languages=("zh",)))

    assert "Tesseract has no data for fr" in french.why
    assert [] == ocr.tesseract.payloads
    assert (LINES, LINES) == (len(ocr.latin.payloads), len(ocr.every_script.payloads))


@pytest.mark.parametrize(
    ("engine", "languages", "param", "part"),
    [
        pytest.param("auto", ("ru",), "language", "only en, es, fr, zh", id="no-engine-has-it"),
        pytest.param("tesseract", ("fr",), "language", "only en, es", id="the-one-payloads-for-does-not"),
        pytest.param("pytesseract", ("es",), "engine", "auto, tesseract, rapidocr", id="no-such-engine-here"),
        pytest.param("abbyy", ("es",), "engine", "auto, tesseract, rapidocr", id="no-such-engine-at-all"),
    ],
)
async def test_engines_and_languages_that_are_not_here(ocr, engine, languages, param, part):
    """The error names the field and what there is."""
    with pytest.raises(InvalidField, match=part) as caught:
        await ocr.service().recognize(dataclasses.replace(PAGE, languages=languages), engine)

    assert param == caught.value.param


async def test_without_any_engine(ocr):
    with pytest.raises(Unavailable, match="no language data"):
        await ocr.service(tesseract=None, rapidocr=None, absent=("no language data",)).recognize(PAGE)


async def test_a_failure_of_tesseract_is_rapidocrs_page(ocr):
    ocr.tesseract.answer = InferenceFailed("Tesseract gave up on this page")
    result = await ocr.service().recognize(PAGE)

    assert "rapidocr 3" == result.engine
    assert "gave up" in result.why


async def test_a_doubtful_result_is_better_than_none(ocr):
    """When RapidOCR fails, Tesseract's result stands, with both reasons."""
    ocr.tesseract.answer = tesseract(0.5)
    ocr.detect.answer = InferenceFailed("no boxes")
    result = await ocr.service().recognize(PAGE)

    assert "tesseract 5" == result.engine
    assert "RapidOCR could not read it: no boxes" in result.why


async def test_the_time_limit_is_checked_between_groups_of_lines(ocr):
    with pytest.raises(TooLarge, match="LIMIT_PAGE_S"):
        await ocr.service().recognize(dataclasses.replace(PAGE, limit_s=-1.0), "rapidocr")

    assert [] == ocr.latin.payloads


def test_only_the_work_of_a_page_counts(ocr):
    """Not the time in which its lines waited for a core, or for lines of other pages."""
    item = WorkItem(ocr.latin, None, 1, Priority.INTERACTIVE, 0.0, 0.0, asyncio.Future(loop=Mock()))
    item.started_s, item.finished_s, item.lane_s, item.work_s = 100.0, 130.0, 20.0, 2.0
    on_cpu, on_device = _LaneTime(10.0, on_device=False), _LaneTime(10.0, on_device=True)
    on_cpu.add([item])

    assert 2.0 == on_cpu.seconds
    with pytest.raises(TooLarge, match=r"20\.0 is over the limit of 10\.0"):
        on_device.add([item])


async def test_lanes_tell_what_a_page_has_cost(ocr):
    """Each recognised page is measured once, blank ones are not."""
    service = ocr.service()
    await service.recognize(PAGE, "rapidocr")
    await service.recognize(dataclasses.replace(PAGE, pixels=np.full((40, 60), 255, np.uint8)))

    assert 1 == service.backlog.measured_pages


async def test_cancelling_abandons_waiting_lines(ocr):
    gated = GatedEngine("ocr_recognize", budget=500)
    rapidocr = dataclasses.replace(ocr.all.rapidocr, latin=gated)
    task = asyncio.create_task(ocr.service(rapidocr=rapidocr).recognize(PAGE, "rapidocr"))
    await asyncio.to_thread(gated.entered.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gated.gate.set()
    await ocr.service().recognize(PAGE, "tesseract")  # the lane has skipped the rest

    assert 1 == len(gated.batches)


async def test_report(ocr):
    """Engines with versions and languages, and what auto does."""
    report = ocr.service(absent=("pytesseract is not installed",), tessdata_digest="0123456789ab").report()

    assert {"tesseract", "rapidocr"} == report["engines"].keys()
    assert {"version": "tesseract 5", "languages": ["en", "es"]} == report["engines"]["tesseract"]
    assert ["pytesseract is not installed"] == report["absent"]
    assert "0123456789ab" == report["tessdata"]  # the report is in the keys of cached pages
    assert "Tesseract reads first" in report["why"]
    assert ("tesseract", "rapidocr") == ocr.service().engines


@pytest.mark.parametrize(
    ("engine", "changes", "name"),
    [
        ("auto", {}, "tesseract"),
        ("tesseract", {}, "tesseract"),
        ("pytesseract", {}, None),
        ("rapidocr", {}, None),
        ("auto", {"tesseract": None}, None),
        ("auto", {"default": "rapidocr"}, None),
        ("tesseract", {"default": "rapidocr"}, "tesseract"),
    ],
)
async def test_which_tesseract_reads(ocr, engine, changes, name):
    """That of ``auto`` where there is one; none where RapidOCR is asked for."""
    assert name == ocr.service(**changes).tesseract_of(engine)


async def test_the_program_reads_where_the_library_is_absent(ocr):
    tesseract = ocr.all.tesseract

    assert "pytesseract" == ocr.service(tesseract=None, pytesseract=tesseract).tesseract_of("auto")


async def test_warm_up_recognises_a_page_on_every_lane(ocr):
    await ocr.service().warm_up(3, ("es", "en"))

    assert 3 == len(ocr.tesseract.payloads)
    assert {("es", "en")} == {image.languages for image in ocr.tesseract.payloads}
    assert [] == ocr.detect.payloads


@pytest.mark.parametrize("changes", [{"tesseract": None}, {"default": "rapidocr"}])
async def test_unused_engines_are_not_warmed_up(ocr, changes):
    """RapidOCR's networks come with the first page that needs them."""
    await ocr.service(**changes).warm_up(2, ("es",))

    assert [] == ocr.tesseract.payloads == ocr.detect.payloads


async def test_a_failed_warm_up_is_no_error(ocr):
    ocr.tesseract.answer = InferenceFailed("broken")

    await ocr.service().warm_up(1, ("es", "en"))


CHOSEN = ChosenSource("ocr", "it has no text of its own")


def raster(**changes: object) -> Raster:
    fields = {"width": 100.0, "height": 200.0, "scale_x": 2.0, "scale_y": 4.0, "dpi": 300.0, "why": "drawn so"}
    return Raster(np.zeros((800, 200), np.uint8), **(fields | changes))  # type: ignore[arg-type]


def turned_result(rotation: int = 0) -> OcrResult:
    word = OcrWord("word", PixelBox(20, 40, 60, 80), 0.5)
    return OcrResult((((word,),),), rotation, 0.7, "engine 1", "because", ("deskew",))


@pytest.mark.parametrize(
    ("rotation", "size", "box"),
    [
        (0, (100, 200), Box(10, 10, 30, 20)),
        (90, (200, 100), Box(5, 20, 15, 40)),
        (180, (100, 200), Box(10, 10, 30, 20)),
    ],
)
def test_boxes_follow_the_rotation(rotation: int, size: tuple[float, float], box: Box) -> None:
    """The scales of the axes are swapped with them."""
    page = page_of(raster(), turned_result(rotation), 3, "png", CHOSEN)

    assert (*size, rotation, 3) == (page.width, page.height, page.rotation, page.number)
    assert box == page.words[0].box


@pytest.mark.parametrize(
    ("kind", "dpi", "expected"),
    [
        pytest.param("pdf", 300.0, 72.0, id="points"),
        pytest.param("png", 300.0, 75.0, id="own-pixels"),
        pytest.param("png", None, 72.0, id="unknown"),
    ],
)
def test_units_per_inch(kind: str, dpi: float | None, expected: float) -> None:
    """Of the page's units, not of the rendered image."""
    assert expected == page_of(raster(dpi=dpi), turned_result(), 1, kind, CHOSEN).units_per_inch


def test_reasons_are_joined() -> None:
    """Why OCR, which engine, which resolution, and what is missing."""
    page = page_of(raster(incomplete="the file is cut off"), turned_result(), 1, "pdf", CHOSEN)

    assert "it has no text of its own; because; drawn so; the file is cut off" == page.why
    assert ("engine 1", 0.7, "ocr") == (page.engine, page.confidence, page.source)


BULK = Urgency(Priority.BULK)


async def test_a_page_over_the_queues_limit_is_read(ocr):
    """Alone, line by line: LIMIT_QUEUE_TOKENS says how much may wait, not how large a page may be."""
    ocr.batcher = Batcher(1, QueueLimits(1), Telemetry())
    ocr.batcher.start(asyncio.get_running_loop())

    for engine in ("tesseract", "rapidocr"):
        assert (await ocr.service().recognize(PAGE, engine)).words
    assert LINES == len(ocr.latin.payloads)


async def test_pages_of_jobs_wait_while_the_queue_is_full(ocr):
    """A request is refused; a job's page is read when there is room, by the engine it would always have."""
    telemetry = Telemetry()
    ocr.batcher = Batcher(1, QueueLimits(10), telemetry)
    ocr.batcher.start(asyncio.get_running_loop())
    blocker = GatedEngine()
    ocr.batcher.submit(blocker, ["runs"], [1])
    assert await asyncio.to_thread(blocker.entered.wait, TEST_TIMEOUT_S)
    ocr.batcher.submit(EchoEngine(), ["waits"], [10])
    job = asyncio.create_task(ocr.service().recognize(PAGE, "auto", BULK))

    with pytest.raises(Overloaded):
        await ocr.service().recognize(PAGE)
    while telemetry.total("jobs_shed_total") < 2:  # noqa: ASYNC110 - the job was refused as well; a counter has no event
        await asyncio.sleep(0)
    blocker.gate.set()

    assert "tesseract 5" == (await job).engine


async def test_a_page_of_a_job_survives_a_lane(ocr):
    """It is read on the lane that takes the place of the dead one; a page that ends lanes fails by itself."""

    class DyingEngine(ScriptedEngine):
        deaths = 0

        def forward(self, prepared: Any) -> Any:
            if self.deaths < 1:
                self.deaths += 1
                raise SystemExit("a library ended the thread")
            return super().forward(prepared)

    ocr.tesseract = DyingEngine("ocr_tesseract", answer=tesseract())
    result = await ocr.service().recognize(PAGE, "auto", BULK)
    ocr.tesseract.deaths = -5
    with pytest.raises(InferenceFailed, match="died 2 times"):
        await ocr.service().recognize(PAGE, "tesseract", BULK)

    assert "tesseract 5" == result.engine
