"""RapidOCR's engines on drawn pages, with the networks of its wheel."""

import numpy as np
import pytest

from backend.ocr.rapidocr_engines import (
    DetectedPage,
    DetectionEngine,
    RecognitionEngine,
    RecognizedLine,
    bucket_px,
    words_on_page,
)
from backend.ocr.rapidocr_models import RapidOcrModels
from tests.ocr.drawn_pages import LINES, drawn_page, pixels_of, skewed

PRINT = LINES[:3]


@pytest.fixture(scope="module")
def models() -> RapidOcrModels:
    return RapidOcrModels("cpu", 1)


@pytest.fixture(scope="module")
def page() -> np.ndarray:
    return pixels_of(drawn_page(PRINT))


@pytest.fixture(scope="module")
def detected(models: RapidOcrModels, page: np.ndarray) -> DetectedPage:
    return detect(models, page)


def detect(models: RapidOcrModels, pixels: np.ndarray) -> DetectedPage:
    engine = DetectionEngine(models)
    return engine.finish(engine.forward(engine.prepare([pixels])))[0]


def recognize(models: RapidOcrModels, *crops: np.ndarray) -> list[RecognizedLine]:
    engine = RecognitionEngine(models, latin=True, on_gpu=False)
    return engine.finish(engine.forward(engine.prepare(crops)))


def text(lines: list[RecognizedLine]) -> list[str]:
    return [" ".join(word.text for word in line.words) for line in lines]


def words_on(models: RapidOcrModels, found: DetectedPage) -> list[tuple[str, tuple[float, ...]]]:
    """Text and box of each recognised word."""
    blocks = words_on_page(found.lines, recognize(models, *[line.pixels for line in found.lines]))
    return [(word.text, tuple(word.box)) for block in blocks for line in block for word in line]


@pytest.mark.slow
def test_words_of_a_page_in_order(models, detected):
    assert " ".join(PRINT) == " ".join(word for word, _ in words_on(models, detected))
    assert 0 == detected.rotation


@pytest.mark.slow
def test_boxes_lie_on_the_ink(models, page, detected):
    """Each word's box has ink, and all boxes together nearly all of it."""
    left = 255 - page.astype(int)
    for word, (x0, y0, x1, y1) in words_on(models, detected):
        inside = (slice(round(y0), round(y1)), slice(round(x0), round(x1)))

        assert left[inside].max(initial=0) > 200, word
        left[inside] = 0
    assert left.sum() < 0.03 * (255 - page.astype(int)).sum()


@pytest.mark.slow
@pytest.mark.parametrize("turn", [90, 180, 270])
def test_a_rotated_page(models, page, detected, turn):
    found = detect(models, np.ascontiguousarray(np.rot90(page, turn // 90)))
    words = words_on(models, found)

    assert turn == found.rotation
    assert LINES[0].split() == [word for word, _ in words][: len(LINES[0].split())]
    assert words[0][1] == pytest.approx(words_on(models, detected)[0][1], abs=8)


@pytest.mark.slow
def test_rows_of_a_skewed_page(models):
    """Lines that fall by several line heights are still read one after the other."""
    found = detect(models, pixels_of(skewed(drawn_page(PRINT), 5.0)))

    assert " ".join(PRINT) == " ".join(word for word, _ in words_on(models, found))


@pytest.mark.slow
def test_an_empty_page_has_no_lines(models):
    """And no error; also with colour and odd sizes."""
    assert () == detect(models, np.full((37, 411, 3), 240, np.uint8)).lines
    assert () == words_on_page((), ())


@pytest.mark.slow
def test_a_batch_equals_single_crops(models, detected):
    """Batching changes neither text nor order, and confidence only by rounding."""
    crops = [line.pixels for line in detected.lines]
    short = np.ascontiguousarray(crops[0][:, : crops[0].shape[1] // 3])
    crops = [crops[0], short, *crops[1:]]
    singles = [recognize(models, crop)[0] for crop in crops]
    batch = recognize(models, *crops)

    assert text(singles) == text(batch)
    assert [line.confidence for line in singles] == pytest.approx([line.confidence for line in batch], abs=0.02)


def test_padding_to_the_next_bucket_changes_nothing(models, detected):
    """A crop beside a wider one has the same text in the same place."""
    crop = min((line.pixels for line in detected.lines), key=lambda pixels: pixels.shape[1])
    wide = np.full((48, bucket_px(crop.shape[1]) + 200, 3), 255, np.uint8)
    [alone], padded = recognize(models, crop), recognize(models, crop, wide)[0]

    assert text([alone]) == text([padded])
    assert alone.words[-1].right_px == pytest.approx(padded.words[-1].right_px, abs=8)


@pytest.mark.parametrize(("width_px", "expected"), [(1, 320), (320, 320), (321, 400), (1500, 1600), (9999, 3200)])
def test_bucket_px(width_px, expected):
    assert expected == bucket_px(width_px)
