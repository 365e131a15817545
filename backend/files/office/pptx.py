"""Reads PowerPoint presentations (OOXML): a page a slide, texts where they stand on it, notes and comments below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

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
    refuse_macros,
    whole_number,
)
from backend.files.office.numbering import BULLET, formatted
from backend.files.office.zip_entries import Relation, ZipEntries
from backend.files.set_pages import Cell, SetPage, Sides

_EMU = 12_700.0  # in a point
_SIZE = (960.0, 540.0)  # points, where the file does not tell
_BODY, _TITLE = 18.0, 36.0  # points of letters, where a text does not tell
_TITLES = frozenset({"title", "ctrTitle"})
_NUMERALS = {"alpha": "lowerLetter", "roman": "lowerRoman"}  # how their names begin
_NOT_NOTES = frozenset({"sldNum", "sldImg", "hdr", "ftr", "dt"})
_MAX_DEPTH = 20  # of groups in each other


class _Transform(NamedTuple):
    """From the coordinates of a group to points of the slide."""

    x: float = 0.0
    y: float = 0.0
    scale_x: float = 1.0 / _EMU
    scale_y: float = 1.0 / _EMU

    def box(self, frame: etree._Element) -> Sides | None:
        offset, extent = child(frame, "off"), child(frame, "ext")
        if offset is None or extent is None:
            return None
        left = self.x + whole_number(offset.get("x", "")) * self.scale_x
        top = self.y + whole_number(offset.get("y", "")) * self.scale_y
        width = whole_number(extent.get("cx", "")) * self.scale_x
        height = whole_number(extent.get("cy", "")) * self.scale_y
        return left, top, left + width, top + height

    def inner(self, frame: etree._Element | None) -> _Transform:
        """Of what stands in a group of this frame."""
        box = None if frame is None else self.box(frame)
        offset, extent = child(frame, "chOff"), child(frame, "chExt")
        if box is None or offset is None or extent is None:
            return self
        width, height = whole_number(extent.get("cx", "")), whole_number(extent.get("cy", ""))
        scale_x = (box[2] - box[0]) / width if width else self.scale_x
        scale_y = (box[3] - box[1]) / height if height else self.scale_y
        x, y = whole_number(offset.get("x", "")) * scale_x, whole_number(offset.get("y", "")) * scale_y
        return _Transform(box[0] - x, box[1] - y, scale_x, scale_y)


def read_pptx(entries: ZipEntries, content: Content) -> None:
    """Raises: UnreadableFile for a broken package, and one with macros; TooLarge for more slides than LIMIT_PAGES."""
    refuse_macros(entries.names, "pptx")
    name = entries.main("ppt/presentation.xml")
    root = entries.xml(name)
    if root is None:
        raise UnreadableFile("file: it is no PowerPoint presentation: its list of slides is missing")
    relations = entries.relations(name)
    slides = list(children(child(root, "sldIdLst"), "sldId"))
    content.require_pages("slides", len(slides))
    size = child(root, "sldSz")
    width, height = _SIZE
    if size is not None:
        width = whole_number(size.get("cx", "")) / _EMU or width
        height = whole_number(size.get("cy", "")) / _EMU or height
    authors = _authors(entries, relations.values())
    for number, slide in enumerate(slides, 1):
        relation = relations.get(_relation_id(slide))
        page = SetPage(f"slide {number}", width, height, margin=0.0)
        content.setter.pages.append(page)
        if relation is not None and relation.target in entries:
            _Slide(entries, content, page, relation.target).read(authors)


def _relation_id(slide: etree._Element) -> str:
    """``r:id``, beside which there is an ``id`` of another kind."""
    return next((value for key, value in slide.attrib.items() if key.endswith("}id")), "")


def _authors(entries: ZipEntries, relations: Iterable[Relation]) -> dict[str, str]:
    names: dict[str, str] = {}
    for relation in relations:
        if relation.kind in ("commentAuthors", "authors"):
            root = entries.xml(relation.target)
            for author in () if root is None else root:
                names[attribute(author, "id")] = attribute(author, "name")
    return names


class _Slide:
    """One slide while it is read."""

    def __init__(self, entries: ZipEntries, content: Content, page: SetPage, name: str) -> None:
        self._entries, self._content, self._page, self._name = entries, content, page, name
        self._relations = entries.relations(name)
        self._places: dict[str, tuple[int, Sides]] = {}  # by index and by type; the number tells which came first
        for number, (kind, index, box) in enumerate(self._placeholder_frames()):
            for key in _keys(kind, index):
                self._places.setdefault(key, (number, box))

    def read(self, authors: dict[str, str]) -> None:
        tree = child(self._entries.xml(self._name), "cSld", "spTree")
        if tree is not None:
            self._shapes(tree, _Transform(), 0)
        self._page.bottom = max(self._page.height, self._page.bottom) + 12.0
        for note in (*self._notes(), *self._comments(authors)):
            top = self._page.bottom
            self._content.setter.placed(self._page, note, (48.0, top, self._page.width - 48.0, top), 1.0)

    def _shapes(self, parent: etree._Element, transform: _Transform, depth: int) -> None:
        for shape in parent:
            name = local_name(shape)
            if name == "sp":
                self._text_shape(shape, transform)
            elif name == "pic":
                self._picture(shape, transform)
            elif name == "graphicFrame":
                self._graphic(shape, transform)
            elif name == "grpSp" and depth < _MAX_DEPTH:
                self._shapes(shape, transform.inner(child(shape, "grpSpPr", "xfrm")), depth + 1)
            elif name in ("AlternateContent", "Choice") and depth < _MAX_DEPTH:
                self._shapes(shape, transform, depth + 1)

    def _text_shape(self, shape: etree._Element, transform: _Transform) -> None:
        body = child(shape, "txBody")
        if body is None:
            return
        placeholder = child(shape, "nvSpPr", "nvPr", "ph")
        kind = "" if placeholder is None else placeholder.get("type", "body")
        frame = child(shape, "spPr", "xfrm")
        box = (None if frame is None else transform.box(frame)) or self._inherited(placeholder)
        if box is None:
            box = (48.0, self._page.bottom, self._page.width - 48.0, self._page.bottom)
        points = _points(body) or (_TITLE if kind in _TITLES else _BODY)
        text = "\n".join(_paragraphs(body, is_list=kind == "body"))
        if kind in _TITLES:
            points = max(points, HEADINGS[0] * _BODY)
        if text.strip():
            self._content.setter.placed(self._page, text, box, _fitting(text, box, points))

    def _graphic(self, shape: etree._Element, transform: _Transform) -> None:
        table = next(descendants(shape, "tbl"), None)
        frame = child(shape, "xfrm")
        box = None if frame is None else transform.box(frame)
        if table is None:
            for diagram in descendants(shape, "relIds"):
                self._diagram(attribute(diagram, "dm"), box)
            return
        cells = []
        for row_index, row in enumerate(children(table, "tr")):
            for column, cell in enumerate(children(row, "tc")):
                if cell.get("hMerge") != "1" and cell.get("vMerge") != "1":
                    text = "\n".join(_paragraphs(child(cell, "txBody"), is_list=False))
                    spans = (whole_number(cell.get("rowSpan", "1"), 1), whole_number(cell.get("gridSpan", "1"), 1))
                    cells.append(Cell(row_index, column, text, *(max(1, span) for span in spans)))
        first = child(table, "tblPr")
        has_header = first is not None and first.get("firstRow") in ("1", "true")
        bottom = self._page.bottom
        left, self._page.bottom = (48.0, bottom) if box is None else box[:2]
        self._content.setter.table(cells, header_rows=1 if has_header else None, on=self._page, left=left)
        self._page.bottom = max(bottom, self._page.bottom)

    def _diagram(self, relation_id: str, box: Sides | None) -> None:
        """The texts of SmartArt, whose places only PowerPoint knows."""
        relation = self._relations.get(relation_id)
        root = self._entries.xml(relation.target) if relation is not None and relation.target in self._entries else None
        texts = [text for point in descendants(root, "pt") if (text := _joined(point))]
        if texts:
            place = box or (48.0, self._page.bottom, self._page.width - 48.0, self._page.bottom)
            text = "\n".join(texts)
            self._content.setter.placed(self._page, text, place, _fitting(text, place, _BODY))

    def _picture(self, shape: etree._Element, transform: _Transform) -> None:
        frame = child(shape, "spPr", "xfrm")
        box = (None if frame is None else transform.box(frame)) or (0.0, 0.0, self._page.width, self._page.height)
        for blip in descendants(shape, "blip"):
            relation = self._relations.get(attribute(blip, "embed"))
            if relation is not None:
                self._content.picture_in(self._entries, relation.target, on=self._page, box=box)

    def _notes(self) -> Iterator[str]:
        for relation in self._relations.values():
            if relation.kind == "notesSlide" and relation.target in self._entries:
                for shape in descendants(self._entries.xml(relation.target), "sp"):
                    placeholder = child(shape, "nvSpPr", "nvPr", "ph")
                    if placeholder is not None and placeholder.get("type") in _NOT_NOTES:
                        continue
                    if text := "\n".join(_paragraphs(child(shape, "txBody"), is_list=False)).strip():
                        yield f"[Notes] {text}"

    def _comments(self, authors: dict[str, str]) -> Iterator[str]:
        for relation in self._relations.values():
            if relation.kind == "comments" and relation.target in self._entries:
                for comment in descendants(self._entries.xml(relation.target), "cm"):
                    text = _joined(comment) or " ".join(one.text or "" for one in children(comment, "text"))
                    author = authors.get(attribute(comment, "authorId"), "")
                    if text.strip():
                        yield f"[Comment{f' by {author}' if author else ''}] {text}"

    def _placeholder_frames(self) -> Iterator[tuple[str, str, Sides]]:
        """Type, index and box of the placeholders of the slide's layout, then of its master."""
        name = self._name
        for kind in ("slideLayout", "slideMaster"):
            relations = self._entries.relations(name)
            name = next((one.target for one in relations.values() if one.kind == kind), "")
            for shape in descendants(self._entries.xml(name) if name else None, "sp"):
                placeholder, frame = child(shape, "nvSpPr", "nvPr", "ph"), child(shape, "spPr", "xfrm")
                box = None if frame is None else _Transform().box(frame)
                if placeholder is not None and box is not None:
                    yield placeholder.get("type", "body"), placeholder.get("idx", ""), box

    def _inherited(self, placeholder: etree._Element | None) -> Sides | None:
        if placeholder is None:
            return None
        keys = _keys(placeholder.get("type", "body"), placeholder.get("idx", ""))
        return min((self._places[key] for key in keys if key in self._places), default=(0, None))[1]


def _keys(kind: str, index: str) -> tuple[str, str]:
    """What a placeholder is found by: any of its index or its type, titles of both kinds alike."""
    return f"#{index}" if index else kind, "title" if kind in _TITLES else kind


def _paragraphs(body: etree._Element | None, *, is_list: bool) -> Iterator[str]:
    number = 0
    for paragraph in children(body, "p"):
        text = _joined(paragraph)
        properties = child(paragraph, "pPr")
        numbered = child(properties, "buAutoNum")
        has_bullet = child(properties, "buChar") is not None or (is_list and child(properties, "buNone") is None)
        number = 0 if numbered is None else number + 1
        if numbered is not None and text.strip():
            form = _NUMERALS.get(numbered.get("type", "")[:5], "decimal")
            yield f"{formatted(number, form)}. {text}"
        else:
            yield f"{BULLET} {text}" if has_bullet and text.strip() else text


def _joined(element: etree._Element) -> str:
    """The texts in an element; line breaks are kept."""
    pieces = []
    for one in element.iter("{*}t", "{*}br", "{*}tab"):
        name = local_name(one)
        pieces.append((one.text or "") if name == "t" else "\n" if name == "br" else "\t")
    return "".join(pieces)


def _points(body: etree._Element) -> float:
    """The size of most of its letters, as its runs tell; 0 where none does."""
    sizes: dict[int, int] = {}
    for run in descendants(body, "r"):
        properties = child(run, "rPr")
        if properties is not None and (size := whole_number(properties.get("sz", ""))) > 0:
            sizes[size] = sizes.get(size, 0) + len(_joined(run))
    return max(sizes, key=lambda size: sizes[size]) / 100.0 if sizes else 0.0


def _fitting(text: str, box: Sides, points: float) -> float:
    """The size of letters, by that of a set page's body, with which a text fits its box: at least a third of it."""
    size = points / _BODY * 1.6
    least = size / 3
    while size > least:
        columns = max(4, int((box[2] - box[0]) / (5.4 * size)))
        rows = sum(1 + len(line) // columns for line in text.split("\n"))
        if rows * 14.0 * size <= max(box[3] - box[1], 14.0):
            break
        size *= 0.9
    return size
