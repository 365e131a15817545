"""Plain text in any encoding, HTML as a reader sees it, and nothing that is not text."""

from __future__ import annotations

import codecs
import time

import pytest

from backend.files.text_files import decode_text, has_rows, html_text, is_html

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


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        pytest.param("<p>Hola <b>mundo</b></p><p>adiós</p>", "Hola mundo\n\nadiós", id="paragraphs"),
        pytest.param("<script>if (a < b) x()</script>a<style>p{}</style>b", "ab", id="scripts"),
        pytest.param("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a\tb\t\nc", id="rows"),
        pytest.param("1 &lt; 2 &amp;&nbsp;3 &euro;", "1 < 2 &\xa03 €", id="entities"),
        pytest.param("a<!-- <p>hidden --> b", "a b", id="comments"),
        pytest.param("a <!-- never closed", "a", id="comment-to-the-end"),
        pytest.param("<script>never closed", "", id="script-to-the-end"),
        pytest.param("2 < 3 and 4 > 1", "2 < 3 and 4 > 1", id="no-tags"),
        pytest.param("<TITLE>T</TITLE><BR>x<br/>y", "T\n\nx\ny", id="capitals"),
        pytest.param("<ul><li>uno<li>dos</ul>", "uno\ndos", id="unclosed-items"),
        pytest.param("&#0;&#xD800;a\x00b", "\ufffd\ufffda b", id="what-no-store-holds"),
    ],
)
def test_html(markup: str, expected: str) -> None:
    assert expected == html_text(markup)


@pytest.mark.parametrize(
    "piece", ["<", "<!--", "<script>", "<a href='", "</", "<p", "&#", "<!", "<script><", "\n\n<p> "]
)
def test_html_takes_linear_time(piece: str) -> None:
    """Four times the text takes some four times as long, not sixteen."""
    timed = []
    for length in (50_000, 200_000):
        markup = piece * (length // len(piece))
        started_s = time.perf_counter()
        html_text(markup)
        timed.append(time.perf_counter() - started_s)

    assert timed[1] < 12 * timed[0] + 0.2


def test_kinds() -> None:
    """By name, or by how it begins."""
    assert is_html("a.HTM", "x")
    assert is_html("a.txt", "\n<!DOCTYPE html><p>")
    assert not is_html("a.txt", "the tag <html> means")
    assert has_rows("C:\\data\\a.CSV")
    assert not has_rows("a.txt")
