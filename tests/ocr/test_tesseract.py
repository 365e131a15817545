"""The Tesseract engine, by library and by program: words, preprocessing, time limits, faults."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from backend.errors import InferenceFailed, InvalidField, SetupError
from backend.ocr import tesseract
from backend.ocr.page_time import LaneShares, PageBudget
from backend.ocr.records import Gray, OcrBlocks, OcrImage, OcrWord, PixelBox
from backend.ocr.tessdata import Tessdata, find_tessdata
from backend.ocr.tesseract import (
    PreparationEngine,
    TesseractEngine,
    TesseractLibrary,
    TesseractPart,
    TesseractProgram,
    start_tesseract,
    start_tesseract_program,
)
from backend.ocr.tesseract_words import TesseractResult
from tests.fakes import ManualClock
from tests.ocr.drawn_pages import LINES, TEXT, drawn_page, pixels_of, skewed

NOWHERE = Path("/nowhere")
STARTS = {"library": start_tesseract, "program": start_tesseract_program}


class Recognized(NamedTuple):
    """A page as the service reads it, without lanes."""

    blocks: OcrBlocks
    rotation: int
    steps: tuple[str, ...]
    confidence: float | None
    complete: bool

    @property
    def words(self) -> list[OcrWord]:
        return [word for block in self.blocks for line in block for word in line]


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
) -> Recognized:
    """All parts of the page; turned, where it is badly recognised."""
    assert isinstance(engine.backend, TesseractLibrary | TesseractProgram)
    data = engine.backend.data
    image = OcrImage(pixels, None, languages, limit_s)
    recognized = recognize_prepared(engine, PreparationEngine(engine, data), image)
    if recognized.complete and (recognized.confidence or 0) < 0.65:
        turned = recognize_prepared(engine, PreparationEngine(engine, data, searches=True), image)
        return turned if turned.rotation else recognized
    return recognized


def recognize_prepared(engine: TesseractEngine, preparation: PreparationEngine, image: OcrImage) -> Recognized:
    (page,) = preparation.finish(preparation.forward(preparation.prepare([image])))
    result = page.joined(engine.finish(engine.forward(engine.prepare(page.parts))))
    return Recognized(result.blocks, page.upright.rotation, page.upright.steps, result.confidence, result.complete)


def text_of(result: Recognized) -> str:
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
    assert engine.version.startswith("tesseract 5.")
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
    """A page over its time is what was read of it by then, and the next one is recognised as usual."""
    busy = pixels_of(drawn_page(LINES * 12, size_px=30))
    page = pixels_of(drawn_page(LINES[:1]))

    late = recognize(engine, busy, limit_s=0.5)

    assert not late.complete
    assert TEXT.startswith(text_of(late)[: len(TEXT)])  # the program tells nothing before its end
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
    monkeypatch.setattr(tesseract, "PAGES_AN_API", 2)
    monkeypatch.setattr(tesseract, "APIS_A_THREAD", 1)
    page = pixels_of(drawn_page(LINES[:1]))

    started: list[tuple[str, ...]] = []
    start = tesseract.TesseractLibrary._start
    monkeypatch.setattr(
        tesseract.TesseractLibrary, "_start", lambda self, codes: started.append(codes) or start(self, codes)
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
    """Needs ``needs_s`` of work for a part, and gets ``share`` of a core; records the time limits it got."""

    version: str = "5.0"
    why: str = "in a test"
    now_s: float = 100.0
    worked_s: float = 7.0
    needs_s: float = 1.0
    share: float = 1.0
    limits_s: list[float] = field(default_factory=list)

    def work_clock(self) -> float:
        return self.worked_s

    def recognize(self, gray: Gray, codes: tuple[str, ...], dpi: float, limit_s: float) -> TesseractResult:
        self.limits_s.append(limit_s)
        took_s = min(limit_s, self.needs_s / self.share)
        self.now_s += took_s
        self.worked_s += took_s * self.share
        complete = took_s < limit_s
        return TesseractResult((((OcrWord("a", PixelBox(0, 0, 5, 5), 0.2),),),), 0.2, complete)


def engine_of(backend: SlowBackend) -> TesseractEngine:
    shares = LaneShares(lambda: backend.now_s)
    return TesseractEngine(backend, shares)


def preparation(engine: TesseractEngine) -> PreparationEngine:
    return PreparationEngine(engine, Tessdata(NOWHERE, ("eng", "spa"), "a test"))


def part(limit_s: float) -> TesseractPart:
    return TesseractPart(np.zeros((9, 9), np.uint8), ("eng",), 200.0, PageBudget(limit_s))


def test_all_recognitions_of_a_page_share_its_time():
    """Its parts have one limit together; those that come after it are not read at all."""
    backend = SlowBackend()
    engine, payload = engine_of(backend), part(2.5)

    results = [engine.recognize(payload) for _ in range(4)]

    assert [True, True, False, False] == [result.complete for result in results]
    assert [1, 1, 1, 0] == [len(result.blocks) for result in results]
    assert 3 == len(backend.limits_s)


def test_waiting_for_a_core_is_not_the_pages_work():
    """A small page on a busy machine takes far longer than its limit on the clock, and is read."""
    backend = SlowBackend(needs_s=1.5, share=0.15)

    assert engine_of(backend).recognize(part(2.0)).complete
    assert backend.now_s - 100.0 > 10.0


def test_a_part_that_gets_no_core_ends():
    """Far over its limit on the clock: its words so far."""
    backend = SlowBackend(share=0.001)

    result = engine_of(backend).recognize(part(1.0))

    assert not result.complete
    assert [["a"]] == [[word.text for word in line] for block in result.blocks for line in block]
    assert 10.0 == pytest.approx(backend.now_s - 100.0)


def test_the_work_ends_with_its_callers_deadline():
    """A lane that read on for 16 s behind a caller of 2 s was the next caller's loss; later parts are not begun."""
    backend = SlowBackend(needs_s=16.0)
    budget = PageBudget(20.0, deadline_s=backend.now_s + 2.0)
    late = replace(part(20.0), budget=budget)

    results = [engine_of(backend).recognize(late) for _ in range(2)]

    assert [False, False] == [result.complete for result in results]
    assert [2.0] == backend.limits_s


def test_the_parts_of_a_page_know_its_callers_deadline():
    rows = np.full((300, 600), 255, np.uint8)
    rows[100:140, 50:550:20] = 0
    image = OcrImage(rows, None, ("en",), 20.0, deadline_s=102.0)
    prepare = preparation(engine_of(SlowBackend()))

    [page] = prepare.forward(prepare.prepare([image]))

    assert {102.0} == {each.budget.deadline_s for each in page.parts}


def test_a_lane_remembers_its_share_of_a_core():
    """Tesseract knows the clock only: its limit there follows what the lane's last part got."""
    clock, work = ManualClock(), ManualClock()
    shares = LaneShares(clock)
    budget = PageBudget(20.0)
    first = shares.begin(budget, work)
    at_first_s = first.timeout_s()
    clock.advance(4.0)
    work.advance(2.0)
    shares.end(first)

    assert (25.0, 18.0) == (at_first_s, budget.left_s)
    assert 45.0 == shares.begin(budget, work).timeout_s()


@pytest.mark.parametrize("languages", [("fr",), ("es", "fr"), ("xx",), ()])
def test_a_language_without_data(languages: tuple[str, ...]):
    """The message names what is missing and what is installed."""
    with pytest.raises(InvalidField, match="en, es"):
        preparation(engine_of(SlowBackend())).prepare([OcrImage(np.zeros((9, 9), np.uint8), None, languages, 1.0)])


def test_an_engine_of_the_lanes():
    """One page or part a batch, on any device of the placement."""
    engine = engine_of(SlowBackend())
    prepares = preparation(engine)

    assert (1, "ocr_tesseract", engine) == (engine.budget, engine.name, engine.on(3))
    assert (1, "ocr_prepare", prepares) == (prepares.budget, prepares.name, prepares.on(3))


def test_the_environment_of_the_program(data: Tessdata) -> None:
    """No secrets of this service: only what a program needs, and one thread."""
    start_tesseract_program(data)
    environ = sys.modules["pytesseract.pytesseract"].environ

    assert "1" == environ["OMP_THREAD_LIMIT"]
    assert {"OMP_THREAD_LIMIT", "PATH", "LD_LIBRARY_PATH", "HOME", "LANG", "LC_ALL", "TMPDIR"} >= set(environ)
