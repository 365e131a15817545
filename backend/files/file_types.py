"""Recognises a file's type by its first bytes; file name and declared media type are ignored.

Of a recording also the one demuxer of libavformat that may read it.
"""

from __future__ import annotations

import mimetypes
import mmap
import re
from enum import StrEnum

from backend.errors import UnreadableFile, WrongMediaType
from backend.files.text_files import decode_text, narrowed

_MPEG_BITRATES = {  # kbit/s by version and layer: ISO 11172-3 and 13818-3, table of bitrate_index
    (1, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (1, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (2, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (2, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_MPEG_RATES = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}  # Hz by version bits
_ID3_HEADER_BYTES = 10
_ID3_FOOTER_FLAG = 0x10
_ID3_VERSIONS = (2, 3, 4)
_W64 = bytes.fromhex("726966662e91cf11a5d628db04c10000")
_ASF = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
# First bytes -> demuxer.
_AUDIO_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"fLaC\x00", "flac"),  # STREAMINFO comes first
    (b"fLaC\x80", "flac"),
    (b"OggS\x00", "ogg"),  # its version
    (b"\x1aE\xdf\xa3", "matroska"),  # EBML: WebM too
    (_W64, "w64"),
    (_ASF, "asf"),
    (b"#!AMR\n", "amr"),
    (b"#!AMR-WB\n", "amr"),
    (b"caff\x00\x01", "caf"),
    (b".snd\x00\x00\x00", "au"),
)
_FORMS: tuple[tuple[tuple[bytes, ...], tuple[bytes, ...], str], ...] = (  # first 4 bytes, those at 8, demuxer
    ((b"RIFF", b"RIFX", b"RF64", b"BW64"), (b"WAVE",), "wav"),
    ((b"FORM",), (b"AIFF", b"AIFC"), "aiff"),
)
_STILL_BRANDS = (b"avif", b"avis", b"crx ", b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"jp2 ")
_UNKNOWN_SIZE = 0x7FFF0000  # of a WAV from a pipe: 0xFFFFFFFF by ffmpeg, 0x7FFFF000 and more by sox
_OGG_PAGE_BYTES = 65_307  # at most: RFC 3533
_ROUNDING_BYTES = 64  # 2 ms of 16 bits at 16 kHz: some programs count a header wrongly
_WHITE_SPACE = b"\t\n\v\f\r"
_QUICKTIME_BOXES = (b"moov", b"mdat", b"wide", b"pnot")  # that films from before ftyp begin with


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
    EML = "eml"  # and mailboxes (mbox) of them
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
    "and ppt where LibreOffice is), mail (eml, msg, mbox), HTML, Markdown, CSV, plain text, zip archives of these, "
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
    (b"ID;P", "a spreadsheet in SYLK (slk)"),
    (b"TABLE\r\n0,1", "a spreadsheet in DIF"),
    (b"TABLE\n0,1", "a spreadsheet in DIF"),
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
# Before each mail of a mailbox (RFC 4155), with the time at which it came: a sentence may begin alike.
MAILBOX_LINE = re.compile(rb"(?:\A|(?<=\n)\r?\n)From [^\r\n]{1,200}\d:\d\d[^\r\n]{1,20}\d{4}[^\r\n]{0,10}\r?\n")
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


def is_recording(head: bytes) -> bool:
    """Whether `sniff` would tell a recording; the event loop may ask, for nothing is looked for in texts."""
    return _kind_by_signature(head) is FileType.AUDIO


def _kind_by_signature(head: bytes) -> FileType | None:
    kind = next((kind for signature, kind in _SIGNATURES if head.startswith(signature)), None) or _picture_kind(head)
    return FileType.AUDIO if kind is None and sound_demuxer(head) is not None else kind


def _kind(head: bytes) -> FileType | None:
    if (kind := _kind_by_signature(head)) is not None:
        return kind
    if head.startswith(_ZIP):
        return next((kind for entry, kind in _ZIP_KINDS if entry in head), FileType.ZIP)
    if b"%PDF" in head[: _PDF_HEADER_WITHIN + 4]:
        return FileType.PDF
    markup = narrowed(head)
    if markup.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") and _INVOICE_ROOT.search(markup):
        return FileType.XML
    if any(head.startswith(signature) for signature, _ in _OTHER_SIGNATURES):
        return None
    return FileType.EML if _is_mail(head) else _text_kind(head)


def _is_mail(head: bytes) -> bool:
    """Whether it begins with lines of a mail's header, two at least of which every mail has; in a mailbox after one."""
    head = MAILBOX_LINE.sub(b"", head, 1)
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
    start = _start(head)
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


def _start(head: bytes) -> bytes:
    return narrowed(head)[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()


def _text_description(head: bytes) -> str:
    if b"\x00" in narrowed(head):
        return "a binary file of no known kind"
    if not head.strip():
        return "a text of blanks alone"
    start = _start(head)
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


def sound_demuxer(head: bytes) -> str | None:
    """libavformat's name of the container that ``head`` begins; None for what is no recording.

    Text is never one, whatever words it begins with ("Citywide report", "FORMATO AIFF"): sizes and versions beside a
    signature must be binary. Playlists and session descriptions (HLS, DASH, ffconcat, SDP) are text that names files
    and addresses, which libavformat would open.

    Args:
        head: the first bytes; with all of them the answer is right behind a long ID3 tag too.
    """
    at = id3_bytes(head)
    if at:
        return _frames_demuxer(head, at) or ("flac" if head[at : at + 4] == b"fLaC" else "mp3")
    for signature, demuxer in _AUDIO_SIGNATURES:
        if head.startswith(signature):
            return demuxer
    for starts, types, demuxer in _FORMS:
        if head[:4] in starts and head[8:12] in types and _is_binary(head[4:8] + head[16:20]):  # two sizes
            return demuxer
    if _is_film(head):
        return "mov"
    return _frames_demuxer(head, 0) or _padded_demuxer(head)


def id3_bytes(head: bytes) -> int:
    """The length of the ID3v2 tag at the beginning; 0 where there is none."""
    if head[:3] != b"ID3" or len(head) < _ID3_HEADER_BYTES or head[3] not in _ID3_VERSIONS or max(head[6:10]) > 0x7F:
        return 0
    size = 0
    for byte in head[6:10]:
        size = size << 7 | byte & 0x7F
    return size + _ID3_HEADER_BYTES * (2 if head[5] & _ID3_FOOTER_FLAG else 1)


def missing_bytes(data: bytes | mmap.mmap, demuxer: str) -> int:
    """How many bytes of a WAV, an AIFF or an Ogg file are not there by what it says itself; 0 where it does not say.

    libavformat takes such files as whole: it believes the length of the file, not that of its header.
    """
    if demuxer in ("wav", "aiff"):
        size = int.from_bytes(data[4:8], "little" if data[:4] == b"RIFF" else "big")
        end = size + 8 if data[:4] in (b"RIFF", b"RIFX", b"FORM") and size < _UNKNOWN_SIZE else 0
    elif demuxer == "ogg":
        at = data.rfind(b"OggS", max(0, len(data) - 2 * _OGG_PAGE_BYTES))
        lacing = data[at + 27 : at + 27 + data[at + 26]] if 0 <= at <= len(data) - 27 else b""
        end = at + 27 + len(lacing) + sum(lacing) if at >= 0 else 0
    else:
        end = 0
    missing = end - len(data)
    return missing if missing > _ROUNDING_BYTES else 0


def begins_with_ftyp(head: bytes) -> bool:
    """Whether the first box says which of the ISO base media formats it is: films, sounds, and images too."""
    return head[4:8] == b"ftyp" and _is_binary(head[:4])


def _is_film(head: bytes) -> bool:
    """ISO base media: mp4, m4a, mov, 3gp; not the images that share it."""
    if begins_with_ftyp(head):
        return head[8:12] not in _STILL_BRANDS and b"avif" not in head[16 : min(int.from_bytes(head[:4], "big"), 256)]
    if head[4:8] not in _QUICKTIME_BOXES or not _is_binary(head[:4]):
        return False
    return int.from_bytes(head[:4], "big") >= 8 or head[:4] == b"\x00\x00\x00\x01"


def _is_binary(sizes: bytes) -> bool:
    """Whether bytes that tell sizes hold a control character, or 0xFF of an unknown size: text in UTF-8 has neither.

    A size of 32 bits has one below 150 MB.
    """
    return any(byte == 0xFF or (byte < 0x20 and byte not in _WHITE_SPACE) for byte in sizes)


def _frames_demuxer(head: bytes, at: int) -> str | None:
    """The demuxer of bare frames, where two follow each other; one where the bytes end with it."""
    for demuxer, frame_bytes in (("mp3", _mpeg_frame_bytes), ("aac", _adts_frame_bytes)):
        size = frame_bytes(head, at)
        if size and (at + size + 4 > len(head) or frame_bytes(head, at + size)):
            return demuxer
    return None


def _padded_demuxer(head: bytes) -> str | None:
    """The demuxer of frames behind zeros, which some editors leave in place of a tag; two frames must be there."""
    at = len(head) - len(head.lstrip(b"\x00"))
    size = _mpeg_frame_bytes(head, at) if at else None
    return "mp3" if size and _mpeg_frame_bytes(head, at + size) else None


def _mpeg_frame_bytes(data: bytes, at: int) -> int | None:
    """The length of the MPEG audio frame (layers 2 and 3) at a position; None where there is none.

    Layer 1 is left out: nobody has it any more, and its first two bytes are those of UTF-16.
    """
    if len(data) < at + 4 or data[at] != 0xFF or data[at + 1] & 0xE0 != 0xE0:
        return None
    version_bits, layer = data[at + 1] >> 3 & 3, 4 - (data[at + 1] >> 1 & 3)
    bitrate_index, rate_index = data[at + 2] >> 4, data[at + 2] >> 2 & 3
    if version_bits == 1 or layer not in (2, 3) or not 0 < bitrate_index < 15 or rate_index == 3:
        return None
    version = 1 if version_bits == 3 else 2
    bitrate = 1000 * _MPEG_BITRATES[version, layer][bitrate_index - 1]
    samples = 576 if version == 2 and layer == 3 else 1152
    return samples // 8 * bitrate // _MPEG_RATES[version_bits][rate_index] + (data[at + 2] >> 1 & 1)


def _adts_frame_bytes(data: bytes, at: int) -> int | None:
    """The length of the AAC frame at a position (ISO 13818-7, ADTS); None where there is none."""
    if len(data) < at + 7 or data[at] != 0xFF or data[at + 1] & 0xF6 != 0xF0 or data[at + 2] >> 2 & 15 > 12:
        return None
    size = (data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5
    return size if size > 7 else None
