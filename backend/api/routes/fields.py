"""``POST /v1/fields``: the fields of invoices, receipts and bank statements, from a file or from a text."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.documents import DocumentRequest
from backend.api.requests.json_body import read_json, validate_fields
from backend.api.requests.text_fields import FieldsRequest
from backend.api.requests.upload import receive_upload
from backend.api.requests.validation import check_chars
from backend.api.responses.document_formats import accept_header, run_off_loop
from backend.api.responses.documents import document_bytes
from backend.api.responses.json_bytes import JsonBytes
from backend.api.routes.documents import DOCUMENT_EXAMPLE, HEADERS, answers_of, process_upload, respond_in
from backend.api.routing import described, upload_route
from backend.api.service_call import call_service
from backend.documents.formats.registry import negotiate
from backend.documents.records import FEATURES, PAGE_FEATURES
from backend.documents.text_fields import find_text_fields

_FEATURES = frozenset({"fields"})


async def find_fields(request: Request) -> Response:
    """Who sold what to whom, for how much, when it is due: from a file, or from a text as JSON.

    Names are those of Azure's prebuilt invoice. XML in the file or beside it wins, then a tax QR code, then what is
    printed: by labels, places and arithmetic, without templates. A document that is no invoice, receipt or statement
    has no fields, and `fields_why` says so. The answer is that of `POST /v1/documents` with `features=fields`; a text
    counts as a page set by a typewriter.
    """
    media_type = context_of(request).headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return await (_of_text(request) if media_type.endswith(b"json") else _of_file(request))


async def _of_file(request: Request) -> Response:
    async with receive_upload(request) as upload:
        form = validate_fields(DocumentRequest, upload.fields)
        upload.require_pages()
        document_format = negotiate(accept_header(request), form.format)
        features = _FEATURES if document_format.name == "json" else _FEATURES | frozenset(PAGE_FEATURES)
        answer = await process_upload(request, upload, replace(form.options(), features=features))
        return await respond_in(request, upload, answer, document_format, partial(document_bytes, answer))


async def _of_text(request: Request) -> Response:
    services, meter = services_of(request), context_of(request).meter
    meter.require("pages")
    body = await read_json(request, FieldsRequest, services.limits)
    characters = check_chars([body.input], services.limits, "input")
    answer = await call_service(request, partial(find_text_fields, body.input), characters=characters)
    meter.charge("pages", 1)
    return JsonBytes(await run_off_loop(answer.document, partial(document_bytes, answer)))


_TEXT = """Aceros del Norte, S.L.    FACTURA
NIF B12345674    N.º 2026/017    Fecha 12/03/2026
Base imponible  1.061,57 €
IVA 21 %  222,93 €
Total  1.284,50 €"""
_EXAMPLE = {name: value for name, value in DOCUMENT_EXAMPLE.items() if name not in {"coverage", *FEATURES} - _FEATURES}
ROUTES = (
    upload_route(
        "/v1/fields",
        find_fields,
        tag="documents",
        request=DocumentRequest,
        json_request=(FieldsRequest, {"a text": {"input": _TEXT}}),
        answers={200: described(answers_of(_EXAMPLE), HEADERS)},
    ),
)
