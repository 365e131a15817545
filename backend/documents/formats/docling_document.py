"""DoclingDocument, the JSON of docling and of what is built on it: texts, lists and tables with their places.

Written without docling-core, whose versions bind those of other packages; a test validates it by its model. Boxes have
their origin at the lower left, as docling's own of PDFs have, in points of a PDF and pixels of an image.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from backend.documents.formats.markdown import body_size, heading_level, list_starts, split_mark, text_of
from backend.documents.formats.page_flow import page_flow
from backend.files.file_types import media_type_of
from backend.files.pages import Box, Document, Page, Word, bounding_box
from backend.tables.records import Table, TableCell

_VERSION = "1.0.0"  # of the schema; every release of docling-core reads it
_HASH_DIGITS = 16  # 64 bits, as docling keeps of a file's digest
Node = dict[str, Any]
PlacedNode = tuple[int, int, Node]  # a text or a table with its span in the document's text
Lines = Sequence[Sequence[Word]]


def docling_document(document: Document, tables: Sequence[Table], name: str) -> Node:
    """The document's parts, with texts and tables as JSON already: as objects 200,000 paragraphs take 400 MB."""
    return _Writer(document, tables).written(name)


def docling_origin(document: Document, name: str) -> Node:
    """The file that the document was made from."""
    return {
        "mimetype": media_type_of(document.kind, name),
        "binary_hash": int(document.sha256[:_HASH_DIGITS], 16),
        "filename": name,
    }


class Heading(NamedTuple):
    """A heading over a part of the text."""

    start: int  # of the document's text
    text: str


class ChunkContext(NamedTuple):
    """Where a part of the document's text stands in its DoclingDocument."""

    headings: tuple[Heading, ...]  # over its first paragraph, the outermost first
    items: tuple[str, ...]  # references of its texts and tables, of a part of headings alone those


def chunk_contexts(document: Document, tables: Sequence[Table], spans: Sequence[tuple[int, int]]) -> list[ChunkContext]:
    """The context of each span of the document's text; spans are in order and do not overlap."""
    firsts, pasts = [start for start, _ in spans], [end for _, end in spans]
    above: dict[int, Heading] = {}  # by level, the outermost first
    headings: list[tuple[Heading, ...]] = [() for _ in spans]
    titles: list[list[str]] = [[] for _ in spans]
    bodies: list[list[str]] = [[] for _ in spans]
    for start, end, node in sorted(_Writer(document, tables).placed(), key=itemgetter(0)):
        if level := node.get("level"):
            above = _under(above, node, start)
        for index in range(bisect_right(pasts, start), bisect_left(firsts, end)):
            if not bodies[index]:
                headings[index] = tuple(above.values())
            (titles if level else bodies)[index].append(node["self_ref"])
    items = (tuple(body or title) for body, title in zip(bodies, titles, strict=True))
    return [ChunkContext(*context) for context in zip(headings, items, strict=True)]


class Element(NamedTuple):
    """A paragraph, a list or a table."""

    start: int  # of the document's text
    end: int
    pages: tuple[int, ...]
    context: ChunkContext


def elements(document: Document, tables: Sequence[Table]) -> Iterator[Element]:
    """What stands below the headings, in the order of the text: what docling's hierarchical chunker makes chunks of."""
    above: dict[int, Heading] = {}
    placed = sorted(_Writer(document, tables).placed(), key=itemgetter(0))
    for _, members in groupby(placed, key=_list_or_own):
        starts, ends, nodes = zip(*members, strict=True)
        if nodes[0].get("level"):
            above = _under(above, nodes[0], starts[0])
            continue
        pages = dict.fromkeys(place["page_no"] for node in nodes for place in node["prov"])
        context = ChunkContext(tuple(above.values()), tuple(node["self_ref"] for node in nodes))
        yield Element(starts[0], max(ends), tuple(pages), context)


def _under(above: dict[int, Heading], node: Node, start: int) -> dict[int, Heading]:
    """The headings over what follows a heading, by level."""
    outer = {level: heading for level, heading in above.items() if level < node["level"]}
    return {**outer, node["level"]: Heading(start, node["text"])}


def _list_or_own(place: PlacedNode) -> str:
    """The reference of the list that it is an item of, else its own."""
    node = place[2]
    parent: str = node["parent"]["$ref"]
    return parent if parent.startswith("#/groups/") else str(node["self_ref"])


class _Writer:
    def __init__(self, document: Document, tables: Sequence[Table]) -> None:
        self._document, self._tables = document, tables
        self._pages = {page.number: page for page in document.pages}
        starts = zip(document.pages, document.page_starts, strict=True)
        self._starts = {page.number: start for page, start in starts}  # of the document's text
        self._body: list[Node] = []  # references of what stands in the body, in reading order
        self._nodes: dict[str, list[Node | orjson.Fragment]] = {"groups": [], "texts": [], "tables": []}

    def placed(self) -> Iterator[PlacedNode]:
        """Texts and tables in reading order, each as soon as it is the last of its kind."""
        size = body_size(self._document)
        for page in self._document.pages:
            for part in page_flow(page, self._tables):
                if isinstance(part, Table):
                    yield from self._add_table(part)
                elif level := heading_level(page, part, size):
                    yield self._add_text(page, part, "section_header", level=level)
                else:
                    yield from self._add_block(page, part)

    def written(self, name: str) -> Node:
        for _, _, node in self.placed():
            kind = "tables" if node["label"] == "table" else "texts"
            copied = bytes(bytearray(orjson.dumps(node)))  # what orjson returns keeps a kilobyte
            self._nodes[kind][-1] = orjson.Fragment(copied)
        return {
            "schema_name": "DoclingDocument",
            "version": _VERSION,
            "name": name.rpartition(".")[0] or name,
            "origin": docling_origin(self._document, name),
            "furniture": {**_root("#/furniture", "furniture"), "children": []},
            "body": {**_root("#/body", "body"), "children": self._body},
            **self._nodes,
            "pictures": [],
            "key_value_items": [],
            "form_items": [],
            "pages": {
                str(page.number): {"size": {"width": page.width, "height": page.height}, "page_no": page.number}
                for page in self._document.pages
            },
        }

    def _add_block(self, page: Page, block: Lines) -> Iterator[PlacedNode]:
        """A paragraph, or the items of a list in a group of their own."""
        starts = list_starts(block)
        if not starts:
            yield self._add_text(page, block, "text")
            return
        if starts[0]:
            yield self._add_text(page, block[: starts[0]], "text")
        group = self._node("groups", "list", name="list", children=[])
        for start, stop in pairwise([*starts, len(block)]):
            mark, _ = split_mark(text_of(block[start]))
            yield self._add_text(
                page, block[start:stop], "list_item", group, marker=mark or "-", enumerated=mark[:1].isdigit()
            )

    def _add_text(self, page: Page, block: Lines, label: str, parent: Node | None = None, **more: Any) -> PlacedNode:
        written = " ".join(map(text_of, block))
        text = split_mark(written)[1] if label == "list_item" else written
        box = bounding_box(word.box for line in block for word in line)
        prov = [{"page_no": page.number, "bbox": _bbox(page, box), "charspan": [0, len(text)]}]
        node = self._node("texts", label, parent, prov=prov, orig=written, text=text, **more)
        first = self._starts[page.number]
        return first + block[0][0].start, first + block[-1][-1].end, node

    def _add_table(self, table: Table) -> Iterator[PlacedNode]:
        cells = [self._cell(cell) for cell in table.cells]
        places = zip(table.pages, table.boxes, strict=True)
        prov = [
            {"page_no": number, "bbox": _bbox(self._pages[number], box), "charspan": [0, 0]}
            for number, box in places
            if number in self._pages
        ]
        data = {"table_cells": cells, "num_rows": table.rows, "num_cols": table.columns}
        node = self._node("tables", "table", prov=prov, captions=[], references=[], footnotes=[], data=data)
        spans = [(cell.start, cell.end) for cell in table.cells if cell.start is not None and cell.end is not None]
        if spans:
            yield min(start for start, _ in spans), max(end for _, end in spans), node

    def _cell(self, cell: TableCell) -> Node:
        page = self._pages.get(cell.page)
        return {
            "bbox": _bbox(page, bounding_box(cell.boxes)) if page and cell.boxes else None,
            "row_span": cell.rowspan,
            "col_span": cell.colspan,
            "start_row_offset_idx": cell.row,
            "end_row_offset_idx": cell.row + cell.rowspan,
            "start_col_offset_idx": cell.column,
            "end_col_offset_idx": cell.column + cell.colspan,
            "text": cell.text,
            "column_header": cell.header,
            "row_header": False,
            "row_section": False,
        }

    def _node(self, kind: str, label: str, parent: Node | None = None, **more: Any) -> Node:
        reference = f"#/{kind}/{len(self._nodes[kind])}"
        node = {
            "self_ref": reference,
            "parent": {"$ref": "#/body" if parent is None else parent["self_ref"]},
            "children": [],
            "content_layer": "body",
            "label": label,
            **more,
        }
        (self._body if parent is None else parent["children"]).append({"$ref": reference})
        self._nodes[kind].append(node)
        return node


def _root(reference: str, layer: str) -> Node:
    return {"self_ref": reference, "content_layer": layer, "name": "_root_", "label": "unspecified"}


def _bbox(page: Page, box: Box) -> Node:
    left, top, right, bottom = (round(side, 2) for side in box)
    height = round(page.height, 2)
    return {"l": left, "t": height - top, "r": right, "b": height - bottom, "coord_origin": "BOTTOMLEFT"}
