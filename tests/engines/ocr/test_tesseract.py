"""The Tesseract engine, by library and by program: words, preprocessing, time limits, faults."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from backend.engines.ocr import tesseract_library
from backend.engines.ocr.page_time import LaneShares
from backend.engines.ocr.records import Gray, OcrImage, OcrResult, OcrWord, PixelBox
from backend.engines.ocr.tessdata import Tessdata, find_tessdata
from backend.engines.ocr.tesseract import TesseractEngine, start_tesseract, start_tesseract_program
from backend.engines.ocr.tesseract_program import TesseractProgram
from backend.engines.ocr.tesseract_words import TesseractResult
from backend.errors import InferenceFailed, InvalidField, SetupError, TooLarge, Unavailable
from tests.engines.ocr.drawn_pages import LINES, TEXT, drawn_page, pixels_of, skewed
from tests.fakes import ManualClock

NOWHERE = Path("/nowhere")
STARTS = {"library": start_tesseract, "program": start_tesseract_program}


@pytest.fixture(scope="module")
def data() -> Tessdata:
    tessdata = find_tessdata()
    assert tessdata is not None
    return tessdata


@pytest.fixture(params=["library", "program"])
def engine(request: pytest.FixtureRequest, data: Tessdata) -> TesseractEngine:
    return STARTS[request.param](data)


@pytest.fixture
def library(data: Tessdata) -> TesseractEngine:
    return start_tesseract(data)


def recognize(
    engine: TesseractEngine, pixels: NDArray[np.uint8], languages: tuple[str, ...] = ("en", "es"), limit_s: float = 60.0
) -> OcrResult:
    (result,) = engine.finish(engine.forward(engine.prepare([OcrImage(pixels, None, languages, limit_s)])))
    return result


def text_of(result: OcrResult) -> str:
    return " ".join(word.text for word in result.words)


@pytest.mark.slow
@pytest.mark.tesseract
def test_a_clean_page(engine: TesseractEngine):
    """Every word, in its line and on its ink, without preprocessing."""
    page = pixels_of(drawn_page())

    result = recognize(engine, page)

    assert text_of(result) == TEXT
    assert [" ".join(word.text for word in line) for block in result.blocks for line in block] == list(LINES)
    assert 0.85 < (result.confidence or 0) <= 1
    assert (0, ()) == (result.rotation, result.steps)
    assert result.engine.startswith("tesseract 5.")
    assert "as it is" in result.why
    for word in result.words:
        assert_on_ink(word, page)


def assert_on_ink(word: OcrWord, page: NDArray[np.uint8]) -> None:
    """The box of a word has ink, and its four sides lie within three pixels of it."""
    left, top, right, bottom = (round(side) for side in word.box)
    rows, columns = np.nonzero(page[top:bottom, left:right] < 128)
    assert len(rows), word
    slack = (columns.min(), rows.min(), right - left - 1 - columns.max(), bottom - top - 1 - rows.max())
    assert max(slack) <= 3, (word, slack)


@pytest.mark.slow
@pytest.mark.tesseract
@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_rotated_page(library: TesseractEngine, degrees: int):
    """Words are those of the upright page, on its ink."""
    page = drawn_page()

    result = recognize(library, pixels_of(page.rotate(-degrees, expand=True)))

    assert text_of(result) == TEXT
    assert 360 - degrees == result.rotation
    for word in result.words:
        assert_on_ink(word, pixels_of(page))


@pytest.mark.tesseract
@pytest.mark.parametrize("degrees", [-7.0, 2.5])
def test_a_skewed_page(library: TesseractEngine, degrees: float):
    """Words are recognised on the deskewed page, with boxes on the skewed one."""
    page = pixels_of(skewed(drawn_page(), degrees))

    result = recognize(library, page)

    assert text_of(result) == TEXT
    assert result.steps
    for word in result.words:
        assert_covers_ink(word, page)


def assert_covers_ink(word: OcrWord, page: NDArray[np.uint8]) -> None:
    """The box holds the slanting ink of the word, and little ink degrees just outside."""
    left, top, right, bottom = (round(side) for side in word.box)
    inside = np.count_nonzero(page[top:bottom, left:right] < 128)
    beside = np.count_nonzero(page[top:bottom, max(0, left - 3) : right + 3] < 128)
    assert inside > 20 * len(word.text), word
    assert inside >= 0.93 * beside, word


@pytest.mark.slow
@pytest.mark.tesseract
@pytest.mark.parametrize(
    ("damage", "step"),
    [
        pytest.param(lambda page: 255 - page, "invert", id="white-on-black"),
        pytest.param(
            lambda page: (page * np.linspace(1.0, 0.25, page.shape[1])).astype(np.uint8), "even", id="in-a-shadow"
        ),
        pytest.param(
            lambda page: np.where(np.random.default_rng(5).random(page.shape) < 0.012, 0, page).astype(np.uint8),
            "remove specks",
            id="speckled",
        ),
        pytest.param(
            lambda page: np.asarray(Image.fromarray(page).resize((page.shape[1] // 3, page.shape[0] // 3))),
            "enlarge",
            id="small-print",
        ),
    ],
)
def test_preprocessing_of_damaged_pages(library: TesseractEngine, damage, step: str):
    """The fault is detected and corrected: nine words of ten are recognised."""
    result = recognize(library, damage(pixels_of(drawn_page())))

    assert any(done.startswith(step) for done in result.steps), result.steps
    right = set(TEXT.split()) & set(text_of(result).split())
    assert len(right) >= 0.9 * len(set(TEXT.split()))


@pytest.mark.slow
@pytest.mark.tesseract
@pytest.mark.parametrize(
    "pixels",
    [
        pytest.param(np.zeros((1, 1), np.uint8), id="one-black-pixel"),
        pytest.param(np.full((40, 40, 3), 255, np.uint8), id="white"),
        pytest.param(np.tile(np.array([0, 255], np.uint8), (1, 450)), id="one-row"),
        pytest.param(np.tile(np.array([[0], [255]], np.uint8), (450, 1)), id="one-column"),
        pytest.param((np.indices((300, 300)).sum(0) % 2 * 255).astype(np.uint8), id="chequered"),
        pytest.param(
            np.where(np.arange(40_000) % 9 < 4, 0, 255).astype(np.uint8)[None].repeat(30, 0), id="a-long-strip"
        ),
        pytest.param(np.random.default_rng(0).integers(0, 255, (300, 200), np.uint8), id="noise"),
    ],
)
def test_odd_images(engine: TesseractEngine, pixels: NDArray[np.uint8]):
    result = recognize(engine, pixels)

    height, width_px = pixels.shape[:2] if result.rotation in {0, 180} else pixels.shape[1::-1]
    for word in result.words:
        assert 0 <= word.box.left < word.box.right <= width_px
        assert 0 <= word.box.top < word.box.bottom <= height


@pytest.mark.slow
@pytest.mark.tesseract
def test_the_time_limit(engine: TesseractEngine):
    """A page over its time fails, and the next one is recognised as usual."""
    busy = pixels_of(drawn_page(LINES * 12, size_px=30))
    page = pixels_of(drawn_page(LINES[:1]))

    with pytest.raises((TooLarge, Unavailable), match="LIMIT_PAGE_S"):  # the second where other tests take the cores
        recognize(engine, busy, limit_s=0.05)

    assert text_of(recognize(engine, page)) == LINES[0]


@pytest.mark.slow
@pytest.mark.tesseract
def test_threads_in_parallel(library: TesseractEngine):
    """Each thread has its own APIs, and results are those of a single thread."""
    pages = [pixels_of(drawn_page((line,))) for line in LINES[:6]]

    with ThreadPoolExecutor(3) as pool:
        texts = list(pool.map(lambda page: text_of(recognize(library, page)), pages))

    assert list(LINES[:6]) == texts


@pytest.mark.tesseract
def test_a_library_api_is_replaced(library: TesseractEngine, monkeypatch: pytest.MonkeyPatch):
    """After its pages, and when a thread has too many; results do not change."""
    monkeypatch.setattr(tesseract_library, "_PAGES_AN_API", 2)
    monkeypatch.setattr(tesseract_library, "_APIS_A_THREAD", 1)
    page = pixels_of(drawn_page(LINES[:1]))

    started: list[tuple[str, ...]] = []
    start = tesseract_library.TesseractLibrary._start
    monkeypatch.setattr(
        tesseract_library.TesseractLibrary, "_start", lambda self, codes: started.append(codes) or start(self, codes)
    )

    texts = [
        text_of(recognize(library, page, languages)) for languages in [("en",), ("en",), ("en",), ("es",), ("en",)]
    ]

    assert [LINES[0]] * 5 == texts
    assert [("eng",), ("eng",), ("spa",), ("eng",)] == started


@pytest.mark.tesseract
def test_broken_data(tmp_path, engine: TesseractEngine):
    """The page fails with the name of the data, and nothing else does."""
    (tmp_path / "spa.traineddata").write_bytes(b"not what it says")
    broken = Tessdata(tmp_path, ("spa",), "a test")
    start = start_tesseract if engine.name == "ocr_tesseract" else start_tesseract_program

    with pytest.raises(InferenceFailed):
        recognize(start(broken), pixels_of(drawn_page(LINES[:1])), ("es",))


def test_without_the_program():
    nowhere = Tessdata(NOWHERE, ("eng",), "a test")

    with pytest.raises(SetupError, match="no-such-tesseract"):
        TesseractProgram(nowhere, "no-such-tesseract")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tesserocr", None)

    with pytest.raises(SetupError, match="tesserocr"):
        start_tesseract(Tessdata(NOWHERE, ("eng",), "a test"))


@dataclass
class SlowBackend:
    """Takes a second of its clock for each recognition, of which it works ``share``; records the time limits it got."""

    version: str = "5.0"
    why: str = "in a test"
    now_s: float = 100.0
    worked_s: float = 7.0
    share: float = 1.0
    limits_s: list[float] = field(default_factory=list)

    def work_clock(self) -> float:
        return self.worked_s

    def recognize(self, gray: Gray, codes: tuple[str, ...], dpi: float, limit_s: float) -> TesseractResult:
        self.limits_s.append(limit_s)
        self.now_s += 1.0
        self.worked_s += self.share
        return TesseractResult((((OcrWord("a", PixelBox(0, 0, 5, 5), 0.2),),),), 0.2)


def engine_of(backend: SlowBackend, *codes: str) -> TesseractEngine:
    shares = LaneShares(lambda: backend.now_s)
    return TesseractEngine(backend, Tessdata(NOWHERE, codes or ("eng", "spa"), "a test"), shares)


def test_all_recognitions_of_a_page_share_its_time():
    """Trials of directions and the page itself have one limit together."""
    backend = SlowBackend()

    with pytest.raises(TooLarge, match=r"3\.0 is over the limit of 3"):
        recognize(engine_of(backend), pixels_of(drawn_page()), limit_s=3.0)

    assert 3 == len(backend.limits_s)


def test_waiting_for_a_core_is_not_the_pages_work():
    """A small page on a busy machine takes longer than its limit on the clock, and is read."""
    backend = SlowBackend(share=0.1)

    assert recognize(engine_of(backend), pixels_of(drawn_page()), limit_s=2.0).words
    assert backend.now_s - 100.0 > 2.0


def test_a_page_that_gets_no_core_may_be_sent_again():
    """Far over its limit on the clock, and within its limit of work: given up, and not the page's fault."""
    backend = SlowBackend(share=0.01)

    with pytest.raises(Unavailable, match=r"after 3\.0 s with 0\.0 s of OCR.*LIMIT_PAGE_S") as error:
        recognize(engine_of(backend), pixels_of(drawn_page()), limit_s=1.0)

    assert error.value.retryable


def test_a_lane_remembers_its_share_of_a_core():
    """Tesseract knows the clock only: its limit there follows what the lane's last page got."""
    clock, work = ManualClock(), ManualClock()
    shares = LaneShares(clock)
    first = shares.begin(20.0, work)
    clock.advance(4.0)
    work.advance(2.0)
    shares.end(first)
    second = shares.begin(20.0, work)
    starved_s = second.timeout_s()
    clock.advance(4.0)
    work.advance(4.0)
    shares.end(second)

    assert (50.0, 25.0) == (starved_s, shares.begin(20.0, work).timeout_s())


@pytest.mark.parametrize("languages", [("fr",), ("es", "fr"), ("xx",), ()])
def test_a_language_without_data(languages: tuple[str, ...]):
    """The message names what is missing and what is installed."""
    with pytest.raises(InvalidField, match="en, es"):
        engine_of(SlowBackend()).prepare([OcrImage(np.zeros((9, 9), np.uint8), None, languages, 1.0)])


def test_an_engine_of_the_lanes():
    """One page a batch, on any device of the placement."""
    engine = engine_of(SlowBackend())

    assert (1, "ocr_tesseract", engine) == (engine.budget, engine.name, engine.on(3))


def test_the_environment_of_the_program(data: Tessdata) -> None:
    """No secrets of this service: only what a program needs, and one thread."""
    start_tesseract_program(data)
    environ = sys.modules["pytesseract.pytesseract"].environ

    assert "1" == environ["OMP_THREAD_LIMIT"]
    assert {"OMP_THREAD_LIMIT", "PATH", "LD_LIBRARY_PATH", "HOME", "LANG", "LC_ALL", "TMPDIR"} >= set(environ)
