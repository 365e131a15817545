"""Unstructured's ``/general/v0/general``: files as lists of elements, for Dify, Flowise and its own client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import blake2b
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from typing_extensions import TypedDict

from backend.api.json_io import JsonPieces, WrittenJson, joined_pieces, json_pieces, validate_fields
from backend.api.request_fields import OrAbsent, StrictForm
from backend.api.routes.docling import Words
from backend.api.routes.documents import process_upload, run_off_loop
from backend.api.routing import JSON, described, get, upload_route
from backend.api.upload import Upload, receive_uploads
from backend.documents.formats.html import table_html
from backend.documents.formats.markdown import MarkdownBlock, list_starts, pages_blocks, split_mark, text_of
from backend.documents.formats.page_flow import grid_of
from backend.documents.ocr_engines import print_languages
from backend.documents.records import PAGE_FEATURES, DocumentAnswer, DocumentOptions
from backend.files.file_types import IMAGES, media_type_of
from backend.files.pages import Box, Page
from backend.files.text_files import RequestedSource

_MAX_CHARACTERS = 500  # of a chunk, as Unstructured's
_SOURCES: dict[str, RequestedSource] = {"fast": "text_layer", "ocr_only": "ocr"}
Node = dict[str, Any]


class PartitionForm(StrictForm):
    """`POST /general/v0/general`, beside the files; options that choose among Unstructured's models change nothing."""

    strategy: OrAbsent[Literal["auto", "fast", "hi_res", "ocr_only", "od_only", "vlm"]] = Field(
        "auto", description="fast: text layers alone; ocr_only: text layers never."
    )
    languages: Words = Field(None, description="Languages of the print: en, spa, …; unset: OCR_LANGUAGES.")
    ocr_languages: Words = Field(None, description="The same, as older clients send it.")
    coordinates: OrAbsent[bool] = Field(False, description="Whether elements have their places.")
    include_page_breaks: OrAbsent[bool] = False
    starting_page_number: OrAbsent[int] = Field(
        1, ge=1, le=10**6, description="Number of the first page: clients split files and send the parts."
    )
    chunking_strategy: OrAbsent[Literal["basic", "by_title", "None"]] = Field(
        None, description="Neighbours as one element; by_title begins a new one at each title. None, as Flowise: unset."
    )
    max_characters: OrAbsent[int] = Field(None, ge=16, le=10**6, description="Of a chunk; unset: 500.")
    new_after_n_chars: OrAbsent[int] = Field(
        None, ge=0, le=10**6, description="From which a chunk takes no more; unset: max_characters."
    )
    output_format: OrAbsent[Literal["application/json"]] = None

    def options(self) -> DocumentOptions:
        """The options of the document service."""
        named = "languages" if self.languages else "ocr_languages"
        return DocumentOptions(
            features=frozenset((*PAGE_FEATURES, "tables")),
            source=_SOURCES.get(self.strategy or "", "auto"),
            languages=print_languages(self.languages or self.ocr_languages or (), named),
        )


class Element(TypedDict):
    """A piece of a file."""

    type: Annotated[str, Field(description="Title, NarrativeText, ListItem, Table, PageBreak or CompositeElement.")]
    element_id: str
    text: str
    metadata: Annotated[dict[str, Any], Field(description="filename, filetype, page_number, languages, …")]


async def partition(request: Request) -> Response:
    """The titles, paragraphs, list items and tables of a file in reading order; of several files a list for each."""
    async with receive_uploads(request, field="files") as uploads:
        for upload in uploads:
            upload.require_pages()
        sent = {name.removesuffix("[]"): texts for name, texts in uploads[0].repeated.items()}  # languages[]
        values = {name: texts if len(texts) > 1 else texts[0] for name, texts in sent.items() if texts}
        form = validate_fields(PartitionForm, values)
        options = form.options()
        written = []
        for upload in uploads:
            answer = await process_upload(request, upload, options)
            written.append(await run_off_loop(answer.document, partial(_written, upload, answer, form)))
    if len(written) == 1:
        return JsonPieces(written[0])
    return JsonPieces(list(json_pieces([WrittenJson(pieces) for pieces in written])))


async def docs(_request: Request) -> Response:
    """Where the API is described; Unstructured's client asks for it before it sends the parts of a PDF."""
    return PlainTextResponse("The API is described at /docs.\n")


def _written(upload: Upload, answer: DocumentAnswer, form: PartitionForm) -> list[bytes]:
    elements = _elements(upload, answer, form)
    is_chunked = form.chunking_strategy in ("basic", "by_title")
    return joined_pieces(json_pieces(_chunked(elements, form) if is_chunked else elements))


def _elements(upload: Upload, answer: DocumentAnswer, form: PartitionForm) -> Iterator[Node]:
    document = answer.document
    writer = _Writer(upload.name, media_type_of(document.kind, upload.name), form, in_pixels=document.kind in IMAGES)
    pages = zip(document.pages, pages_blocks(document, answer.understood.tables), strict=True)
    for index, (page, blocks) in enumerate(pages):
        if index and form.include_page_breaks:
            yield writer.element("PageBreak", "", page, None)
        for block in blocks:
            yield from writer.elements_of(page, block)


class _Writer:
    """Writes the elements of one file; what follows a title refers to it."""

    def __init__(self, name: str, media_type: str, form: PartitionForm, *, in_pixels: bool) -> None:
        self._file = {"filename": name, "filetype": media_type}
        self._form, self._in_pixels = form, in_pixels
        self._count, self._title = 0, ""

    def elements_of(self, page: Page, block: MarkdownBlock) -> Iterator[Node]:
        """One, or of a list one for each item."""
        if block.table is not None:
            rows = grid_of(block.table, attrgetter("text"))
            table = self.element(
                "Table", " ".join(filter(None, (text for row in rows for text in row))), page, block.box
            )
            table["metadata"]["text_as_html"] = table_html(block.table)
            yield table
            return
        lines = [text_of(line) for line in block.lines]
        starts = list_starts(block.lines) if block.kind == "list" else []
        if not starts:
            yield self.element("Title" if block.kind == "title" else "NarrativeText", " ".join(lines), page, block.box)
            return
        if starts[0]:
            yield self.element("NarrativeText", " ".join(lines[: starts[0]]), page, block.box)
        for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
            text = " ".join((split_mark(lines[start])[1], *lines[start + 1 : stop]))
            yield self.element("ListItem", text, page, block.box)

    def element(self, kind: str, text: str, page: Page, box: Box | None) -> Node:
        """One element; its id is that of its place and text."""
        metadata: Node = {**self._file, "page_number": page.number + (self._form.starting_page_number or 1) - 1}
        if page.language:
            metadata["languages"] = [page.language]
        if kind not in ("Title", "PageBreak") and self._title:
            metadata["parent_id"] = self._title
        if self._form.coordinates and box is not None:
            corners = ((box.left, box.top), (box.left, box.bottom), (box.right, box.bottom), (box.right, box.top))
            metadata["coordinates"] = {
                "points": [[round(side, 2) for side in corner] for corner in corners],
                "system": "PixelSpace" if self._in_pixels else "PointSpace",
                "layout_width": page.width,
                "layout_height": page.height,
            }
        self._count += 1
        name = f"{self._file['filename']}\0{self._count}\0{text}"
        identity = blake2b(name.encode("utf-8", "replace"), digest_size=16).hexdigest()
        if kind == "Title":
            self._title = identity
        return {"type": kind, "element_id": identity, "text": text, "metadata": metadata}


def _chunked(elements: Iterable[Node], form: PartitionForm) -> Iterator[Node]:
    """Neighbours as one element of at most so many characters; tables stay alone, and what is longer is cut."""
    most = form.max_characters or _MAX_CHARACTERS
    enough = most if form.new_after_n_chars is None else form.new_after_n_chars
    pending: list[Node] = []
    length = 0
    for element in elements:
        if element["type"] == "PageBreak":
            continue
        is_alone = element["type"] == "Table"
        begins = form.chunking_strategy == "by_title" and element["type"] == "Title"
        if pending and (is_alone or begins or length >= enough or length + 2 + len(element["text"]) > most):
            yield from _cut(pending, most)
            pending, length = [], 0
        if is_alone:
            yield from _cut([element], most)
            continue
        length += len(element["text"]) + 2 * bool(pending)
        pending.append(element)
    if pending:
        yield from _cut(pending, most)


def _cut(elements: list[Node], most: int) -> Iterator[Node]:
    """One element of all, or several where their text is too long, cut at blanks."""
    first, text = elements[0], "\n\n".join(element["text"] for element in elements)
    is_table = first["type"] == "Table"
    if is_table and len(text) <= most:
        yield first
        return
    metadata = {name: value for name, value in first["metadata"].items() if name in _OF_CHUNKS}
    start = 0
    while start < len(text) or not start:
        stop = len(text) if len(text) - start <= most else text.rfind(" ", start + 1, start + most + 1)
        stop = start + most if stop <= start else stop
        identity = blake2b(f"{first['element_id']}\0{start}".encode(), digest_size=16).hexdigest()
        kind = "TableChunk" if is_table else "CompositeElement"
        yield {"type": kind, "element_id": identity, "text": text[start:stop].strip(), "metadata": metadata}
        start = max(stop, 1)


_OF_CHUNKS = ("filename", "filetype", "languages", "page_number")
_TAG = "Unstructured"
_EXAMPLE = [
    {
        "type": "Title",
        "element_id": "5f2c1d0b9a8e7f6d5c4b3a2918070605",
        "text": "Factura 2024-017",
        "metadata": {"filename": "factura.pdf", "filetype": "application/pdf", "page_number": 1, "languages": ["es"]},
    }
]
_LIST = {"type": "array", "items": Element}
ROUTES = (
    upload_route(
        "/general/v0/general",
        partition,
        tag=_TAG,
        request=PartitionForm,
        answers={
            200: described(
                {JSON: {"schema": {"anyOf": [_LIST, {"type": "array", "items": _LIST}]}, "example": _EXAMPLE}}
            )
        },
        field="files",
        several=True,
    ),
    get("/general/docs", docs, tag=_TAG, example="The API is described at /docs.", media_type="text/plain"),
)
