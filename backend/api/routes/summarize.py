"""``POST /v1/summarize``: a summary of a text or of a file, with the place of each sentence."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import orjson
from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.documents import SummarizeForm
from backend.api.requests.json_body import read_json, validate_fields
from backend.api.requests.summaries import SummarizeRequest
from backend.api.requests.upload import Upload, receive_upload
from backend.api.requests.validation import check_limits
from backend.api.responses.document_formats import run_off_loop
from backend.api.responses.json_bytes import JsonBytes, json_response
from backend.api.responses.summaries import SUMMARY_EXAMPLE, SummaryAnswer, document_summary_answer, summary_answer
from backend.api.routes.documents import process_upload
from backend.api.routing import JSON, described, upload_route
from backend.api.service_call import call_service_timed
from backend.errors import InvalidField, WrongMediaType
from backend.files.file_types import sniff
from backend.files.text_files import read_text_file
from backend.summaries.records import SummaryOptions

_OF_PAGES = ("pages", "language", "source", "engine", "password")  # fields
_FEATURES = frozenset({"summary", "language"})


async def summarize(request: Request) -> Response:
    """What a text or a file says, in few sentences: its own (by default), or written by a model that is configured.

    Sentences of the text come in its order, with their scores and places; none opens with a reference ("Además",
    "This") to a sentence that is left out. What a model wrote is marked `generated`, and each of its sentences names
    those of the text that it rests on.
    """
    media_type = context_of(request).headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return await (_of_text(request) if media_type.endswith(b"json") else _of_file(request))


async def _of_file(request: Request) -> Response:
    async with receive_upload(request) as upload:
        form = validate_fields(SummarizeForm, upload.fields)
        text = await _plain_text(request, upload)
        if text is not None:
            return await _of_plain_text(request, upload, text, form.options().summary)
        answer = await process_upload(request, upload, replace(form.options(), features=_FEATURES))
        written = await run_off_loop(answer.document, lambda: orjson.dumps(document_summary_answer(answer)))
        return JsonBytes(written)


async def _plain_text(request: Request, upload: Upload) -> str | None:
    """The text of a file of text, as vector stores read it; None for a document. Raises: WrongMediaType for neither."""
    try:
        sniff(upload.stored.head)
    except WrongMediaType as error:
        limits = services_of(request).file_limits
        text = await asyncio.to_thread(lambda: read_text_file(upload.stored.content(), upload.name, limits))
        if text is None:
            raise WrongMediaType(f"{error} Plain text is read too, in UTF-8, UTF-16 or Windows-1252.") from error
        return text
    return None


async def _of_plain_text(request: Request, upload: Upload, text: str, options: SummaryOptions) -> Response:
    if not text.strip():
        raise InvalidField("file: it has no text, only blanks or tags; send one that has", param="file")
    services = services_of(request)
    result = await call_service_timed(
        request, partial(services.summaries.summarize, text, options), characters=len(text)
    )
    unused = [name for name in _OF_PAGES if upload.fields.get(name)]
    warning = (f"{', '.join(unused)}: not used for a file of plain text, which has no pages",) if unused else ()
    summary = replace(result.summary, warnings=result.summary.warnings + warning)
    return json_response(summary_answer(summary, result.tokens))


async def _of_text(request: Request) -> Response:
    services = services_of(request)
    body = await read_json(request, SummarizeRequest, services.limits)
    characters = check_limits([body.input], services.limits, "input")
    result = await call_service_timed(
        request, partial(services.summaries.summarize, body.input, body.options()), characters=characters
    )
    return json_response(summary_answer(result.summary, result.tokens))


_TEXT = (
    "El contrato de suministro se prorroga por un año. El precio se revisa cada trimestre según el índice publicado. "
    "Además, el proveedor avisará con un mes de antelación."
)
_EXAMPLE = {"object": "summary", **SUMMARY_EXAMPLE, "usage": {"prompt_tokens": 42, "total_tokens": 42}}
_CONTENT = {JSON: {"schema": {"$ref": f"#/components/schemas/{SummaryAnswer.__name__}"}, "example": _EXAMPLE}}
ROUTES = (
    upload_route(
        "/v1/summarize",
        summarize,
        tag="documents",
        request=SummarizeForm,
        json_request=(
            SummarizeRequest,
            {
                "a text": {"input": _TEXT, "sentences": 1},
                "by tokens": {"input": _TEXT, "max_tokens": 60},
            },
        ),
        answers={200: described(_CONTENT)},
    ),
)
