"""Writes a document as ALTO and as hOCR: XML and HTML that place every word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.files.markup import escaped, is_right_to_left, language_tag, number
from backend.files.pages import POINTS_PER_INCH, Box, Document, Page, Word, blocks_of, bounding_box

NAMESPACE = "http://www.loc.gov/standards/alto/ns-v4#"
VERSION = "4.4"
_INCH_1200 = 1200.0
_ALTO_HEAD = f"""<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="{NAMESPACE}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="{NAMESPACE} https://www.loc.gov/standards/alto/v4/alto-4-4.xsd" SCHEMAVERSION="{VERSION}">
"""


def stream_alto(document: Document) -> Iterator[bytes]:
    """The XML, page by page. A document without pages gives one empty page, which the schema requires."""
    engines = list(dict.fromkeys(page.engine for page in document.pages))
    steps = {engine: f"engine_{index}" for index, engine in enumerate(engines)}
    yield (_ALTO_HEAD + _description(document, steps) + "<Layout>\n").encode()
    for page in document.pages:
        yield _alto_page(document, page, steps[page.engine]).encode()
    if not document.pages:
        yield b'<Page ID="page_0" PHYSICAL_IMG_NR="0"/>\n'
    yield b"</Layout>\n</alto>\n"


def _description(document: Document, steps: dict[str, str]) -> str:
    unit = "inch1200" if document.kind == "pdf" else "pixel"
    processing = "".join(
        f'<Processing ID="{step}"><processingCategory>contentGeneration</processingCategory>'
        f"<processingSoftware><softwareName>{escaped(engine)}</softwareName></processingSoftware></Processing>\n"
        for engine, step in steps.items()
    )
    return (
        f"<Description>\n<MeasurementUnit>{unit}</MeasurementUnit>\n<sourceImageInformation>"
        f"<fileIdentifier>sha256:{escaped(document.sha256)}</fileIdentifier></sourceImageInformation>\n"
        f"{processing}</Description>\n"
    )


def _alto_page(document: Document, page: Page, step: str) -> str:
    factor = _INCH_1200 / POINTS_PER_INCH if document.kind == "pdf" else 1.0
    language, confidence = language_tag(page.language), page.confidence
    lang = f' LANG="{language}"' if language else ""
    page_confidence = f' PC="{number(min(1.0, max(0.0, confidence)), 4)}"' if confidence is not None else ""
    size = f'WIDTH="{number(page.width * factor)}" HEIGHT="{number(page.height * factor)}"'
    ids = f'ID="page_{page.number}" PROCESSINGREFS="{step}" PHYSICAL_IMG_NR="{page.number}"'
    elements = [f'<Page {ids} {size}{page_confidence}{lang}>\n<PrintSpace HPOS="0" VPOS="0" {size}>\n']
    for index, block in enumerate(blocks_of(page)):
        area = _area(bounding_box(word.box for line in block for word in line), factor)
        elements.append(f'<TextBlock ID="block_{page.number}_{index}" {area}>\n')
        elements += [_alto_line(page.number, line, factor) for line in block]
        elements.append("</TextBlock>\n")
    return "".join([*elements, "</PrintSpace>\n</Page>\n"])


def _alto_line(page: int, words: Sequence[Word], factor: float) -> str:
    area = _area(bounding_box(word.box for word in words), factor)
    direction = ' BASEDIRECTION="rtl"' if is_right_to_left(" ".join(word.text for word in words)) else ""
    strings = "<SP/>".join(
        f'<String ID="word_{page}_{word.start}" {_area(word.box, factor)} '
        f'WC="{number(min(1.0, max(0.0, word.confidence)), 4)}" CONTENT="{escaped(word.text)}"/>'
        for word in words
    )
    return f'<TextLine ID="line_{page}_{words[0].line}" {area}{direction}>{strings}</TextLine>\n'


def _area(box: Box, factor: float) -> str:
    return (
        f'HPOS="{number(box.left * factor)}" VPOS="{number(box.top * factor)}" '
        f'WIDTH="{number(box.width * factor)}" HEIGHT="{number(box.height * factor)}"'
    )


PDF_PIXELS_PER_INCH = 300.0
_CAPABILITIES = "ocr_page ocr_carea ocr_par ocr_line ocrx_word ocrp_dir ocrp_lang ocrp_wconf"
_HOCR_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml">
<head>
<title></title>
<meta http-equiv="Content-Type" content="text/html;charset=utf-8"/>
<meta name="ocr-system" content="{system}"/>
<meta name="ocr-capabilities" content="{capabilities}"/>
<meta name="ocr-number-of-pages" content="{pages}"/>
</head>
<body>
"""


def stream_hocr(document: Document) -> Iterator[bytes]:
    """The XHTML, page by page."""
    engines = ", ".join(sorted({page.engine for page in document.pages}))
    head = _HOCR_HEAD.format(system=escaped(engines), capabilities=_CAPABILITIES, pages=len(document.pages))
    yield head.encode()
    for page in document.pages:
        yield _hocr_page(document, page).encode()
    yield b"</body>\n</html>\n"


def _hocr_page(document: Document, page: Page) -> str:
    factor = PDF_PIXELS_PER_INCH / POINTS_PER_INCH if document.kind == "pdf" else 1.0
    resolution = round(page.units_per_inch * factor)
    title = (
        f'image "sha256:{document.sha256}"; {_bbox(Box(0, 0, page.width, page.height), factor)}; '
        f"ppageno {page.number - 1}; scan_res {resolution} {resolution}"
    )
    lang = language_tag(page.language)
    elements = [f'<div class="ocr_page" id="page_{page.number}" title="{escaped(title)}"{_lang(lang)}>\n']
    for index, block in enumerate(blocks_of(page)):
        title = _bbox(bounding_box(word.box for line in block for word in line), factor)
        elements.append(f'<div class="ocr_carea" id="block_{page.number}_{index}" title="{title}">\n')
        elements.append(f'<p class="ocr_par" id="par_{page.number}_{index}" title="{title}">\n')
        elements += [_hocr_line(page.number, line, factor) for line in block]
        elements.append("</p>\n</div>\n")
    return "".join([*elements, "</div>\n"])


def _hocr_line(page: int, words: Sequence[Word], factor: float) -> str:
    title = _bbox(bounding_box(word.box for word in words), factor)
    direction = ' dir="rtl"' if is_right_to_left(" ".join(word.text for word in words)) else ""
    spans = " ".join(
        f'<span class="ocrx_word" id="word_{page}_{word.start}" '
        f'title="{_bbox(word.box, factor)}; x_wconf {round(word.confidence * 100)}">{escaped(word.text)}</span>'
        for word in words
    )
    return f'<span class="ocr_line" id="line_{page}_{words[0].line}" title="{title}"{direction}>{spans}</span>\n'


def _bbox(box: Box, factor: float) -> str:
    """The ``bbox`` property: non-negative whole pixels."""
    left, top, right, bottom = (max(0, round(side * factor)) for side in box)
    return f"bbox {left} {top} {right} {bottom}"


def _lang(tag: str | None) -> str:
    return f' lang="{tag}" xml:lang="{tag}"' if tag else ""
