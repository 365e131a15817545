"""Reads Excel workbooks (OOXML): a page a sheet, each cell as its format shows it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
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
from backend.files.office.number_formats import BUILT_IN, GENERAL, NumberFormat, number_format, shown
from backend.files.office.zip_entries import Relation, ZipEntries, elements_of
from backend.files.set_pages import Cell

_REFERENCE = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_HIDDEN = frozenset({"hidden", "veryHidden"})
_MAX_MERGED = 20_000


@dataclass(slots=True)
class _Book:
    """What all sheets share."""

    entries: ZipEntries
    content: Content
    strings: list[str] = field(default_factory=list)
    formats: list[NumberFormat] = field(default_factory=list)  # by the number that a cell names
    is_1904: bool = False
    without_value: int = 0  # formulas that nobody has computed

    def learn(self, relations: Iterable[Relation]) -> None:
        """Read the strings and formats that cells name by number."""
        for relation in relations:
            if relation.kind == "sharedStrings" and relation.target in self.entries:
                self.strings = list(_shared_strings(self.entries.read(relation.target)))
            elif relation.kind == "styles":
                self.formats = _formats(self.entries.xml(relation.target))


def read_xlsx(entries: ZipEntries, content: Content) -> None:
    """Raises: UnreadableFile for a broken package, and one with macros; TooLarge for more sheets than LIMIT_PAGES."""
    refuse_macros(entries.names, "xlsx")
    name = entries.main("xl/workbook.xml")
    root = entries.xml(name)
    if root is None:
        raise UnreadableFile("file: it is no Excel workbook: its list of sheets is missing")
    if local_name(root) != "workbook":
        raise UnreadableFile("file: it is a binary workbook (xlsb) or none; save it as xlsx")
    relations = entries.relations(name)
    sheets = list(children(child(root, "sheets"), "sheet"))
    content.require_pages("sheets", len(sheets))
    properties = child(root, "workbookPr")
    is_1904 = properties is not None and attribute(properties, "date1904") in ("1", "true")
    book = _Book(entries, content, is_1904=is_1904)
    book.learn(relations.values())
    shown_sheets = [sheet for sheet in sheets if attribute(sheet, "state") not in _HIDDEN]
    for sheet in shown_sheets:
        target = relations.get(attribute(sheet, "id"))
        if target is not None and target.kind == "worksheet" and target.target in entries:
            _read_sheet(book, attribute(sheet, "name"), target.target)
    if hidden := len(sheets) - len(shown_sheets):
        content.metadata["hidden_sheets"] = f"{hidden}, which are not read"
    if book.without_value:
        content.metadata["formulas_without_value"] = f"{book.without_value}: open and save it in a spreadsheet program"


def _read_sheet(book: _Book, name: str, entry: str) -> None:
    content = book.content
    content.setter.begin_part(name)
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    content.setter.table(_cells(book, entry, spans), is_sheet=True, spans=spans)
    for relation in book.entries.relations(entry).values():
        if relation.kind == "drawing":
            _drawing(book, relation)
        elif relation.kind == "comments":
            _comments(book, relation)
    content.set_notes()


def _cells(book: _Book, entry: str, spans: dict[tuple[int, int], tuple[int, int]]) -> Iterator[Cell]:
    """The cells with text; fills ``spans`` by the ranges that are merged, which a sheet names after its cells."""
    row = column = -1
    for element in elements_of(book.entries.read(entry), entry, ("{*}c", "{*}mergeCell", "{*}row")):
        name = local_name(element)
        if name == "c":
            place = _REFERENCE.fullmatch(element.get("r", ""))
            row, column = (int(place[2]) - 1, _column(place[1])) if place else (max(row, 0), column + 1)
            if text := _cell_text(book, element):
                yield Cell(row, column, text)
            continue
        if name == "row":
            row, column = row + 1, -1
        elif len(spans) < _MAX_MERGED:
            ends = [_REFERENCE.fullmatch(end) for end in element.get("ref", "").split(":")]
            if len(ends) == 2 and ends[0] and ends[1]:
                top, left = int(ends[0][2]) - 1, _column(ends[0][1])
                spans[top, left] = (int(ends[1][2]) - top, _column(ends[1][1]) - left + 1)
        element.clear()


def _cell_text(book: _Book, element: etree._Element) -> str:
    kind = element.get("t", "n")
    value: str | None = None
    formula = False
    for one in element:
        name = local_name(one)
        if name == "v":
            value = one.text
        elif name == "is":
            return _rich_text(one)
        formula = formula or name == "f"
    if value is None:
        book.without_value += formula
        return ""
    if kind == "s":
        index = whole_number(value, -1)
        return book.strings[index] if 0 <= index < len(book.strings) else ""
    if kind == "b":
        return "TRUE" if value == "1" else "FALSE"
    if kind != "n":  # a text that a formula gave, an error, an ISO date
        return value
    return _number_text(book, value, whole_number(element.get("s", "0")))


def _number_text(book: _Book, value: str, style: int) -> str:
    try:
        number = float(value)
    except ValueError:
        return value
    if not math.isfinite(number):
        return value
    form = book.formats[style] if 0 <= style < len(book.formats) else number_format(GENERAL)
    return shown(number, form, is_1904=book.is_1904)


def _column(letters: str) -> int:
    index = 0
    for letter in letters:
        index = index * 26 + ord(letter) - ord("A") + 1
    return index - 1


def _shared_strings(data: bytes) -> Iterator[str]:
    for element in elements_of(data, "sharedStrings.xml", ("{*}si",)):
        yield _rich_text(element)
        element.clear()


def _rich_text(element: etree._Element) -> str:
    """Its runs, without phonetic guides."""
    pieces = []
    for one in element:
        if local_name(one) == "t":
            pieces.append(one.text or "")
        elif local_name(one) == "r":
            pieces += [text.text or "" for text in children(one, "t")]
    return "".join(pieces)


def _formats(root: etree._Element | None) -> list[NumberFormat]:
    codes = dict(BUILT_IN)
    for element in descendants(root, "numFmt"):
        codes[whole_number(element.get("numFmtId", ""))] = element.get("formatCode", GENERAL)
    numbers = [whole_number(one.get("numFmtId", "")) for one in children(child(root, "cellXfs"), "xf")]
    return [number_format(codes.get(number, GENERAL)) for number in numbers]


def _drawing(book: _Book, relation: Relation) -> None:
    """The texts of shapes on a sheet, and its pictures."""
    root = book.entries.xml(relation.target)
    for paragraph in descendants(root, "p"):
        book.content.setter.paragraph("".join(text.text or "" for text in descendants(paragraph, "t")))
    pictures = book.entries.relations(relation.target)
    for blip in descendants(root, "blip"):
        picture = pictures.get(attribute(blip, "embed"))
        if picture is not None:
            book.content.picture_in(book.entries, picture.target)
    book.content.set_pictures()


def _comments(book: _Book, relation: Relation) -> None:
    root = book.entries.xml(relation.target)
    authors = [author.text or "" for author in descendants(root, "author")]
    for comment in descendants(root, "comment"):
        index = whole_number(attribute(comment, "authorId"), -1)
        author = authors[index] if 0 <= index < len(authors) else ""
        text = _rich_text(rich) if (rich := child(comment, "text")) is not None else ""
        if text.strip():
            by = f" by {author}" if author else ""
            book.content.notes.append(f"[Comment on {attribute(comment, 'ref')}{by}] {text}")
