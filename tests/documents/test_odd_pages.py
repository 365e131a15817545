"""Pages as scanners and cameras give them, read by the real engines on real lanes: each has a right answer."""

import asyncio
import io
from collections.abc import AsyncIterator

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from backend.documents.extraction import DocumentExtractor
from backend.documents.ocr import OcrService
from backend.documents.ocr_engines import load_ocr_engines
from backend.documents.records import DocumentOptions
from backend.files.file_readers import FileReaders
from backend.files.stored_file import StoredFile
from backend.lanes.batcher import Batcher
from backend.lanes.cache.store import BlobCache, NullCache
from backend.lanes.inference import Urgency
from backend.lanes.work_queue import QueueLimits
from backend.ocr.records import OcrImage, OcrResult
from backend.telemetry import Telemetry
from tests.ocr.drawn_pages import LINES, drawn_page, pixels_of

pytestmark = [pytest.mark.tesseract, pytest.mark.slow]
LONG = LINES * 3
NOISE = np.random.default_rng(0)


@pytest.fixture
async def service() -> AsyncIterator[OcrService]:
    lanes = Batcher(2, QueueLimits(1_000_000), Telemetry())
    lanes.start(asyncio.get_running_loop())
    yield OcrService(load_ocr_engines("auto"), lanes, lanes)
    await lanes.drain(0.0)


async def read(service: OcrService, pixels: NDArray[np.uint8], engine: str = "auto") -> OcrResult:
    return await service.recognize(OcrImage(pixels, None, ("en", "es"), 20.0), engine)  # type: ignore[arg-type]


def text_of(result: OcrResult) -> str:
    return " ".join(word.text for word in result.words)


async def test_a_long_page_in_parts(service: OcrService) -> None:
    """Every line once and in order, with boxes where it stands on the page."""
    result = await read(service, pixels_of(drawn_page(LONG)))

    assert list(LONG) == [" ".join(word.text for word in line) for block in result.blocks for line in block]
    assert result.engine.startswith("tesseract")
    tops = [line[0].box.top for block in result.blocks for line in block]
    assert sorted(tops) == tops


@pytest.mark.parametrize("engine", ["auto", "tesseract", "rapidocr"])
@pytest.mark.parametrize("degrees", [90, 180, 270])
async def test_turned_pages(service: OcrService, engine: str, degrees: int) -> None:
    """Read upright by either engine."""
    result = await read(service, pixels_of(drawn_page().rotate(-degrees, expand=True)), engine)

    assert 360 - degrees == result.rotation
    assert set(" ".join(LINES).split()) == set(text_of(result).split())


async def test_turned_pages_of_one_file(service: OcrService, file_readers: FileReaders) -> None:
    """Each page is turned by itself, and the file's text is in the order of its pages."""
    stream = io.BytesIO()
    scans = [drawn_page().rotate(-degrees, expand=True) for degrees in (0, 90, 180, 270)]
    scans[0].save(stream, "PDF", save_all=True, append_images=scans[1:], resolution=200)
    extractor = DocumentExtractor(
        file_readers, service, BlobCache(NullCache()), languages=("en", "es"), pages_at_once=2, version="test"
    )
    upload = StoredFile.of(stream.getvalue(), file_readers.limits)

    extracted = await extractor.extract(upload, DocumentOptions(), Urgency(), lambda _: None, lambda _: None)
    pages = extracted.document.pages

    assert [0, 270, 180, 90] == [page.rotation for page in pages]
    assert len({(round(page.width), round(page.height)) for page in pages}) == 1
    for page in pages:
        assert set(" ".join(LINES).split()) == set(page.text.split())
    upload.close()


@pytest.mark.parametrize("engine", ["auto", "tesseract", "rapidocr"])
async def test_a_black_border(service: OcrService, engine: str) -> None:
    """Of the scanner's lid: it costs no word and adds none."""
    page = np.pad(pixels_of(drawn_page(LONG)), 60, constant_values=8)

    assert text_of(await read(service, page, engine)) == " ".join(LONG)


@pytest.mark.parametrize("engine", ["tesseract", "rapidocr"])
async def test_two_pages_on_one_scan(service: OcrService, engine: str) -> None:
    """The left page first, then the right one."""
    gutter = np.full((len(pixels_of(drawn_page(LINES * 2))), 40), 200, np.uint8)
    scan = np.hstack([pixels_of(drawn_page(LINES * 2)), gutter, pixels_of(drawn_page(LINES[::-1] * 2))])
    text = text_of(await read(service, scan, engine))

    assert text == " ".join((*LINES * 2, *LINES[::-1] * 2))


@pytest.mark.parametrize("engine", ["tesseract", "rapidocr"])
async def test_paragraphs_in_two_languages(service: OcrService, engine: str) -> None:
    """Accents and eñes of the one beside words of the other."""
    spanish = ("El señor Ibáñez pagará el alquiler cada año", "antes del día cinco, según la cláusula décima.")
    english = ("The landlord shall return the deposit within", "thirty days after the keys were handed over.")

    lines = (*spanish, *english, *spanish)
    page = np.full((120 * (len(lines) + 2), 1000, 3), 255, np.uint8)
    for number, line in enumerate(lines):  # by OpenCV: Pillow's own font has no accents
        cv2.putText(page, line, (60, 120 * (number + 1)), (0, 0, 0), cv2.FontFace("sans"), 30)

    assert text_of(await read(service, page, engine)) == " ".join(lines)


@pytest.mark.parametrize("engine", ["auto", "tesseract", "rapidocr"])
async def test_print_of_three_pixels(service: OcrService, engine: str) -> None:
    """Nobody can read it: few words, and an answer."""
    small = drawn_page(LONG).resize((90, 150), Image.Resampling.BOX)
    result = await read(service, pixels_of(small), engine)

    assert len(result.words) < 20
    assert "" == result.incomplete


async def test_forty_megapixels_of_noise(service: OcrService) -> None:
    """As much as LIMIT_RENDER_PIXELS draws, with letters nowhere: an answer within the page's work, and few words."""
    result = await read(service, NOISE.integers(0, 255, (8000, 5000), np.uint8))

    assert len(result.words) < 20


@pytest.mark.parametrize("engine", ["auto", "tesseract", "rapidocr"])
@pytest.mark.parametrize(
    "pixels",
    [
        pytest.param(NOISE.integers(0, 255, (1, 5000), np.uint8), id="one-pixel-high"),
        pytest.param(NOISE.integers(0, 255, (5000, 1), np.uint8), id="one-pixel-wide"),
        pytest.param(NOISE.integers(0, 255, (1500, 1500), np.uint8), id="noise"),
        pytest.param(np.where(NOISE.random((1600, 1200)) < 0.01, 0, 255).astype(np.uint8), id="specks"),
    ],
)
async def test_pages_without_print(service: OcrService, engine: str, pixels: NDArray[np.uint8]) -> None:
    """Nothing is found in them, and that is the answer."""
    result = await read(service, pixels, engine)

    assert ((), "") == (result.blocks, result.incomplete)
