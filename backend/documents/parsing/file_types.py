"""What a file is, by its first bytes. Its name and the type that the client claims are not asked."""

from __future__ import annotations

from enum import StrEnum

from backend.errors import UnreadableFile, WrongMediaType


class Kind(StrEnum):
    """The files that are read."""

    PDF = "pdf"
    PNG = "png"
    JPEG = "jpeg"
    TIFF = "tiff"
    WEBP = "webp"
    BMP = "bmp"
    GIF = "gif"
    HEIC = "heic"


ACCEPTED = "PDF, PNG, JPEG, TIFF, WebP, BMP, GIF and HEIC"
_PDF_HEADER_WITHIN = 1024  # bytes before %PDF that readers forgive: ISO 32000-1, implementation note 13
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})

# Where the kind is read: the bytes at an offset. Longer marks first where one begins another.
_STARTS: tuple[tuple[bytes, Kind], ...] = (
    (b"\x89PNG\r\n\x1a\n", Kind.PNG),
    (b"\xff\xd8\xff", Kind.JPEG),
    (b"II*\x00", Kind.TIFF),
    (b"MM\x00*", Kind.TIFF),
    (b"II+\x00", Kind.TIFF),  # BigTIFF
    (b"MM\x00+", Kind.TIFF),
    (b"GIF87a", Kind.GIF),
    (b"GIF89a", Kind.GIF),
)
# What is not read, so that the answer can say what it looks like.
_OTHER_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (doc, xls, ppt or msg)"),
    (b"{\\rtf", "a rich text document (rtf)"),
    (b"\x00\x00\x00\x0cJXL ", "a JPEG XL image"),
    (b"\xff\x0a", "a JPEG XL image"),
    (b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 image"),
    (b"\xff\x4f\xff\x51", "a JPEG 2000 image"),
    (b"8BPS", "a Photoshop image"),
    (b"\x01\xda", "an SGI image"),
    (b"%!PS", "a PostScript file"),
    (b"\xc5\xd0\xd3\xc6", "a PostScript file"),
    (b"AT&TFORM", "a DjVu document"),
    (b"\x00\x00\x01\x00", "an icon (ico)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
)
# Names inside a zip that say whose document it is, in the order they are tried.
_ZIP_SIGNS: tuple[tuple[bytes, str], ...] = (
    (b"word/", "a Word document (docx)"),
    (b"xl/", "an Excel workbook (xlsx)"),
    (b"ppt/", "a PowerPoint presentation (pptx)"),
    (b"application/epub+zip", "an e-book (epub)"),
    (b"application/vnd.oasis.opendocument", "an OpenDocument file (odt, ods or odp)"),
)
_EXPORT = "Export it as PDF."


def sniff(head: bytes) -> Kind:
    """The kind of a file that begins with ``head``; 1 KiB is enough to accept, 64 KiB to name what is refused.

    Raises:
        UnreadableFile: there are no bytes.
        WrongMediaType: anything else; the message says what it looks like and what is read.
    """
    if not head:
        raise UnreadableFile("file: it is empty (0 bytes)")
    kind = _kind(head)
    if kind is None:
        what = _likeness(head)
        advice = f" {_EXPORT}" if "document" in what or "book" in what or "presentation" in what else ""
        raise WrongMediaType(f"file: it looks like {what}, which is not read here; read are {ACCEPTED}.{advice}")
    return kind


def _kind(head: bytes) -> Kind | None:
    for mark, kind in _STARTS:
        if head.startswith(mark):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return Kind.WEBP
    if head[4:8] == b"ftyp" and _HEIF_BRANDS.intersection(_brands(head)) and b"avif" not in _brands(head):
        return Kind.HEIC
    if (
        head[:2] == b"BM" and len(head) >= 18 and int.from_bytes(head[14:18], "little") < 4096
    ):  # size of its second header
        return Kind.BMP
    if b"%PDF" in head[: _PDF_HEADER_WITHIN + 4]:
        return Kind.PDF
    return None


def _brands(head: bytes) -> tuple[bytes, ...]:
    size = min(int.from_bytes(head[:4], "big"), 256)
    return (head[8:12], *(head[at : at + 4] for at in range(16, size, 4)))


def _likeness(head: bytes) -> str:
    for mark, what in _OTHER_STARTS:
        if head.startswith(mark):
            return what
    if head[4:8] == b"ftyp":
        return "an AVIF image" if b"avif" in _brands(head) else "a video (mp4)"
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return next((what for sign, what in _ZIP_SIGNS if sign in head), "a zip archive")
    return _text_likeness(head)


def _text_likeness(head: bytes) -> str:
    if b"\x00" in head:
        return "a binary file of no known kind"
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in start:
        return "an SVG drawing"
    if b"<html" in start or start.startswith((b"<!doctype html", b"<head", b"<body")):
        return "an HTML page"
    if start.startswith(b"<"):
        return "an XML file"
    if start.startswith((b"from:", b"received:", b"return-path:", b"delivered-to:", b"mime-version:")):
        return "an e-mail message"
    try:
        head[:1024].decode("utf-8", errors="strict" if len(head) < 1024 else "ignore")
    except UnicodeDecodeError:
        return "a binary file of no known kind"
    return "plain text" if sum(byte < 9 for byte in head[:1024]) == 0 else "a binary file of no known kind"
