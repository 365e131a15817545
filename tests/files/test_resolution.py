"""Choice of the rendering resolution."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backend.files.limits import FileLimits
from backend.files.records import LayerStats
from backend.files.resolution import choose_resolution, most_dpi

A4 = (595.0, 842.0)
LIMITS = FileLimits()


@pytest.mark.parametrize(
    ("size", "image_dpi", "ratio", "expected", "why"),
    [
        pytest.param(A4, None, 0.0, 200, "OCR needs", id="print"),
        pytest.param(A4, 600.0, 0.1, 200, "OCR needs", id="a-logo-is-no-scan"),
        pytest.param(A4, 300.0, 1.0, 300, "own pixels", id="a-scan-keeps-its-pixels"),
        pytest.param(A4, 240.0, 1.0, 240, "own pixels", id="in-between-too"),
        pytest.param(A4, 600.0, 1.0, 300, "finer than OCR needs", id="a-fine-scan-is-made-coarser"),
        pytest.param(A4, 100.0, 1.0, 200, "enlarged", id="a-coarse-scan-is-enlarged"),
        pytest.param(A4, 72.0, 1.0, 144, "enlarged", id="but-at-most-twice"),
        pytest.param(A4, 7.0, 1.0, 200, "OCR needs", id="a-gradient-is-no-scan"),
        pytest.param((3000.0, 4000.0), 72.0, 1.0, 72, "own pixels", id="a-photo-at-one-point-a-pixel"),
        pytest.param((200.0, 280.0), 600.0, 1.0, 600, "own pixels", id="a-small-card-finely-scanned"),
        pytest.param((8400.0, 8400.0), 300.0, 1.0, 54, "LIMIT_RENDER_PIXELS", id="a-bomb-gets-fewer"),
        pytest.param((2384.0, 3370.0), None, 0.0, 157, "LIMIT_RENDER_PIXELS", id="a-poster-gets-fewer"),
    ],
)
def test_choose_resolution(size: tuple[float, float], image_dpi: float | None, ratio: float, expected: float, why: str):
    """200 dpi, a scan's own pixels, or what LIMIT_RENDER_PIXELS allows."""
    stats = LayerStats(image_ratio=ratio, image_dpi=image_dpi)

    chosen = choose_resolution(*size, stats, LIMITS)

    assert chosen.dpi == pytest.approx(expected, abs=1)
    assert why in chosen.why


@given(st.floats(0.01, 20_000), st.floats(0.01, 20_000), st.integers(10_000, 50_000_000))
@example(13635.0, 13635.0, 10_000)  # 100 pixels a side, and 101 where 72 points an inch are multiplied in and out
def test_no_page_is_over_its_budget(width: float, height: float, budget: int):
    """Even though sides are rounded up to whole pixels."""
    scale = most_dpi(width, height, budget) / 72

    assert math.ceil(width * scale) * math.ceil(height * scale) <= budget


def test_a_page_without_a_size():
    """A broken page has sides of zero; rendering it fails, choosing a resolution does not."""
    assert choose_resolution(0, 0, LayerStats(), LIMITS).dpi == 200
