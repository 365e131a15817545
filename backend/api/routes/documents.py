"""``POST /v1/ocr`` and ``POST /v1/documents``: the pages of an uploaded file, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.documents import DocumentRequest, ReadRequest
from backend.api.requests.json_body import validate_fields
from backend.api.requests.upload import Upload, receive_upload
from backend.api.requests.validation import check_labels
from backend.api.responses.document_formats import accept_header, formatted_document, run_off_loop
from backend.api.responses.documents import DocumentAnswer as DocumentSchema
from backend.api.responses.documents import document_bytes
from backend.api.responses.fields import FIELD_EXAMPLE, TABLE_EXAMPLE, VALIDITY_EXAMPLE
from backend.api.responses.index_headers import index_headers
from backend.api.responses.json_bytes import JsonBytes
from backend.api.responses.summaries import SUMMARY_EXAMPLE
from backend.api.routes.classify import CLASSES_EXAMPLE
from backend.api.routes.entities import ENTITY_EXAMPLES
from backend.api.routing import described, upload_route
from backend.api.service_call import call_service
from backend.documents.formats.registry import FORMATS, Format, negotiate
from backend.documents.records import PAGE_FEATURES, DocumentAnswer, DocumentEvent, DocumentOptions
from backend.lanes.inference import Urgency


async def read_pages(request: Request) -> Response:
    """The text and words of a file's pages, each with its box, its confidence and how it was read.

    A PDF's own text is used where it is sound, page by page; the rest is recognised. `why` tells.
    """
    async with receive_upload(request) as upload:
        form = validate_fields(ReadRequest, upload.fields)
        upload.require_pages()
        document_format = negotiate(accept_header(request), form.format)
        upload.require_format(document_format)
        answer = await process_upload(request, upload, form.options())
        return await respond_in(request, upload, answer, document_format, partial(document_bytes, answer))


async def create_document(request: Request) -> Response:
    """Everything there is to know of a file: pages, words, class, entities on paper, key sentences, vectors.

    `features` picks among them. `start` and `end` count Unicode code points of `text`; boxes are in the units of their
    page (points of a PDF, pixels of an image) as it stands upright. A page that cannot be read is listed in
    `failed_pages` and costs the others nothing. The pages of a recording are its minutes, and seconds stand where boxes
    do. For long files see `POST /v1/jobs`.
    """
    services = services_of(request)
    async with receive_upload(request) as upload:
        form = validate_fields(DocumentRequest, upload.fields)
        check_labels(form.labels, services.limits)
        document_format = negotiate(accept_header(request), form.format)
        upload.require_format(document_format)
        options = form.options()
        upload.require_options(options)
        if document_format.name != "json":
            options = replace(options, features=frozenset(PAGE_FEATURES) | document_format.features)
        answer = await process_upload(request, upload, options)
        return await respond_in(
            request, upload, answer, document_format, partial(document_bytes, answer, form.encoding_format)
        )


async def process_upload(request: Request, upload: Upload, options: DocumentOptions) -> DocumentAnswer:
    """The pages of an upload and what they say; the caller is charged for them."""
    process, context = services_of(request).documents.process, context_of(request)

    def charge_page(event: DocumentEvent) -> None:
        if event.page is not None:
            context.meter.charge("pages", 1)

    async def call(*, deadline_s: float) -> DocumentAnswer:
        return await process(upload.stored, options, Urgency(deadline_s=deadline_s), charge_page)

    answer = await call_service(request, call)
    context.meter.charge("tokens", answer.understood.tokens)
    read = answer.extraction
    context.stages = (("open", read.open_s), ("read", read.read_s), ("understand", answer.understand_s))
    return answer


async def respond_in(
    request: Request, upload: Upload, answer: DocumentAnswer, document_format: Format, to_json: Callable[[], bytes]
) -> Response:
    """The answer in the requested format."""
    if document_format.name == "json":
        return JsonBytes(await run_off_loop(answer.document, to_json))

    async def searchable_pdf(*, deadline_s: float) -> bytes:
        reader, password = services_of(request).documents.extractor, answer.options.password
        return await reader.searchable_pdf(upload.stored, answer.document, password=password, until=deadline_s)

    headers = index_headers("X-Failed-Pages", [page.number for page in answer.failed])
    return await formatted_document(request, answer.document, document_format, headers, searchable_pdf)


_TEXT = "Factura 2024-017\nTotal 1.284,50 €"
_WORD = {
    "text": "Factura", "box": [56.7, 60.2, 98.4, 72.0], "confidence": 0.9612, "start": 0, "end": 7, "line": 0,
    "block": 0,
}  # fmt: skip
_PAGE = {
    "number": 1,
    "width": 595.28,
    "height": 841.89,
    "units_per_inch": 72.0,
    "rotation": 0,
    "source": "ocr",
    "why": "it has no text of its own; clean print, read by Tesseract",
    "engine": "tesseract 5.5.4",
    "confidence": 0.9541,
    "language": "es",
    "incomplete": False,
    "start": 0,
    "text": _TEXT,
    "words": [_WORD],
}
_READ_EXAMPLE = {
    "object": "document",
    "kind": "pdf",
    "page_count": 1,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "metadata": {"producer": "Scanner"},
    "pages": [_PAGE],
    "failed_pages": [],
    "text": _TEXT,
    "model": None,
    "device": "cpu",
    "timings": {"open_s": 0.012, "read_s": 0.61, "ocr_s": 0.55, "understand_s": 0.0, "total_s": 0.622},
    "usage": {"pages": 1, "ocr_pages": 1, "prompt_tokens": 0, "total_tokens": 0},
}
DOCUMENT_EXAMPLE = {
    **_READ_EXAMPLE,
    "language": {"code": "es", "score": 0.9998},
    "classes": CLASSES_EXAMPLE,
    "entities": [{**ENTITY_EXAMPLES[0], "places": [{"page": 1, "box": [56.7, 80.0, 120.3, 92.1]}]}],
    "coverage": 1.0,
    "key_phrases": [{"text": "Factura 2024-017", "score": 0.81, "places": [{"start": 0, "end": 16}]}],
    "key_sentences": [{"text": "Total 1.284,50 €", "start": 17, "end": 33, "score": 1.0, "places": []}],
    "vector": [0.0123, -0.0456, 0.0789],
    "chunks": [{"index": 0, "start": 0, "end": 33, "pages": [1], "tokens": 17, "vector": [0.0123, -0.0456]}],
    "fields": {"InvoiceTotal": FIELD_EXAMPLE},
    "fields_why": "read as invoice: title invoice, id, total",
    "valid": VALIDITY_EXAMPLE,
    "tables": [TABLE_EXAMPLE],
    "summary": SUMMARY_EXAMPLE,
    "model": "intfloat/multilingual-e5-small",
    "usage": {"pages": 1, "ocr_pages": 1, "prompt_tokens": 17, "total_tokens": 17},
}


def answers_of(example: dict[str, Any], *more: type) -> dict[str, dict[str, Any]]:
    """What OpenAPI says of an answer in any format.

    Args:
        example: the JSON one.
        more: schemas that the JSON may have instead of DocumentAnswer.
    """
    schemas = [{"$ref": f"#/components/schemas/{schema.__name__}"} for schema in (DocumentSchema, *more)]
    json_content = {"schema": {"anyOf": schemas} if more else schemas[0], "example": example}
    others = {
        other.media_type: {"schema": {"type": "string", "format": "binary"}}
        for other in FORMATS
        if other.name != "json"
    }
    return {"application/json": json_content, **others}


HEADERS = ("X-Failed-Pages", "X-Failed-Pages-Count", "Content-Disposition")  # of other formats than JSON
ROUTES = (
    upload_route(
        "/v1/documents",
        create_document,
        tag="documents",
        request=DocumentRequest,
        answers={200: described(answers_of(DOCUMENT_EXAMPLE), HEADERS)},
    ),
    upload_route(
        "/v1/ocr",
        read_pages,
        tag="documents",
        request=ReadRequest,
        answers={200: described(answers_of(_READ_EXAMPLE), HEADERS)},
    ),
)
