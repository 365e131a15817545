"""The font of invisible text: one glyph for all characters, and the map from its codes to Unicode.

A searchable PDF has invisible words over the image of a page. What a viewer finds and copies comes from the font's
ToUnicode map alone, so one glyph serves every script, and five hundred bytes are enough. Its outline is a line without
area from corner to corner, because PDFium, and so Chrome, skips characters that have no extent. The idea is Tesseract's
(src/api/pdfrenderer.cpp and its pdf.ttf); the font is built here from the tables that OpenType requires for TrueType
outlines (https://learn.microsoft.com/typography/opentype/spec/otff).
"""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Iterable, Mapping

UNITS_PER_EM = 1000
ADVANCE = 500  # units, of every character; words are stretched to their boxes
ASCENT, DESCENT = 800, -200  # units
MOST_CHARACTERS = 0xFFFE  # codes have two bytes, and 0 is the missing character
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
    for tag, table in tables.items():
        directory += struct.pack(">4sIII", tag, _checksum(table), offset + len(body), len(table))
        body += table + b"\0" * (-len(table) % 4)
    power = 1 << (len(tables).bit_length() - 1)
    search = struct.pack(">HHH", power * 16, power.bit_length() - 1, (len(tables) - power) * 16)
    font = struct.pack(">IH", 0x00010000, len(tables)) + search + directory + body
    adjustment = (_CHECKSUM_MAGIC - _checksum(font)) & 0xFFFFFFFF
    position = offset + _start_of(tables, b"head") + 8
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


def _start_of(tables: Mapping[bytes, bytes], tag: bytes) -> int:
    start = 0
    for name, table in tables.items():
        if name == tag:
            break
        start += len(table) + -len(table) % 4
    return start
