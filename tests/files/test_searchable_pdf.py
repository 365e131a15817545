"""Searchable PDFs: they look unchanged, and every word is found at its position."""

import io
import re
from collections import Counter

import numpy as np
import pikepdf
import pypdfium2 as pdfium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from backend.files.pages import Box, Page, RawWord, make_page
from backend.files.searchable_pdf import invisible_fonts, searchable_images, searchable_pdf
from tests.files.drawn import PIECES, document_of, page_of
from tests.files.pdfs import encoded
from tests.files.programs import pdftotext

RIGHT_TO_LEFT = {"שלום", "مرحبا", "\u202eabc"}


def pdfium_text(pdf: bytes) -> str:
    with pdfium.PdfDocument(pdf) as document:
        return "\f".join(page.get_textpage().get_text_range() for page in document)


def word_boxes(pdf: bytes) -> list[tuple[str, Box]]:
    """Words and boxes by poppler, on pages as they are shown."""
    found = re.findall(
        r'<word xMin="([^"]+)" yMin="([^"]+)" xMax="([^"]+)" yMax="([^"]+)">([^<]*)<',
        pdftotext(pdf, "-bbox", "-cropbox"),
    )
    return [(text, Box(*map(float, sides))) for *sides, text in found]


def blank_pdf(*sizes: tuple[float, float], **keys: object) -> bytes:
    """Empty pages of these sizes; keys are set on each page."""
    with pikepdf.new() as pdf:
        for size in sizes:
            page = pdf.add_blank_page(page_size=size)
            for name, value in keys.items():
                page[f"/{name}"] = value
        out = io.BytesIO()
        pdf.save(out)
    return out.getvalue()


def page_of_line(words: list[RawWord]) -> Page:
    """An A4 page with these words on one line."""
    return make_page([[words]], number=1, width=595, height=842, source="ocr", why="", engine="e")


def written(page: Page) -> bytes:
    """The words of a page on an empty one."""
    return searchable_pdf(document_of(page), blank_pdf((595, 842)))


def picture(width: int = 60, height: int = 90) -> Image.Image:
    """An image with four different corners."""
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width // 2, height // 3), fill="red")
    draw.rectangle((width // 2, height // 2, width, height), fill="blue")
    return image


def decoder(original: bytes):
    """The pixels of a frame as a viewer shows it, like those from `ImageFile.render`."""

    def pixels_of(number: int) -> np.ndarray:
        with Image.open(io.BytesIO(original)) as image:
            image.seek(number - 1)
            return np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))

    return pixels_of


def never(number: int) -> np.ndarray:
    raise AssertionError(f"page {number} was decoded")


def rendered(pdf: bytes, scale: float = 1.0, index: int = 0) -> np.ndarray:
    with pdfium.PdfDocument(pdf) as document:
        return document[index].render(scale=scale, rev_byteorder=True).to_numpy()[..., :3].astype(int)


def test_every_word_is_found():
    """poppler and PDFium find words with accents, signs, marks, joiners, emoji and Chinese characters."""
    words = [word for word in PIECES if word not in RIGHT_TO_LEFT and not word.endswith("-")]
    page = page_of([[[word, "medio", word] for word in words]])
    pdf = written(page)

    expected = Counter(word.text for word in page.words)
    assert expected == Counter(pdftotext(pdf).split())
    assert expected == Counter(pdfium_text(pdf).split())


LETTERS = st.text(
    st.characters(categories=["Lu", "Ll", "Nd", "Sc", "Lo"], max_codepoint=0x058F), min_size=1, max_size=8
)


# PDFium joins single letters below each other into a vertical word.
LETTER_LINES = st.lists(LETTERS, min_size=1, max_size=6).filter(lambda line: len("".join(line)) > 1)


@settings(max_examples=25)
@given(st.lists(st.lists(LETTER_LINES, min_size=1, max_size=5), min_size=1, max_size=4))
def test_any_words_are_found_in_their_order(blocks):
    """Lines of words from several scripts are extracted in the order of the page's text."""
    page = page_of(blocks)
    pdf = written(page)

    assert page.text.split() == pdfium_text(pdf).split()
    assert Counter(page.text.split()) == Counter(pdftotext(pdf).split())


def test_right_to_left_lines_are_found_in_reading_order():
    """Words of right-to-left lines are extracted in reading order."""
    seen, right = [], 500.0
    for text in ("שלום", "עולם", "ב"):
        seen.append(RawWord(text, Box(right - 6 * len(text), 20, right, 30)))
        right -= 6 * len(text) + 4
    page = page_of_line(seen)
    pdf = written(page)

    assert page.text.split() == pdftotext(pdf).split()
    assert page.text.split() == pdfium_text(pdf).split()


def test_words_that_touch_stay_two():
    """OCR boxes often touch; viewers join words without a gap."""
    seen = [
        RawWord("Email:", Box(20, 20, 60, 30)),
        RawWord("yo@example.com", Box(59, 20, 150, 30)),
        RawWord("y", Box(150, 20, 155, 30)),
    ]
    page = page_of_line(seen)
    pdf = written(page)

    assert ["Email:", "yo@example.com", "y"] == pdftotext(pdf).split()


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_words_lie_where_they_are_seen(rotate, turn):
    """For any /Rotate and any turn, the page opens upright with its words in place."""
    width, height = (300.0, 400.0) if (rotate + turn) % 180 == 0 else (400.0, 300.0)
    page = page_of([[["Total", "1.284,50"], ["IVA"]]], rotation=turn, width=width, height=height)
    boxes = {"MediaBox": [0, 0, 500, 500], "CropBox": [40, 30, 340, 430]}
    pdf = searchable_pdf(document_of(page), blank_pdf((500, 500), Rotate=rotate, **boxes))

    with pdfium.PdfDocument(pdf) as opened:
        assert (width, height) == opened[0].get_size()
    found = word_boxes(pdf)
    assert [word.text for word in page.words] == [text for text, _ in found]
    for word, (_, box) in zip(page.words, found, strict=True):
        assert [*word.box] == pytest.approx([*box], abs=0.1)


def test_a_line_that_runs_uphill_is_one_line():
    """The words of a skewed scan are extracted in order, each at its height."""
    seen = [
        RawWord(text, Box(20 + 70 * i, 100 - 2 * i, 80 + 70 * i, 110 - 2 * i))
        for i, text in enumerate(["una", "dos", "tres", "seis"])
    ]
    page = page_of_line(seen)
    pdf = written(page)

    assert "una dos tres seis" == " ".join(pdftotext(pdf).split())
    assert [100, 98, 96, 94] == pytest.approx([box.top for _, box in word_boxes(pdf)], abs=0.1)


def test_only_ocr_pages_get_words():
    """Pages with a text layer and pages that were not read stay unchanged."""
    source = searchable_pdf(document_of(page_of([[["capa", "propia"]]])), blank_pdf((595, 842), (595, 842), (595, 842)))
    layer = page_of([[["capa", "propia"]]], source="text_layer", engine="pdfium")
    pdf = searchable_pdf(document_of(layer, page_of([[["leído"]]], 3)), source)

    assert ["capa propia", "", "leído"] == [text.strip() for text in pdfium_text(pdf).split("\f")]


def test_an_older_unseen_layer_gives_way():
    """New OCR words replace an older invisible layer."""
    first = searchable_pdf(document_of(page_of([[["m4l", "leído"]]])), blank_pdf((595, 842)))
    again = searchable_pdf(document_of(page_of([[["bien", "leído"]]])), first)

    assert "bien leído" == pdfium_text(again).strip()


@pytest.mark.slow
def test_pages_look_as_before(data_dir):
    """No pixel of real PDFs changes: invoices, forms, scans, Arabic, two columns."""
    for path in sorted((data_dir / "pdf_samples").glob("*.pdf")):
        original = path.read_bytes()
        with pdfium.PdfDocument(original) as source:
            width, height = source[0].get_size()
        page = page_of([[["Prueba", "ñ"]]], width=width, height=height)
        pdf = searchable_pdf(document_of(page), original)

        assert np.array_equal(rendered(original, 0.5), rendered(pdf, 0.5)), path.name
        assert {"Prueba", "ñ"} <= set(pdfium_text(pdf).split()), path.name


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("turn", [0, 90])
def test_photographs_stand_upright(orientation, turn):
    """A JPEG is embedded byte for byte, with its EXIF orientation and the page's turn applied."""
    upright = picture()
    shown = upright.rotate(turn, expand=True)  # counterclockwise: read after a turn clockwise
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Image.Transpose that stores it so
    stored = shown if orientation == 1 else shown.transpose(Image.Transpose(undo[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    original = encoded(stored, "JPEG", quality=95, subsampling=0, exif=exif)
    page = page_of([[["Hola"]]], width=60.0, height=90.0, rotation=turn)
    pdf = searchable_images(document_of(page, kind="jpeg"), original, never)

    assert np.abs(rendered(pdf) - np.asarray(upright, dtype=int)).mean() < 4  # JPEG blurs the edges
    assert original in pdf or original[original.index(b"\xff\xdb") :][:400] in pdf
    assert "Hola" == pdfium_text(pdf).strip()


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("PNG", "RGB"), ("PNG", "L"), ("PNG", "1"), ("TIFF", "RGB"), ("BMP", "RGB"), ("GIF", "P"), ("WEBP", "RGB")],
)
def test_images_become_pages(kind, mode):
    """Color and gray images look as decoded, in their physical size."""
    image = picture(120, 180).convert(mode)
    original = encoded(image, kind)
    page = page_of([[["Hola"]]], width=120.0, height=180.0, units_per_inch=144.0)
    pdf = searchable_images(document_of(page, kind=kind.lower()), original, decoder(original))

    with pdfium.PdfDocument(pdf) as opened:
        assert (60, 90) == opened[0].get_size()
    expected = np.asarray(Image.open(io.BytesIO(original)).convert("RGB"), dtype=int)
    assert np.abs(rendered(pdf, 2.0) - expected).mean() < 6
    [(text, box)] = word_boxes(pdf)
    assert "Hola" == text
    assert [side / 2 for side in page.words[0].box] == pytest.approx([*box], abs=0.1)


def test_broken_exif_is_passed_over():
    """A JPEG with broken EXIF is shown as stored."""
    original = encoded(picture(), "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    pdf = searchable_images(document_of(page_of([[["a"]]], width=60.0, height=90.0), kind="jpeg"), original, never)

    assert np.abs(rendered(pdf) - np.asarray(picture(), dtype=int)).mean() < 6


def test_frames_keep_their_numbers():
    """Only the pages that were read are included."""
    frames = [Image.new("L", (40, 40), shade) for shade in (0, 128, 255)]
    original = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    pages = [page_of([[[text]]], number, width=40.0, height=40.0) for number, text in ((1, "uno"), (3, "tres"))]
    pdf = searchable_images(document_of(*pages, kind="tiff"), original, decoder(original))

    assert [0, 255] == [int(rendered(pdf, index=index).mean()) for index in (0, 1)]
    assert ["uno", "tres"] == [text.strip() for text in pdfium_text(pdf).split("\f")]


def test_a_huge_image_stays_a_page_that_readers_open():
    """A PDF page has at most 14,400 points a side."""
    original = encoded(Image.new("1", (20_000, 100)), "PNG")
    page = page_of([[["a"]]], width=20_000.0, height=100.0)
    pdf = searchable_images(document_of(page, kind="png"), original, decoder(original))

    with pdfium.PdfDocument(pdf) as opened:
        assert (14_400, 72) == pytest.approx(opened[0].get_size())


def test_a_locked_pdf_stays_locked():
    """It needs its password before and after."""
    with pikepdf.open(io.BytesIO(blank_pdf((595, 842)))) as plain:
        out = io.BytesIO()
        plain.save(out, encryption=pikepdf.Encryption(owner="dueño", user="clave", R=6))
    document = document_of(page_of([[["secreto"]]]))

    with pytest.raises(pdfium.PdfiumError, match=r"[Pp]assword"):
        searchable_pdf(document, out.getvalue())
    pdf = searchable_pdf(document, out.getvalue(), password="clave")
    with pytest.raises(pikepdf.PasswordError):
        pikepdf.open(io.BytesIO(pdf))
    with pdfium.PdfDocument(pdf, password="clave") as opened:
        assert "secreto" == opened[0].get_textpage().get_text_range().strip()


def test_nothing_read_is_nothing_written():
    """Empty pages and words without an extent are accepted."""
    point = RawWord("punto", Box(10, 10, 10, 10))

    assert "" == pdfium_text(written(page_of([]))).strip()
    assert "punto" == pdfium_text(written(page_of_line([point]))).strip()


def test_more_characters_than_a_font_holds_take_another(monkeypatch):
    """A font holds 65,534 characters; later pages use a second one."""
    monkeypatch.setattr("backend.files.searchable_pdf.MAX_CHARACTERS", 5)
    pages = [page_of([[["abc"]]], 1), page_of([[["ab"]]], 2), page_of([[["xyz"]]], 3)]
    with pdfium.PdfDocument.new() as pdf, invisible_fonts(pdf, pages) as fonts:
        assert fonts[1] is fonts[2] is not fonts[3]

    written = searchable_pdf(document_of(*pages), blank_pdf(*[(595, 842)] * 3))
    assert ["abc", "ab", "xyz"] == [text.strip() for text in pdfium_text(written).split("\f")]
