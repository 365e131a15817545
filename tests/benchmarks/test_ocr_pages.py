"""The pages that are read: the same every time, none like another, and saying what they claim to say."""

import io
import itertools

import pypdfium2
import pytest
from PIL import Image

from benchmarks import ocr_pages
from benchmarks.ocr_pages import clean_page, digital_pdf, scanned_pdf, slip
from benchmarks.ocr_scores import words


def text_of(pdf, index):
    with pypdfium2.PdfDocument(pdf) as document:
        return document[index].get_textpage().get_text_range()


def test_a_clean_page():
    """A4 at 200 dpi in gray, about four thousand characters, the same on every run."""
    page = clean_page(3)
    image = Image.open(io.BytesIO(page.png))

    assert ("L", (1654, 2338)) == (image.mode, image.size)
    assert pytest.approx((200, 200), abs=0.1) == image.info["dpi"]
    assert 3_000 < len(page.text) < 5_000
    assert page == clean_page(3)


def test_no_page_has_the_text_of_another():
    """What is learnt from one page does not help with the next."""
    pages = [slip(number).text for number in range(50)]

    assert 50 == len(set(pages))


def test_a_text_is_drawn_within_the_margins():
    """Ink in every line, none at the edges."""
    image = Image.open(io.BytesIO(slip(1).png)).point(lambda value: 255 - value)

    left, top, right, bottom = image.getbbox()
    assert 0 < left < right < image.width
    assert 0 < top < bottom < image.height


def test_the_font_within_pillow_has_no_accents(monkeypatch):
    """Without DejaVu the pages say less, but what they show is what they say."""
    monkeypatch.setattr(ocr_pages, "_FONT", "no such font.ttf")

    assert not "".join(itertools.islice(ocr_pages.sentences("slip 5"), 4)).isascii()
    assert slip(5).text.isascii()
    assert "Aileron" == ocr_pages.font_name()


def test_a_digital_pdf_says_its_text():
    """Every page has a dense text of its own, which a PDF reader finds whole."""
    file = digital_pdf("a test", 3)
    texts = [text_of(file, index) for index in range(3)]

    assert 3 == len(set(texts))
    assert all(5_000 < len(text) < 8_000 for text in texts)
    meant = words(" ".join(itertools.islice(ocr_pages.sentences("a test"), 400)))
    assert words(" ".join(texts)) <= meant
    assert digital_pdf("a test", 3) == file != digital_pdf("another", 3)


def test_a_scanned_pdf_has_images_alone():
    """A page an image, at the size it was drawn in, without a letter of text."""
    pages = [clean_page(0), clean_page(1)]

    with pypdfium2.PdfDocument(scanned_pdf(pages)) as document:
        assert 2 == len(document)
        assert pytest.approx((595, 842), abs=1) == document[0].get_size()
        assert "" == document[1].get_textpage().get_text_range()
