"""``POST /v1/summarize``: a summary of a text or of a file, with the place of each sentence."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal, NotRequired, get_args

import orjson
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from backend.api.json_io import JsonBytes, is_json, json_response, read_json, validate_fields
from backend.api.request_context import Handle, call_service_timed, limits_of
from backend.api.request_fields import WHOLE, OrAbsent, TextItem, WireRequest, check_limits, one_of
from backend.api.routes.document_answers import (
    SUMMARY_EXAMPLE,
    FailedPageAnswer,
    SummaryFields,
    failed_page_answer,
    summary_fields,
)
from backend.api.routes.documents import (
    MAX_BEAMS,
    MAX_SENTENCES,
    MAX_TOKENS,
    MIN_TOKENS,
    JsonReadRequest,
    MaxTokensOrEmpty,
    SentencesOrEmpty,
    process_upload,
    require_min_below_max,
    run_off_loop,
)
from backend.api.routes.embeddings import Usage, usage
from backend.api.routing import JSON, described, upload_route
from backend.api.upload import Upload, receive_upload
from backend.documents import records
from backend.documents.records import DocumentOptions
from backend.documents.text_fields import plain_text_of
from backend.errors import InvalidField
from backend.files.limits import FileLimits
from backend.reasons import because
from backend.summaries.records import RequestedMethod, Summary, SummaryOptions
from backend.summaries.service import NO_TEXT, SummaryService

_file_limits_of: Handle[FileLimits] = Handle("file_limits")
_summaries_of: Handle[SummaryService] = Handle("summaries")

_METHOD = (
    "extractive: the text's own sentences. abstractive: written by SUMMARY_MODEL, where that is not set by SUMMARY_URL;"
    " model and api name one of them."
)
_SENTENCES = "Most sentences; unset: 3 of an extract without max_tokens, else any number."
_MAX_TOKENS = "Most tokens: of the embedding model in an extract, of the model that writes it else (unset: 128)."
_MIN_TOKENS = "Fewest tokens that SUMMARY_MODEL writes."
_BEAMS = "Beams of SUMMARY_MODEL; 1: greedy, 4: slower and often better."


class SummarizeRequest(WireRequest):
    """`POST /v1/summarize` with a text."""

    input: TextItem = Field(description="One text up to LIMIT_TEXT_CHARS, as it is or as {text}.")
    method: RequestedMethod | None = Field("extractive", description=_METHOD)
    sentences: Annotated[int, Field(ge=1, le=MAX_SENTENCES), WHOLE] | None = Field(None, description=_SENTENCES)
    max_tokens: Annotated[int, Field(ge=MIN_TOKENS, le=MAX_TOKENS), WHOLE] | None = Field(None, description=_MAX_TOKENS)
    min_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS), WHOLE] = Field(0, description=_MIN_TOKENS)
    beams: Annotated[int, Field(ge=1, le=MAX_BEAMS), WHOLE] = Field(1, description=_BEAMS)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> SummarizeRequest:
        if not self.input.strip():
            raise InvalidField("input: it has blanks alone; send a text to summarise")
        require_min_below_max(self.min_tokens, self.max_tokens)
        return self

    def options(self) -> SummaryOptions:
        """The options of the summary service."""
        return SummaryOptions(self.method or "extractive", self.sentences, self.max_tokens, self.min_tokens, self.beams)


class SummarizeForm(JsonReadRequest):
    """`POST /v1/summarize` with a file: how to read it, and how to summarise it."""

    method: Annotated[OrAbsent[RequestedMethod], one_of(get_args(RequestedMethod))] = Field(
        None, description="extractive (unset), abstractive, model or api."
    )
    sentences: SentencesOrEmpty = Field(None, description="Most sentences; unset: 3 of an extract, else any number.")
    max_tokens: MaxTokensOrEmpty = Field(None, description="Most tokens.")
    min_tokens: int = Field(0, ge=0, le=MAX_TOKENS, description="Fewest tokens that SUMMARY_MODEL writes.")
    beams: int = Field(1, ge=1, le=MAX_BEAMS, description="Beams of SUMMARY_MODEL; 1: greedy.")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> SummarizeForm:
        require_min_below_max(self.min_tokens, self.max_tokens)
        return self

    def options(self) -> DocumentOptions:
        """The options of the document service."""
        return replace(
            JsonReadRequest.options(self),
            summary_method=self.method or "extractive",
            summary_sentences=self.sentences,
            summary_tokens=self.max_tokens,
            summary_min_tokens=self.min_tokens,
            summary_beams=self.beams,
        )


class SummaryAnswer(SummaryFields):
    """`POST /v1/summarize`."""

    object: Literal["summary"]
    pages: NotRequired[Annotated[int, Field(description="Of a file: pages that were read.")]]
    failed_pages: NotRequired[list[FailedPageAnswer]]
    usage: Usage


def summary_answer(summary: Summary, tokens: int) -> SummaryAnswer:
    """The summary of a text."""
    fields = summary_fields(summary)
    return {"object": "summary", **fields, "usage": usage(tokens)}  # type: ignore[typeddict-item] # mypy wants optional keys


def document_summary_answer(answer: records.DocumentAnswer) -> SummaryAnswer:
    """The summary of a file; one without text has an empty one."""
    understood = answer.understood
    summary = understood.summary or Summary("extractive", understood.model, "", None, warnings=(NO_TEXT,))
    return {
        "object": "summary",
        **summary_fields(summary, answer.document),
        "pages": len(answer.document.pages),
        "failed_pages": [failed_page_answer(failed) for failed in answer.failed],
        "usage": usage(understood.tokens),
    }


_OF_PAGES = ("pages", "language", "source", "engine", "password")  # fields
_FEATURES = frozenset({"summary", "language"})


async def summarize(request: Request) -> Response:
    """What a text or a file says, in few sentences: its own (by default), or written by a model that is configured.

    Sentences of the text come in its order, with their scores and places; none opens with a reference ("Además",
    "This") to a sentence that is left out. What a model wrote is marked `generated`, and each of its sentences names
    those of the text that it rests on.
    """
    return await (_of_text(request) if is_json(request) else _of_file(request))


async def _of_file(request: Request) -> Response:
    async with receive_upload(request) as upload:
        form = validate_fields(SummarizeForm, upload.fields)
        text = await asyncio.to_thread(plain_text_of, upload.stored, _file_limits_of(request))
        if text is not None:
            return await _of_plain_text(request, upload, text, form.options().summary)
        answer = await process_upload(request, upload, replace(form.options(), features=_FEATURES))
        written = await run_off_loop(answer.document, lambda: orjson.dumps(document_summary_answer(answer)))
        return JsonBytes(written)


async def _of_plain_text(request: Request, upload: Upload, text: str, options: SummaryOptions) -> Response:
    if not text.strip():
        raise InvalidField("file: it has no text, only blanks or tags; send one that has")
    result = await call_service_timed(
        request, partial(_summaries_of(request).summarize, text, options), characters=len(text)
    )
    unused = [name for name in _OF_PAGES if upload.fields.get(name)]
    warning = (because("not_used_of_text", options=unused),) if unused else ()
    summary = replace(result.summary, warnings=result.summary.warnings + warning)
    return json_response(summary_answer(summary, result.tokens))


async def _of_text(request: Request) -> Response:
    body = await read_json(request, SummarizeRequest)
    characters = check_limits([body.input], limits_of(request), "input")
    result = await call_service_timed(
        request, partial(_summaries_of(request).summarize, body.input, body.options()), characters=characters
    )
    return json_response(summary_answer(result.summary, result.tokens))


_TEXT = (
    "El contrato de suministro se prorroga por un año. El precio se revisa cada trimestre según el índice publicado. "
    "Además, el proveedor avisará con un mes de antelación."
)
_EXAMPLE = {"object": "summary", **SUMMARY_EXAMPLE, "usage": {"prompt_tokens": 42, "total_tokens": 42}}
_CONTENT = {JSON: {"schema": SummaryAnswer, "example": _EXAMPLE}}
ROUTES = (
    upload_route(
        "/v1/summarize",
        summarize,
        tag="documents",
        request=SummarizeForm,
        json_request=(
            SummarizeRequest,
            {"a text": {"input": _TEXT, "sentences": 1}, "by tokens": {"input": _TEXT, "max_tokens": 60}},
        ),
        answers={200: described(_CONTENT)},
    ),
)
