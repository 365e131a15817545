"""Broken files for fuzzing: a sound file and what a number, the seed, does to it.

The same seed makes the same bytes from the same files, so a failure is reported and repeated by its number.
"""

import io
import random
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pikepdf
import pillow_heif
from PIL import Image, ImageDraw

from tests.files.pdfs import encoded, pdf, picture, text
from tests.files.recordings import KINDS, recording, steps

Mutation = Callable[[random.Random, bytearray, Sequence[bytes]], bytes]

_TEXT_NUMBERS = (b"0", b"-1", b"1", b"65536", b"2147483647", b"2147483648", b"-2147483649", b"99999999999999999999")
_BYTE_NUMBERS = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\x80", b"\xff\x7f")
_MAX_MUTATIONS = 4  # of one file: more of them mostly make the first one's error again
_BLOCK_BYTES = 512
_BOMB_BYTES = 400 * 2**20  # unpacked; two layers of Flate pack it into a few hundred bytes
_DIGITS = re.compile(rb"-?\d+")
_REFERENCE = re.compile(rb"\b(\d+) 0 R\b")
_STREAM = re.compile(rb"<<[^<>]*>>\s*stream\r?\n")


class MutatedFile(NamedTuple):
    """One case."""

    seed: int
    name: str  # of the sound file
    data: bytes


def sound_files() -> dict[str, bytes]:
    """A file of each kind that is read, with what makes kinds differ: pages, fonts, forms, frames, depth, colour."""
    gray = Image.linear_gradient("L").resize((96, 64))
    color = Image.merge("RGB", (gray, gray.transpose(Image.Transpose.FLIP_LEFT_RIGHT), gray))
    ImageDraw.Draw(color).text((8, 20), "Factura 17", fill=(0, 0, 0))
    pillow_heif.register_heif_opener()
    tiff = color.copy()  # Pillow leaves the settings of an earlier PNG in the image, and TIFF takes them for its own
    return {
        "text.pdf": pdf(text(b"Factura 2024-017"), text(b"Total 1.284,50", 20, 50)),
        "scan.pdf": pdf(picture(200, 150), image=gray, rotate=90),
        "mapped.pdf": pdf(text(b"ABC"), to_unicode=b"<41><0046> <42><0061> <43><d800>", crop=(10, 10, 250, 150)),
        "packed.pdf": _packed_pdf(),
        "locked.pdf": pdf(text(b"secret"), password="open"),
        "form.pdf": _form_pdf(),
        "gray.png": encoded(gray, "PNG"),
        "color.png": encoded(color, "PNG", dpi=(300, 150)),
        "palette.png": encoded(color.convert("P"), "PNG", transparency=3),
        "deep.png": encoded(gray.convert("I;16"), "PNG"),
        "baseline.jpeg": encoded(color, "JPEG", exif=_exif(6)),
        "progressive.jpeg": encoded(color.convert("CMYK"), "JPEG", progressive=True),
        "pages.tiff": encoded(tiff, "TIFF", save_all=True, append_images=[gray.rotate(90), color.rotate(90)]),
        "lzw.tiff": encoded(tiff, "TIFF", compression="tiff_lzw"),
        "jpeg.tiff": encoded(tiff, "TIFF", compression="jpeg"),
        "fax.tiff": encoded(gray.convert("1"), "TIFF", compression="group4", dpi=(204, 98)),
        "lossy.webp": encoded(color, "WEBP"),
        "lossless.webp": encoded(color.convert("RGBA"), "WEBP", lossless=True),
        "frames.webp": encoded(color, "WEBP", save_all=True, append_images=[color.rotate(90)]),
        "bitmap.bmp": encoded(color, "BMP"),
        "frames.gif": encoded(color.convert("P"), "GIF", save_all=True, append_images=[gray.convert("P")]),
        "photo.heic": encoded(color, "HEIF", quality=60),
    }


def sound_recordings() -> dict[str, bytes]:
    """A recording of each container and coder, a third of a second long."""
    return {f"recording.{name}": recording(kind, steps(0.35, kind.rate)) for name, kind in KINDS.items()}


def mutated_file(seed: int, files: Mapping[str, bytes]) -> MutatedFile:
    """The file that ``seed`` makes of one of ``files``."""
    rng = random.Random(seed)
    name = rng.choice(sorted(files))
    data = files[name]
    is_pdf = b"%PDF" in data[:1024]
    others = [content for _, content in sorted(files.items())]
    for _ in range(rng.randint(1, _MAX_MUTATIONS)):
        mutation = rng.choice((*_GENERAL, *_OF_PDFS, *_OF_PDFS) if is_pdf else _GENERAL)
        data = mutation(rng, bytearray(data), others) if data else data
    return MutatedFile(seed, name, data)


def _packed_pdf() -> bytes:
    """A PDF whose objects are in compressed object streams, with an xref stream."""
    target = io.BytesIO()
    with pikepdf.open(io.BytesIO(pdf(text(b"packed"), text(b"twice")))) as file:
        file.save(target, object_stream_mode=pikepdf.ObjectStreamMode.generate)
    return target.getvalue()


def _form_pdf() -> bytes:
    """A PDF with a form field and a note, which reading a page makes part of it."""
    target = io.BytesIO()
    with pikepdf.open(io.BytesIO(pdf(text(b"Name:")))) as file:
        name = pikepdf.Name
        shared = {"Type": name.Annot, "Rect": [100, 90, 200, 120]}
        field = pikepdf.Dictionary(Subtype=name.Widget, FT=name.Tx, T="name", V="Ana", DA="/Helv 12 Tf 0 g", **shared)
        note = pikepdf.Dictionary(Subtype=name.FreeText, Contents="see below", DA="/Helv 9 Tf 0 g", **shared)
        annotations = [file.make_indirect(field), file.make_indirect(note)]
        file.pages[0].Annots = pikepdf.Array(annotations)
        file.Root.AcroForm = pikepdf.Dictionary(Fields=pikepdf.Array(annotations[:1]), NeedAppearances=True)
        file.save(target, qdf=True)
    return target.getvalue()


def _exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def _flip_bits(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    for _ in range(rng.choice((1, 1, 4, 32))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _flip_head(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    data[rng.randrange(min(len(data), 128))] = rng.randrange(256)  # headers decide what is believed of the rest
    return bytes(data)


def _truncate(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    return bytes(data[: rng.randrange(1, len(data) + 1)])


def _copy_block(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    start, target = rng.randrange(len(data)), rng.randrange(len(data))
    block = data[start : start + rng.randint(1, _BLOCK_BYTES)]
    data[target:target] = block * rng.choice((1, 1, 8, 200))
    return bytes(data)


def _delete_block(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    start = rng.randrange(len(data))
    del data[start : start + rng.randint(1, _BLOCK_BYTES)]
    return bytes(data)


def _zero_block(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.randint(1, _BLOCK_BYTES))
    data[start:end] = bytes(end - start)
    return bytes(data)


def _set_number(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    at, number = rng.randrange(len(data)), rng.choice(_BYTE_NUMBERS)
    data[at : at + len(number)] = number
    return bytes(data)


def _append(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    return bytes(data) + rng.choice(others)


def _splice(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return bytes(data[: rng.randrange(1, len(data) + 1)]) + other[rng.randrange(len(other)) :]


def _replace_match(rng: random.Random, data: bytearray, pattern: re.Pattern[bytes], values: Sequence[bytes]) -> bytes:
    """``data`` with one match of the pattern replaced by one of the values; unchanged where there is none."""
    matches = list(pattern.finditer(data))
    if not matches:
        return bytes(data)
    start, end = rng.choice(matches).span()
    return bytes(data[:start]) + rng.choice(values) + bytes(data[end:])


def _change_digits(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    return _replace_match(rng, data, _DIGITS, _TEXT_NUMBERS)  # lengths, counts, offsets, sizes, object numbers


def _redirect_reference(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    """Lead a reference to another object: cycles of page trees, contents that are their own page."""
    numbers = [match[1] + b" 0 R" for match in _REFERENCE.finditer(data)] or [b"1 0 R"]
    return _replace_match(rng, data, _REFERENCE, [*numbers, b"0 0 R", b"8388607 0 R"])


_DICTIONARY_ENTRIES = (
    b"/Kids [1 0 R 2 0 R 3 0 R]", b"/Kids [3 0 R]", b"/Count 2147483647", b"/Count -5", b"/Parent 3 0 R",
    b"/MediaBox [0 0 1e38 1e38]", b"/MediaBox [0 0 0 0]", b"/MediaBox [nan inf 1 -1]", b"/CropBox [9 9 9 9]",
    b"/Rotate 45", b"/Rotate -2147483648", b"/UserUnit 1e9", b"/Contents [4 0 R 4 0 R 4 0 R]", b"/Contents 3 0 R",
    b"/Width 2147483647", b"/Height 2147483647", b"/Width 60000 /Height 60000", b"/BitsPerComponent 32",
    b"/Filter [/FlateDecode /FlateDecode /FlateDecode]", b"/Filter /LZWDecode", b"/Filter /JBIG2Decode",
    b"/Filter /JPXDecode", b"/Filter /CCITTFaxDecode /DecodeParms << /K -1 /Columns 65535 /Rows 2147483647 >>",
    b"/DecodeParms << /Predictor 15 /Columns 2147483647 /Colors 32 >>", b"/Length 2147483647", b"/Length 4 0 R",
    b"/ColorSpace [/Indexed /DeviceRGB 2147483647 4 0 R]", b"/SMask 5 0 R", b"/Prev 0", b"/Size -1", b"/Encrypt 1 0 R",
    b"/Annots [1 0 R 2 0 R 3 0 R 4 0 R]", b"/W [9 9 9]", b"/Index [0 2147483647]", b"/Type /Pages", b"/Type /ObjStm",
)  # fmt: skip


def _add_entry(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    """Put an entry in front of a dictionary's own, or at its end: readers differ in which of two they believe."""
    entry = b" " + rng.choice(_DICTIONARY_ENTRIES) + b" "
    ends = [match.end() for match in re.finditer(rb"<<", data)] + [match.start() for match in re.finditer(rb">>", data)]
    if ends:
        at = rng.choice(ends)
        data[at:at] = entry
    return bytes(data)


_CONTENTS = (
    b"q " * 200_000, b"/Im1 Do " * 20_000, b"BT /F1 1e9 Tf (x) Tj ET " * 50,
    b"BT /F1 20 Tf 1e38 0 0 1e38 0 0 Tm (far) Tj ET", b"BT /F1 20 Tf 0 0 0 0 0 0 Tm (flat) Tj ET",
    b"BT /F1 20 Tf 50 100 Td (" + b"word " * 50_000 + b") Tj ET", b"[" * 100_000, b"<<" * 50_000,
    b"0 0 m " + b"1e6 1e6 l -1e6 3 l " * 20_000 + b"S", b"BI /W 60000 /H 60000 /BPC 8 /CS /G ID x EI",
    b"nan inf -inf 1e400 cm BT /F1 20 Tf (odd) Tj ET",
)  # fmt: skip


def _new_content(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    """Another stream in the place of one, with the length it has."""
    return _replace_match(rng, data, _STREAM, [b"<< /Length %d >>\nstream\n%b" % (len(c), c) for c in _CONTENTS])


_BOMBS: list[bytes] = []


def _flate_bomb(rng: random.Random, data: bytearray, _others: Sequence[bytes]) -> bytes:
    """A stream of a few hundred bytes that unpacks to ``_BOMB_BYTES``."""
    if not _BOMBS:
        packer = zlib.compressobj(9)
        block = b"0 0 m 9 9 l S " * 2**16
        packed = b"".join(packer.compress(block) for _ in range(_BOMB_BYTES // len(block))) + packer.flush()
        _BOMBS.append(zlib.compress(packed, 9))
    head = b"<< /Filter [/FlateDecode /FlateDecode] /Length %d >>\nstream\n" % len(_BOMBS[0])
    return _replace_match(rng, data, _STREAM, [head + _BOMBS[0] + b"\nendstream\n"])


_GENERAL: tuple[Mutation, ...] = (
    _flip_bits, _flip_head, _truncate, _copy_block, _delete_block, _zero_block, _set_number, _append, _splice,
)  # fmt: skip
_OF_PDFS: tuple[Mutation, ...] = (
    _change_digits, _change_digits, _redirect_reference, _redirect_reference, _add_entry, _add_entry, _new_content,
    _flate_bomb,
)  # fmt: skip
