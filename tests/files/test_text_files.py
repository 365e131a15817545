"""Plain text in any encoding, and nothing that is not text."""

import codecs

import pytest

from backend.errors import TooLarge
from backend.files import text_files
from backend.files.limits import FileLimits
from backend.files.text_files import decode_text, has_rows, read_text_file

TEXT = "Año 2024: 1.284,50 € — «ñandú»\nsegunda línea"
LATIN = "Año 2024: 1.284,50 y ñandú\nsegunda línea"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(TEXT.encode(), TEXT, id="utf-8"),
        pytest.param(codecs.BOM_UTF8 + TEXT.encode(), TEXT, id="utf-8-bom"),
        pytest.param(TEXT.encode("utf-16"), TEXT, id="utf-16-bom"),
        pytest.param(codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), TEXT, id="utf-16-be-bom"),
        pytest.param(TEXT.encode("utf-16-le"), TEXT, id="utf-16-le"),
        pytest.param(TEXT.encode("utf-16-be"), TEXT, id="utf-16-be"),
        pytest.param(TEXT.encode("utf-32"), TEXT, id="utf-32-bom"),
        pytest.param(TEXT.encode("utf-32-be"), TEXT, id="utf-32-be"),
        pytest.param(TEXT.encode("cp1252"), TEXT, id="cp1252"),
        pytest.param(b"<?xml version='1.0' encoding='ISO-8859-15'?><a>" + "1 €".encode("iso8859-15") + b"</a>",
                     "<?xml version='1.0' encoding='ISO-8859-15'?><a>1 €</a>", id="declared"),
        pytest.param(b"<meta charset='no-such-thing'>" + TEXT.encode(), f"<meta charset='no-such-thing'>{TEXT}",
                     id="declared-wrong"),
        pytest.param(b"<meta charset=unicode_escape>\\u0041", "<meta charset=unicode_escape>\\u0041", id="no-encoding"),
        pytest.param(b"<?xml encoding='utf-16'?>" + b"ab" * 9, "<?xml encoding='utf-16'?>" + "ab" * 9, id="of-dot-net"),
        pytest.param(b"a\r\nb\rc", "a\nb\nc", id="line-ends"),
        pytest.param(b"a" * 5000 + b"\x0c" + b"b\x01", "a" * 5000 + "\x0cb ", id="stray-control"),
        pytest.param(b"\x1b[31mred\x1b[0m", " [31mred [0m", id="coloured-log"),
        pytest.param(b"", "", id="empty"),
        pytest.param("👍 ok".encode("utf-16-le"), "👍 ok", id="beyond-the-first-plane"),
    ],
)  # fmt: skip
def test_text(content: bytes, expected: str) -> None:
    assert expected == decode_text(content)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(bytes(range(256)) * 10, id="every-byte"),
        pytest.param(b"\x00" * 100, id="zeros"),
        pytest.param(b"{\\rtf1\\ansi text}", id="rtf"),
        pytest.param(b"%!PS-Adobe-3.0", id="postscript"),
        pytest.param(b"\x7fELF\x02\x01\x01" + b"\x00" * 50, id="program"),
        pytest.param(b"PK\x03\x04" + bytes(range(200)), id="zip"),
        pytest.param(codecs.BOM_UTF16_LE + b"\x00\xd8", id="lone-surrogate"),
        pytest.param(codecs.BOM_UTF8 + b"\xff\xfe\xff", id="bom-that-lies"),
        pytest.param(b"abc\xff\x00\x01\x02\x03\x04", id="short-binary"),
    ],
)
def test_no_text(content: bytes) -> None:
    assert decode_text(content) is None


def test_a_file_that_is_too_large_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes tell: 100 MB of them would be 400 MB of text."""
    limits = FileLimits(document_chars=10)
    with pytest.raises(TooLarge, match="11 is over the limit of 10"):
        read_text_file(b"a" * 11, limits)
    monkeypatch.delattr(text_files, "decode_text")
    with pytest.raises(TooLarge, match="at least: 25 is over the limit of 10"):
        read_text_file(b"a" * 100, limits)


def test_rows() -> None:
    """By name."""
    assert has_rows("C:\\data\\a.CSV")
    assert not has_rows("a.txt")
