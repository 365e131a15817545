"""Writes and removes invisible text on PDF pages, so that words can be searched, selected and copied."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from statistics import fmean
from typing import Any

import pypdfium2 as pdfium
from pypdfium2 import raw

from backend.files.glyphless_font import (
    ADVANCE,
    DESCENT,
    MOST_CHARACTERS,
    UNITS_PER_EM,
    clusters,
    code_to_glyph,
    codes_of,
    glyphless_font,
    to_unicode,
)
from backend.files.markup import is_right_to_left
from backend.files.page_transforms import Matrix, upright_to_page
from backend.files.pages import Box, Page, blocks_of

_ADVANCE, _DESCENT = ADVANCE / UNITS_PER_EM, DESCENT / UNITS_PER_EM  # of the font's size
_LEAST_SIZE = 0.1  # page units; for words without an extent
_STEEPEST = 0.5  # slope of a line of text; above it, the words stand on top of each other
_GAP = 0.2  # of a line's height: pdftotext joins words closer than 0.15, even with a space between them


class InvisibleFont:
    """A font embedded in one PDF, and the code of each character in it."""

    def __init__(self, pdf: pdfium.PdfDocument, characters: set[str]) -> None:
        self.codes = codes_of(characters)
        self.handle: Any = _load_font(pdf, self.codes)

    def encode(self, characters: Sequence[str]) -> list[int]:
        """The codes of clusters, which must be among the font's characters."""
        return [self.codes[character] for character in characters]


@contextmanager
def invisible_fonts(pdf: pdfium.PdfDocument, pages: Sequence[Page]) -> Iterator[Mapping[int, InvisibleFont]]:
    """The font for each page number: one for all pages, more if one cannot hold all characters."""
    groups: list[tuple[list[int], set[str]]] = []
    for page in pages:
        characters = {character for word in page.words for character in clusters(word.text)} | {" "}
        if not groups or len(groups[-1][1] | characters) > MOST_CHARACTERS:
            groups.append(([], set()))
        groups[-1][0].append(page.number)
        groups[-1][1].update(characters)
    fonts = [(numbers, InvisibleFont(pdf, characters)) for numbers, characters in groups]
    try:
        yield {number: font for numbers, font in fonts for number in numbers}
    finally:
        for _, font in fonts:
            raw.FPDFFont_Close(font.handle)


def write_invisible(sheet: pdfium.PdfPage, page: Page, font: InvisibleFont) -> None:
    """Add the words of a page to an upright PDF page; its content stays.

    All words of a line have the same size, so that viewers recognise it as a line.
    """
    space = upright_to_page(sheet.get_bbox(), sheet.get_rotation(), page.width, page.height)
    scale = abs(space.a * space.d - space.b * space.c) ** 0.5  # user space units to one of the page's
    for line in (line for block in blocks_of(page) for line in block):
        size = max(_LEAST_SIZE, *(word.box.height for word in line))
        bottoms = _baselines([word.box for word in line])
        for word, after, bottom in zip_longest(line, line[1:], bottoms):
            left, right = _with_gap(word.box, after.box if after else None, size * _GAP)
            characters = clusters(word.text)
            stretch = max(_LEAST_SIZE, right - left) / (len(characters) * _ADVANCE * size * scale)
            matrix = Matrix(stretch, 0, 0, -1 / scale, left, bottom + _DESCENT * size).then(space)
            drawn = _in_drawing_order(word.text, characters) + ([" "] if after else [])
            _insert(sheet, font, drawn, size * scale, matrix)
    sheet.gen_content()


def remove_invisible(sheet: pdfium.PdfPage) -> None:
    """Remove invisible text that another program put over the page."""
    texts = list(sheet.get_objects(filter=[raw.FPDF_PAGEOBJ_TEXT], max_depth=1))
    mode_of = raw.FPDFTextObj_GetTextRenderMode
    invisible = [text for text in texts if mode_of(text.raw) == raw.FPDF_TEXTRENDERMODE_INVISIBLE]
    for text in invisible:
        sheet.remove_obj(text)
        text.close()
    if invisible:
        sheet.gen_content()


def _baselines(boxes: Sequence[Box]) -> list[float]:
    """The bottom of each word on the straight line fitted through all words of a line (least squares)."""
    centers = [(box.left + box.right) / 2 for box in boxes]
    middle, mean = fmean(centers), fmean(box.bottom for box in boxes)
    spread = sum((center - middle) ** 2 for center in centers)
    along = sum((center - middle) * box.bottom for center, box in zip(centers, boxes, strict=True))
    if abs(along) > spread * _STEEPEST:
        return [box.bottom for box in boxes]
    slope = along / spread if spread else 0.0
    return [mean + slope * (center - middle) for center in centers]


def _with_gap(box: Box, after: Box | None, gap: float) -> tuple[float, float]:
    """Left and right of a word, shortened for a gap to the next one; at least half of its width is kept."""
    left, right = box.left, box.right
    if after is not None and after.left > box.left:
        right = max(box.left + box.width / 2, min(right, after.left - gap))
    elif after is not None:
        left = min(box.right - box.width / 2, max(left, after.right + gap))
    return left, right


def _in_drawing_order(text: str, characters: list[str]) -> list[str]:
    """From left to right, as viewers expect; they reverse right-to-left text themselves."""
    return characters[::-1] if is_right_to_left(text) else characters


def _insert(sheet: pdfium.PdfPage, font: InvisibleFont, characters: list[str], size: float, matrix: Matrix) -> None:
    codes = font.encode(characters)
    text = raw.FPDFPageObj_CreateTextObj(sheet.pdf.raw, font.handle, size)
    is_complete = (
        raw.FPDFText_SetCharcodes(text, (ctypes.c_uint32 * len(codes))(*codes), len(codes))
        and raw.FPDFTextObj_SetTextRenderMode(text, raw.FPDF_TEXTRENDERMODE_INVISIBLE)
        and raw.FPDFPageObj_SetMatrix(text, raw.FS_MATRIX(matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f))
    )
    if not is_complete:
        raw.FPDFPageObj_Destroy(text)
        raise pdfium.PdfiumError("PDFium refused a word of the text layer")
    raw.FPDFPage_InsertObject(sheet.raw, text)


def _load_font(pdf: pdfium.PdfDocument, codes: Mapping[str, int]) -> Any:
    """Embed the font; PDFium copies it and its maps."""
    font, glyphs = glyphless_font(), code_to_glyph(codes)
    loaded = raw.FPDFText_LoadCidType2Font(
        pdf.raw,
        (ctypes.c_uint8 * len(font)).from_buffer_copy(font),
        len(font),
        to_unicode(codes),
        (ctypes.c_uint8 * len(glyphs)).from_buffer_copy(glyphs),
        len(glyphs),
    )
    if not loaded:
        raise pdfium.PdfiumError("PDFium refused the font of the text layer")
    return loaded
