"""Reads Word documents (OOXML): text with headings, lists, tables, notes, and changes as if all were accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from lxml import etree

from backend.errors import UnreadableFile
from backend.files.office.content import (
    Content,
    attribute,
    child,
    children,
    descendants,
    local_name,
    refuse_macros,
    whole_number,
)
from backend.files.office.numbering import Counters, ListLevel
from backend.files.office.zip_entries import ZipEntries
from backend.files.set_pages import Cell

# Content that was moved away or deleted, fields' instructions, phonetic guides, what old programs shall see instead.
_UNREAD = frozenset({"del", "moveFrom", "instrText", "delText", "rt", "Fallback", "rPr", "pPr", "sectPr"})
_FRAMES = frozenset({"sdt", "sdtContent", "customXml", "ins", "moveTo", "AlternateContent", "Choice"})
_MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "lastRenderedPageBreak": "\v"}
_MAX_DEPTH = 40  # of tables in cells, groups in text boxes
_OFF = frozenset({"0", "false", "off"})
_PAGE_END, _PAGE_START = "\f", "\v"  # in a paragraph's text: a page ends here; Word began one here when it last set it


def read_docx(entries: ZipEntries, content: Content) -> None:
    """Raises: UnreadableFile for a broken package, and one with macros."""
    refuse_macros(entries.names, "docx")
    name = entries.main("word/document.xml")
    root = entries.xml(name)
    body = child(root, "body")
    if body is None:
        raise UnreadableFile("file: it is no Word document: its text is missing")
    _Reader(entries, content, name).read(body)


@dataclass(slots=True)
class _Style:
    """What a paragraph's style says of it."""

    based_on: str = ""
    level: int = 0  # of a heading, from 1; 0 for the body
    list_id: str = ""
    list_level: int = 0


@dataclass(slots=True)
class _Paragraph:
    text: str
    level: int = 0  # of a heading
    mark: str = ""  # of a list
    starts_page: bool = False
    boxes: list[etree._Element] = field(default_factory=list)  # text boxes that are anchored in it


class _Reader:
    """One document while it is read."""

    def __init__(self, entries: ZipEntries, content: Content, name: str) -> None:
        self._entries, self._content, self._name = entries, content, name
        self._relations = entries.relations(name)
        self._styles = self._read_styles()
        self._counters = self._read_lists()
        self._changes: Counter[str] = Counter()
        self._footnotes = 0
        self._notes_by_id: dict[str, dict[str, etree._Element]] = {}  # of "footnote" and "endnote"

    def read(self, body: etree._Element) -> None:
        self._content.setter.has_pages = next(descendants(body, "lastRenderedPageBreak"), None) is not None
        self._margins("header")
        self._blocks(body)
        self._margins("footer")
        self._notes()
        self._content.set_notes()
        self._content.tell_changes(self._changes["ins"], self._changes["del"])

    def _margins(self, kind: str) -> None:
        """Set the headers or the footers, which name their pictures by relations of their own."""
        own = self._relations
        for target in dict.fromkeys(relation.target for relation in own.values() if relation.kind == kind):
            if (root := self._entries.xml(target)) is not None:
                self._relations = self._entries.relations(target)
                self._blocks(root)
        self._relations = own

    def _related(self, kind: str) -> Iterator[etree._Element]:
        seen: set[str] = set()
        for relation in self._relations.values():
            if relation.kind == kind and relation.target not in seen:
                seen.add(relation.target)
                if (root := self._entries.xml(relation.target)) is not None:
                    yield root

    def _blocks(self, parent: etree._Element, depth: int = 0) -> None:
        """Set the paragraphs and tables of a body, a header or a text box."""
        for element in parent:
            name = local_name(element)
            if name == "p":
                self._set(self._paragraph(element), depth)
            elif name == "tbl":
                self._table(element)
            elif name in _FRAMES and depth < _MAX_DEPTH:
                self._blocks(element, depth + 1)

    def _set(self, paragraph: _Paragraph, depth: int) -> None:
        setter = self._content.setter
        if paragraph.starts_page:
            setter.break_page()
        for index, part in enumerate(_page_parts(paragraph.text)):
            if index:
                setter.break_page()
            if paragraph.level:
                self._content.heading(f"{paragraph.mark} {part}".strip(), paragraph.level)
            elif part.strip():
                setter.paragraph(part, mark="" if index else paragraph.mark)
        self._content.set_pictures()
        for box in paragraph.boxes:
            if depth < _MAX_DEPTH:
                self._blocks(box, depth + 1)

    def _table(self, table: etree._Element) -> None:
        rows = [row for row in descendants_until(table, "tr", "tbl") if child(row, "trPr", "del") is None]
        cells: list[Cell] = []
        open_cells: dict[int, int] = {}  # column -> index of the cell that goes on below
        headers = 0
        for index, row in enumerate(rows):
            headers += headers == index and child(row, "trPr", "tblHeader") is not None
            column = whole_number(attribute_of(row, "trPr", "gridBefore"))
            for element in descendants_until(row, "tc", "tc"):
                span = max(1, min(whole_number(attribute_of(element, "tcPr", "gridSpan"), 1), 200))
                merge = child(element, "tcPr", "vMerge")
                if merge is not None and attribute(merge, "val") != "restart" and column in open_cells:
                    above = cells[open_cells[column]]
                    cells[open_cells[column]] = above._replace(rowspan=index - above.row + 1)
                else:
                    open_cells.pop(column, None)
                    if merge is not None:
                        open_cells[column] = len(cells)
                    cells.append(Cell(index, column, "\n".join(self._cell_texts(element)), 1, span))
                    self._content.setter.check_lines(len(cells))
                column += span
        self._set_table(cells, len(rows), headers)
        self._content.set_pictures()

    def _set_table(self, cells: list[Cell], rows: int, headers: int) -> None:
        if all(cell.column == 0 for cell in cells):  # a frame around text
            for cell in cells:
                for paragraph in cell.text.split("\n"):
                    self._content.setter.paragraph(paragraph)
        elif rows:
            self._content.setter.table(cells, header_rows=headers or None)

    def _cell_texts(self, parent: etree._Element, depth: int = 0) -> Iterator[str]:
        """The paragraphs of a cell; those of tables in it cell by cell."""
        if depth > _MAX_DEPTH:
            return
        for element in parent:
            if local_name(element) == "p":
                paragraph = self._paragraph(element)
                text = paragraph.text.replace(_PAGE_START, "").replace(_PAGE_END, "\n")
                yield f"{paragraph.mark} {text}".strip()
                for box in paragraph.boxes:
                    yield from self._cell_texts(box, depth + 1)
            elif local_name(element) != "tcPr":
                yield from self._cell_texts(element, depth + 1)

    def _paragraph(self, element: etree._Element) -> _Paragraph:
        properties = child(element, "pPr")
        style = self._style(attribute_of(element, "pPr", "pStyle"))
        outline = attribute_of(element, "pPr", "outlineLvl")
        level = whole_number(outline, 9) + 1 if outline else style.level
        paragraph = _Paragraph("", level if level <= 9 else 0)
        pieces: list[str] = []
        self._text(element, pieces, paragraph)
        paragraph.text = "".join(pieces)
        paragraph.starts_page = _is_on(child(properties, "pageBreakBefore"))
        list_id = attribute_of(element, "pPr", "numPr", "numId") or style.list_id
        if paragraph.text.strip():
            list_level = attribute_of(element, "pPr", "numPr", "ilvl")
            paragraph.mark = self._counters.next(list_id, whole_number(list_level, style.list_level))
        section = child(properties, "sectPr")
        if section is not None and attribute_of(section, "type") not in ("continuous", "nextColumn"):
            paragraph.text += _PAGE_END
        return paragraph

    def _text(self, parent: etree._Element, pieces: list[str], paragraph: _Paragraph, depth: int = 0) -> None:
        for element in parent:
            name = local_name(element)
            if name == "t":
                pieces.append(element.text or "")
            elif name == "br" and attribute(element, "type") == "page":
                pieces.append(_PAGE_END)
            elif name in _MARKS:
                pieces.append(_MARKS[name])
            elif name == "txbxContent":
                paragraph.boxes.append(element)
            else:
                self._other(element, name, pieces)
                if depth < _MAX_DEPTH and name not in _UNREAD and not _is_hidden(element):
                    self._text(element, pieces, paragraph, depth + 1)

    def _other(self, element: etree._Element, name: str, pieces: list[str]) -> None:
        """What an element within a paragraph means beside the text in it."""
        if name in ("blip", "imagedata"):
            self._picture(attribute(element, "embed") or attribute(element, "id"))
        elif name in ("footnoteReference", "endnoteReference"):
            self._footnotes += 1
            pieces.append(f"[{self._footnotes}]")
            note = self._footnote(name.removesuffix("Reference"), attribute(element, "id"))
            self._content.notes.append(f"[{self._footnotes}] {note}")
        elif name in ("ins", "del", "moveFrom", "moveTo"):
            self._changes["ins" if name in ("ins", "moveTo") else "del"] += 1

    def _picture(self, relation_id: str) -> None:
        relation = self._relations.get(relation_id)
        if relation is not None and relation.kind == "image":
            self._content.picture_in(self._entries, relation.target)

    def _footnote(self, kind: str, note_id: str) -> str:
        if kind not in self._notes_by_id:
            notes = (note for root in self._related(f"{kind}s") for note in children(root, kind))
            self._notes_by_id[kind] = {attribute(note, "id"): note for note in notes}
        note = self._notes_by_id[kind].pop(note_id, None)  # told once, however often a text or the note itself names it
        return "" if note is None else " ".join(self._cell_texts(note)).strip()

    def _notes(self) -> None:
        for root in self._related("comments"):
            for comment in children(root, "comment"):
                author = attribute(comment, "author")
                text = " ".join(self._cell_texts(comment)).strip()
                if text:
                    self._content.notes.append(f"[Comment{f' by {author}' if author else ''}] {text}")

    def _read_styles(self) -> dict[str, _Style]:
        styles: dict[str, _Style] = {}
        for root in self._related("styles"):
            for element in children(root, "style"):
                name = attribute_of(element, "name").lower()
                outline = attribute_of(element, "pPr", "outlineLvl")
                level = whole_number(outline, 9) + 1 if outline else 1 if name == "title" else 0
                if not level and name.startswith("heading "):
                    level = whole_number(name[8:9], 1)
                styles[attribute(element, "styleId")] = _Style(
                    attribute_of(element, "basedOn"),
                    level if level <= 9 else 0,
                    attribute_of(element, "pPr", "numPr", "numId"),
                    whole_number(attribute_of(element, "pPr", "numPr", "ilvl")),
                )
        return styles

    def _style(self, style_id: str) -> _Style:
        """A style with what it has from those that it is based on."""
        found = _Style()
        for _ in range(_MAX_DEPTH):
            style = self._styles.get(style_id)
            if style is None:
                break
            found.level = found.level or style.level
            if not found.list_id:
                found.list_id, found.list_level = style.list_id, style.list_level
            style_id = style.based_on
        return found

    def _read_lists(self) -> Counters:
        """Lists of one definition count on from each other, as in Word, but where one says that it starts anew."""
        abstract: dict[str, dict[int, ListLevel]] = {}
        lists: dict[str, dict[int, ListLevel]] = {}
        definitions: dict[str, str] = {}
        restarts: dict[str, dict[int, int]] = {}
        for root in self._related("numbering"):
            for element in children(root, "abstractNum"):
                abstract[attribute(element, "abstractNumId")] = {
                    whole_number(attribute(level, "ilvl")): ListLevel(
                        attribute_of(level, "numFmt") or "decimal",
                        attribute_of(level, "lvlText"),
                        whole_number(attribute_of(level, "start"), 1),
                    )
                    for level in children(element, "lvl")
                }
            for element in children(root, "num"):
                list_id, definition = attribute(element, "numId"), attribute_of(element, "abstractNumId")
                lists[list_id], definitions[list_id] = abstract.get(definition, {}), definition
                restarts[list_id] = {
                    whole_number(attribute(override, "ilvl")): whole_number(start, 1)
                    for override in children(element, "lvlOverride")
                    if (start := attribute_of(override, "startOverride"))
                }
        return Counters(lists, definitions, restarts)


def attribute_of(element: etree._Element | None, *path: str) -> str:
    """The value (``w:val``) of the element at a path; empty where there is none."""
    found = child(element, *path)
    return "" if found is None else attribute(found, "val")


def descendants_until(parent: etree._Element, name: str, stop: str, depth: int = 0) -> Iterator[etree._Element]:
    """Descendants of a name that lie in none of another: the rows of a table without those of tables in its cells."""
    for element in parent:
        if local_name(element) == name:
            yield element
        elif local_name(element) != stop and depth < _MAX_DEPTH:
            yield from descendants_until(element, name, stop, depth + 1)


def _is_on(element: etree._Element | None) -> bool:
    return element is not None and attribute(element, "val") not in _OFF


def _is_hidden(run: etree._Element) -> bool:
    return local_name(run) == "r" and _is_on(child(run, "rPr", "vanish"))


def _page_parts(text: str) -> Iterator[str]:
    """The parts of a paragraph on different pages: it is parted where its author did, never amid what Word wrapped."""
    for index, part in enumerate(text.split(_PAGE_END)):
        before, mark, after = part.partition(_PAGE_START)
        if mark and not before.strip():
            if not index:
                yield ""
            yield after.replace(_PAGE_START, "")
        else:
            yield part.replace(_PAGE_START, "")
            if mark:
                yield ""
