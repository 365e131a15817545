"""Pages as scanners and cameras give them, read by the real engines on real lanes: each has a right answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from backend.batching.batcher import Batcher
from backend.batching.policy import QueueLimits
from backend.engines.ocr.records import OcrImage, OcrResult
from backend.services.documents.ocr import OcrService
from backend.services.documents.ocr_engines import load_ocr_engines
from backend.telemetry import Telemetry
from tests.engines.ocr.drawn_pages import LINES, drawn_page, pixels_of

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


@pytest.mark.parametrize("engine", ["auto", "tesseract"])
async def test_a_black_border(service: OcrService, engine: str) -> None:
    """Of the scanner's lid: it costs no word and adds none."""
    page = np.pad(pixels_of(drawn_page(LONG)), 60, constant_values=8)

    assert text_of(await read(service, page, engine)) == " ".join(LONG)


async def test_two_pages_on_one_scan(service: OcrService) -> None:
    """The left page first, then the right one."""
    gutter = np.full((len(pixels_of(drawn_page(LINES * 2))), 40), 200, np.uint8)
    scan = np.hstack([pixels_of(drawn_page(LINES * 2)), gutter, pixels_of(drawn_page(LINES[::-1] * 2))])
    text = text_of(await read(service, scan))

    assert text == " ".join((*LINES * 2, *LINES[::-1] * 2))


async def test_print_of_three_pixels(service: OcrService) -> None:
    """Nobody can read it: few words, and an answer."""
    small = drawn_page(LONG).resize((90, 150), Image.Resampling.BOX)
    result = await read(service, pixels_of(small))

    assert len(result.words) < 20
    assert "" == result.incomplete


@pytest.mark.parametrize("engine", ["auto", "tesseract"])
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
