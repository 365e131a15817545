"""Makes a searchable PDF from a file and its words: the file's pages with invisible text over each.

Pages of a PDF stay as they are; an image becomes a page of its own size. Runs in the workers, as PDFium is not
thread-safe and a broken file can crash its process. Needs PDFium and Pillow only.
"""

from __future__ import annotations

import ctypes
import io
import struct
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import zip_longest
from statistics import fmean
from typing import Any

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from PIL import Image
from pypdfium2 import PdfMatrix, raw

from backend.files.image_file import EXIF_TURNS, exif_orientation
from backend.files.markup import is_right_to_left
from backend.files.pages import POINTS_PER_INCH, Box, Document, Page, blocks_of

# Clockwise turns of the unit square onto itself, y upwards.
_TURNS = {
    0: PdfMatrix(),
    90: PdfMatrix(0, -1, 1, 0, 0, 1),
    180: PdfMatrix(-1, 0, 0, -1, 1, 1),
    270: PdfMatrix(0, 1, -1, 0, 1, 0),
}
_MIRROR = PdfMatrix(-1, 0, 0, 1, 1, 0)


def image_matrix(exif: int, width: float, height: float) -> PdfMatrix:
    """Places an image (a unit square in PDF) upright on a page of this size, by its EXIF orientation, 1 to 8."""
    mirrored, turn = EXIF_TURNS[exif]
    return (_MIRROR if mirrored else PdfMatrix()).multiply(_TURNS[turn]).scale(width, height)


def upright_to_page(visible: tuple[float, float, float, float], rotate: int, width: float, height: float) -> PdfMatrix:
    """Maps units of the upright page, y downwards, to the user space of a PDF page.

    Args:
        visible: the visible part of user space: left, bottom, right, top; y upwards.
        rotate: the upright page's /Rotate, 0 to 270.
        width: of the upright page, in units of its words; ``height`` likewise.
    """
    to_square = PdfMatrix(1 / width, 0, 0, -1 / height, 0, 1)
    left, low, right, high = visible
    return to_square.multiply(_TURNS[-rotate % 360]).scale(right - left, high - low).translate(left, low)


UNITS_PER_EM = 1000
ADVANCE = 500  # units, of every character; words are stretched to their boxes
ASCENT, DESCENT = 800, -200  # units
MAX_CHARACTERS = 0xFFFE  # codes have two bytes, and 0 is the missing character
_CODES_PER_BLOCK = 100  # maximum of one bfchar block (Adobe Technical Note 5411, 1.4.2)
_JOINED = ("Mn", "Me", "Mc", "Cf")
_CHECKSUM_MAGIC = 0xB1B0AFBA  # OpenType, head.checksumAdjustment
_HEAD_MAGIC = 0x5F0F3CF5
_NAMES = {1: "Glyphless", 2: "Regular", 4: "Glyphless", 6: "Glyphless"}  # family, style, full, PostScript

_CMAP_HEAD = """/CIDInit /ProcSet findresource begin
12 dict begin
begincmap
/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def
/CMapName /Adobe-Identity-UCS def
/CMapType 2 def
1 begincodespacerange
<0000> <FFFF>
endcodespacerange
"""
_CMAP_TAIL = """endcmap
CMapName currentdict /CMap defineresource pop
end
end
"""


def clusters(text: str) -> list[str]:
    """Split a text into letters with their combining marks and joiners."""
    split: list[str] = []
    for character in text:
        if split and unicodedata.category(character) in _JOINED:
            split[-1] += character
        else:
            split.append(character)
    return split


def codes_of(characters: Iterable[str]) -> dict[str, int]:
    """A code from 1 for each cluster; the same for equal sets."""
    return {character: code for code, character in enumerate(sorted(set(characters)), 1)}


def to_unicode(codes: Mapping[str, int]) -> bytes:
    """The ToUnicode CMap of a PDF font (ISO 32000-1, 9.10.3)."""
    rows = [f"<{code:04X}> <{text.encode('utf-16-be').hex().upper()}>" for text, code in codes.items()]
    blocks = [rows[start : start + _CODES_PER_BLOCK] for start in range(0, len(rows), _CODES_PER_BLOCK)]
    body = "".join(f"{len(block)} beginbfchar\n" + "\n".join(block) + "\nendbfchar\n" for block in blocks)
    return (_CMAP_HEAD + body + _CMAP_TAIL).encode("ascii")


def code_to_glyph(codes: Mapping[str, int]) -> bytes:
    """The CIDToGIDMap: every code draws glyph 1 (ISO 32000-1, 9.7.4.2)."""
    return b"\0\0" + b"\0\1" * len(codes)


def glyphless_font() -> bytes:
    """A TrueType font of two glyphs: the missing one and the one used for all characters."""
    tables = _tables()
    directory, body = b"", b""
    offset = 12 + 16 * len(tables)
    head_at = 0
    for tag, table in tables.items():
        if tag == b"head":
            head_at = offset + len(body)
        directory += struct.pack(">4sIII", tag, _checksum(table), offset + len(body), len(table))
        body += table + b"\0" * (-len(table) % 4)
    power = 1 << (len(tables).bit_length() - 1)
    search = struct.pack(">HHH", power * 16, power.bit_length() - 1, (len(tables) - power) * 16)
    font = struct.pack(">IH", 0x00010000, len(tables)) + search + directory + body
    adjustment = (_CHECKSUM_MAGIC - _checksum(font)) & 0xFFFFFFFF
    position = head_at + 8
    return font[:position] + struct.pack(">I", adjustment) + font[position + 4 :]


def _tables() -> dict[bytes, bytes]:
    """The font's tables by tag, in the order of tags."""
    units, width = UNITS_PER_EM, ADVANCE
    head = struct.pack(
        ">IIIIHHqqhhhhHHhhh",
        *(0x00010000, 0x00010000, 0, _HEAD_MAGIC, 0, units),  # versions, adjustment (set later), flags
        *(0, 0, 0, DESCENT, width, ASCENT, 0, 3, 2, 0, 0),  # dates, box, style, least size, direction, short offsets
    )
    lines = struct.pack(">I3hH11hH", 0x00010000, ASCENT, DESCENT, 0, width, *[0] * 3, 1, *[0] * 7, 1)
    record = struct.pack(">IH13H", 0x00010000, 2, 2, 1, 0, 0, 2, *[0] * 8)  # glyphs, points, contours, zones
    glyph = struct.pack(">h4hHH2B4hxx", 1, 0, DESCENT, width, ASCENT, 1, 0, 1, 1, 0, width, DESCENT, units)
    blank = struct.pack(">HHIII3I", 12, 0, 28, 0, 1, 0x20, 0x20, 1)  # space -> glyph 1; format 12
    return {
        b"cmap": struct.pack(">HHHHI", 0, 1, 3, 10, 12) + blank,
        b"glyf": glyph,
        b"head": head,
        b"hhea": lines,
        b"hmtx": struct.pack(">Hhh", width, 0, 0),
        b"loca": struct.pack(">3H", 0, 0, len(glyph) // 2),
        b"maxp": record,
        b"name": _name_table(),
        b"post": struct.pack(">IIhh5I", 0x00030000, 0, -100, 50, 1, 0, 0, 0, 0),
    }


def _name_table() -> bytes:
    records, texts = b"", b""
    for number, name in _NAMES.items():
        text = name.encode("utf-16-be")
        records += struct.pack(">6H", 3, 1, 0x409, number, len(text), len(texts))
        texts += text
    return struct.pack(">HHH", 0, len(_NAMES), 6 + len(records)) + records + texts


def _checksum(table: bytes) -> int:
    padded = table + b"\0" * (-len(table) % 4)
    return int(sum(struct.unpack(f">{len(padded) // 4}I", padded))) & 0xFFFFFFFF


_ADVANCE, _DESCENT = ADVANCE / UNITS_PER_EM, DESCENT / UNITS_PER_EM  # of the font's size
_MIN_SIZE = 0.1  # page units; for words without an extent
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
        if not groups or len(groups[-1][1] | characters) > MAX_CHARACTERS:
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
        size = max(_MIN_SIZE, *(word.box.height for word in line))
        bottoms = _baselines([word.box for word in line])
        for word, after, bottom in zip_longest(line, line[1:], bottoms):
            left, right = _with_gap(word.box, after.box if after else None, size * _GAP)
            characters = clusters(word.text)
            stretch = max(_MIN_SIZE, right - left) / (len(characters) * _ADVANCE * size * scale)
            matrix = PdfMatrix(stretch, 0, 0, -1 / scale, left, bottom + _DESCENT * size).multiply(space)
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


def _insert(sheet: pdfium.PdfPage, font: InvisibleFont, characters: list[str], size: float, matrix: PdfMatrix) -> None:
    codes = font.encode(characters)
    text = raw.FPDFPageObj_CreateTextObj(sheet.pdf.raw, font.handle, size)
    is_complete = (
        raw.FPDFText_SetCharcodes(text, (ctypes.c_uint32 * len(codes))(*codes), len(codes))
        and raw.FPDFTextObj_SetTextRenderMode(text, raw.FPDF_TEXTRENDERMODE_INVISIBLE)
        and raw.FPDFPageObj_SetMatrix(text, matrix)
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


_MAX_POINTS = 14_400.0  # a page's longest side in user space units, ISO 32000-1, annex C.2
_LOSSY = frozenset({"webp", "heic"})  # lossy already; uncompressed pixels would take ten times the size
_JPEG_QUALITY = 90

# Page number -> (height, width_px) gray or (height, width_px, 3) RGB, as a viewer shows it, before `Page.rotation`.
Pixels = Callable[[int], NDArray[np.uint8]]


def searchable_pdf(document: Document, original: bytes, *, password: str | None = None) -> bytes:
    """A PDF with the words of its pages as text; pages that were read from their own text layer keep only that.

    Pages that lay on their side are turned upright. On an OCR page the new text replaces an older invisible layer, and
    is added to visible text. Pages that were not read stay as they are. An encrypted file keeps its password.

    Args:
        original: the bytes of the PDF that ``document`` was read from.

    Raises:
        pypdfium2.PdfiumError: PDFium cannot open or write it.
    """
    with closing(pdfium.PdfDocument(original, password=password)) as pdf:
        sheets = [(pdf[page.number - 1], page) for page in document.pages]
        return _with_words(pdf, sheets, lambda page: page.source == "ocr")


def searchable_images(document: Document, original: bytes, pixels_of: Pixels) -> bytes:
    """A PDF of the pages that were read of an image file, each in its physical size.

    A JPEG is embedded byte for byte, WebP and HEIC as JPEG, others losslessly.

    Args:
        original: the bytes of the file that ``document`` was read from.
        pixels_of: decodes a page; called once for each page in order, and not for a JPEG.

    Raises:
        pypdfium2.PdfiumError: PDFium does not take the image.
    """
    with closing(pdfium.PdfDocument.new()) as pdf:
        sheets = []
        for page in document.pages:
            sheet = _sheet(pdf, page)
            image_object = pdfium.PdfImage.new(pdf)
            orientation = _load(image_object, document.kind, original, page, pixels_of)
            image_object.set_matrix(image_matrix(orientation, *sheet.get_size()))
            sheet.insert_obj(image_object)
            sheet.gen_content()
            sheets.append((sheet, page))
        return _with_words(pdf, sheets, lambda _: True)  # of a page that is an image now its own text is lost, too


def _with_words(
    pdf: pdfium.PdfDocument, sheets: list[tuple[pdfium.PdfPage, Page]], lacks_words: Callable[[Page], bool]
) -> bytes:
    with invisible_fonts(pdf, [page for _, page in sheets if lacks_words(page)]) as font_of:
        for sheet, page in sheets:
            sheet.set_rotation((sheet.get_rotation() + page.rotation) % 360)
            if lacks_words(page):
                remove_invisible(sheet)
                write_invisible(sheet, page, font_of[page.number])
            sheet.close()
        target = io.BytesIO()
        pdf.save(target)
    return target.getvalue()


def _sheet(pdf: pdfium.PdfDocument, page: Page) -> pdfium.PdfPage:
    """An empty PDF page with the page's size in points, before its orientation."""
    points = POINTS_PER_INCH / page.units_per_inch
    points *= min(1.0, _MAX_POINTS / (points * max(page.width, page.height)))
    width, height = page.width * points, page.height * points
    return pdf.new_page(height, width) if page.rotation % 180 else pdf.new_page(width, height)


def _load(image_object: pdfium.PdfImage, kind: str, original: bytes, page: Page, pixels_of: Pixels) -> int:
    """Fill the image object. Returns: the EXIF orientation that is still to be applied."""
    if kind == "jpeg":
        image_object.load_jpeg(io.BytesIO(original), inline=True)
        return _jpeg_orientation(original)
    image = Image.fromarray(pixels_of(page.number))
    if kind in _LOSSY:
        encoded = io.BytesIO()
        image.save(encoded, "JPEG", quality=_JPEG_QUALITY)
        image_object.load_jpeg(encoded, inline=True)
    else:
        image_object.set_bitmap(pdfium.PdfBitmap.from_pil(image))
    return 1


def _jpeg_orientation(jpeg: bytes) -> int:
    try:
        with Image.open(io.BytesIO(jpeg)) as image:
            return exif_orientation(image)
    except Exception:  # noqa: BLE001  # broken EXIF raises errors of any kind; the image is then shown as stored
        return 1
