"""Recognises a file's type by its first bytes; file name and declared media type are ignored."""

from __future__ import annotations

import mimetypes
import re
from enum import StrEnum

from backend.errors import UnreadableFile, WrongMediaType
from backend.files.audio_types import begins_with_ftyp, sound_demuxer
from backend.files.text_files import decode_text


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
    EPUB = "epub"
    HTML = "html"
    TEXT = "txt"  # plain; and what is told apart when it is read:
    MARKDOWN = "md"
    CSV = "csv"
    RTF = "rtf"
    EML = "eml"
    OLE = "ole"  # a container of old office programs: told apart when it is read, as
    MSG = "msg"
    XLS = "xls"
    DOC = "doc"
    PPT = "ppt"
    ZIP = "zip"  # of files that are read each; and any of the above whose names begin later


IMAGES = frozenset(
    {FileType.PNG, FileType.JPEG, FileType.TIFF, FileType.WEBP, FileType.BMP, FileType.GIF, FileType.HEIC}
)
ACCEPTED = (
    "PDF, PNG, JPEG, TIFF, WebP, BMP, GIF, HEIC, office files (docx, xlsx, pptx, odt, ods, odp, epub, rtf, xls; doc "
    "and ppt where LibreOffice is), mail (eml, msg), HTML, Markdown, CSV, plain text, zip archives of these, "
    "electronic invoices (Factur-X, UBL, Facturae XML) and recordings (WAV, MP3, MP4 and M4A, Ogg, Opus, FLAC, WebM, "
    "AAC, WMA, AIFF, AMR)"
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
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", FileType.OLE),
    (b"{\\rtf", FileType.RTF),
)
# Signatures of unsupported files, so that the error can say what the file looks like.
_OTHER_SIGNATURES: tuple[tuple[bytes, str], ...] = (
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
    (b"application/epub+zip", FileType.EPUB),
    (b"word/", FileType.DOCX),
    (b"xl/", FileType.XLSX),
    (b"ppt/", FileType.PPTX),
)
_INVOICE_ROOT = re.compile(
    rb"<(?:[\w.-]{1,60}:)?(?:CrossIndustryInvoice|CrossIndustryDocument|Invoice|CreditNote|Facturae)[\s>]"
)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_MAIL_HEADER = re.compile(rb"^([A-Za-z][A-Za-z0-9-]{1,40}):[ \t]?[^\r\n]{0,1000}\r?$", re.MULTILINE)
_MAIL_NAMES = frozenset({b"from", b"to", b"date", b"subject", b"message-id", b"received", b"mime-version"})
_SURE_BYTES = 64  # of what is taken for UTF-16 without a mark: any few bytes look like letters of some script
_WHOLE_BYTES = 64 * 1024  # of a head; a shorter one is the whole file
_HTML_START = re.compile(
    rb"(?:<!--.{0,500}?-->\s*)?<(?:!doctype html|html|head|body|title|meta|div|p|table|h[1-6]|ul|ol|span|style|script"
    rb"|font|center|br|a|b|i)\b",
    re.DOTALL,
)
_OTHER_XML = re.compile(rb"<(?:[\w.-]{1,60}:)?[\w.-]{1,60}(?:\s|/?>)")
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
    kind = next((kind for signature, kind in _SIGNATURES if head.startswith(signature)), None) or _picture_kind(head)
    if kind is not None:
        return kind
    if sound_demuxer(head) is not None:
        return FileType.AUDIO
    if head.startswith(_ZIP):
        return next((kind for entry, kind in _ZIP_KINDS if entry in head), FileType.ZIP)
    if b"%PDF" in head[: _PDF_HEADER_WITHIN + 4]:
        return FileType.PDF
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") and _INVOICE_ROOT.search(head):
        return FileType.XML
    if any(head.startswith(signature) for signature, _ in _OTHER_SIGNATURES):
        return None
    return FileType.EML if _is_mail(head) else _text_kind(head)


def _is_mail(head: bytes) -> bool:
    """Whether it begins with lines of a mail's header, two at least of which every mail has."""
    names = {match[1].lower() for match in _MAIL_HEADER.finditer(head, 0, 16_384)}
    return _MAIL_HEADER.match(head) is not None and len(names & _MAIL_NAMES) > 1


def _picture_kind(head: bytes) -> FileType | None:
    """Pictures whose first bytes are those of other files, too."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return FileType.WEBP
    if begins_with_ftyp(head) and _HEIF_BRANDS.intersection(_brands(head)) and b"avif" not in _brands(head):
        return FileType.HEIC
    second_header_bytes = int.from_bytes(head[14:18], "little")  # BITMAPINFOHEADER and its successors
    return FileType.BMP if head[:2] == b"BM" and len(head) >= 18 and second_header_bytes < 4096 else None


def _text_kind(head: bytes) -> FileType | None:
    """HTML, or plain text: neither XML of other kinds, nor text that programs read as something else."""
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<html" in start or _HTML_START.match(start):
        return FileType.HTML
    if start.startswith((b"<?xml", b"<svg", b"<!doctype")) or _OTHER_XML.match(start):
        return None
    if b"endobj" in head:  # a PDF whose beginning is lost
        return None
    if len(head) >= _WHOLE_BYTES:  # it may end within a character
        head = head[: head.rfind(b"\n") + 1] or head[:-4]
    if b"\x00" in head and len(head) < _SURE_BYTES and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return None
    text = decode_text(head)
    return FileType.TEXT if text is not None and text.strip() else None


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
    return _text_description(head)


def _text_description(head: bytes) -> str:
    if b"\x00" in head:
        return "a binary file of no known kind"
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in start:
        return "an SVG drawing"
    if b"<mpd" in start:
        return "a playlist (DASH)"
    if start.startswith(b"<"):
        return "an XML file"
    return "a binary file of no known kind"


_OPEN_XML, _OPEN_DOCUMENT = "application/vnd.openxmlformats-officedocument.", "application/vnd.oasis.opendocument."
_MEDIA_TYPES: dict[str, str] = {  # of kinds that not every machine's table of names has
    FileType.DOCX: _OPEN_XML + "wordprocessingml.document",
    FileType.XLSX: _OPEN_XML + "spreadsheetml.sheet",
    FileType.PPTX: _OPEN_XML + "presentationml.presentation",
    FileType.ODT: _OPEN_DOCUMENT + "text",
    FileType.ODS: _OPEN_DOCUMENT + "spreadsheet",
    FileType.ODP: _OPEN_DOCUMENT + "presentation",
    FileType.EPUB: "application/epub+zip",
    FileType.MARKDOWN: "text/markdown",
    FileType.RTF: "application/rtf",
    FileType.EML: "message/rfc822",
    FileType.MSG: "application/vnd.ms-outlook",
    FileType.XLS: "application/vnd.ms-excel",
    FileType.DOC: "application/msword",
    FileType.PPT: "application/vnd.ms-powerpoint",
    FileType.OLE: "application/x-ole-storage",
}


def media_type_of(kind: str, name: str = "") -> str:
    """The media type of a file of this ``Document.kind``; by its name where the kind has many."""
    if kind in IMAGES:
        return f"image/{kind}"
    known = _MEDIA_TYPES.get(kind) or mimetypes.guess_type(f"file.{kind}")[0]
    return known or mimetypes.guess_type(name)[0] or "application/octet-stream"
