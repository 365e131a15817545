"""Reads OpenDocument files: text, sheets and presentations, as LibreOffice writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lxml import etree

from backend.errors import UnreadableFile
from backend.files.office.content import (
    HEADINGS,
    Content,
    attribute,
    child,
    children,
    descendants,
    local_name,
    whole_number,
)
from backend.files.office.numbering import BULLET, Counters, ListLevel
from backend.files.office.zip_entries import ZipEntries
from backend.files.set_pages import Cell, SetPage, Sides

_MARKS = {"tab": "\t", "line-break": "\n", "soft-hyphen": ""}
_FRAMES = frozenset({"section", "index-body", "table-of-content", "alphabetical-index", "user-index", "bibliography"})
_UNREAD = frozenset(
    {
        "page-number", "page-count", "tracked-changes", "ruby-text", "event-listeners", "forms", "sequence-decls",
        "index-title",
    }
)  # fmt: skip
_NUMERALS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_LENGTH = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?)(cm|mm|in|pt|pc)")
_POINTS = {"cm": 72 / 2.54, "mm": 72 / 25.4, "in": 72.0, "pt": 1.0, "pc": 12.0}
_MAX_REPEATED = 5_000  # cells with text that a file states once for many
_MAX_BLANKS = 200
_MAX_DEPTH = 40
_LIST_LEVELS = 10
_SLIDE = (794.0, 446.0)  # points
_PROPERTIES = {"title": "title", "creator": "author", "initial-creator": "author", "subject": "subject",
               "generator": "producer", "creation-date": "created", "date": "modified"}  # fmt: skip


def read_odf(entries: ZipEntries, content: Content) -> None:
    """Raises: UnreadableFile for a broken package, an encrypted one, and one with macros."""
    _check(entries)
    root = entries.xml("content.xml")
    body = child(root, "body")
    if root is None or body is None or not len(body):
        raise UnreadableFile("file: it is no OpenDocument file: its content is missing")
    reader = _Reader(entries, content, root)
    content.add_properties(child(entries.xml("meta.xml"), "meta"), _PROPERTIES)
    for part in body:
        if local_name(part) == "spreadsheet":
            reader.sheets(part)
        elif local_name(part) == "presentation":
            reader.slides(part)
        else:
            reader.text(part)


def _check(entries: ZipEntries) -> None:
    if next(descendants(entries.xml("META-INF/manifest.xml"), "encryption-data"), None) is not None:
        raise UnreadableFile("file: it is encrypted; save it without a password")
    programs = [name for name in entries.names if name.startswith(("Basic/", "Scripts/"))]
    if any(not name.endswith(("script-lc.xml", "script-lb.xml", "/")) for name in programs):
        raise UnreadableFile("file: it holds macros, which are neither run nor read here; save it without them")


class _Reader:
    """One file while it is read."""

    def __init__(self, entries: ZipEntries, content: Content, root: etree._Element) -> None:
        self._entries, self._content, self._root = entries, content, root
        self._styles_root = entries.xml("styles.xml")
        self._parents: dict[str, str] = {}  # style -> the list style or parent that it names
        self._breaks: set[str] = set()  # styles that begin a page
        self._hidden: set[str] = set()  # styles of sheets that are not shown
        self._counters = Counters(dict(self._lists()))
        self._note = 0
        for style in self._all("style"):
            name = attribute(style, "name")
            self._parents[name] = attribute(style, "list-style-name")
            if attribute_of(style, "paragraph-properties", "break-before") == "page":
                self._breaks.add(name)
            if attribute_of(style, "table-properties", "display") == "false":
                self._hidden.add(name)

    def text(self, body: etree._Element) -> None:
        self._content.setter.has_pages = next(descendants(body, "soft-page-break"), None) is not None
        for header in self._masters("header"):
            self._blocks(header)
        self._blocks(body)
        for footer in self._masters("footer"):
            self._blocks(footer)
        self._content.set_notes()
        insertions = sum(1 for _ in descendants(self._root, "insertion"))
        deletions = sum(1 for _ in descendants(self._root, "deletion"))
        self._content.tell_changes(insertions, deletions)

    def sheets(self, body: etree._Element) -> None:
        tables = list(children(body, "table"))
        self._content.require_pages("sheets", len(tables))
        hidden = 0
        for table in tables:
            if attribute(table, "style-name") in self._hidden:
                hidden += 1
                continue
            self._content.setter.begin_part(attribute(table, "name"))
            self._content.setter.table(self._cells(table), is_sheet=True)
            self._content.set_pictures()
            for shapes in children(table, "shapes"):
                self._blocks(shapes)
            self._content.set_notes()
        if hidden:
            self._content.metadata["hidden_sheets"] = f"{hidden}, which are not read"

    def slides(self, body: etree._Element) -> None:
        slides = list(children(body, "page"))
        self._content.require_pages("slides", len(slides))
        width, height = self._slide_size()
        for number, slide in enumerate(slides, 1):
            page = SetPage(f"slide {number}", width, height, margin=0.0)
            self._content.setter.pages.append(page)
            self._shapes(slide, page, 0)
            page.bottom = max(page.height, page.bottom) + 12.0
            notes = "\n".join(text for one in children(slide, "notes") for text in self._texts(one)).strip()
            for note in (*([f"[Notes] {notes}"] if notes else []), *self._content.notes):
                self._content.setter.placed(page, note, (48.0, page.bottom, width - 48.0, page.bottom), 1.0)
            self._content.notes.clear()

    def _all(self, name: str) -> Iterator[etree._Element]:
        for root in (self._styles_root, self._root):
            yield from descendants(root, name)

    def _lists(self) -> Iterator[tuple[str, dict[int, ListLevel]]]:
        for style in self._all("list-style"):
            levels: dict[int, ListLevel] = {}
            for level in style:
                depth = min(whole_number(attribute(level, "level"), 1), _LIST_LEVELS) - 1
                if local_name(level).endswith("bullet"):
                    levels[depth] = ListLevel("bullet", "")
                elif local_name(level).endswith("number"):
                    form = attribute(level, "num-format")
                    shown = range(max(0, depth + 1 - whole_number(attribute(level, "display-levels"), 1)), depth + 1)
                    places = ".".join(f"%{place + 1}" for place in shown) if form else ""
                    template = f"{attribute(level, 'num-prefix')}{places}{attribute(level, 'num-suffix')}"
                    start = whole_number(attribute(level, "start-value"), 1)
                    levels[depth] = ListLevel(_NUMERALS.get(form, "decimal"), template, start)
            yield attribute(style, "name"), levels

    def _masters(self, name: str) -> Iterator[etree._Element]:
        for master in descendants(self._styles_root, "master-page"):
            yield from children(master, name)

    def _blocks(self, parent: etree._Element, depth: int = 0, list_style: str = "", level: int = -1) -> None:
        """Set the paragraphs, lists and tables of a body."""
        if depth > _MAX_DEPTH:
            return
        is_first = True
        for element in parent:
            name = local_name(element)
            if name in ("p", "h"):
                mark = self._counters.next(list_style, level) if level >= 0 and is_first else ""
                self._paragraph(element, mark)
                is_first = False
            elif name == "list":
                style = attribute(element, "style-name") or list_style
                for item in element:
                    self._blocks(item, depth + 1, style, level + 1)
            elif name == "table":
                self._table(element)
            elif name == "soft-page-break":
                self._content.setter.break_page()
            elif name in ("frame", "text-box", "g", "custom-shape", "rect", "image"):
                self._drawn(element)
                self._content.set_pictures()
            elif name in _FRAMES:
                self._blocks(element, depth + 1)

    def _paragraph(self, element: etree._Element, mark: str) -> None:
        setter = self._content.setter
        if attribute(element, "style-name") in self._breaks:
            setter.break_page()
        text = self._inline(element)
        level = whole_number(attribute(element, "outline-level"), 1) if local_name(element) == "h" else 0
        if level:
            self._content.heading(f"{mark} {text}".strip(), level)
        elif text.strip():
            setter.paragraph(text, mark=mark)
        for frame in _outermost(element, "{*}frame", "{*}custom-shape"):
            self._drawn(frame)
        self._content.set_pictures()
        if next(descendants(element, "soft-page-break"), None) is not None:
            setter.break_page()

    def _inline(self, element: etree._Element, depth: int = 0) -> str:
        """The text of a paragraph; notes and comments in it are kept for later."""
        pieces = [element.text or ""]
        for one in element:
            name = local_name(one)
            if name == "s":
                pieces.append(" " * min(whole_number(attribute(one, "c"), 1), _MAX_BLANKS))
            elif name in _MARKS:
                pieces.append(_MARKS[name])
            elif name == "note":
                self._note += 1
                pieces.append(f"[{self._note}]")
                text = " ".join(self._texts(child(one, "note-body"))).strip()
                self._content.notes.append(f"[{self._note}] {text}")
            elif name == "annotation":
                self._comment(one)
            elif name not in _UNREAD and name not in ("frame", "custom-shape") and depth < _MAX_DEPTH:
                pieces.append(self._inline(one, depth + 1))
            pieces.append(one.tail or "")
        return "".join(pieces)

    def _comment(self, annotation: etree._Element, place: str = "") -> None:
        creator = child(annotation, "creator")
        author = "" if creator is None else creator.text or ""
        text = " ".join(self._texts(annotation)).strip()
        if text:
            self._content.notes.append(f"[Comment{place}{f' by {author}' if author else ''}] {text}")

    def _texts(self, parent: etree._Element | None) -> Iterator[str]:
        """The paragraphs in an element, in whatever it nests them."""
        if parent is not None:
            for element in _outermost(parent, "{*}p", "{*}h"):
                yield self._inline(element)

    def _table(self, table: etree._Element) -> None:
        headers = next(children(table, "table-header-rows"), None)
        count = 0 if headers is None else sum(1 for _ in children(headers, "table-row"))
        cells = list(self._content.setter.bounded(self._cells(table)))
        if all(cell.column == 0 for cell in cells):
            for cell in cells:
                self._content.setter.paragraph(cell.text)
        else:
            self._content.setter.table(cells, header_rows=count or None)
        self._content.set_pictures()

    def _cells(self, table: etree._Element) -> Iterator[Cell]:
        """The cells with text; those that a file states once for many are many."""
        row_index = 0
        for row in _rows(table):
            row_times, column = max(1, whole_number(attribute(row, "number-rows-repeated"), 1)), 0
            found: list[Cell] = []
            for element in row:
                if local_name(element) not in ("table-cell", "covered-table-cell"):
                    continue
                times = max(1, whole_number(attribute(element, "number-columns-repeated"), 1))
                text = self._cell_text(element, row_index, column)
                if text and local_name(element) == "table-cell":
                    rowspan = max(1, whole_number(attribute(element, "number-rows-spanned"), 1))
                    colspan = max(1, whole_number(attribute(element, "number-columns-spanned"), 1))
                    places = range(column, column + min(times, _MAX_REPEATED))
                    found += [Cell(row_index, place, text, rowspan, colspan) for place in places]
                column += times
            for at in range(min(row_times, max(1, _MAX_REPEATED // len(found))) if found else 0):
                yield from (cell._replace(row=cell.row + at) for cell in found)
            row_index += row_times

    def _cell_text(self, element: etree._Element, row: int, column: int) -> str:
        texts = []
        for one in element:
            if local_name(one) in ("p", "h"):
                texts.append(self._inline(one))
                for frame in _outermost(one, "{*}frame"):
                    self._drawn(frame)
            elif local_name(one) == "annotation":
                self._comment(one, f" on {column_name(column)}{row + 1}")
            elif local_name(one) in ("list", "table"):
                texts += self._texts(one)
            elif local_name(one) == "frame":
                self._drawn(one)
        return "\n".join(texts).strip()

    def _drawn(self, element: etree._Element) -> None:
        """The text of a frame as paragraphs, and its picture."""
        for image in descendants(element, "image"):
            self._picture(image)
        for box in _outermost(element, "{*}text-box"):
            self._blocks(box, 1)
        if local_name(element) in ("custom-shape", "rect"):
            for text in self._texts(element):
                self._content.setter.paragraph(text)

    def _picture(self, image: etree._Element, page: SetPage | None = None, box: Sides | None = None) -> None:
        self._content.picture_in(self._entries, attribute(image, "href").removeprefix("./"), on=page, box=box)

    def _shapes(self, parent: etree._Element, page: SetPage, depth: int) -> None:
        for shape in parent:
            name = local_name(shape)
            if name == "g" and depth < _MAX_DEPTH:
                self._shapes(shape, page, depth + 1)
            elif name in ("frame", "custom-shape", "rect", "ellipse"):
                self._shape(shape, page)
            elif name == "annotation":
                self._comment(shape)

    def _shape(self, shape: etree._Element, page: SetPage) -> None:
        left, top = _points(attribute(shape, "x")), _points(attribute(shape, "y"))
        width, height = _points(attribute(shape, "width")), _points(attribute(shape, "height"))
        box = (left, top, left + (width or page.width - left), top + height)
        table = next(descendants(shape, "table"), None)
        if table is not None:
            bottom, page.bottom = page.bottom, top
            self._content.setter.table(self._cells(table), on=page, left=left)
            page.bottom = max(bottom, page.bottom)
            return
        for image in descendants(shape, "image"):
            self._picture(image, page, box)
        is_title = attribute(shape, "class") in ("title", "subtitle")
        items = {one for item in descendants(shape, "list-item") for one in item}
        texts = [
            f"{BULLET} {text}" if one in items else text
            for one in _outermost(shape, "{*}p", "{*}h")
            if (text := self._inline(one)).strip()
        ]
        if texts:
            size = 1.6 * HEADINGS[0] if is_title else 1.6
            self._content.setter.placed(page, "\n".join(texts), box, size)

    def _slide_size(self) -> tuple[float, float]:
        for layout in self._all("page-layout-properties"):
            width, height = _points(attribute(layout, "page-width")), _points(attribute(layout, "page-height"))
            if width > height > 0:
                return width, height
        return _SLIDE


def attribute_of(element: etree._Element, name: str, wanted: str) -> str:
    found = child(element, name)
    return "" if found is None else attribute(found, wanted)


def _outermost(parent: etree._Element, *tags: str) -> Iterator[etree._Element]:
    """The elements of these tags at a place or below it that lie in no other one there: each is read with all in it."""
    walk = etree.iterwalk(parent, events=("start",), tag=tags)
    for _, element in walk:
        walk.skip_subtree()
        yield element


def column_name(index: int) -> str:
    """A column's letters, as spreadsheets show them."""
    name = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def _rows(table: etree._Element, depth: int = 0) -> Iterator[etree._Element]:
    for element in table:
        name = local_name(element)
        if name == "table-row":
            yield element
        elif name in ("table-header-rows", "table-row-group", "table-rows") and depth < _MAX_DEPTH:
            yield from _rows(element, depth + 1)


def _points(length: str) -> float:
    match = _LENGTH.fullmatch(length)
    return float(match[1]) * _POINTS[match[2]] if match else 0.0
