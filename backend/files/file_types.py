"""Recognises a file's type by its first bytes; file name and declared media type are ignored."""

from __future__ import annotations

import mimetypes
import re
from enum import StrEnum

from backend.errors import UnreadableFile, WrongMediaType
from backend.files.audio_types import begins_with_ftyp, sound_demuxer


class FileType(StrEnum):
    """The supported types of files."""

    PDF = "pdf"
    PNG = "png"
    JPEG = "jpeg"
    TIFF = "tiff"
    WEBP = "webp"
    BMP = "bmp"
    GIF = "gif"
    HEIC = "heic"
    XML = "xml"  # of an electronic invoice
    AUDIO = "audio"  # a recording, or a video of which the sound is heard
    DOCX = "docx"
    XLSX = "xlsx"
    PPTX = "pptx"
    ODT = "odt"
    ODS = "ods"
    ODP = "odp"
    ZIP = "zip"  # of files that are read each; and any of the above whose names begin later


IMAGES = frozenset(
    {FileType.PNG, FileType.JPEG, FileType.TIFF, FileType.WEBP, FileType.BMP, FileType.GIF, FileType.HEIC}
)
ACCEPTED = (
    "PDF, PNG, JPEG, TIFF, WebP, BMP, GIF, HEIC, office files (docx, xlsx, pptx, odt, ods, odp), electronic invoices "
    "(Factur-X, UBL, Facturae XML) and recordings (WAV, MP3, MP4 and M4A, Ogg, Opus, FLAC, WebM, AAC, WMA, AIFF, AMR)"
)
_PDF_HEADER_WITHIN = 1024  # bytes before %PDF that PDF readers accept: ISO 32000-1, implementation note 13
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})

# First bytes of supported files; a signature that begins with another comes before it.
_SIGNATURES: tuple[tuple[bytes, FileType], ...] = (
    (b"\x89PNG\r\n\x1a\n", FileType.PNG),
    (b"\xff\xd8\xff", FileType.JPEG),
    (b"II*\x00", FileType.TIFF),
    (b"MM\x00*", FileType.TIFF),
    (b"II+\x00", FileType.TIFF),  # BigTIFF
    (b"MM\x00+", FileType.TIFF),
    (b"GIF87a", FileType.GIF),
    (b"GIF89a", FileType.GIF),
)
# Signatures of unsupported files, so that the error can say what the file looks like.
_OTHER_SIGNATURES: tuple[tuple[bytes, str], ...] = (
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
    (b"MThd", "notes without sound (MIDI)"),
    (b"#EXTM3U", "a playlist (HLS)"),
    (b"ffconcat version", "a list of files (ffconcat)"),
    (b"v=0\r\n", "a session description (SDP)"),
    (b"v=0\n", "a session description (SDP)"),
    (b"FLV\x01", "a video (flv)"),
)
# Names inside a zip that tell the type of document, in the order they are tried.
_ZIP_KINDS: tuple[tuple[bytes, FileType], ...] = (
    (b"application/vnd.oasis.opendocument.text", FileType.ODT),
    (b"application/vnd.oasis.opendocument.spreadsheet", FileType.ODS),
    (b"application/vnd.oasis.opendocument.presentation", FileType.ODP),
    (b"word/", FileType.DOCX),
    (b"xl/", FileType.XLSX),
    (b"ppt/", FileType.PPTX),
)
_ZIP_ENTRIES: tuple[tuple[bytes, str], ...] = ((b"application/epub+zip", "an e-book (epub)"),)
_INVOICE_ROOT = re.compile(
    rb"<(?:[\w.-]{1,60}:)?(?:CrossIndustryInvoice|CrossIndustryDocument|Invoice|CreditNote|Facturae)[\s>]"
)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_EXPORT = "Export it as PDF."


def sniff(head: bytes) -> FileType:
    """The type of a file that begins with ``head``; 1 KiB is enough to accept it, 64 KiB to describe a refused one.

    Raises:
        UnreadableFile: ``head`` is empty.
        WrongMediaType: the type is unsupported; the message says what the file looks like and what is supported.
    """
    if not head:
        raise UnreadableFile("file: it is empty (0 bytes)")
    kind = _kind(head)
    if kind is None:
        description = _description(head)
        is_document = any(word in description for word in ("document", "book", "presentation"))
        advice = f" {_EXPORT}" if is_document else ""
        raise WrongMediaType(f"file: it looks like {description}, which is not read here; read are {ACCEPTED}.{advice}")
    return kind


def _kind(head: bytes) -> FileType | None:
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return FileType.WEBP
    if begins_with_ftyp(head) and _HEIF_BRANDS.intersection(_brands(head)) and b"avif" not in _brands(head):
        return FileType.HEIC
    second_header_bytes = int.from_bytes(head[14:18], "little")  # BITMAPINFOHEADER and its successors
    if head[:2] == b"BM" and len(head) >= 18 and second_header_bytes < 4096:
        return FileType.BMP
    if sound_demuxer(head) is not None:
        return FileType.AUDIO
    if head.startswith(_ZIP):
        return _zip_kind(head)
    if b"%PDF" in head[: _PDF_HEADER_WITHIN + 4]:
        return FileType.PDF
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") and _INVOICE_ROOT.search(head):
        return FileType.XML
    return None


def _zip_kind(head: bytes) -> FileType | None:
    if any(entry in head for entry, _ in _ZIP_ENTRIES):
        return None
    return next((kind for entry, kind in _ZIP_KINDS if entry in head), FileType.ZIP)


def _brands(head: bytes) -> tuple[bytes, ...]:
    size = min(int.from_bytes(head[:4], "big"), 256)
    return (head[8:12], *(head[at : at + 4] for at in range(16, size, 4)))


def _description(head: bytes) -> str:
    for signature, description in _OTHER_SIGNATURES:
        if head.startswith(signature):
            return description
    if begins_with_ftyp(head):
        return "an AVIF image" if b"avif" in _brands(head) else "an image of a camera's own format"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "a video (avi)"
    if head.startswith(_ZIP):
        return next((description for entry, description in _ZIP_ENTRIES if entry in head), "a zip archive")
    return _text_description(head)


def _text_description(head: bytes) -> str:
    if b"\x00" in head:
        return "a binary file of no known kind"
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in start:
        return "an SVG drawing"
    if b"<html" in start or start.startswith((b"<!doctype html", b"<head", b"<body")):
        return "an HTML page"
    if b"<mpd" in start:
        return "a playlist (DASH)"
    if start.startswith(b"<"):
        return "an XML file"
    if start.startswith((b"from:", b"received:", b"return-path:", b"delivered-to:", b"mime-version:")):
        return "an e-mail message"
    try:
        head[:1024].decode("utf-8", errors="strict" if len(head) < 1024 else "ignore")
    except UnicodeDecodeError:
        return "a binary file of no known kind"
    return "plain text" if sum(byte < 9 for byte in head[:1024]) == 0 else "a binary file of no known kind"


_OPEN_XML, _OPEN_DOCUMENT = "application/vnd.openxmlformats-officedocument.", "application/vnd.oasis.opendocument."
_MEDIA_TYPES: dict[str, str] = {  # of kinds that not every machine's table of names has
    FileType.DOCX: _OPEN_XML + "wordprocessingml.document",
    FileType.XLSX: _OPEN_XML + "spreadsheetml.sheet",
    FileType.PPTX: _OPEN_XML + "presentationml.presentation",
    FileType.ODT: _OPEN_DOCUMENT + "text",
    FileType.ODS: _OPEN_DOCUMENT + "spreadsheet",
    FileType.ODP: _OPEN_DOCUMENT + "presentation",
}


def media_type_of(kind: str, name: str = "") -> str:
    """The media type of a file of this ``Document.kind``; by its name where the kind has many."""
    if kind in IMAGES:
        return f"image/{kind}"
    known = _MEDIA_TYPES.get(kind) or mimetypes.guess_type(f"file.{kind}")[0]
    return known or mimetypes.guess_type(name)[0] or "application/octet-stream"
