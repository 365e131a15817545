"""Pages as image models take them, from worker processes: upright, and as training decodes the same files."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from backend.files.file_readers import FileReaders
from backend.files.limits import FileLimits
from backend.files.records import Framing
from backend.training.data.images import decode, resize
from tests.files.pdfs import pdf, text

FRAMING = Framing(2, (24, 16))


@pytest.fixture(scope="module")
def readers() -> Iterator[FileReaders]:
    with FileReaders(1, FileLimits()) as started:
        yield started


def scene(mode: str = "RGB") -> Image.Image:
    """No two of its eight orientations are alike."""
    pixels = np.full((90, 60, 3), 255, np.uint8)
    pixels[5:30, 4:20] = (200, 30, 30)
    pixels[60:85, 30:40] = (20, 20, 120)
    return Image.fromarray(pixels).convert(mode)


def framed(readers: FileReaders, content: bytes, *, turn: int = 0) -> np.ndarray:
    with readers.open(content) as file:
        return readers.model_page(file, 1, FRAMING, turn=turn).pixels


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations(readers: FileReaders, orientation: int, tmp_path: Any) -> None:
    """Photographs stand upright, pixel for pixel as training sees them."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "photo.png"
    scene().save(path, exif=exif)

    np.testing.assert_array_equal(resize(decode(path), 24, 16), framed(readers, path.read_bytes()))


@pytest.mark.parametrize(
    ("form", "mode"),
    [
        pytest.param("PNG", "L", id="gray"),
        pytest.param("PNG", "P", id="palette"),
        pytest.param("PNG", "RGBA", id="transparent"),
        pytest.param("PNG", "LA", id="transparent-gray"),
        pytest.param("JPEG", "CMYK", id="cmyk"),
        pytest.param("TIFF", "1", id="fax"),
        pytest.param("WEBP", "RGB", id="webp"),
    ],
)
def test_modes(readers: FileReaders, tmp_path: Any, form: str, mode: str) -> None:
    """What is served is what was trained on, whatever the file holds."""
    path = tmp_path / "page"
    image = scene(mode)
    if mode in ("RGBA", "LA"):
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    image.save(path, form)

    np.testing.assert_array_equal(resize(decode(path), 24, 16), framed(readers, path.read_bytes()))


def test_16_bits(readers: FileReaders, tmp_path: Any) -> None:
    """Within a level of training, which divides where the reader takes the high byte."""
    path = tmp_path / "deep.png"
    Image.fromarray(np.asarray(scene("L"), np.uint16) * 257).save(path)

    np.testing.assert_allclose(
        resize(decode(path), 24, 16).astype(int), framed(readers, path.read_bytes()).astype(int), atol=1
    )


def test_a_turn_after_the_orientation(readers: FileReaders) -> None:
    """Clockwise, as OCR tells it."""
    target = io.BytesIO()
    scene().rotate(90, expand=True).save(target, "PNG")  # counter-clockwise
    expected = np.asarray(scene().resize((16, 24), Image.Resampling.BILINEAR))

    np.testing.assert_array_equal(expected, framed(readers, target.getvalue(), turn=90))


def test_a_pdf(readers: FileReaders) -> None:
    """Its page drawn with some times the pixels that are wanted, on white."""
    pixels = framed(readers, pdf(text(b"a page of words")))

    assert (24, 16, 3) == pixels.shape
    assert 255 == int(np.median(pixels))
    assert pixels.min() < 255
