"""Tesseract reads pages as they come, through either door, and takes no longer than it may."""

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
from backend.engines.ocr.records import Gray, OcrImage, OcrResult, OcrWord, PixelBox
from backend.engines.ocr.tessdata import Tessdata, find_tessdata
from backend.engines.ocr.tesseract import TesseractEngine, start_tesseract, start_tesseract_program
from backend.engines.ocr.tesseract_program import ProgramReader
from backend.engines.ocr.tesseract_words import Reading
from backend.errors import InferenceFailed, InvalidField, SetupError, TooLarge
from tests.conftest import absent
from tests.engines.ocr.drawn_pages import LINES, TEXT, drawn_page, pixels_of, skewed

NOWHERE = Path("/nowhere")
STARTS = {"library": start_tesseract, "program": start_tesseract_program}


@pytest.fixture(scope="module")
def data() -> Tessdata:
    """This machine's language data."""
    found = find_tessdata()
    if found is None or not {"eng", "spa"} <= set(found.codes):
        absent("Tesseract's data for Spanish and English are not installed (tools/system_packages.sh installs them)")
    assert found is not None
    return found


@pytest.fixture(params=["library", "program"])
def engine(request: pytest.FixtureRequest, data: Tessdata) -> TesseractEngine:
    return STARTS[request.param](data)


@pytest.fixture
def library(data: Tessdata) -> TesseractEngine:
    return start_tesseract(data)


def read(
    engine: TesseractEngine,
    pixels: NDArray[np.uint8],
    languages: tuple[str, ...] = ("en", "es"),
    limit_s: float = 60.0,
) -> OcrResult:
    """One page through the engine's three verbs."""
    (result,) = engine.finish(engine.forward(engine.prepare([OcrImage(pixels, None, languages, limit_s)])))
    return result


def text_of(result: OcrResult) -> str:
    return " ".join(word.text for word in result.words)


@pytest.mark.tesseract
def test_a_clean_page(engine: TesseractEngine):
    """Every word, in its line, on its ink, with one recognition and nothing done to the page."""
    page = pixels_of(drawn_page())

    result = read(engine, page)

    assert text_of(result) == TEXT
    assert [" ".join(word.text for word in line) for block in result.blocks for line in block] == list(LINES)
    assert 0.85 < (result.confidence or 0) <= 1
    assert (0, ()) == (result.rotation, result.steps)
    assert result.engine.startswith("tesseract 5.")
    assert "as it is" in result.why
    for word in result.words:
        assert_on_ink(word, page)


def assert_on_ink(word: OcrWord, page: NDArray[np.uint8]) -> None:
    """The box of a word holds ink, and its four sides lie within three pixels of it."""
    left, top, right, bottom = (round(side) for side in word.box)
    rows, columns = np.nonzero(page[top:bottom, left:right] < 128)
    assert len(rows), word
    slack = (columns.min(), rows.min(), right - left - 1 - columns.max(), bottom - top - 1 - rows.max())
    assert max(slack) <= 3, (word, slack)


@pytest.mark.tesseract
@pytest.mark.parametrize("lies", [90, 180, 270])
def test_a_turned_page(library: TesseractEngine, lies: int):
    """Words of a page that lies on its side or its head are those of the upright page, on its ink."""
    page = drawn_page()

    result = read(library, pixels_of(page.rotate(-lies, expand=True)))

    assert text_of(result) == TEXT
    assert 360 - lies == result.rotation
    for word in result.words:
        assert_on_ink(word, pixels_of(page))


@pytest.mark.tesseract
@pytest.mark.parametrize("degrees", [-7.0, 2.5])
def test_a_skewed_page(library: TesseractEngine, degrees: float):
    """Words of a skewed page are read on the straightened one, and found on the skewed one."""
    page = pixels_of(skewed(drawn_page(), degrees))

    result = read(library, page)

    assert text_of(result) == TEXT
    assert result.steps
    for word in result.words:
        assert_covers_ink(word, page)


def assert_covers_ink(word: OcrWord, page: NDArray[np.uint8]) -> None:
    """The box holds the word's slanting ink: as much of it as a word has, and little further out on its lines."""
    left, top, right, bottom = (round(side) for side in word.box)
    inside = np.count_nonzero(page[top:bottom, left:right] < 128)
    beside = np.count_nonzero(page[top:bottom, max(0, left - 3) : right + 3] < 128)
    assert inside > 20 * len(word.text), word
    assert inside >= 0.93 * beside, word


@pytest.mark.tesseract
@pytest.mark.parametrize(
    ("spoilt", "step"),
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
def test_a_spoilt_page(library: TesseractEngine, spoilt, step: str):
    """What is wrong with a page is seen and mended: nine words of ten are read."""
    result = read(library, spoilt(pixels_of(drawn_page())))

    assert any(one.startswith(step) for one in result.steps), result.steps
    right = set(TEXT.split()) & set(text_of(result).split())
    assert len(right) >= 0.9 * len(set(TEXT.split()))


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
def test_odd_images_do_no_harm(engine: TesseractEngine, pixels: NDArray[np.uint8]):
    """Whatever is seen on them, boxes lie on the image."""
    result = read(engine, pixels)

    height, width_px = pixels.shape[:2] if result.rotation in {0, 180} else pixels.shape[1::-1]
    for word in result.words:
        assert 0 <= word.box.left < word.box.right <= width_px
        assert 0 <= word.box.top < word.box.bottom <= height


@pytest.mark.tesseract
def test_time_is_kept(engine: TesseractEngine):
    """A page over its time is given up, and the next one is read as if nothing had been."""
    busy = pixels_of(drawn_page(LINES * 12, size_px=30))
    page = pixels_of(drawn_page(LINES[:1]))

    with pytest.raises(TooLarge, match="LIMIT_PAGE_S"):
        read(engine, busy, limit_s=0.05)

    assert text_of(read(engine, page)) == LINES[0]


@pytest.mark.tesseract
def test_threads_read_at_once(library: TesseractEngine):
    """Each thread has readers of its own, and the answers are those of a single one."""
    pages = [pixels_of(drawn_page((line,))) for line in LINES[:6]]

    with ThreadPoolExecutor(3) as pool:
        texts = list(pool.map(lambda page: text_of(read(library, page)), pages))

    assert list(LINES[:6]) == texts


@pytest.mark.tesseract
def test_a_library_reader_is_made_anew(library: TesseractEngine, monkeypatch: pytest.MonkeyPatch):
    """After its pages, and when a thread has too many; what it reads does not change."""
    monkeypatch.setattr(tesseract_library, "_PAGES_A_READER", 2)
    monkeypatch.setattr(tesseract_library, "_SETS_A_THREAD", 1)
    page = pixels_of(drawn_page(LINES[:1]))

    started: list[tuple[str, ...]] = []
    start = tesseract_library.LibraryReader._start
    monkeypatch.setattr(
        tesseract_library.LibraryReader, "_start", lambda self, codes: started.append(codes) or start(self, codes)
    )

    texts = [text_of(read(library, page, languages)) for languages in [("en",), ("en",), ("en",), ("es",), ("en",)]]

    assert [LINES[0]] * 5 == texts
    assert [("eng",), ("eng",), ("spa",), ("eng",)] == started


@pytest.mark.tesseract
def test_broken_data(tmp_path, engine: TesseractEngine):
    """Data that are no data fail that page with their name, and take nothing else down."""
    (tmp_path / "spa.traineddata").write_bytes(b"not what it says")
    broken = Tessdata(tmp_path, ("spa",), "a test")
    start = start_tesseract if engine.name == "ocr_tesseract" else start_tesseract_program

    with pytest.raises(InferenceFailed):
        read(start(broken), pixels_of(drawn_page(LINES[:1])), ("es",))


def test_the_program_that_is_not_there():
    """An explicit wish for it is answered with what to install."""
    nowhere = Tessdata(NOWHERE, ("eng",), "a test")

    with pytest.raises(SetupError, match="no-such-tesseract"):
        ProgramReader(nowhere, "no-such-tesseract")


def test_the_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    """Where tesserocr cannot be imported the start says so."""
    monkeypatch.setitem(sys.modules, "tesserocr", None)

    with pytest.raises(SetupError, match="tesserocr"):
        start_tesseract(Tessdata(NOWHERE, ("eng",), "a test"))


@dataclass
class SlowReader:
    """Takes a second of its clock for each recognition and notes how much time it was given."""

    version: str = "5.0"
    why: str = "in a test"
    now_s: float = 100.0
    given: list[float] = field(default_factory=list)

    def read(self, gray: Gray, codes: tuple[str, ...], dpi: float, limit_s: float) -> Reading:
        self.given.append(limit_s)
        self.now_s += 1.0
        return Reading((((OcrWord("a", PixelBox(0, 0, 5, 5), 0.2),),),), 0.2)


def engine_of(reader: SlowReader, *codes: str) -> TesseractEngine:
    return TesseractEngine(reader, Tessdata(NOWHERE, codes or ("eng", "spa"), "a test"), lambda: reader.now_s)


def test_all_recognitions_of_a_page_share_its_time():
    """A page that may be upside down is read in parts several times; together they have the limit of one."""
    reader = SlowReader()

    with pytest.raises(TooLarge, match=r"3\.0 is over the limit of 3"):
        read(engine_of(reader), pixels_of(drawn_page()), limit_s=3.0)

    assert [3.0, 2.0, 1.0] == reader.given


@pytest.mark.parametrize("languages", [("fr",), ("es", "fr"), ("xx",), ()])
def test_a_language_without_data(languages: tuple[str, ...]):
    """The message names what is missing and what there is."""
    with pytest.raises(InvalidField, match="en, es"):
        engine_of(SlowReader()).prepare([OcrImage(np.zeros((9, 9), np.uint8), None, languages, 1.0)])


def test_an_engine_of_the_lanes():
    """One page a batch, on any device of the placement."""
    engine = engine_of(SlowReader())

    assert (1, "ocr_tesseract", engine) == (engine.budget, engine.name, engine.on(3))


def test_the_program_inherits_nothing_of_ours(data: Tessdata) -> None:
    """No key, no address: only what a program needs, and one thread."""
    start_tesseract_program(data)
    environ = sys.modules["pytesseract.pytesseract"].environ

    assert "1" == environ["OMP_THREAD_LIMIT"]
    assert {"OMP_THREAD_LIMIT", "PATH", "LD_LIBRARY_PATH", "HOME", "LANG", "LC_ALL", "TMPDIR"} >= set(environ)
