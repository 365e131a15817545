"""Recognition of file types."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import UnreadableFile, WrongMediaType
from backend.files.file_types import ACCEPTED, FileType, is_recording, sniff


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        pytest.param(b"%PDF-1.7\n", FileType.PDF, id="pdf"),
        pytest.param(b"junk of a mail\r\n" * 50 + b"%PDF-1.4", FileType.PDF, id="pdf-behind-junk"),
        pytest.param(b"%PDF.1.4", FileType.PDF, id="pdf-with-a-slip"),
        pytest.param(b"\x89PNG\r\n\x1a\n....", FileType.PNG, id="png"),
        pytest.param(b"\xff\xd8\xff\xe0", FileType.JPEG, id="jpeg"),
        pytest.param(b"II*\x00", FileType.TIFF, id="tiff-little"),
        pytest.param(b"MM\x00*", FileType.TIFF, id="tiff-big"),
        pytest.param(b"II+\x00", FileType.TIFF, id="bigtiff"),
        pytest.param(b"RIFF\x00\x00\x00\x00WEBPVP8 ", FileType.WEBP, id="webp"),
        pytest.param(b"BM" + bytes(12) + b"\x28\x00\x00\x00", FileType.BMP, id="bmp"),
        pytest.param(b"GIF89a", FileType.GIF, id="gif"),
        pytest.param(b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", FileType.HEIC, id="heic"),
        pytest.param(b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1heic", FileType.HEIC, id="heic-as-compatible-brand"),
        pytest.param(b"PK\x03\x04....word/document.xml", FileType.DOCX, id="docx"),
        pytest.param(b"PK\x03\x04....xl/workbook.xml", FileType.XLSX, id="xlsx"),
        pytest.param(b"PK\x03\x04mimetypeapplication/vnd.oasis.opendocument.text", FileType.ODT, id="odt"),
        pytest.param(b"PK\x03\x04....holiday.jpg", FileType.ZIP, id="zip"),
        pytest.param(b"PK\x03\x04mimetypeapplication/epub+zip", FileType.EPUB, id="epub"),
        pytest.param(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", FileType.OLE, id="old-office-document"),
        pytest.param(b"{\\rtf1", FileType.RTF, id="rtf"),
        pytest.param(b"From: a@b.c\r\nSubject: x\r\n\r\nHello", FileType.EML, id="mail"),
        pytest.param(b"Note: read this\nSubject: x\n", FileType.TEXT, id="notes-are-no-mail"),
        pytest.param(b"<!DOCTYPE html><html>", FileType.HTML, id="html"),
        pytest.param(b"\xef\xbb\xbf \n<HTML>", FileType.HTML, id="html-in-capitals-behind-a-mark"),
        pytest.param(b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'>", FileType.HTML, id="xhtml"),
        pytest.param("<html><p>López".encode("utf-16"), FileType.HTML, id="html-in-utf-16"),
        pytest.param("<!DOCTYPE html><p>López".encode("utf-16-be"), FileType.HTML, id="html-in-utf-16-without-a-mark"),
        pytest.param('<?xml version="1.0"?><Invoice></Invoice>'.encode("utf-16"), FileType.XML, id="xml-in-utf-16"),
        pytest.param('<?xml version="1.0"?><Invoice></Invoice>'.encode("utf-32-le"), FileType.XML, id="xml-in-utf-32"),
        pytest.param("Señor López".encode(), FileType.TEXT, id="text"),
        pytest.param("Señor López".encode("cp1252"), FileType.TEXT, id="text-of-windows"),
        pytest.param("ÿ text".encode("utf-16"), FileType.TEXT, id="utf-16-has-a-frames-first-bits"),
        pytest.param(("ñ" * 32 * 1024)[:65536].encode()[:65536], FileType.TEXT, id="text-cut-within-a-character"),
        pytest.param(b"BM and nothing of a bitmap", FileType.TEXT, id="bm-is-not-enough"),
    ],
)
def test_supported_types(head: bytes, expected: FileType):
    """The type is recognised by the first bytes."""
    assert expected == sniff(head)
    assert not is_recording(head)


@pytest.mark.parametrize(
    ("head", "description"),
    [
        pytest.param(b"<svg xmlns=''/>", "an SVG drawing", id="svg"),
        pytest.param(b"<?xml version='1.0'?><invoice/>", "an XML file", id="xml"),
        pytest.param("<?xml version='1.0'?><invoice/>".encode("utf-16"), "an XML file", id="xml-in-utf-16"),
        pytest.param(b"\x00\x00\x00\x1cftypavif\x00\x00\x00\x00avifmif1miaf", "an AVIF image", id="avif-is-no-heic"),
        pytest.param(b"\x00\x00\x00\x18ftypcrx \x00\x00\x00\x01crx isom", "an image", id="cr3-is-no-film"),
        pytest.param(b"RIFF\x00\x00\x00\x00AVI LIST", "a video .avi", id="avi"),
        pytest.param(b"MThd\x00\x00\x00\x06", "notes without sound", id="midi"),
        pytest.param(b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n", "a playlist .HLS", id="hls"),
        pytest.param(b"ID;PWXL;N;E\r\nC;Y1;X1;K1\r\n", "a spreadsheet in SYLK", id="slk"),
        pytest.param(b'TABLE\r\n0,1\r\n"EXCEL"\r\n', "a spreadsheet in DIF", id="dif"),
        pytest.param(b"ffconcat version 1.0\nfile /etc/passwd\n", "a list of files", id="ffconcat"),
        pytest.param(b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\n", "a session description", id="sdp"),
        pytest.param(b"<?xml version='1.0'?><MPD xmlns='urn:mpeg:dash:schema'/>", "a playlist .DASH", id="dash"),
        pytest.param(b"1 0 obj\n<<>>\nendobj\n", "a binary file", id="pdf-without-its-beginning"),
        pytest.param(b"%!PS-Adobe", "PostScript", id="ps"),
        pytest.param(b"\x7fELF\x02", "a program", id="elf"),
        pytest.param(b"\x01\x02\x03\x00", "a binary file", id="binary"),
        pytest.param(b"\n \n" * 9, "a text of blanks alone", id="blanks"),
    ],
)
def test_unsupported_types(head: bytes, description: str):
    """The error says what the file looks like and what is supported."""
    with pytest.raises(WrongMediaType, match=description) as caught:
        sniff(head)

    assert ACCEPTED in str(caught.value)


def test_an_empty_file():
    """An empty file is unreadable rather than of a wrong type."""
    with pytest.raises(UnreadableFile, match="0 bytes"):
        sniff(b"")


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_get_an_answer(head: bytes):
    """A type, or an error with a reason."""
    try:
        answer: object = sniff(head)
    except WrongMediaType as error:
        answer = str(error)

    assert isinstance(answer, FileType) or "it looks like" in str(answer)
