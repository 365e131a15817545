"""A page to words: who is asked, what is done when one fails, and what is given up when the caller leaves."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from backend.batching.batcher import Batcher
from backend.batching.policy import QueueLimits
from backend.engines.ocr.ctc_words import CropWord, ReadLine
from backend.engines.ocr.rapidocr_detector import DetectedPage
from backend.engines.ocr.records import OcrImage, OcrResult, OcrWord, PixelBox
from backend.engines.ocr.text_boxes import Crop, Line
from backend.errors import InferenceFailed, InvalidField, TooLarge, Unavailable
from backend.services.documents.ocr import PageReader
from backend.services.documents.ocr_engines import OcrEngines, RapidEngines, TesseractFacts
from backend.telemetry import Telemetry
from tests.fakes import EchoEngine, GatedEngine

INK = np.full((40, 60), 255, np.uint8)
INK[10:20, 10:50] = 0
PAGE = OcrImage(INK, 200.0, ("es", "en"), limit_s=60.0)
LINES = 70  # more than are asked for at once


@dataclass
class Told(EchoEngine):
    """Answers every payload with what it was told to; an error is raised."""

    answer: Any = None
    asked: list[Any] = field(default_factory=list)

    def finish(self, output: Any) -> list[Any]:
        self.asked += output
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


READ = ReadLine((CropWord("hola", 0, 200, 0.99), CropWord("mundo", 216, 432, 0.99)), 0.99)


@dataclass
class Desk:
    """Engines that answer as told, and a reader over them."""

    tesseract: Told = field(default_factory=lambda: Told("ocr_tesseract", answer=tesseract()))
    detect: Told = field(default_factory=lambda: Told("ocr_detect", answer=detected()))
    latin: Told = field(default_factory=lambda: Told("ocr_recognize", budget=2000, answer=READ))
    every_script: Told = field(default_factory=lambda: Told("ocr_recognize", budget=2000, answer=READ))
    batcher: Batcher = field(default_factory=lambda: Batcher(1, QueueLimits(1_000_000), Telemetry()))

    @property
    def all(self) -> OcrEngines:
        facts = TesseractFacts(self.tesseract, "tesseract 5", ("en", "es"))
        rapid = RapidEngines("rapidocr 3", self.detect, self.latin, self.every_script, ("en", "es", "fr", "zh"))
        return OcrEngines(facts, None, rapid)

    def reader(self, *, rest_s: float = 60.0, **changes: Any) -> PageReader:
        """``changes``: fields of OcrEngines."""
        return PageReader(dataclasses.replace(self.all, **changes), self.batcher, self.batcher, rest_s=rest_s)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    desk.batcher.start(asyncio.get_running_loop())
    yield desk
    await desk.batcher.drain(0.0)


async def test_a_sure_reading_costs_no_second_engine(desk):
    """Clean print is Tesseract's, and the answer says why."""
    result = await desk.reader().read(PAGE)

    assert "tesseract 5" == result.engine
    assert "sure of it" in result.why
    assert [] == desk.detect.asked


async def test_a_doubtful_page_is_read_again(desk):
    """RapidOCR's words, in their places, with its own confidence and the reason."""
    desk.tesseract.answer = tesseract(0.5)
    result = await desk.reader().read(PAGE)

    assert "rapidocr 3" == result.engine
    assert "Tesseract was unsure" in result.why
    assert ["hola", "mundo"] * LINES == [word.text for word in result.words]
    assert 0.99 == pytest.approx(result.confidence)
    assert (45.0, 12.0, 90.0, 22.0) == pytest.approx(result.words[3].box)


async def test_every_line_is_asked_for_once(desk):
    """Long pages are read in parts; lines of one part share batches."""
    await desk.reader().read(PAGE, "rapidocr")

    assert LINES == len(desk.latin.asked)
    assert len(desk.latin.batches) < LINES


async def test_a_turned_page_says_so(desk):
    """The boxes are those of the page as it was turned."""
    desk.detect.answer = detected(180)
    result = await desk.reader().read(PAGE, "rapidocr")

    assert (180, ("turn 180°",)) == (result.rotation, result.steps)


@pytest.mark.parametrize("engine", ["auto", "rapidocr"])
async def test_a_blank_page_asks_nobody(desk, engine):
    """White paper has no words, and no lane is taken for it."""
    blank = dataclasses.replace(PAGE, pixels=np.full((40, 60, 3), 253, np.uint8))
    result = await desk.reader().read(blank, engine)

    assert ((), None) == (result.blocks, result.confidence)
    assert "blank" in result.why
    assert [] == [*desk.tesseract.asked, *desk.detect.asked]


async def test_memory_is_given_back_at_rest(desk):
    """When the last of several pages has been read, once; not before, and again after the next."""
    given = asyncio.Queue()
    loop = asyncio.get_running_loop()
    rapid = dataclasses.replace(desk.all.rapid, give_back=lambda: loop.call_soon_threadsafe(given.put_nowait, None))
    reader = desk.reader(rest_s=0.0, rapid=rapid)
    for _ in range(2):
        await asyncio.gather(*(reader.read(PAGE) for _ in range(3)))
        await given.get()

    assert given.empty()


async def test_the_setting_is_what_auto_means(desk):
    """OCR_ENGINE=rapidocr, and a request that asks for nothing else."""
    result = await desk.reader(wish="rapidocr").read(PAGE)

    assert "rapidocr 3" == result.engine
    assert [] == desk.tesseract.asked


async def test_a_request_may_ask_for_one_engine(desk):
    """And gets it, however unsure it is."""
    desk.tesseract.answer = tesseract(0.2)
    result = await desk.reader().read(PAGE, "tesseract")

    assert "tesseract 5" == result.engine
    assert [] == desk.detect.asked


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"rapid": None, "absent": ("rapidocr is not installed",)}, "tesseract 5", id="without-rapidocr"),
        pytest.param({"tesseract": None, "absent": ("no language data",)}, "rapidocr 3", id="without-tesseract"),
    ],
)
async def test_one_engine_alone_reads_everything(desk, changes, expected):
    """Doubt or not; why there is no choice is said."""
    desk.tesseract.answer = tesseract(0.2)
    result = await desk.reader(**changes).read(PAGE)

    assert expected == result.engine
    assert changes["absent"][0] in result.why


async def test_a_language_that_tesseract_lacks_is_rapidocrs(desk):
    """And one beyond Latin print has a reader of its own."""
    french = await desk.reader().read(dataclasses.replace(PAGE, languages=("fr",)))
    await desk.reader().read(dataclasses.replace(PAGE, languages=("zh",)))

    assert "Tesseract has no data for fr" in french.why
    assert [] == desk.tesseract.asked
    assert (LINES, LINES) == (len(desk.latin.asked), len(desk.every_script.asked))


@pytest.mark.parametrize(
    ("engine", "languages", "param", "part"),
    [
        pytest.param("auto", ("ru",), "language", "only en, es, fr, zh", id="nobody-reads-it"),
        pytest.param("tesseract", ("fr",), "language", "only en, es", id="the-one-asked-for-does-not"),
        pytest.param("pytesseract", ("es",), "engine", "auto, tesseract, rapidocr", id="no-such-engine-here"),
        pytest.param("abbyy", ("es",), "engine", "auto, tesseract, rapidocr", id="no-such-engine-at-all"),
    ],
)
async def test_what_cannot_be_had(desk, engine, languages, param, part):
    """The error names the field and what there is."""
    with pytest.raises(InvalidField, match=part) as caught:
        await desk.reader().read(dataclasses.replace(PAGE, languages=languages), engine)

    assert param == caught.value.param


async def test_without_any_engine(desk):
    """The reasons are the message."""
    with pytest.raises(Unavailable, match="no language data"):
        await desk.reader(tesseract=None, rapid=None, absent=("no language data",)).read(PAGE)


async def test_a_failure_of_tesseract_is_rapidocrs_page(desk):
    """It gave up on the page; the other has not seen it yet."""
    desk.tesseract.answer = InferenceFailed("Tesseract gave up on this page")
    result = await desk.reader().read(PAGE)

    assert "rapidocr 3" == result.engine
    assert "gave up" in result.why


async def test_a_doubtful_reading_is_better_than_none(desk):
    """RapidOCR failed: Tesseract's reading stands, with both reasons."""
    desk.tesseract.answer = tesseract(0.5)
    desk.detect.answer = InferenceFailed("no boxes")
    result = await desk.reader().read(PAGE)

    assert "tesseract 5" == result.engine
    assert "RapidOCR could not read it: no boxes" in result.why


async def test_the_limit_of_seconds_stops_between_parts(desk):
    """Lines that would come later are never asked for."""
    with pytest.raises(TooLarge, match="LIMIT_PAGE_S"):
        await desk.reader().read(dataclasses.replace(PAGE, limit_s=-1.0), "rapidocr")

    assert [] == desk.latin.asked


async def test_leaving_gives_up_what_waits(desk):
    """A cancelled caller's lines never reach the device."""
    gated = GatedEngine("ocr_recognize", budget=500)
    rapid = dataclasses.replace(desk.all.rapid, latin=gated)
    task = asyncio.create_task(desk.reader(rapid=rapid).read(PAGE, "rapidocr"))
    await asyncio.to_thread(gated.entered.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gated.gate.set()
    await desk.reader().read(PAGE, "tesseract")  # the lane has passed over the rest

    assert 1 == len(gated.batches)


async def test_report(desk):
    """What there is, in which version, and what auto does."""
    report = desk.reader(absent=("pytesseract is not installed",)).report()

    assert {"tesseract", "rapidocr"} == report["engines"].keys()
    assert {"version": "tesseract 5", "languages": ["en", "es"]} == report["engines"]["tesseract"]
    assert ["pytesseract is not installed"] == report["absent"]
    assert "Tesseract reads first" in report["why"]
    assert ("tesseract", "rapidocr") == desk.reader().engines


async def test_warming_up_reads_a_page_on_every_lane(desk):
    """By Tesseract alone, before the first file comes."""
    await desk.reader().warm_up(3, ("es", "en"))

    assert 3 == len(desk.tesseract.asked)
    assert {("es", "en")} == {image.languages for image in desk.tesseract.asked}
    assert [] == desk.detect.asked


@pytest.mark.parametrize("changes", [{"tesseract": None}, {"wish": "rapidocr"}])
async def test_what_will_not_be_asked_is_not_warmed_up(desk, changes):
    """RapidOCR's networks come with the first page that needs them."""
    await desk.reader(**changes).warm_up(2, ("es",))

    assert [] == desk.tesseract.asked == desk.detect.asked


async def test_a_warm_up_that_fails_is_no_failure(desk):
    """The first file tells."""
    desk.tesseract.answer = InferenceFailed("broken")

    await desk.reader().warm_up(1, ("es", "en"))
