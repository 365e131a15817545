"""hOCR 1.2: words with boxes as XHTML (https://kba.github.io/hocr-spec/1.2/).

hOCR has boxes in whole pixels. An image's are used as they are; a PDF page's points are converted at 300 pixels per
inch, stated in ``scan_res``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.files.markup import escaped, is_right_to_left, language_tag
from backend.files.pages import POINTS_PER_INCH, Box, Document, Page, Word, blocks_of, bounding_box

PDF_PIXELS_PER_INCH = 300.0
_CAPABILITIES = "ocr_page ocr_carea ocr_par ocr_line ocrx_word ocrp_dir ocrp_lang ocrp_wconf"
_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
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
    head = _HEAD.format(system=escaped(engines), capabilities=_CAPABILITIES, pages=len(document.pages))
    yield head.encode()
    for page in document.pages:
        yield _page(document, page).encode()
    yield b"</body>\n</html>\n"


def _page(document: Document, page: Page) -> str:
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
        elements += [_line(page.number, line, factor) for line in block]
        elements.append("</p>\n</div>\n")
    return "".join([*elements, "</div>\n"])


def _line(page: int, words: Sequence[Word], factor: float) -> str:
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
