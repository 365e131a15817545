"""The font of invisible text and its maps."""

import io
import re
import struct

from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageFont

from backend.files.searchable_pdf import (
    ADVANCE,
    UNITS_PER_EM,
    clusters,
    code_to_glyph,
    codes_of,
    glyphless_font,
    to_unicode,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def test_freetype_opens_the_font():
    """Names and advance width are right; the glyph is empty."""
    font = ImageFont.truetype(io.BytesIO(glyphless_font()), UNITS_PER_EM)

    assert ("Glyphless", "Regular") == font.getname()
    assert ADVANCE == font.getlength(" ")
    assert font.getmask(" ").getbbox() is None


def test_checksums_are_right():
    """Of every table and of the whole font, as OpenType requires."""
    font = glyphless_font()
    words = struct.unpack(f">{len(font) // 4}I", font)
    assert sum(words) & 0xFFFFFFFF == 0xB1B0AFBA

    for index in range(struct.unpack(">H", font[4:6])[0]):
        tag, checksum, start, length = struct.unpack(">4sIII", font[12 + 16 * index : 28 + 16 * index])
        table = font[start : start + length] + b"\0" * (-length % 4)
        if tag == b"head":
            table = table[:8] + b"\0" * 4 + table[12:]
        assert checksum == sum(struct.unpack(f">{len(table) // 4}I", table)) & 0xFFFFFFFF


@given(TEXTS)
def test_clusters_are_the_text(text):
    """Nothing is lost, and marks stay with their letters."""
    assert text == "".join(clusters(text))
    assert ["e\u0301", "👩\u200d", "👧"] == clusters("e\u0301👩\u200d👧")


@given(TEXTS)
def test_the_map_leads_back_to_the_text(text):
    """Each code's UTF-16 is its cluster, blocks have at most a hundred rows, codes have two bytes."""
    codes = codes_of(clusters(text))
    cmap = to_unicode(codes).decode("ascii")
    rows = dict(re.findall(r"^<([0-9A-F]{4})> <([0-9A-F]*)>$", cmap, re.MULTILINE))
    rows.pop("0000", None)  # the range of codes

    read = {int(code, 16): bytes.fromhex(text).decode("utf-16-be") for code, text in rows.items()}
    assert {code: character for character, code in codes.items()} == read
    assert all(int(count) <= 100 for count in re.findall(r"^(\d+) beginbfchar", cmap, re.MULTILINE))
    assert 2 * (len(codes) + 1) == len(code_to_glyph(codes))
