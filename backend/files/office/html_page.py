"""Reads HTML: web pages, chapters of e-books, bodies of mail. Nothing that it refers to is fetched or run."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from lxml import etree

from backend.errors import UnreadableFile
from backend.files.office.content import Content, whole_number
from backend.files.office.numbering import BULLET, formatted
from backend.files.set_pages import Cell

_UNSEEN = frozenset(
    {
        "script", "style", "template", "noscript", "svg", "head", "iframe", "object", "math", "audio", "video", "rt",
        "rp", "del",
    }
)  # fmt: skip
# fmt: off
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "legend", "li", "main", "nav", "ol",
    "option", "p", "section", "select", "summary", "td", "th", "textarea", "title", "tr", "ul", "table", "tbody",
})
# fmt: on
_LEVELS = {f"h{level}": level for level in range(1, 7)}
_BLANKS = re.compile(r"[ \t\r\n\f\v]+")
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|mso-hide\s*:\s*all", re.IGNORECASE)
_LIST_FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_DATA_IMAGE = re.compile(r"data:image/[\w.+-]{1,20}(?:;[\w=-]{1,40}){0,3},", re.IGNORECASE)
_MAX_SPAN = 1_000
_MAX_PICTURES = 200

Pictures = Callable[[str], tuple[str, bytes] | None]  # a picture's name and bytes by what the page calls it


@dataclass(slots=True)
class _Flow:
    """The text of the block that is being read."""

    pieces: list[str] = field(default_factory=list)
    lists: list[list[str | int]] = field(
        default_factory=list
    )  # of those around it: form and the number of the last item
    mark: str = ""
    is_kept: int = 0  # depth of <pre>

    def add(self, text: str | None) -> None:
        if not text:
            return
        if not self.is_kept:
            text = _BLANKS.sub(" ", text)
            if text.startswith(" ") and (not self.pieces or self.pieces[-1][-1:] in " \n\t"):
                text = text[1:]
        if text:
            self.pieces.append(text)

    def take(self) -> str:
        text = "".join(self.pieces)
        self.pieces.clear()
        return text.strip("\n ") if not self.is_kept else text.strip("\n")


def read_html(text: str, content: Content, pictures: Pictures = lambda _name: None) -> None:
    """Set the blocks of a page.

    Args:
        pictures: those that came along; a page's own are in it (``data:``).

    Raises: UnreadableFile for elements so deep in each other that the parser leaves out what is in them, and for one
        of too many attributes.
    """
    data = text.translate(_CONTROLS).encode("utf-8", "replace")
    if len(data) > _MAX_ATTRIBUTES:
        etree.HTMLParser(target=_AttributeCheck(), encoding="utf-8", recover=True).feed(data)
    parser = etree.HTMLParser(
        encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True, recover=True, huge_tree=False
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError:  # nothing in it
        return
    if any(error.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT for error in parser.error_log):
        raise UnreadableFile("file: elements of its HTML lie in each other more than 255 deep")
    if root is None:
        return
    title = root.find(".//title")
    if title is not None and title.text and title.text.strip():
        content.metadata.setdefault("title", " ".join(title.text.split()))
    _Reader(content, pictures).read(root)


class _AttributeCheck:
    """Refuses what libxml2 parses in linear time, and takes the square of to put it in a tree."""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if len(attributes) > _MAX_ATTRIBUTES:
            raise UnreadableFile(f"file: a <{tag[:40]}> of its HTML has more than {_MAX_ATTRIBUTES} attributes")

    def close(self) -> None:
        """Nothing was kept."""


_MAX_ATTRIBUTES = 1_000
_CONTROLS = dict.fromkeys((*range(9), 11, *range(14, 32)), " ")


class _Reader:
    """One page while it is read: a walk over its elements that needs no stack of Python's."""

    def __init__(self, content: Content, pictures: Pictures) -> None:
        self._content, self._pictures = content, pictures
        self._flow = _Flow()
        self._skipped: etree._Element | None = None  # what is being left out

    def read(self, root: etree._Element) -> None:
        for event, element in etree.iterwalk(root, events=("start", "end")):
            if self._skipped is not None:
                if event == "end" and element is self._skipped:
                    self._skipped = None
                    self._flow.add(element.tail)
                continue
            name = element.tag if isinstance(element.tag, str) else ""
            if event == "start":
                self._start(element, name)
            else:
                self._end(element, name)
        self._set()

    def _start(self, element: etree._Element, name: str) -> None:
        if name in _UNSEEN or _HIDDEN.search(element.get("style", "")) or element.get("hidden") is not None:
            self._skip(element)
            return
        if name == "table" and (cells := self._data_cells(element)):
            self._set()
            self._content.setter.table(cells, header_rows=_header_rows(element))
            for image in element.iter("img"):
                self._picture(image)
            self._content.set_pictures()
            self._skip(element)
            return
        if name in _BLOCKS or name in _LEVELS or name == "pre":
            self._set()
        self._begin(element, name)
        self._flow.add(element.text)

    def _data_cells(self, table: etree._Element) -> list[Cell]:
        """The cells of a table; none where tables in it, or a single column, show that it only places things."""
        if next(table.iterdescendants("table"), None) is not None or table.get("role") == "presentation":
            return []
        cells = list(self._content.setter.bounded(_cells(table, self._content.setter.check_places)))
        is_data = len({cell.row for cell in cells}) > 1 and len({cell.column for cell in cells}) > 1
        return cells if is_data else []

    def _begin(self, element: etree._Element, name: str) -> None:
        """What an element means beside being a block."""
        flow = self._flow
        if name in ("ul", "ol", "menu"):
            form = _LIST_FORMS.get(element.get("type", ""), "decimal") if name == "ol" else ""
            flow.lists.append([form, whole_number(element.get("start", ""), 1) - 1])
        elif name == "li":
            flow.mark = _mark(flow.lists[-1], element) if flow.lists else BULLET
        elif name == "br":
            flow.pieces.append("\n")
        elif name == "pre":
            flow.is_kept += 1
        elif name == "img":
            self._picture(element)
        elif name in ("input", "button") and element.get("type") not in ("hidden", "password"):
            flow.add(element.get("value"))
        elif name in ("td", "th"):
            flow.add(" ")

    def _end(self, element: etree._Element, name: str) -> None:
        if name in _LEVELS:
            text = self._flow.take()
            if text:
                self._content.heading(text.replace("\n", " "), _LEVELS[name])
            self._content.set_pictures()
        elif name == "pre":
            self._set()
            self._flow.is_kept -= 1
        elif name in _BLOCKS:
            self._set()
        if name in ("ul", "ol", "menu") and self._flow.lists:
            self._flow.lists.pop()
        self._flow.add(element.tail)

    def _skip(self, element: etree._Element) -> None:
        self._skipped = element

    def _set(self) -> None:
        """Set what was read of the block."""
        text = self._flow.take()
        if text:
            self._content.setter.paragraph(text, mark=self._flow.mark)
            self._flow.mark = ""
        self._content.set_pictures()

    def _picture(self, image: etree._Element) -> None:
        source = image.get("src", "")
        found = _inline_picture(source, len(self._content.pictures) + 1) or self._pictures(source)
        if found is not None and len(self._content.pictures) < _MAX_PICTURES:
            self._content.picture(*found)
        elif image.get("alt"):
            self._flow.add(f" {image.get('alt')} ")


def _mark(counter: list[str | int], element: etree._Element) -> str:
    form, count = counter
    if not form:
        return BULLET
    counter[1] = whole_number(element.get("value", ""), int(count) + 1)
    return f"{formatted(int(counter[1]), str(form))}."


def _inline_picture(source: str, number: int) -> tuple[str, bytes] | None:
    match = _DATA_IMAGE.match(source)
    if match is None:
        return None
    data = source[match.end() :]
    try:
        content = base64.b64decode(data) if ";base64" in match[0].lower() else unquote_to_bytes(data)
    except (binascii.Error, ValueError):
        return None
    return f"image{number}", content


def _cells(table: etree._Element, check_places: Callable[[int], None]) -> Iterator[Cell]:
    above: list[tuple[int, int, int]] = []  # of cells that reach down: first column, past column, past row
    places = 0  # that these take in the rows so far, at least
    for row_index, row in enumerate(table.iterdescendants("tr")):
        above = sorted(one for one in above if one[2] > row_index)
        places += len(above)
        check_places(places)
        column, passed, reaching = 0, 0, []
        for element in row:
            if element.tag not in ("td", "th"):
                continue
            while passed < len(above) and above[passed][0] <= column:
                column = max(column, above[passed][1])
                passed += 1
            rowspan = max(1, min(whole_number(element.get("rowspan", ""), 1), _MAX_SPAN))
            colspan = max(1, min(whole_number(element.get("colspan", ""), 1), _MAX_SPAN))
            if rowspan > 1:
                reaching.append((column, column + colspan, row_index + rowspan))
            yield Cell(row_index, column, _cell_text(element), rowspan, colspan)
            column += colspan
        above += reaching


def _cell_text(element: etree._Element) -> str:
    pieces: list[str] = []
    for event, one in etree.iterwalk(element, events=("start", "end")):
        name = one.tag if isinstance(one.tag, str) else ""
        is_unseen = name in _UNSEEN
        if (name == "br" and event == "start") or (name in _BLOCKS and one is not element):
            pieces.append("\v")
        if event == "start" and not is_unseen:
            pieces.append(one.text or "")
        elif event == "end" and one is not element:
            pieces.append(one.tail or "")
    text = re.sub(r"[ \t\r\n\f]+", " ", "".join(pieces))
    return "\n".join(part.strip() for part in text.split("\v") if part.strip())


def _header_rows(table: etree._Element) -> int | None:
    """Rows of cells of headers only; None where the page does not tell."""
    count = 0
    for row in table.iterdescendants("tr"):
        names = {cell.tag for cell in row if cell.tag in ("td", "th")}
        parent = row.getparent()
        if names != {"th"} and (parent is None or parent.tag != "thead"):
            break
        count += 1
    return count or None
