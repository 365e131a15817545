"""hOCR, parsed with an XML parser."""

import re

import pytest
from hypothesis import given
from lxml import etree

from backend.documents.formats.ocr_xml import stream_hocr
from backend.files.pages import Document
from tests.files.drawn import document_of, documents, page_of

X = "{http://www.w3.org/1999/xhtml}"


def read(document: Document):
    return etree.fromstring(b"".join(stream_hocr(document)))


def of_class(root, name):
    return [element for element in root.iter() if element.get("class") == name]


def bbox(element) -> list[int]:
    return [int(side) for side in re.search(r"\bbbox (\d+) (\d+) (\d+) (\d+)", element.get("title")).groups()]


@pytest.mark.slow
@given(documents(kind="png"))
def test_words_and_boxes_come_back(document):
    """Words in order with their boxes to the pixel, inside their line, block and page."""
    root = read(document)
    pages = of_class(root, "ocr_page")

    assert len(document.pages) == len(pages)
    for page, written in zip(document.pages, pages, strict=True):
        words = of_class(written, "ocrx_word")
        assert [(word.text, [round(side) for side in word.box]) for word in page.words] == [
            (word.text, bbox(word)) for word in words
        ]
        assert all(word.getparent().get("class") == "ocr_line" for word in words)
        for name in ("ocr_line", "ocr_par", "ocr_carea"):
            for area in of_class(written, name):
                left, top, right, bottom = bbox(area)
                assert all(
                    left <= box[0] and top <= box[1] and right >= box[2] and bottom >= box[3]
                    for box in map(bbox, of_class(area, "ocrx_word"))
                )


@pytest.mark.slow
@given(documents())
def test_ids_are_unique(document):
    found = [element.get("id") for element in read(document).iter() if element.get("id")]

    assert sorted(set(found)) == sorted(found)


def test_what_readers_ask_for():
    """The capabilities and system that the specification requires, size, resolution, confidence and direction."""
    page = page_of([[["Sí", "<b>&"], ["שלום"]]], 3, units_per_inch=300.0, language="es")
    root = read(document_of(page, kind="png"))
    metas = {element.get("name"): element.get("content") for element in root.iter(f"{X}meta")}

    assert metas["ocr-system"] == "tesseract 5.3.0"
    used = {element.get("class") for element in root.iter() if element.get("class")}
    assert used <= set(metas["ocr-capabilities"].split())
    [written] = of_class(root, "ocr_page")
    assert bbox(written) == [0, 0, 595, 842]
    assert "ppageno 2" in written.get("title")
    assert "scan_res 300 300" in written.get("title")
    assert written.get("lang") == "es"
    assert ["bbox 20 20 32 30; x_wconf 90"] == [element.get("title") for element in of_class(root, "ocrx_word")][:1]
    assert [None, "rtl"] == [element.get("dir") for element in of_class(root, "ocr_line")]


def test_points_become_pixels():
    """A page of a PDF has 300 pixels an inch: whole points would put words up to a third of a millimetre off."""
    [word] = of_class(read(document_of(page_of([[["Sí"]]]))), "ocrx_word")

    assert [83, 83, 133, 123] == bbox(word)  # 20, 20, 32, 29.6 points
