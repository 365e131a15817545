"""OCR of a page: which engines run, what happens when one fails, and when the caller leaves."""

import asyncio
import dataclasses
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from backend.documents.ocr import OcrService, PageRun, page_of
from backend.documents.ocr_engines import OcrEngines, RapidOcrEngines, TesseractInfo
from backend.errors import InferenceFailed, InvalidField, Overloaded, Unavailable
from backend.files.pages import Box
from backend.files.records import Raster
from backend.files.text_files import ChosenSource
from backend.lanes.batcher import Batcher
from backend.lanes.inference import Urgency
from backend.lanes.memory_keeper import IdleTrim
from backend.lanes.work_queue import Priority, QueueLimits, WorkItem
from backend.ocr.orientation import UprightPage
from backend.ocr.page_time import PageBudget
from backend.ocr.preprocessing import Strip
from backend.ocr.rapidocr_engines import CropWord, DetectedPage, RecognizedLine
from backend.ocr.records import OcrImage, OcrResult, OcrWord, PixelBox
from backend.ocr.tesseract import TesseractPage, TesseractPart, rows_of
from backend.ocr.tesseract_words import TesseractResult
from backend.ocr.text_boxes import Crop, LineShape
from backend.telemetry import Telemetry
from tests.fakes import TEST_TIMEOUT_S, EchoEngine, GatedEngine

INK = np.full((40, 60), 255, np.uint8)
INK[10:20, 10:50] = 0
PAGE = OcrImage(INK, 200.0, ("es", "en"), limit_s=60.0)
LINES = 70  # more than go to a lane at once
SAMPLE_DPI = 77.0  # tells the sample of a page from its parts


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


def tesseract(confidence: float = 0.95, words: int = 50, *, complete: bool = True) -> TesseractResult:
    line = tuple(OcrWord("palabra", PixelBox(3, 13, 6, 16), confidence) for _ in range(words))
    return TesseractResult(((line,),), confidence if words else None, complete)


def prepared(strips: int = 1, *, sample: bool = False, glyphs: int = 0, rotation: int = 0) -> TesseractPage:
    """A page of twenty rows a strip; a strip below another one has a margin of ten rows more."""
    gray = np.zeros((20 * strips, 10), np.uint8)
    size = (gray.shape[0], gray.shape[1])
    upright = UprightPage(gray, 200.0, 5.0, np.eye(2, 3), rotation, size, glyphs, ())
    budget = PageBudget(60.0)
    cuts = tuple(Strip(top, top + 20, continues=False, ink_share=1 / strips) for top in range(0, 20 * strips, 20))
    parts = tuple(TesseractPart(rows_of(gray, cut), ("spa",), 200.0 + cut.top / 2, budget) for cut in cuts)
    return TesseractPage(
        upright, cuts, parts, TesseractPart(gray, ("spa",), SAMPLE_DPI, budget) if sample else None, 0.2
    )


def detected(rotation: int = 0) -> DetectedPage:
    """A page of seventy lines, each ten pixels high."""
    quads = [np.array([[0, y], [90, y], [90, y + 10], [0, y + 10]], np.float32) for y in range(0, LINES * 12, 12)]
    return DetectedPage(rotation, tuple(Crop(LineShape(quad), np.zeros((48, 432, 3), np.uint8)) for quad in quads))


READ = RecognizedLine((CropWord("hola", 0, 200, 0.99), CropWord("mundo", 216, 432, 0.99)), 0.99)


@dataclass
class OcrUnderTest:
    """Scripted engines, and services over them."""

    prepare: ScriptedEngine = field(default_factory=lambda: ScriptedEngine("ocr_prepare", answer=prepared()))
    search: ScriptedEngine = field(default_factory=lambda: ScriptedEngine("ocr_prepare", answer=prepared()))
    tesseract: ScriptedEngine = field(default_factory=lambda: ScriptedEngine("ocr_tesseract", answer=tesseract()))
    detect: ScriptedEngine = field(default_factory=lambda: ScriptedEngine("ocr_detect", answer=detected()))
    latin: ScriptedEngine = field(default_factory=lambda: ScriptedEngine("ocr_recognize", budget=2000, answer=READ))
    every_script: ScriptedEngine = field(
        default_factory=lambda: ScriptedEngine("ocr_recognize", budget=2000, answer=READ)
    )
    batcher: Batcher = field(default_factory=lambda: Batcher(1, QueueLimits(1_000_000), Telemetry()))

    @property
    def all(self) -> OcrEngines:
        engines = (self.prepare, self.search, self.tesseract)
        facts = TesseractInfo(*engines, "in a test", "tesseract 5", ("en", "es"))
        rapidocr = RapidOcrEngines("rapidocr 3", self.detect, self.latin, self.every_script, ("en", "es", "fr", "zh"))
        return OcrEngines(facts, None, rapidocr)

    def service(self, *, trim_after_s: float = 60.0, rest_s: float = 60.0, **changes: Any) -> OcrService:
        """``changes``: fields of OcrEngines."""
        return OcrService(
            dataclasses.replace(self.all, **changes),
            self.batcher,
            self.batcher,
            idle_trim=IdleTrim(after_s=trim_after_s),
            rest_s=rest_s,
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


async def test_the_networks_leave_memory_at_rest(ocr):
    """Where nothing was read for ``rest_s``; the memory that they held is returned after them."""
    unloaded = asyncio.Event()
    loop = asyncio.get_running_loop()
    rapidocr = dataclasses.replace(ocr.all.rapidocr, unload=lambda: loop.call_soon_threadsafe(unloaded.set))
    service = ocr.service(trim_after_s=0.0, rest_s=0.01, rapidocr=rapidocr)
    await service.recognize(PAGE)
    await asyncio.wait_for(unloaded.wait(), TEST_TIMEOUT_S)


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


async def test_lines_read_in_time_are_the_page(ocr):
    """RapidOCR's time ends a page after some lines: those from the top, which is said, and no error."""

    class HardLines(ScriptedEngine):
        def forward(self, prepared: Any) -> Any:
            began_s = time.thread_time()
            while time.thread_time() < began_s + 0.02:
                pass
            return super().forward(prepared)

    ocr.latin = HardLines("ocr_recognize", budget=500, answer=READ)
    ocr.detect.answer = dataclasses.replace(detected(), lines=detected().lines[::-1])
    result = await ocr.service().recognize(dataclasses.replace(PAGE, limit_s=0.05), "rapidocr")

    lines = len(result.words) // 2
    assert 1 <= lines < LINES
    assert 12 * lines > max(word.box.top for word in result.words)
    assert "0.15 s of work (LIMIT_PAGE_S)" in result.incomplete


def test_only_the_work_of_a_page_counts(ocr):
    """Not the time in which its lines waited for a core, or for lines of other pages."""
    item = WorkItem(ocr.latin, None, 1, Priority.INTERACTIVE, 0.0, 0.0, asyncio.Future(loop=Mock()))
    item.lane_s, item.work_s = 20.0, 2.0
    on_cpu, on_device = PageBudget(10.0), PageBudget(10.0)

    assert not PageRun(PAGE, Urgency()).spend(item, on_cpu)
    assert PageRun(PAGE, Urgency(), on_device=True).spend(item, on_device)
    assert (8.0, -10.0) == (on_cpu.left_s, on_device.left_s)


async def test_words_read_in_time_are_the_page(ocr):
    """Tesseract's too; they say what is missing."""
    ocr.tesseract.answer = tesseract(complete=False)
    result = await ocr.service().recognize(PAGE, "tesseract")

    assert 50 == len(result.words)
    assert "60 s of work (LIMIT_PAGE_S)" in result.incomplete


async def test_a_page_that_tesseract_cannot_finish_is_rapidocrs(ocr):
    """Even where what it has read is sure."""
    ocr.tesseract.answer = tesseract(complete=False)
    result = await ocr.service().recognize(PAGE)

    assert ("rapidocr 3", "") == (result.engine, result.incomplete)
    assert "LIMIT_PAGE_S" in result.why


async def test_of_two_unfinished_pages_the_longer_one_is_kept(ocr):
    ocr.tesseract.answer = tesseract(words=4, complete=False)
    ocr.detect.answer = dataclasses.replace(detected(), lines=())
    result = await ocr.service().recognize(PAGE)

    assert "tesseract 5" == result.engine
    assert result.incomplete


@dataclass
class PartsEngine(ScriptedEngine):
    """Answers parts of a page by what ``answers`` says for their dpi, and others with ``answer``."""

    answers: dict[float, TesseractResult] = field(default_factory=dict)

    def finish(self, output: Any) -> list[Any]:
        self.payloads += output
        return [self.answers.get(part.dpi, self.answer) for part in output]


async def test_a_few_doubtful_lines_leave_the_page_to_rapidocr(ocr):
    """The part in the middle is read first; the others are not read at all while every lane has a page."""
    ocr.prepare.answer = prepared(5)
    ocr.tesseract.answer = tesseract(0.5)
    result = await ocr.service().recognize(PAGE)

    assert "rapidocr 3" == result.engine
    assert "its first lines" in result.why
    assert [220.0] == [part.dpi for part in ocr.tesseract.payloads]


async def test_sure_lines_are_a_part_of_the_result(ocr):
    """No part is read twice, and words come in the order of the page."""
    ocr.prepare.answer = prepared(5)
    answers = {200.0 + 10 * index: tesseract(0.95, words=index + 10) for index in range(5)}
    ocr.tesseract = PartsEngine("ocr_tesseract", answers=answers)
    result = await ocr.service().recognize(PAGE)

    assert "tesseract 5" == result.engine
    assert [220.0, 200.0, 210.0, 230.0, 240.0] == [part.dpi for part in ocr.tesseract.payloads]
    assert [10, 11, 12, 13, 14] == [len(block[0]) for block in result.blocks]
    assert [13.0, 23.0, 43.0, 63.0, 83.0] == [block[0][0].box.top for block in result.blocks]


async def test_a_page_without_a_safe_cut_is_sampled(ocr):
    """Its densest lines are read; their words are not part of the page."""
    ocr.prepare.answer = prepared(sample=True)
    sure = await ocr.service().recognize(PAGE)
    ocr.tesseract.answer = tesseract(0.5)
    doubtful = await ocr.service().recognize(PAGE)

    assert ("tesseract 5", 50) == (sure.engine, len(sure.words))
    assert "rapidocr 3" == doubtful.engine
    assert [SAMPLE_DPI, 200.0, SAMPLE_DPI] == [part.dpi for part in ocr.tesseract.payloads]


async def test_rapidocr_that_finds_less_than_a_few_lines(ocr):
    """Then the rest of the page is Tesseract's too."""
    ocr.prepare.answer = prepared(3)
    ocr.tesseract.answer = TesseractResult((((OcrWord("legible" * 9, PixelBox(0, 0, 9, 9), 0.85),),),), 0.85)
    ocr.detect.answer = dataclasses.replace(detected(), lines=detected().lines[:1])
    result = await ocr.service().recognize(PAGE)

    assert ("tesseract 5", 3) == (result.engine, len(result.words))
    assert "RapidOCR found 9 letters of 189" in result.why


@pytest.mark.parametrize(
    ("page", "engines"),
    [
        pytest.param(prepared(3), ["ocr_tesseract", "ocr_tesseract"], id="parts"),
        pytest.param(prepared(sample=True), ["ocr_detect", "ocr_tesseract"], id="detection-beside-the-sample"),
    ],
)
async def test_one_page_uses_every_lane(ocr, page: TesseractPage, engines: list[str]):
    """While Tesseract reads its first lines, a lane without a page does what comes next."""
    ocr.batcher = Batcher(2, QueueLimits(1_000_000), Telemetry())
    ocr.batcher.start(asyncio.get_running_loop())
    ocr.prepare.answer = page
    meeting = threading.Barrier(3)

    class MeetingEngine(ScriptedEngine):
        def forward(self, prepared: Any) -> Any:
            met.append(self.name)
            meeting.wait(TEST_TIMEOUT_S)
            return super().forward(prepared)

    met: list[str] = []
    ocr.tesseract, ocr.detect = MeetingEngine("ocr_tesseract", budget=1), MeetingEngine("ocr_detect")
    ocr.tesseract.answer, ocr.detect.answer = tesseract(), detected()
    task = asyncio.create_task(ocr.service().recognize(PAGE))
    await asyncio.to_thread(meeting.wait, TEST_TIMEOUT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert engines == sorted(met[:2])


async def test_an_upside_down_page_is_searched(ocr):
    """By Tesseract alone: RapidOCR finds the rotation by itself."""
    ocr.prepare.answer, ocr.search.answer = prepared(3, glyphs=90), prepared(2, glyphs=90, rotation=180)
    ocr.tesseract.answer = tesseract(0.3)
    alone = await ocr.service(rapidocr=None).recognize(PAGE)

    assert (180, 100) == (alone.rotation, len(alone.words))
    assert 5 == len(ocr.tesseract.payloads)
    assert "rapidocr 3" == (await ocr.service().recognize(PAGE)).engine
    assert 1 == len(ocr.search.payloads)


async def test_lanes_tell_what_a_page_has_cost(ocr):
    """Each recognised page is measured once, blank ones are not."""
    service = ocr.service()
    await service.recognize(PAGE, "rapidocr")
    await service.recognize(dataclasses.replace(PAGE, pixels=np.full((40, 60), 255, np.uint8)))

    assert 1 == service.backlog.measurements


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


def test_the_fingerprint_of_replicas(ocr):
    """Another runtime for the networks keeps the cached pages; other data or engines do not."""
    here = ocr.service()
    slower = dataclasses.replace(ocr.all.rapidocr, runs_on=lambda: "onnx fp32: 0.81 s for a made page")

    assert here.fingerprint == ocr.service(rapidocr=slower).fingerprint
    assert here.fingerprint != ocr.service(tessdata_digest="0123456789ab").fingerprint
    assert here.fingerprint != ocr.service(tesseract=None).fingerprint


async def test_report(ocr):
    """Engines with versions and languages, and what auto does."""
    report = ocr.service(absent=("pytesseract is not installed",), tessdata_digest="0123456789ab").report()

    assert {"tesseract", "rapidocr"} == report["engines"].keys()
    assert {"version": "tesseract 5", "languages": ["en", "es"]} == report["engines"]["tesseract"]
    assert ["pytesseract is not installed"] == report["absent"]
    assert "0123456789ab" == report["tessdata"]
    assert "Tesseract reads first" in report["why"]
    assert ("tesseract", "rapidocr") == ocr.service().engines


@pytest.mark.parametrize(
    ("engine", "changes", "name"),
    [
        ("auto", {}, "tesseract"), ("tesseract", {}, "tesseract"), ("pytesseract", {}, None), ("rapidocr", {}, None),
        ("auto", {"tesseract": None}, None), ("auto", {"default": "rapidocr"}, None),
        ("tesseract", {"default": "rapidocr"}, "tesseract"),
        ("auto", {"tesseract": None, "pytesseract": OcrUnderTest().all.tesseract}, "pytesseract"),
    ],
)  # fmt: skip
async def test_which_tesseract_reads(ocr, engine, changes, name):
    """The library, or the program where that is absent; none where RapidOCR is asked for."""
    assert name == ocr.service(**changes).tesseract_of(engine)


async def test_warm_up_recognises_a_page_on_one_lane(ocr):
    """Each further lane loads its data with its first page: at rest they take memory for nothing."""
    await ocr.service().warm_up(("es", "en"))

    assert 1 == len(ocr.tesseract.payloads)
    assert {("es", "en")} == {image.languages for image in ocr.prepare.payloads}
    assert [] == ocr.detect.payloads


@pytest.mark.parametrize(
    ("changes", "tesseract_pages", "networks"),
    [
        pytest.param({}, 1, 0, id="tesseract-is-first"),
        pytest.param({"tesseract": None}, 0, 1, id="no-tesseract"),
        pytest.param({"default": "rapidocr"}, 0, 1, id="rapidocr-is-set"),
        pytest.param({"default": "tesseract"}, 1, 0, id="tesseract-is-set"),
    ],
)
async def test_what_reads_first_is_warmed_up(ocr, changes, tesseract_pages: int, networks: int):
    """What reads first, once."""
    loaded: list[int] = []
    rapidocr = dataclasses.replace(ocr.all.rapidocr, warm_up=lambda: loaded.append(1))
    await ocr.service(rapidocr=rapidocr, **changes).warm_up(("es",))

    assert (tesseract_pages, networks) == (len(ocr.prepare.payloads), len(loaded))


async def test_a_failed_warm_up_is_no_error(ocr):
    ocr.tesseract.answer = InferenceFailed("broken")

    await ocr.service().warm_up(("es", "en"))


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
    whole = page_of(raster(), turned_result(), 1, "pdf", CHOSEN)
    late = page_of(raster(), dataclasses.replace(turned_result(), incomplete="its time was over"), 1, "pdf", CHOSEN)

    assert "it has no text of its own; because; drawn so; the file is cut off" == page.why
    assert "it has no text of its own; because; drawn so; its time was over" == late.why
    assert [True, True, False] == [page.incomplete, late.incomplete, whole.incomplete]
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
