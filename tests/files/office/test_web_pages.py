"""Web pages and texts, as a reader sees them."""

import base64
import io
import time
from contextlib import suppress

import pytest
from PIL import Image

from backend.errors import UnreadableFile
from backend.files.file_readers import FileReaders
from backend.files.limits import FileLimits
from backend.files.office.content import Content
from backend.files.office.html_page import read_html
from backend.files.office.text_kinds import delimiter_of, is_markdown, read_text
from tests.files.office.office_files import pages_of

_TEXT = "Año 2024: 1.284,50 € — «ñandú»"


def _content(markup: str) -> Content:
    content = Content(FileLimits())
    read_html(markup, content)
    return content


def _text(readers: FileReaders, markup: str) -> str:
    return "\n\f".join(page.text for page in pages_of(readers, f"<html>{markup}".encode()))


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        pytest.param("<p>Hola <b>mundo</b></p><p>adiós</p>", "Hola mundo\n\nadiós", id="paragraphs"),
        pytest.param("<script>if (a < b) x()</script>a<style>p{}</style>b", "ab", id="scripts"),
        pytest.param("<table><tr><td>a<td>b<tr><td>c<td>d</table>", "a b\nc d", id="rows"),
        pytest.param("1 &lt; 2 &amp;&nbsp;3 &euro;", "1 < 2 & 3 €", id="entities"),
        pytest.param("a<!-- <p>hidden --> b", "a b", id="comments"),
        pytest.param("a <!-- never closed", "a", id="comment-to-the-end"),
        pytest.param("<script>never closed", "", id="script-to-the-end"),
        pytest.param("2 < 3 and 4 > 1", "2 < 3 and 4 > 1", id="no-tags"),
        pytest.param("<TITLE>T</TITLE><BR>x<br/>y", "x\ny", id="capitals-and-a-title"),
        pytest.param("<ul><li>uno<li>dos</ul>", "• uno\n• dos", id="unclosed-items"),
        pytest.param("<ol start=3 type=a><li>x<li>y</ol>", "c. x\nd. y", id="numbered"),
        pytest.param('a<div style="display: none">b</div>', "a", id="hidden"),
        pytest.param("a<del>b</del>c", "ac", id="deleted"),
        pytest.param("a\x0bb&#0;c", "a b\ufffdc", id="what-no-store-holds"),
        pytest.param(
            "<table><tr><td><table><tr><td>a<td>b</table><td>c</table>", "a\n\nb\n\nc", id="tables-for-layout"
        ),
    ],
)
def test_html(readers: FileReaders, markup: str, expected: str):
    assert expected == _text(readers, markup)


def test_cells_that_span(readers: FileReaders):
    """Places that a cell above or beside takes are left out."""
    (page,) = pages_of(
        readers, b"<html><table><tr><th rowspan=2>a<th colspan=2>b<tr><th>c<th>d<tr><td>1<td>2<td>3</table>"
    )

    assert (3, 3, 2) == page.grids[0][:3]
    assert [(0, 0, 2, 1), (0, 1, 1, 2), (1, 1, 1, 1), (1, 2, 1, 1)] == [cell[:4] for cell in page.grids[0].cells[:4]]


@pytest.mark.parametrize(
    "piece",
    ["<", "<!--", "<script>", "<a href='", "</", "<p", "&#", "<!", "<script><", "\n\n<p> ", "<div>", "<table><tr><td>"],
)
def test_html_takes_linear_time(piece: str):
    """Four times the text takes some four times as long, not sixteen."""
    timed = []
    for length in (50_000, 200_000):
        markup = piece * (length // len(piece))
        started_s = time.thread_time()
        with suppress(UnreadableFile):  # what is too deep in each other is refused
            _content(markup)
        timed.append(time.thread_time() - started_s)

    assert timed[1] < 12 * timed[0] + 0.2


@pytest.mark.parametrize("piece", ["![", "![\n", "[", "![a](", "**a "])
def test_markdown_takes_linear_time(piece: str):
    """What is opened and never closed: four times the text takes some four times as long."""
    timed = []
    for count in (1_000, 4_000):
        started_s = time.thread_time()
        read_text(f"# Title\n\n**a** {piece * count}".encode(), Content(FileLimits()))
        timed.append(time.thread_time() - started_s)

    assert timed[1] < 10 * timed[0] + 0.1


def test_pictures_in_the_page():
    """Those that it holds are kept; those that it refers to are not fetched."""
    target = io.BytesIO()
    Image.new("L", (400, 200)).save(target, "PNG")
    inside = base64.b64encode(target.getvalue()).decode()
    content = _content(f'<p>a<img src="data:image/png;base64,{inside}"><img src="http://x/y.png" alt="mapa"></p>')

    assert {"image1": target.getvalue()} == content.pictures
    assert ["a", "mapa"] == content.setter.pages[0].texts


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        pytest.param(_TEXT.encode("utf-16"), "txt", _TEXT, id="utf-16"),
        pytest.param(_TEXT.encode("cp1252"), "txt", _TEXT, id="cp1252"),
        pytest.param(b"a  b\n\nc", "txt", "a b\n\nc", id="plain"),
        pytest.param(b"uno\x0cdos", "txt", "uno\n\fdos", id="form-feed"),
        pytest.param(b"a;b\n1;2\n", "csv", "a b\n1 2", id="separated"),
        pytest.param(b"# T\n\n- uno\n- **dos**\n", "md", "T\n\n\u2022 uno\n\u2022 dos", id="markdown"),
        pytest.param(b'{"a": [1, 2]}', "txt", '{"a": [1, 2]}', id="json"),
    ],
)
def test_texts(readers: FileReaders, source: bytes, kind: str, expected: str):
    """Told apart by what stands in them."""
    with readers.open(source) as file:
        assert kind == file.info.kind
    assert expected == "\n\f".join(page.text for page in pages_of(readers, source))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a,b\n1,2\n", ",", id="commas"),
        pytest.param("a;b\n1,5;2,5\n", ";", id="semicolons"),
        pytest.param("a\tb\n1\t2\n", "\t", id="tabulators"),
        pytest.param('a,b\n"x, y",2\n', ",", id="quoted"),
        pytest.param("Hola, mundo\nAdiós, mundo\n", None, id="sentences"),
        pytest.param("uno\ndos\n", None, id="one-column"),
        pytest.param("a,b", None, id="one-row"),
    ],
)
def test_delimiter(text: str, expected: str | None):
    assert expected == delimiter_of(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("# T\n\n## U\n", True, id="headings"),
        pytest.param("|a|b|\n|---|---|\n|1|2|\n", True, id="table"),
        pytest.param("# a comment\nx = 1\n", False, id="a-comment"),
        pytest.param("- uno\n- dos\n", False, id="a-list-alone"),
    ],
)
def test_markdown(text: str, expected: bool):
    assert expected is is_markdown(text)


def test_a_long_text_has_no_more_pages_than_may_be_read(readers: FileReaders):
    """Pages are as long as that takes."""
    with readers.open(b"linea\n" * 50_000) as file:
        assert 100 < file.info.page_count <= readers.limits.pages
