"""PDFs and images for tests, and the command of the faulty worker."""

import io
import sys
from pathlib import Path

import pikepdf
from PIL import Image

FAULTY_WORKER = (sys.executable, "-P", str(Path(__file__).with_name("faulty_worker.py")))
FONT_SIZE = 20


def pdf(
    *contents: bytes,
    rotate: int = 0,
    size: tuple[float, float] = (300, 200),
    to_unicode: bytes | None = None,
    password: str | None = None,
    image: Image.Image | None = None,
    crop: tuple[float, float, float, float] | None = None,
) -> bytes:
    """A page for each content stream; /F1 is Helvetica, /Im1 the image."""
    file = pikepdf.new()
    font = pikepdf.Dictionary(
        Type=pikepdf.Name.Font, Subtype=pikepdf.Name.Type1, BaseFont=pikepdf.Name.Helvetica,
        Encoding=pikepdf.Name.WinAnsiEncoding,
    )  # fmt: skip
    if to_unicode is not None:
        font.ToUnicode = file.make_stream(_cmap(to_unicode))
    resources = pikepdf.Dictionary(Font=pikepdf.Dictionary(F1=file.make_indirect(font)))
    if image is not None:
        stream = file.make_stream(image.tobytes())
        stream.Type, stream.Subtype = pikepdf.Name.XObject, pikepdf.Name.Image
        stream.Width, stream.Height, stream.BitsPerComponent = image.width, image.height, 8
        stream.ColorSpace = pikepdf.Name.DeviceGray
        resources.XObject = pikepdf.Dictionary(Im1=stream)
    for content in contents or (b"",):
        page = file.add_blank_page(page_size=size)
        page.Resources = resources
        page.Contents = file.make_stream(content)
        if rotate:
            page.Rotate = rotate
        if crop:
            page.CropBox = pikepdf.Array(crop)
    target = io.BytesIO()
    file.save(target, encryption=pikepdf.Encryption(owner="owner", user=password) if password else False)
    return target.getvalue()


def text(words: bytes, x: float = 50, y: float = 100, *, matrix: bytes = b"1 0 0 1", size: int = FONT_SIZE) -> bytes:
    """A content stream with words at a position in user space."""
    return b"BT /F1 %d Tf %b %g %g Tm (%b) Tj ET\n" % (size, matrix, x, y, words)


def picture(width: int, height: int, left: float = 0, bottom: float = 0) -> bytes:
    """A content stream with the image over a rectangle."""
    return b"q %d 0 0 %d %g %g cm /Im1 Do Q\n" % (width, height, left, bottom)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """An image as the bytes of a file."""
    target = io.BytesIO()
    image.save(target, format=kind, **options)
    return target.getvalue()


def _cmap(pairs: bytes) -> bytes:
    return (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def\n"
        b"1 begincodespacerange <00> <ff> endcodespacerange\n"
        b"%d beginbfchar %b endbfchar endcmap end end" % (pairs.count(b"<") // 2, pairs)
    )
