"""Reads files of text, told apart by what stands in them: plain, Markdown, tables of separated values, books (EPUB)."""

from __future__ import annotations

import csv
import io
import posixpath
import re
from collections import Counter
from urllib.parse import unquote

from lxml import etree
from markdown_it import MarkdownIt

from backend.errors import UnreadableFile
from backend.files.file_types import FileType
from backend.files.office.content import Content, attribute, child, children, descendants
from backend.files.office.html_page import read_html
from backend.files.office.zip_entries import ZipEntries
from backend.files.set_pages import Cell
from backend.files.text_files import decode_text

_LINES = 60  # of a page of plain text, where it has no form feeds
_DELIMITERS = ",;\t|"
_SAMPLE_LINES = 50
_MAX_CELL = 1_000_000  # characters
_HEADING = re.compile(r"^#{1,6} \S", re.MULTILINE)
_TABLE_RULE = re.compile(r"^\|?[ \t]{0,3}:?-{3,100}:?[ \t]{0,3}\|[ \t:|-]{0,2000}$", re.MULTILINE)
_MARKED = re.compile(r"\[[^\]\n]{1,200}\]\([^)\n]{1,500}\)|\*\*[^*\n]{1,200}\*\*|^```|^[ \t]{0,8}[-*] \S", re.MULTILINE)
_PROPERTIES = {"title": "title", "creator": "author", "date": "created", "publisher": "publisher"}
_FONT_SCRAMBLING = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")


def read_text(data: bytes, content: Content) -> FileType:
    """Set a text. Returns: what it turned out to be. Raises: UnreadableFile for bytes that are none."""
    text = decode_text(data)
    if text is None:
        raise UnreadableFile("file: it begins as text does, and goes on in bytes that are none")
    if (delimiter := delimiter_of(text)) is not None:
        _read_separated(text, delimiter, content)
        return FileType.CSV
    if is_markdown(text):
        _read_markdown(text, content)
        return FileType.MARKDOWN
    _read_plain(text, content)
    return FileType.TEXT


def read_web_page(data: bytes, content: Content) -> FileType:
    """Set a page of HTML. Raises: UnreadableFile for bytes that are no text."""
    text = decode_text(data)
    if text is None:
        raise UnreadableFile("file: it begins as HTML does, and goes on in bytes that are no text")
    read_html(text, content)
    return FileType.HTML


def delimiter_of(text: str) -> str | None:
    """What parts the columns of a table of separated values; None for any other text.

    Each of its first lines has the same count of values, two at least, and none reads as a sentence.
    """
    sample = text[:100_000].lstrip("\ufeff")
    for delimiter in _DELIMITERS:
        try:
            rows = [row for row in csv.reader(io.StringIO(sample), delimiter=delimiter) if row][: _SAMPLE_LINES + 1]
        except csv.Error:
            continue
        rows = rows[:-1] if len(rows) > _SAMPLE_LINES or len(text) > len(sample) else rows
        if len(rows) < 2:
            continue
        (columns, times), *_ = Counter(map(len, rows)).most_common(1)
        spaced = sum(value.startswith(" ") for row in rows for value in row[1:])
        values = sum(len(row) - 1 for row in rows)
        if columns > 1 and times >= 0.9 * len(rows) and spaced < 0.5 * values:
            return delimiter
    return None


def is_markdown(text: str) -> bool:
    """Whether a text is marked up: with headings and something else, or with a table."""
    sample = text[:100_000]
    if _TABLE_RULE.search(sample) and "|" in sample:
        return True
    return _HEADING.search(sample) is not None and (
        _MARKED.search(sample) is not None or len(_HEADING.findall(sample)) > 1
    )


def _read_separated(text: str, delimiter: str, content: Content) -> None:
    csv.field_size_limit(_MAX_CELL)
    content.setter.begin_part("")
    try:
        rows = enumerate(csv.reader(io.StringIO(text.lstrip("\ufeff")), delimiter=delimiter))
        cells = (Cell(row, column, value) for row, values in rows for column, value in enumerate(values) if value)
        content.setter.table(cells, is_sheet=True)
    except csv.Error as error:
        raise UnreadableFile(f"file: it is a broken table of separated values ({error})") from error


def _read_markdown(text: str, content: Content) -> None:
    """Through HTML, which stands in Markdown as it is; a line break in it stays one."""
    content.setter.check_lines(text.count("\n"))  # parsing Markdown is what takes the time
    html = MarkdownIt("commonmark", {"breaks": True}).enable(["table", "strikethrough"]).render(text)
    read_html(f"<html><body>{html}</body></html>", content)


def _read_plain(text: str, content: Content) -> None:
    pages = text.split("\f")
    lines = [page.split("\n") for page in pages]
    height = max(_LINES, -(-sum(map(len, lines)) // max(1, content.limits.pages - len(pages))))
    for page in lines:
        start = 0
        while start < len(page):
            end = start + height
            if end < len(page):  # at an empty line of its last third, where there is one
                blank = next((at for at in range(end, end - height // 3, -1) if not page[at - 1].strip()), end)
                end = blank
            content.setter.typewritten(page[start:end])
            start = end


def read_epub(entries: ZipEntries, content: Content) -> None:
    """Raises: UnreadableFile for a broken book, and one that is locked."""
    _check(entries)
    rootfile = next(descendants(entries.xml("META-INF/container.xml"), "rootfile"), None)
    name = "" if rootfile is None else attribute(rootfile, "full-path")
    package = entries.xml(name)
    if package is None:
        raise UnreadableFile("file: it is no e-book: its list of chapters is missing")
    content.add_properties(child(package, "metadata"), _PROPERTIES)
    folder = posixpath.dirname(name)
    items = {attribute(item, "id"): item for item in children(child(package, "manifest"), "item")}
    names: set[str] = set()
    for number, reference in enumerate(children(child(package, "spine"), "itemref"), 1):
        item = items.get(attribute(reference, "idref"))
        if item is not None and attribute(reference, "linear") != "no":
            name = posixpath.normpath(posixpath.join(folder, _target(item)))
            if name not in names:  # a book has each chapter once: 20 KB would have 400,000
                names.add(name)
                _read_chapter(entries, content, name, number)


def _check(entries: ZipEntries) -> None:
    """Fonts may be scrambled; text that is makes a book nobody can read without its shop's key."""
    root = entries.xml("META-INF/encryption.xml")
    methods = [attribute(method, "Algorithm") for method in descendants(root, "EncryptionMethod")]
    if any(method not in _FONT_SCRAMBLING for method in methods):
        raise UnreadableFile("file: the book is locked (DRM); send one that is not")


def _target(item: etree._Element) -> str:
    return unquote(attribute(item, "href"))


def _read_chapter(entries: ZipEntries, content: Content, name: str, number: int) -> None:
    if name not in entries or (text := decode_text(entries.read(name))) is None:
        return
    content.setter.begin_part(f"chapter {number}")

    def picture(source: str) -> tuple[str, bytes] | None:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(source)))
        return (target.rpartition("/")[2], entries.read(target)) if target in entries else None

    read_html(text, content, picture)
