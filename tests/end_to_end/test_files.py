"""Every file type, every answer format, page ranges and passwords."""

import re
from typing import Any

import httpx
import numpy as np
import pillow_heif
import pytest
from lxml import etree
from markdown_it import MarkdownIt
from PIL import Image

from tests.end_to_end.client import MARKS, answer_of, problem_of, send
from tests.end_to_end.invoices import ENGLISH, SCAN_DPI, SPANISH, drawn, pages_of
from tests.files.pdfs import encoded
from tests.files.programs import pdftotext

pytestmark = MARKS
pillow_heif.register_heif_opener()
HOCR_BOX = re.compile(r"bbox (\d+) (\d+) (\d+) (\d+)")
PIXELS_A_POINT = SCAN_DPI / 72


def iban(document: dict[str, Any]) -> str:
    [value] = {entity["value"] for entity in document["entities"] if entity["type"] == "IBAN"}
    return str(value)


@pytest.mark.parametrize(
    ("format_name", "media_type"),
    [
        ("text", "text/plain"), ("markdown", "text/markdown"), ("hocr", "text/vnd.hocr+html"),
        ("alto", "application/alto+xml"), ("pdf", "application/pdf"),
    ],
)  # fmt: skip
def test_each_format(client: httpx.Client, format_name: str, media_type: str) -> None:
    """Requested by field or by Accept, it has every word, and parsers of the format accept it."""
    by_field = send(client, ENGLISH.scanned_pdf, format=format_name)
    by_accept = client.post("/v1/documents", content=ENGLISH.scanned_pdf, headers={"Accept": media_type})

    assert (200, 200) == (by_field.status_code, by_accept.status_code)
    assert by_field.headers["content-type"].startswith(media_type)
    assert by_accept.headers["content-type"].startswith(media_type)
    words = {
        "text": lambda content: content.decode().split(),
        "markdown": lambda content: re.sub("<[^>]+>", " ", MarkdownIt().render(content.decode())).split(),
        "hocr": lambda content: _texts(content, "//*[@class='ocrx_word']"),
        "alto": _strings,
        "pdf": lambda content: pdftotext(content).split(),
    }[format_name]
    assert ENGLISH.text.split() == words(by_field.content) == words(by_accept.content)


def test_boxes_of_hocr_and_of_a_searchable_pdf(client: httpx.Client) -> None:
    """The same word lies on the same ink in both; the searchable PDF has the picture of the scan."""
    hocr = send(client, ENGLISH.scanned_pdf, format="hocr").content
    searchable = send(client, ENGLISH.scanned_pdf, format="pdf").content
    left, top, right, bottom = ENGLISH.place("WEST")

    [word] = [node for node in _nodes(hocr, "//*[@class='ocrx_word']") if "".join(node.itertext()) == "WEST"]
    [page] = _nodes(hocr, "//*[@class='ocr_page']")
    scale = _bbox(page)[2] / 595
    assert [left, top, right, bottom] == pytest.approx([side / scale for side in _bbox(word)], abs=2)
    cut = (f"-x {int(left) - 2} -y {int(top) - 4} -W {int(right - left) + 4} -H {int(bottom - top) + 8}").split()
    assert "WEST" == pdftotext(searchable, *cut).strip()
    before, after = (np.asarray(drawn(file), np.int16) for file in (ENGLISH.scanned_pdf, searchable))
    assert np.abs(before - after).max() < 3


def test_the_text_layer_of_a_searchable_pdf(client: httpx.Client) -> None:
    """It is used without OCR, and gives the same text."""
    searchable = send(client, SPANISH.scanned_pdf, format="pdf").content

    document = answer_of(client, searchable, source="text_layer")
    assert ["text_layer"] == [page["source"] for page in document["pages"]]
    assert SPANISH.text.split() == document["text"].split()
    assert "ES9121000418450200051332" == iban(document)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {"quality": 90, "dpi": (200, 200)}), ("WEBP", {"quality": 90}), ("BMP", {}), ("GIF", {}),
        ("HEIF", {"quality": 95}),
    ],
)  # fmt: skip
def test_a_picture_of_each_kind(client: httpx.Client, kind: str, options: dict[str, Any]) -> None:
    """Boxes are in its pixels."""
    document = answer_of(client, encoded(SPANISH.strip, kind, **options))

    assert "ES9121000418450200051332" == iban(document)
    [page] = document["pages"]
    assert SPANISH.strip.size == (page["width"], page["height"])


def test_a_tiff_of_several_pages(client: httpx.Client) -> None:
    """Each image is a page; a range picks among them."""
    english = ENGLISH.strip.convert("1")
    tiff = encoded(SPANISH.strip, "TIFF", save_all=True, append_images=[english, SPANISH.strip], dpi=(200, 200))

    document = answer_of(client, tiff, pages="1-2")
    assert ("tiff", 3, [1, 2]) == (
        document["kind"],
        document["page_count"],
        [page["number"] for page in document["pages"]],
    )
    values = [(iban["places"][0]["page"], iban["value"][:2]) for iban in document["entities"] if iban["type"] == "IBAN"]
    assert [(1, "ES"), (2, "GB")] == values


def test_a_photograph_that_its_camera_turned(client: httpx.Client) -> None:
    """The page and its boxes follow the EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it clockwise to see it upright
    turned = SPANISH.scan.transpose(Image.Transpose.ROTATE_90)
    document = answer_of(client, encoded(turned, "JPEG", quality=92, exif=exif))

    [page] = document["pages"]
    assert SPANISH.text.split() == document["text"].split()
    assert (SPANISH.scan.size, 0) == ((page["width"], page["height"]), page["rotation"])
    _require_place(document)


def test_a_sideways_scan(client: httpx.Client) -> None:
    """Only the print shows it: the page is rotated, and the answer says by how much."""
    document = answer_of(client, encoded(SPANISH.scan.transpose(Image.Transpose.ROTATE_90), "PNG"))

    [page] = document["pages"]
    assert SPANISH.text.split() == document["text"].split()
    assert (90, SPANISH.scan.size) == (page["rotation"], (page["width"], page["height"]))
    _require_place(document)


def test_a_range_of_pages(client: httpx.Client) -> None:
    """Only these pages are processed; a page that does not exist is an error."""
    three = pages_of(SPANISH, ENGLISH, SPANISH)
    document = answer_of(client, three, pages="2-")

    assert ([2, 3], 3) == ([page["number"] for page in document["pages"]], document["page_count"])
    assert ["GB", "ES"] == [entity["value"][:2] for entity in document["entities"] if entity["type"] == "IBAN"]
    assert (422, "invalid_field") == problem_of(send(client, three, pages="4"))
    assert (422, "invalid_field") == problem_of(send(client, three, pages="2-x"))


def test_an_encrypted_pdf(client: httpx.Client) -> None:
    """With its password it works like any PDF, also as a searchable one; else it is refused."""
    locked = pages_of(ENGLISH, password="geheim ñ")

    assert "GB82WEST12345698765432" == iban(answer_of(client, locked, password="geheim ñ"))
    assert "WEST" in pdftotext(send(client, locked, password="geheim ñ", format="pdf").content, "-upw", "geheim ñ")
    assert (422, "password_required") == problem_of(send(client, locked))
    assert (422, "wrong_password") == problem_of(send(client, locked, password="secret"))


def _require_place(document: dict[str, Any]) -> None:
    """The IBAN has the place where it was drawn."""
    [place] = [entity["places"][0] for entity in document["entities"] if entity["type"] == "IBAN"]
    expected = [side * PIXELS_A_POINT for side in SPANISH.place("ES91 2100 0418 4502 0005 1332")]

    assert expected == pytest.approx(place["box"], abs=6)


def _nodes(content: bytes, path: str) -> list[Any]:
    return list(etree.HTML(content).xpath(path))


def _texts(content: bytes, path: str) -> list[str]:
    return ["".join(node.itertext()) for node in _nodes(content, path)]


def _strings(content: bytes) -> list[str]:
    return [node.get("CONTENT") for node in etree.fromstring(content).iter("{*}String")]


def _bbox(node: Any) -> list[int]:
    match = HOCR_BOX.search(node.get("title"))
    return [int(side) for side in match.groups()]
