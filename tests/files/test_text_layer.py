"""Text layers of PDFs: words, boxes and statistics, with real workers."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from backend.files.file_readers import FileReaders
from backend.files.pages import Box, RawWord, bounding_box
from backend.files.records import TextLayer
from backend.files.resolution import Resolution, choose_resolution
from tests.files.pdfs import pdf, picture, text

GRAY = Image.new("L", (200, 100), 128)


def read(readers: FileReaders, data: bytes) -> TextLayer:
    with readers.open(data) as file:
        return readers.page_text(file, 1)


def words(layer: TextLayer) -> list[RawWord]:
    return [word for block in layer.blocks for line in block for word in line]


def lines(layer: TextLayer) -> list[str]:
    return [" ".join(word.text for word in line) for block in layer.blocks for line in block]


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
@pytest.mark.parametrize(
    ("matrix", "x", "y"),
    [(b"1 0 0 1", 50, 100), (b"0 1 -1 0", 50, 50), (b"-1 0 0 -1", 250, 100), (b"0 -1 1 0", 50, 150)],
    ids=["upright", "up", "upside-down", "down"],
)
def test_boxes_lie_on_the_ink(readers: FileReaders, rotate: int, matrix: bytes, x: float, y: float):
    """For any turn of page and text, words are upright and their boxes cover the black pixels."""
    with readers.open(pdf(text(b"Hello World", x, y, matrix=matrix), rotate=rotate)) as file:
        layer = readers.page_text(file, 1)
        image = readers.render(file, 1, turn=layer.turn)
    ink = np.argwhere(image.pixels < 128) / (image.scale_y, image.scale_x)
    (top, left), (bottom, right) = ink.min(axis=0), ink.max(axis=0)
    box = bounding_box(word.box for word in words(layer))

    assert ["Hello World"] == lines(layer)
    assert (layer.width, layer.height) == (image.width, image.height)
    assert (left, right) == pytest.approx((box.left, box.right), abs=2)
    assert box.top - 1 <= top
    assert bottom <= box.bottom + 1
    assert box.height < 1.4 * 20  # ascent and descent of 20-point type


def test_characters_beyond_sixteen_bits(readers: FileReaders):
    """A surrogate pair is one character, a ligature mapped to two letters is both; words keep one box."""
    data = pdf(text(b"xA yB"), to_unicode=b"<41> <D83DDE00> <42> <00660069>")
    layer = read(readers, data)

    assert ["x\N{GRINNING FACE}", "yfi"] == [word.text for word in words(layer)]
    assert layer.stats.characters == 5


def test_a_hyphen_at_a_line_end_stays(readers: FileReaders):
    """The word is not joined: offsets and boxes match the print."""
    layer = read(readers, pdf(text(b"una factura comer-", 20, 150) + text(b"cial pagada", 20, 125)))

    assert ["una factura comer-", "cial pagada"] == lines(layer)


def test_paragraphs_columns_and_what_is_drawn_late(readers: FileReaders):
    """Blocks end at white space; a header drawn last comes first."""
    body = b"".join(text(b"line %d of it" % index, 20, 150 - 12 * index, size=10) for index in range(3))
    late = text(b"Second part", 20, 80, size=10) + text(b"The header", 20, 185, size=10)
    layer = read(readers, pdf(body + late))

    assert ["The header", "line 0 of it", "line 1 of it", "line 2 of it", "Second part"] == lines(layer)
    assert [1, 3, 1] == [len(block) for block in layer.blocks]


def test_a_raised_mark_stays_on_its_line(readers: FileReaders):
    """A footnote's number neither breaks the line nor becomes a digit of the amount."""
    marked = b"BT /F1 20 Tf 50 100 Td (Total 120) Tj /F1 10 Tf 9 Ts (1) Tj 0 Ts /F1 20 Tf ( net) Tj ET"
    layer = read(readers, pdf(marked))

    assert len(lines(layer)) == 1
    assert lines(layer)[0].replace(" ", "") == "Total1201net"


def test_what_no_viewer_shows_is_left_out(readers: FileReaders):
    """Text off the page is left out."""
    layer = read(readers, pdf(text(b"seen", 50, 100) + text(b"secret", 900, 900)))

    assert ["seen"] == [word.text for word in words(layer)]


def test_a_cropped_page(readers: FileReaders):
    """Boxes are relative to the visible area."""
    layer = read(readers, pdf(text(b"Hi", 50, 100), crop=(40, 90, 240, 190)))

    assert (200, 100) == (layer.width, layer.height)
    assert words(layer)[0].box.left == pytest.approx(10, abs=1)
    assert words(layer)[0].box.bottom == pytest.approx(94, abs=2)


def test_numbers_about_a_scan_with_a_hidden_layer(readers: FileReaders):
    """Images, their resolution, and invisible text."""
    hidden = b"BT 3 Tr /F1 20 Tf 50 100 Td (hidden words) Tj ET\n"
    stats = read(readers, pdf(picture(300, 150) + hidden, image=GRAY)).stats

    assert (11, 11, 2, 1) == (stats.characters, stats.invisible, stats.objects, stats.drawings)
    assert stats.image_ratio == pytest.approx(0.75, abs=0.02)
    assert stats.image_dpi == pytest.approx(48, abs=1)  # 200 pixels on 300 points, 100 on 150


def test_private_characters_are_counted(readers: FileReaders):
    """A font without a Unicode map."""
    stats = read(readers, pdf(text(b"AAAA BC"), to_unicode=b"<41> <E000> <42> <FFFD>")).stats

    assert (6, 5) == (stats.characters, stats.replaced)


def test_a_blank_page(readers: FileReaders):
    """No words and no objects."""
    layer = read(readers, pdf(b""))

    assert ((), 0, 0) == (layer.blocks, layer.stats.characters, layer.stats.objects)


def test_a_filled_field_is_text(readers: FileReaders, data_dir: Path):
    """Form field values are extracted and rendered like print."""
    path = data_dir / "pdf_samples/es_form_padron_madrid.pdf"
    with readers.open(path) as file:
        layer = readers.page_text(file, 1)
    values = [word for word in words(layer) if word.text == "NIF"]

    assert 2 == len(values)
    assert 190 == pytest.approx(values[0].box.top, abs=5)  # in its field, between the labels around it


@pytest.mark.parametrize(
    ("name", "recall"),
    [
        ("de_invoice_kosten", 1.0), ("de_invoice_physio", 0.98), ("de_invoice_qualityhosting", 1.0),
        ("en_contract_cymbal", 1.0), ("en_invoice_azureinterior", 0.99), ("en_invoice_gcp3", 1.0),
        ("en_taxform_1099misc", 1.0), ("es_form_padron_madrid", 0.99), ("fr_invoice_fnfe_fr", 1.0),
        ("pdflatex-4-pages", 1.0),
    ],
)  # fmt: skip
def test_words_of_real_documents(readers: FileReaders, data_dir: Path, name: str, recall: float):
    """The words that poppler extracts from invoices, forms and papers."""
    found: Counter[str] = Counter()
    with readers.open(data_dir / f"pdf_samples/{name}.pdf") as file:
        for number in range(1, file.info.page_count + 1):
            page = readers.page_text(file, number).page(number, "test")
            found.update(word.text for word in page.words)
            assert all(page.text[word.start : word.end] == word.text for word in page.words)
    expected = Counter((data_dir / f"pdf_samples/{name}.gt.txt").read_text(encoding="utf-8").split())

    assert (expected & found).total() >= recall * expected.total()
    assert found.total() <= expected.total() / recall + 1


def test_columns_are_read_one_after_the_other(readers: FileReaders, data_dir: Path):
    """Columns are read one after the other."""
    with readers.open(data_dir / "pdf_samples/multicolumn.pdf") as file:
        layer = readers.page_text(file, 2)
    sides = ["left" if word.box.left < layer.width / 2 else "right" for word in words(layer)]
    changes = sum(before != after for before, after in pairwise(sides))

    assert changes <= 2


def test_color_and_resolution(readers: FileReaders):
    """Gray or RGB, at the requested resolution within LIMIT_RENDER_PIXELS."""
    red = b"1 0 0 rg 0 0 300 200 re f\n"
    with readers.open(pdf(red)) as file:
        gray = readers.render(file, 1, resolution=Resolution(72, "asked"))
        color = readers.render(file, 1, resolution=Resolution(36, "asked"), color=True)
        most = readers.render(file, 1, resolution=Resolution(1e6, "asked"))

    assert (200, 300) == gray.pixels.shape
    assert (100, 150, 3) == color.pixels.shape
    assert [255, 0, 0] == color.pixels[50, 50].tolist()
    assert most.pixels.size <= readers.limits.render_pixels
    assert "LIMIT_RENDER_PIXELS" in most.why
    assert Box(0, 0, 300, 200).scaled(gray.scale_x) == Box(0, 0, 300, 200)


@pytest.mark.parametrize(("width_px", "height_px", "dpi"), [(1653, 2339, 200), (1654, 2338, 200), (2481, 3507, 300)])
def test_a_scan_is_drawn_with_its_own_pixels(readers: FileReaders, width_px: int, height_px: int, dpi: int):
    """Bit for bit: with one more pixel a side, the image would be resampled."""
    pixels = np.random.default_rng(dpi).integers(0, 256, (height_px, width_px), np.uint8)
    width, height = width_px * 72 / dpi, height_px * 72 / dpi
    file = pdf(b"q %g 0 0 %g 0 0 cm /Im1 Do Q" % (width, height), size=(width, height), image=Image.fromarray(pixels))
    with readers.open(file) as opened:
        layer = readers.page_text(opened, 1)
        resolution = choose_resolution(layer.width, layer.height, layer.stats, readers.limits)
        raster = readers.render(opened, 1, resolution=resolution)

    assert np.array_equal(pixels, raster.pixels)
