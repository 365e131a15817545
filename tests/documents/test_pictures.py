"""Pictures within office files: their words stand where the picture stands, not at the end."""

import base64
from dataclasses import replace
from email.message import EmailMessage

import numpy as np
import pytest
from PIL import Image

from backend.documents.ocr import with_pictures
from backend.errors import InferenceFailed
from backend.files.pages import Box, Grid, GridCell, RawWord, make_page
from backend.files.records import PlacedPicture
from tests.documents.conftest import DocumentsFixture
from tests.files.office.office_files import docx, relations, xlsx, zipped
from tests.files.pdfs import encoded

_INK = np.kron(np.eye(20, dtype=np.uint8), np.full((10, 15), 255, np.uint8))  # (200, 300)
PNG = encoded(Image.fromarray(_INK), "PNG")
SCAN = encoded(Image.fromarray(np.kron(_INK, np.full((8, 4), 1, np.uint8))), "PNG")  # 1,200 x 1,600
_READ = "Factura 2024-017\nTotal: 1.284,50 €"
_A = 'xmlns:a="urn:a" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
_BLIP = f'<a:blip {_A} r:embed="p1"/>'


def _paragraph(text: str, more: str = "") -> str:
    return f"<w:p><w:r>{more}<w:t>{text}</w:t></w:r></w:p>"


def _docx(picture: bytes = PNG, before: str = "antes", between: str = "") -> bytes:
    body = _paragraph(before, f"<w:drawing>{_BLIP}</w:drawing>") + between + _paragraph("después")
    return docx(body, {"word/_rels/document.xml.rels": relations(("p1", "image", "media/logo.png")),
                       "word/media/logo.png": picture})  # fmt: skip


def _docx_table() -> bytes:
    cell = f"<w:tc><w:p><w:r><w:drawing>{_BLIP}</w:drawing></w:r></w:p></w:tc>"
    words = [f"<w:tc>{_paragraph(text)}</w:tc>" for text in ("antes", "uno", "dos")]
    table = f"<w:tbl><w:tr>{words[0]}{cell}</w:tr><w:tr>{words[1]}{words[2]}</w:tr></w:tbl>{_paragraph('después')}"
    return docx(table, {"word/_rels/document.xml.rels": relations(("p1", "image", "media/logo.png")),
                        "word/media/logo.png": PNG})  # fmt: skip


def _pptx() -> bytes:
    def shape(text: str, y: int) -> str:
        frame = f'<a:xfrm><a:off x="0" y="{y}"/><a:ext cx="3000000" cy="500000"/></a:xfrm>'
        return f"<p:sp><p:spPr>{frame}</p:spPr><p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"

    frame = (
        '<a:xfrm><a:off x="1270000" y="635000"/><a:ext cx="3810000" cy="2540000"/></a:xfrm>'  # 100, 50, 300 x 200 pt
    )
    picture = f"<p:pic><p:blipFill>{_BLIP}</p:blipFill><p:spPr>{frame}</p:spPr></p:pic>"
    tree = f"<p:cSld><p:spTree>{shape('antes', 0)}{picture}{shape('después', 4000000)}</p:spTree></p:cSld>"
    slides = '<p:sldIdLst><p:sldId id="1" r:id="s1"/></p:sldIdLst>'
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": relations(("r1", "officeDocument", "ppt/presentation.xml")),
            "ppt/presentation.xml": f'<p:presentation xmlns:p="urn:p" {_A}>{slides}</p:presentation>',
            "ppt/_rels/presentation.xml.rels": relations(("s1", "slide", "slides/slide1.xml")),
            "ppt/slides/slide1.xml": f'<p:sld xmlns:p="urn:p" {_A}>{tree}</p:sld>',
            "ppt/slides/_rels/slide1.xml.rels": relations(("p1", "image", "../media/image1.png")),
            "ppt/media/image1.png": PNG,
        }
    )


def _xlsx() -> bytes:
    def row(text: str) -> str:
        return f'<row><c r="A1" t="inlineStr"><is><t>{text}</t></is></c></row>'

    return xlsx(
        row("antes"),
        row("después"),
        more={
            "xl/worksheets/_rels/s1.xml.rels": relations(("d1", "drawing", "../drawings/drawing1.xml")),
            "xl/drawings/drawing1.xml": f'<d xmlns="urn:d">{_BLIP}</d>',
            "xl/drawings/_rels/drawing1.xml.rels": relations(("p1", "image", "../media/image1.png")),
            "xl/media/image1.png": PNG,
        },
    )


def _odt() -> bytes:
    frame = '<draw:frame><draw:image xlink:href="Pictures/1.png"/></draw:frame>'
    names = " ".join(f'xmlns:{name}="urn:{name}"' for name in ("office", "text", "draw", "xlink"))
    body = f"<text:p>antes{frame}</text:p><text:p>después</text:p>"
    return zipped(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<office:document-content {names}><office:body><office:text>{body}</office:text>"
            "</office:body></office:document-content>",
            "Pictures/1.png": PNG,
        }
    )


def _rtf() -> bytes:
    return rb"{\rtf1\ansi antes{\pict\pngblip " + PNG.hex().encode() + rb"}\par despu\'e9s\par}"


def _html() -> bytes:
    data = base64.b64encode(PNG).decode()
    return f'<html><p>antes <img src="data:image/png;base64,{data}"></p><p>después</p></html>'.encode()


def _epub() -> bytes:
    package = (
        '<package xmlns="urn:o"><manifest><item id="c" href="c.xhtml"/></manifest>'
        '<spine><itemref idref="c"/></spine></package>'
    )
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<c><rootfile full-path="o.opf"/></c>',
            "o.opf": package,
            "c.xhtml": '<html><p>antes</p><img src="i.png"/><p>después</p></html>',
            "i.png": PNG,
        }
    )


def _eml() -> bytes:
    message = EmailMessage()
    message["Subject"] = "Hola"
    message.set_content("antes después")
    message.add_alternative('<p>antes</p><p><img src="cid:a"></p><p>después</p>', subtype="html")
    html = message.get_payload(1)
    assert isinstance(html, EmailMessage)
    html.add_related(PNG, "image", "png", cid="<a>")
    return message.as_bytes()


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(_docx(), id="docx"), pytest.param(_docx_table(), id="docx-in-a-cell"),
        pytest.param(_docx(SCAN), id="docx-large"), pytest.param(_pptx(), id="pptx"),
        pytest.param(_xlsx(), id="xlsx"), pytest.param(_odt(), id="odt"), pytest.param(_rtf(), id="rtf"),
        pytest.param(_html(), id="html"), pytest.param(_epub(), id="epub"), pytest.param(_eml(), id="eml"),
    ],
)  # fmt: skip
async def test_words_of_a_picture_stand_at_its_place(documents: DocumentsFixture, source: bytes) -> None:
    """After what shows it and before what follows; every word has its span."""
    answer = await documents.process(source, features=frozenset({"text"}))

    text = answer.text
    assert -1 < text.find("antes") < text.find(_READ) < text.find("después")
    assert 1 == len(documents.ocr.images)
    assert all(page.text[word.start : word.end] == word.text for page in answer.document.pages for word in page.words)


async def test_a_small_picture_is_read_on_its_page(documents: DocumentsFixture) -> None:
    """A slide stays one page; words of the picture have boxes within it, and the page says that OCR was at work."""
    answer = await documents.process(_pptx(), features=frozenset({"text"}))

    [page] = answer.document.pages
    assert ("slide 1", "text_layer") == (page.part, page.source)
    assert "1 of 1 pictures on it read by OCR" in page.why
    word = next(word for word in page.words if word.text == "Factura")
    assert (110.0, 60.0, 210.0, 80.0) == pytest.approx(word.box)
    assert 0.9 == word.confidence
    assert (200, 300) == documents.ocr.images[0].pixels.shape[:2]


async def test_a_large_picture_has_a_page_of_its_own(documents: DocumentsFixture) -> None:
    """As the image that it is, between the pages of the text around it."""
    answer = await documents.process(_docx(SCAN), features=frozenset({"text"}))

    assert [("", "text_layer"), ("logo.png", "ocr"), ("", "text_layer")] == [
        (page.part, page.source) for page in answer.document.pages
    ]
    assert (1200.0, 1600.0) == (answer.document.pages[1].width, answer.document.pages[1].height)


async def test_a_logo_in_a_header(documents: DocumentsFixture) -> None:
    """It is named by relations of the header's own: the same name is another picture in the document."""
    header = f'<w:hdr xmlns:w="urn:w">{_paragraph("", f"<w:drawing>{_BLIP}</w:drawing>")}</w:hdr>'
    source = docx(
        _paragraph("texto"),
        {
            "word/_rels/document.xml.rels": relations(("h", "header", "header1.xml"), ("p1", "image", "media/b.png")),
            "word/header1.xml": header,
            "word/_rels/header1.xml.rels": relations(("p1", "image", "media/logo.png")),
            "word/media/logo.png": PNG,
            "word/media/b.png": encoded(Image.new("L", (640, 320), 255), "PNG"),
        },
    )
    answer = await documents.process(source, features=frozenset({"text"}))

    assert f"{_READ}\n\ntexto" == answer.text
    assert [(200, 300)] == [image.pixels.shape[:2] for image in documents.ocr.images]


async def test_pages_of_the_file_stay_its_pages(documents: DocumentsFixture) -> None:
    """Where Word has told its pages, a large picture is on the one that shows it."""
    rendered = "<w:p><w:r><w:lastRenderedPageBreak/><w:t>página 2</w:t></w:r></w:p>"
    answer = await documents.process(_docx(SCAN, between=rendered), features=frozenset({"text"}))

    assert [f"antes\n\n{_READ}", "página 2\n\ndespués"] == [page.text for page in answer.document.pages]


async def test_a_picture_that_cannot_be_read_costs_nothing_else(documents: DocumentsFixture) -> None:
    """The page says how many were read."""
    documents.ocr.errors.append(InferenceFailed("no"))
    answer = await documents.process(_docx(), features=frozenset({"text"}))

    [page] = answer.document.pages
    assert ("antes\n\ndespués", True) == (page.text, page.incomplete)
    assert "0 of 1 pictures on it read by OCR" in page.why


async def test_no_ocr_where_the_text_layer_is_asked_for(documents: DocumentsFixture) -> None:
    """The same text without the picture's words."""
    answer = await documents.process(_docx(), source="text_layer", features=frozenset({"text"}))

    assert "antes\n\ndespués" == answer.text
    assert [] == documents.ocr.images


@pytest.mark.parametrize(
    ("rotation", "expected"),
    [
        pytest.param(0, (10, 20, 30, 40), id="upright"),
        pytest.param(90, (20, 170, 40, 190), id="on-its-side"),
        pytest.param(180, (270, 160, 290, 180), id="upside-down"),
        pytest.param(270, (260, 10, 280, 30), id="on-its-other-side"),
    ],
)
def test_boxes_of_a_picture_that_lies_on_its_side(rotation: int, expected: tuple[int, ...]) -> None:
    """Words are read upright, and have their places in the picture as it is shown."""
    size = (300, 200) if rotation % 180 == 0 else (200, 300)
    read = make_page([[[RawWord("a", Box(10, 20, 30, 40))]]], number=1, width=size[0], height=size[1], source="ocr",
                     why="", engine="told", rotation=rotation)  # fmt: skip
    page = make_page([], number=1, width=595, height=842, source="text_layer", why="", engine="typeset")

    [word] = with_pictures(page, [(PlacedPicture(0, Box(100, 50, 400, 250)), read)]).words

    assert tuple(100 * (side % 2 == 0) + 50 * (side % 2) + at for side, at in enumerate(expected)) == pytest.approx(
        word.box
    )


def test_tables_below_a_picture_keep_their_words() -> None:
    """Cells name their words by number: those of the picture come before."""
    box = Box(0, 0, 1, 1)
    words = [[[RawWord(text, box)] for text in block] for block in (["antes"], ["x", "y"])]
    page = make_page(words, number=1, width=9, height=9, source="text_layer", why="", engine="typeset")
    read = make_page([[[RawWord("in", box), RawWord("side", box)]]], number=1, width=9, height=9, source="ocr", why="",
                     engine="told")  # fmt: skip
    grid = Grid(1, 2, 0, (GridCell(0, 0, 1, 1, 1, 2), GridCell(0, 1, 1, 1, 2, 3)))
    page = replace(page, grids=(grid,))

    whole = with_pictures(page, [(PlacedPicture(1, box), read)])

    assert "antes\n\nin side\n\nx\ny" == whole.text
    assert ["x", "y"] == [whole.words[cell.first].text for cell in whole.grids[0].cells]
