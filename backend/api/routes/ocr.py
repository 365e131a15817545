"""``POST /v1/ocr``: the pages of an uploaded file, or, of JSON, in the shape of Mistral's OCR."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import JsonPieces, is_json, joined_pieces, json_pieces, validate_fields
from backend.api.request_context import Handle, call_within_limit, owner_of
from backend.api.request_fields import NOT_SERVED, WireRequest, reads, refuse
from backend.api.routes.document_answers import document_pieces
from backend.api.routes.documents import (
    HEADERS,
    READ_EXAMPLE,
    ReadRequest,
    accept_header,
    answers_of,
    process_upload,
    respond_in,
    run_off_loop,
)
from backend.api.routing import JSON, described, json_upload_route, upload_route
from backend.api.upload import Upload, decoded_upload, read_json_with_file, receive_upload
from backend.documents.formats.html import table_html
from backend.documents.formats.markdown import MarkdownBlock, pages_blocks, place_in_markdown
from backend.documents.formats.registry import negotiate
from backend.documents.records import PAGE_FEATURES, DocumentAnswer, DocumentOptions
from backend.errors import InvalidField, UnknownModel
from backend.files.file_types import IMAGES
from backend.files.page_ranges import check_page_ranges, written_ranges
from backend.files.pages import Page, Word
from backend.search.files import FileService
from backend.text.own_labels import OwnLabel, labels_json, read_labels

_files_of: Handle[FileService] = Handle("files")

MODEL = "mistral-ocr-latest"
_MODELS = ("mistral-ocr", "mistral-document-ai")  # how names begin: Mistral's own, and those of Azure
_DPI = 200  # of the picture of a page that Mistral's pixels are of, where the page is no picture
_OWN_FILE = re.compile(r"https?://[^/?#]+(?:/[^?#]*)?/v1/files/([A-Za-z0-9_-]{1,80})/content(?:[?#].*)?")
_RANGE = re.compile(r"\d{1,8}(-\d{1,8})?")
_GAP = "\n\n"  # between the blocks of a page's Markdown
_MARGIN = 0.12  # of a page's height: where headers and footers stand
_DIGITS = re.compile(r"\d+")  # a page's number and count differ from page to page


_PAGES_SCHEMA = {
    "anyOf": [
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": 10**8 - 2}},
        {"type": "string", "pattern": r"^\d{1,8}(-\d{1,8})?(,\d{1,8}(-\d{1,8})?)*$"},
        {"type": "null"},
    ]
}


def _check_pages(value: Any) -> Any:
    """Pages from 0, as a list or as text, as ranges of pages from 1."""
    if value is None:
        return ""
    is_list = isinstance(value, list) and all(type(number) is int for number in value)
    # neighbours as one range, whose end may lie behind the last page: Mistral's own examples ask for range(8)
    text = ",".join(written_ranges(sorted({*value}))) if is_list else value
    if not isinstance(text, str) or not all(_RANGE.fullmatch(part.strip()) for part in text.split(",")):
        raise InvalidField(f"pages: must be numbers from 0, such as [0, 1] or '0-5', got {value!r:.60}")
    ranges = ",".join("-".join(str(int(number) + 1) for number in part.split("-")) for part in text.split(","))
    return check_page_ranges(ranges)


_ANNOTATION = "document_annotation_format"
_WITH_PROPERTIES = {
    "type": "object",
    "properties": {"properties": {"type": "object", "minProperties": 1}},
    "required": ["properties"],
}
_ANNOTATION_SCHEMA = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "type": {"const": "json_schema"},
                "json_schema": {"type": "object", "properties": {"schema": _WITH_PROPERTIES}, "required": ["schema"]},
            },
            "required": ["type", "json_schema"],
        },
        {"type": "null"},
    ]
}


def _check_annotation(value: Any) -> str:
    """The JSON Schema of what to find, as text; empty for null."""
    if value is None:
        return ""
    wrapped = value.get("json_schema") if isinstance(value, dict) and value.get("type") == "json_schema" else None
    schema = wrapped.get("schema") if isinstance(wrapped, dict) else None
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        raise InvalidField(
            f'{_ANNOTATION}: must be {{"type": "json_schema", "json_schema": {{"schema": …}}}} with the JSON Schema of '
            "an object with properties: what the paper says is found, no text is written freely"
        )
    return labels_json(schema, _ANNOTATION)


_WHY_NOT = {
    "document_annotation_prompt": "names and descriptions of document_annotation_format say what to find",
    "bbox_annotation_format": "no pictures are cut out of pages to be annotated",
}


def _refuse(value: Any, name: str) -> None:
    refuse(value, name, _WHY_NOT[name])


_NotServed = Annotated[None, reads(_refuse), NOT_SERVED]


class _Url(BaseModel):
    model_config = ConfigDict(extra="ignore")

    url: str


class OcrDocument(BaseModel):
    """The file of a request: a data URL, or one that was kept before."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["document_url", "image_url", "file"] = "document_url"
    document_url: str | None = None
    image_url: str | _Url | None = None
    file_id: str | None = None
    document_name: str | None = None

    def url(self) -> str:
        """The address; empty where there is none."""
        image = self.image_url.url if isinstance(self.image_url, _Url) else self.image_url
        return self.document_url or image or ""

    def kept_file(self) -> str:
        """The id of a file that was kept before: by itself, or by its address here; empty for a data URL."""
        if self.file_id:
            return self.file_id
        own = _OWN_FILE.fullmatch(self.url())
        return own[1] if own else ""


class MistralOcrRequest(WireRequest):
    """`POST /v1/ocr` as Mistral's clients send it."""

    document: OcrDocument = Field(description="A data URL, the id of a file, or its address from GET …/url.")
    model: str | None = Field(None, description="Any name of Mistral's OCR.")
    pages: Annotated[Any, PlainValidator(_check_pages), WithJsonSchema(_PAGES_SCHEMA)] = Field(
        "", description="Pages from 0; unset: all."
    )
    include_blocks: bool | None = Field(False, description="Whether pages have their blocks with boxes in pixels.")
    include_image_base64: Any = Field(None, description="Accepted: pages have no pictures cut out of them.")
    confidence_scores_granularity: Literal["page", "word", "block"] | None = Field(
        None, description="Of each page; also of its words, or of its blocks. A table has none of its own."
    )
    table_format: Literal["markdown", "html"] | None = Field(
        None, description="Tables stand in `tables`, with a link in their place; unset: in the Markdown."
    )
    extract_header: bool | None = Field(
        False, description="What recurs at the top of the pages is `header`, and leaves the Markdown."
    )
    extract_footer: bool | None = Field(False, description="The same of the bottom.")
    document_annotation_format: Annotated[
        Any, PlainValidator(_check_annotation), WithJsonSchema(_ANNOTATION_SCHEMA)
    ] = Field("", description="A JSON Schema of what to find: document_annotation has its values.")
    document_annotation_prompt: _NotServed = None
    bbox_annotation_format: _NotServed = None

    def check_model(self) -> None:
        """Raise UnknownModel (404) for a name that is no OCR model's."""
        if self.model and not self.model.removeprefix("mistral/").startswith(_MODELS):
            raise UnknownModel(self.model[:100], [MODEL])


async def read_pages(request: Request) -> Response:
    """The text and words of a file's pages, each with its box, its confidence and how it was read.

    A PDF's own text is used where it is sound, page by page; the rest is recognised. `why` tells. JSON is Mistral's
    request, and is answered in its shape: pages from 0 as Markdown, with their blocks.
    """
    if is_json(request):
        return await read_pages_for_mistral(request)
    async with receive_upload(request) as upload:
        form = validate_fields(ReadRequest, upload.fields)
        upload.require_pages()
        document_format = negotiate(accept_header(request), form.format)
        upload.require_format(document_format)
        answer = await process_upload(request, upload, form.options())
        return await respond_in(request, upload, answer, document_format, partial(document_pieces, answer))


async def read_pages_for_mistral(request: Request) -> Response:
    """`POST /v1/ocr` with JSON alone, where Azure has Mistral's OCR."""
    body = await read_json_with_file(request, MistralOcrRequest)
    body.check_model()
    async with _file_of(request, body.document) as upload:
        upload.require_pages()
        options = DocumentOptions(
            features=frozenset((*PAGE_FEATURES, "tables")), pages=body.pages, schema=body.document_annotation_format
        )
        answer = await process_upload(request, upload, options)
        write = partial(_written, answer, body, upload.stored.size_bytes)
        return JsonPieces(await run_off_loop(answer.document, write))


@asynccontextmanager
async def _file_of(request: Request, document: OcrDocument) -> AsyncIterator[Upload]:
    """The file that a request names. Raises: NotFound for one of another key, InvalidField for an address."""
    if file_id := document.kept_file():
        file, stored = await call_within_limit(request, _files_of(request).content(owner_of(request), file_id))
        try:
            yield Upload(stored, file.name, {})
        finally:
            stored.close()
        return
    url = document.url()
    if not url:
        raise InvalidField("document: needs document_url, image_url or file_id")
    if not url.startswith("data:"):
        raise InvalidField(
            "document: the service fetches no addresses; send the file as a data URL (data:application/pdf;base64,…), "
            "or keep it with POST /v1/files and send its file_id"
        )
    async with decoded_upload(request, url, "document", name=document.document_name or "") as upload:
        yield upload


def _written(answer: DocumentAnswer, body: MistralOcrRequest, size_bytes: int) -> list[bytes]:
    document = answer.document
    blocks = list(pages_blocks(document, answer.understood.tables))
    headers = _recurring(document.pages, blocks, at_top=True) if body.extract_header else {}
    footers = _recurring(document.pages, blocks, at_top=False) if body.extract_footer else {}
    writer = _Writer(body, in_pixels=document.kind in IMAGES)
    pages = [
        writer.page(page, of_page, headers.get(page.number), footers.get(page.number))
        for page, of_page in zip(document.pages, blocks, strict=True)
    ]
    usage = {"pages_processed": len(pages), "doc_size_bytes": size_bytes}
    annotation = _annotation(answer) if answer.options.schema else None
    content = {"pages": pages, "model": body.model or MODEL, "usage_info": usage, "document_annotation": annotation}
    return joined_pieces(json_pieces(content))


def _recurring(
    pages: Sequence[Page], blocks: Sequence[Sequence[MarkdownBlock]], *, at_top: bool
) -> dict[int, MarkdownBlock]:
    """By page number its first or last block where at least half of the pages, and two, have it, but for numbers."""
    outermost: dict[int, tuple[str, MarkdownBlock]] = {}
    for page, of_page in zip(pages, blocks, strict=True):
        margin = page.height * _MARGIN
        inside = [
            block
            for block in of_page
            if (block.box.bottom <= margin if at_top else block.box.top >= page.height - margin)
        ]
        texts = [block for block in inside if block.table is None]
        if texts:
            block = min(texts, key=lambda one: one.box.top) if at_top else max(texts, key=lambda one: one.box.bottom)
            outermost[page.number] = (_DIGITS.sub("0", block.text), block)
    counts = Counter(text for text, _ in outermost.values())
    least = max(2, len(pages) / 2)
    return {number: block for number, (text, block) in outermost.items() if counts[text] >= least}


def _annotation(answer: DocumentAnswer) -> str:
    """What the file says of the schema's properties, as JSON; of what it does not say, those that an object must have.

    They are null or an empty list: a value that no file has would be made up.
    """
    found = {field.path: [orjson.loads(value.value) for value in field.values] for field in answer.understood.custom}
    annotation: dict[str, Any] = {}
    for label in read_labels(orjson.loads(answer.options.schema)):
        if _may_lack(label, found):
            continue
        inner, values = annotation, found.get(label.path, [])
        for name in label.path[:-1]:
            inner = inner.setdefault(name, {})
        inner[label.path[-1]] = values if label.many else next(iter(values), None)
    return orjson.dumps(annotation).decode()


def _may_lack(label: OwnLabel, found: Collection[tuple[str, ...]]) -> bool:
    """Whether nothing was found of it, or of an object that it is in, and the schema is fulfilled without."""
    lengths = (length for length, required in enumerate(label.required, 1) if not required)
    return any(label.path[:length] not in {path[:length] for path in found} for length in lengths)


class _Scale(NamedTuple):
    """From page units to the pixels of the answer."""

    factor: float
    dpi: int

    @classmethod
    def of(cls, page: Page, *, in_pixels: bool) -> _Scale:
        return cls(1.0, round(page.units_per_inch)) if in_pixels else cls(_DPI / page.units_per_inch, _DPI)


class _Writer:
    """Writes the pages of one answer; tables are numbered through all of them."""

    def __init__(self, body: MistralOcrRequest, *, in_pixels: bool) -> None:
        self._body, self._in_pixels = body, in_pixels
        self._tables = 0

    def page(
        self, page: Page, blocks: Sequence[MarkdownBlock], header: MarkdownBlock | None, footer: MarkdownBlock | None
    ) -> dict[str, Any]:
        body, scale = self._body, _Scale.of(page, in_pixels=self._in_pixels)
        tables = {id(block): self._table(block) for block in blocks if block.table is not None and body.table_format}
        texts = [
            (block, "[{0}]({0})".format(tables[id(block)]["id"]) if id(block) in tables else block.text)
            for block in blocks
            if block is not header and block is not footer
        ]
        written: dict[str, Any] = {
            "index": page.number - 1,
            "markdown": _GAP.join(text for _, text in texts),
            "images": [],
            "tables": list(tables.values()),
            "header": header and header.text,
            "footer": footer and footer.text,
            "dimensions": {
                "dpi": scale.dpi,
                "height": round(page.height * scale.factor),
                "width": round(page.width * scale.factor),
            },
        }
        if body.include_blocks:
            kinds = {id(header): "header", id(footer): "footer"}
            written["blocks"] = (
                self._block(block, kinds.get(id(block), block.kind), tables.get(id(block)), scale.factor)
                for block in blocks
            )
        if body.confidence_scores_granularity and page.words:
            average, least = _confidence(page.words)
            written["confidence_scores"] = {
                "average_page_confidence_score": average,
                "minimum_page_confidence_score": least,
            }
            if body.confidence_scores_granularity == "word":
                written["confidence_scores"]["word_confidence_scores"] = _word_scores(texts)
        return written

    def _table(self, block: MarkdownBlock) -> dict[str, Any]:
        assert block.table is not None, "of tables alone"
        as_html = self._body.table_format == "html"
        self._tables += 1
        return {
            "id": f"tbl-{self._tables - 1}.{'html' if as_html else 'md'}",
            "content": table_html(block.table) if as_html else block.text,
            "format": self._body.table_format,
        }

    def _block(self, block: MarkdownBlock, kind: str, table: dict[str, Any] | None, factor: float) -> dict[str, Any]:
        left, top, right, bottom = (round(side * factor) for side in block.box)
        written = {
            "type": kind,
            "content": table["content"] if table else block.text,
            "top_left_x": left,
            "top_left_y": top,
            "bottom_right_x": right,
            "bottom_right_y": bottom,
        }
        if table:
            written["table_id"] = table["id"]
        if self._body.confidence_scores_granularity == "block" and block.lines:
            average, least = _confidence([word for line in block.lines for word in line])
            written["confidence_scores"] = {
                "average_content_confidence_score": average,
                "minimum_content_confidence_score": least,
            }
        return written


def _confidence(words: Sequence[Word]) -> tuple[float, float]:
    """The mean and the least of the words' confidences."""
    scores = [word.confidence for word in words]
    return round(sum(scores) / len(scores), 4), round(min(scores), 4)


def _word_scores(texts: Iterable[tuple[MarkdownBlock, str]]) -> Iterator[dict[str, Any]]:
    """The words of a page's blocks, and where they stand in its Markdown."""
    begin = 0
    for block, text in texts:
        cursor = 0
        for word in (word for line in block.lines for word in line):
            start, end = place_in_markdown(text, word.text, cursor)
            if start < end:
                yield {"text": word.text, "confidence": round(word.confidence, 4), "start_index": begin + start}
                cursor = end
        begin += len(text) + len(_GAP)


class MistralPages(TypedDict):
    """`POST /v1/ocr` of JSON: Mistral's answer."""

    pages: list[dict[str, Any]]
    model: str
    usage_info: dict[str, int]
    document_annotation: Annotated[str | None, Field(description="JSON of what document_annotation_format asks for.")]


_EXAMPLES = {
    "as Mistral's clients send it": {
        "model": MODEL,
        "document": {"type": "document_url", "document_url": "data:application/pdf;base64,JVBERi0xLjcK"},
        "pages": [0],
    }
}
_MISTRAL_EXAMPLE = {
    "pages": [
        {"index": 0, "markdown": "# Factura", "images": [], "dimensions": {"dpi": 200, "height": 2339, "width": 1654}}
    ],
    "model": MODEL,
    "usage_info": {"pages_processed": 1, "doc_size_bytes": 48213},
    "document_annotation": None,
}
ROUTES = (
    upload_route(
        "/v1/ocr",
        read_pages,
        tag="documents",
        request=ReadRequest,
        json_request=(MistralOcrRequest, _EXAMPLES),
        answers={200: described(answers_of(READ_EXAMPLE, MistralPages), HEADERS)},
    ),
    json_upload_route(
        "/providers/mistral/azure/ocr",
        read_pages_for_mistral,
        tag="documents",
        request=MistralOcrRequest,
        examples=_EXAMPLES,
        answers={200: described({JSON: {"schema": MistralPages, "example": _MISTRAL_EXAMPLE}})},
    ),
)
