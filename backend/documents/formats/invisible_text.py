"""Words written on a page of a PDF where they are seen, in no colour, so that they are found, marked and copied."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from statistics import fmean
from typing import Any

import pypdfium2 as pdfium
from pypdfium2 import raw

from backend.documents.formats.glyphless import (
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
from backend.documents.formats.markup import is_right_to_left
from backend.documents.formats.rotation import Matrix, upright_to_page
from backend.documents.pages import Box, Page, blocks_of

_ADVANCE, _DESCENT = ADVANCE / UNITS_PER_EM, DESCENT / UNITS_PER_EM  # of the font's size
_LEAST_SIZE = 0.1  # page units; a word without an extent still has a place
_STEEPEST = 0.5  # of a line of writing; above, it is words that stand on top of each other
_GAP = 0.2  # of a line's height: pdftotext takes words closer than 0.15 for one, whatever stands between them


class Alphabet:
    """A font in one PDF, and the code of each character in it."""

    def __init__(self, pdf: pdfium.PdfDocument, characters: set[str]) -> None:
        self.codes = codes_of(characters)
        self.font: Any = _load_font(pdf, self.codes)

    def encode(self, characters: Sequence[str]) -> list[int]:
        """The codes of clusters that it was made with."""
        return [self.codes[character] for character in characters]


@contextmanager
def alphabets(pdf: pdfium.PdfDocument, pages: Sequence[Page]) -> Iterator[Mapping[int, Alphabet]]:
    """For each page number the alphabet with its characters: one for all, more where one font cannot hold them."""
    groups: list[tuple[list[int], set[str]]] = []
    for page in pages:
        characters = {character for word in page.words for character in clusters(word.text)} | {" "}
        if not groups or len(groups[-1][1] | characters) > MOST_CHARACTERS:
            groups.append(([], set()))
        groups[-1][0].append(page.number)
        groups[-1][1].update(characters)
    made = [(numbers, Alphabet(pdf, characters)) for numbers, characters in groups]
    try:
        yield {number: alphabet for numbers, alphabet in made for number in numbers}
    finally:
        for _, alphabet in made:
            raw.FPDFFont_Close(alphabet.font)


def write_unseen(sheet: pdfium.PdfPage, page: Page, alphabet: Alphabet) -> None:
    """Lay the words of a page over a sheet that stands upright; what it holds already stays.

    Sizes agree within a line, so that readers take it for one.
    """
    space = upright_to_page(sheet.get_bbox(), sheet.get_rotation(), page.width, page.height)
    scale = abs(space.a * space.d - space.b * space.c) ** 0.5  # user space units to one of the page's
    for line in (line for block in blocks_of(page) for line in block):
        size = max(_LEAST_SIZE, *(word.box.height for word in line))
        bottoms = _level([word.box for word in line])
        for word, after, bottom in zip_longest(line, line[1:], bottoms):
            left, right = _apart(word.box, after.box if after else None, size * _GAP)
            characters = clusters(word.text)
            stretch = max(_LEAST_SIZE, right - left) / (len(characters) * _ADVANCE * size * scale)
            place = Matrix(stretch, 0, 0, -1 / scale, left, bottom + _DESCENT * size).then(space)
            drawn = _in_drawing_order(word.text, characters) + ([" "] if after else [])
            _insert(sheet, alphabet, drawn, size * scale, place)
    sheet.gen_content()


def remove_unseen(sheet: pdfium.PdfPage) -> None:
    """Take away words in no colour that another program laid over the page."""
    texts = list(sheet.get_objects(filter=[raw.FPDF_PAGEOBJ_TEXT], max_depth=1))
    unseen = [one for one in texts if raw.FPDFTextObj_GetTextRenderMode(one.raw) == raw.FPDF_TEXTRENDERMODE_INVISIBLE]
    for one in unseen:
        sheet.remove_obj(one)
        one.close()
    if unseen:
        sheet.gen_content()


def _level(boxes: Sequence[Box]) -> list[float]:
    """The bottom of each word of a line on one straight line through all, which may run up or down (least squares)."""
    places = [(box.left + box.right) / 2 for box in boxes]
    middle, mean = fmean(places), fmean(box.bottom for box in boxes)
    spread = sum((place - middle) ** 2 for place in places)
    along = sum((place - middle) * box.bottom for place, box in zip(places, boxes, strict=True))
    if abs(along) > spread * _STEEPEST:
        return [box.bottom for box in boxes]
    slope = along / spread if spread else 0.0
    return [mean + slope * (place - middle) for place in places]


def _apart(box: Box, after: Box | None, gap: float) -> tuple[float, float]:
    """Left and right of a word with a gap to the next one; at least half of it stays."""
    left, right = box.left, box.right
    if after is not None and after.left > box.left:
        right = max(box.left + box.width / 2, min(right, after.left - gap))
    elif after is not None:
        left = min(box.right - box.width / 2, max(left, after.right + gap))
    return left, right


def _in_drawing_order(text: str, characters: list[str]) -> list[str]:
    """From left to right: readers expect so, and turn what is read from the right themselves."""
    return characters[::-1] if is_right_to_left(text) else characters


def _insert(sheet: pdfium.PdfPage, alphabet: Alphabet, characters: list[str], size: float, place: Matrix) -> None:
    codes = alphabet.encode(characters)
    text = raw.FPDFPageObj_CreateTextObj(sheet.pdf.raw, alphabet.font, size)
    done = (
        raw.FPDFText_SetCharcodes(text, (ctypes.c_uint32 * len(codes))(*codes), len(codes))
        and raw.FPDFTextObj_SetTextRenderMode(text, raw.FPDF_TEXTRENDERMODE_INVISIBLE)
        and raw.FPDFPageObj_SetMatrix(text, raw.FS_MATRIX(place.a, place.b, place.c, place.d, place.e, place.f))
    )
    if not done:
        raw.FPDFPageObj_Destroy(text)
        raise pdfium.PdfiumError("PDFium refused a word of the text layer")
    raw.FPDFPage_InsertObject(sheet.raw, text)


def _load_font(pdf: pdfium.PdfDocument, codes: Mapping[str, int]) -> Any:
    """PDFium copies the font and the maps."""
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
