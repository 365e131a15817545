"""``/v1/jobs``: the work of ``/v1/documents`` in the background. With Redis any replica answers for any job."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import JsonPieces, WrittenJson, joined_pieces, json_pieces, json_response, validate_fields
from backend.api.parameters import (
    DPI_PARAMETER,
    IDEMPOTENCY_KEY,
    NUMBER_PARAMETER,
    dots_per_inch,
    id_parameter,
    idempotency_key,
    page_number,
)
from backend.api.problems import Problem, openai_error
from backend.api.request_context import Handle, call_service, context_of, limits_of, owner_of
from backend.api.request_fields import OrAbsent, check_labels
from backend.api.routes.document_answers import (
    FailedPageAnswer,
    PageAnswer,
    document_pieces,
    fields_answer,
    validity_answer,
)
from backend.api.routes.documents import (
    DOCUMENT_EXAMPLE,
    KEPT_FEATURES,
    NewDocumentRequest,
    accept_header,
    answers_of,
    formatted_document,
    require_storing,
    run_off_loop,
    with_own_words,
)
from backend.api.routing import JSON, REQUEST_TIMEOUT, delete, described, get, upload_route
from backend.api.sse import MEDIA_TYPE, EventStream, ServerEvent
from backend.api.upload import receive_upload
from backend.callers.event_watch import EventWatch
from backend.documents.formats.plain_json import document_fields, written_pages
from backend.documents.formats.registry import FORMAT_NAMES, Format, negotiate
from backend.documents.service import DocumentService
from backend.errors import InvalidField, NotFound
from backend.files.pages import Document
from backend.jobs.document_codec import fields_of_event
from backend.jobs.records import Failure, Job, JobEvent, JobQuota
from backend.jobs.service import JobRequest, JobResult, JobService
from backend.lanes.inference import Urgency

_jobs_of: Handle[JobService] = Handle("jobs")
_documents_of: Handle[DocumentService] = Handle("documents")


class JobForm(NewDocumentRequest):
    """`POST /v1/jobs`: as `POST /v1/documents`, and how long it may take."""

    deadline_s: Annotated[
        OrAbsent[float],
        WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": ""}]}),
    ] = Field(None, gt=0, allow_inf_nan=False, description="Seconds it may run, once started; at most LIMIT_JOB_S.")


class JobFileAnswer(TypedDict):
    """The file a job is about."""

    name: str
    bytes: int
    sha256: str


class ProgressAnswer(TypedDict):
    """How far a job is."""

    stage: Literal["queued", "opening", "reading", "understanding", "done"]
    pages_done: Annotated[int, Field(description="Read or failed.")]
    pages_total: Annotated[int | None, Field(description="null until the file is open.")]
    failed_pages: int


class JobErrorAnswer(TypedDict):
    """Why a job failed: the error that `POST /v1/documents` would have answered, and its status."""

    message: str
    type: str
    code: str
    param: str | None
    status: int
    retryable: Annotated[bool, Field(description="Whether the same request may succeed as a new job.")]


class JobAnswer(TypedDict):
    """A job. Times are Unix seconds."""

    id: str
    object: Literal["job"]
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    created_at: float
    started_at: float | None
    ended_at: float | None
    expires_at: Annotated[
        float | None, Field(description="When it is forgotten with its file and its result; null until it has ended.")
    ]
    attempts: Annotated[
        int, Field(description="How often it was begun; a replica that ends takes none of its jobs with it.")
    ]
    file: JobFileAnswer
    progress: ProgressAnswer
    error: JobErrorAnswer | None
    document_id: Annotated[
        str | None, Field(description="The stored document, once a job with store=true has succeeded.")
    ]
    result: Annotated[
        Mapping[str, Any] | None,
        Field(
            description="The document, as POST /v1/documents answers; with partial: true the pages read before it "
            "failed or was cancelled."
        ),
    ]


class PartialDocument(TypedDict):
    """The pages that a job had read before it failed or was cancelled."""

    object: Literal["document"]
    partial: Literal[True]
    kind: str
    page_count: int
    sha256: str
    metadata: dict[str, str]
    pages: list[PageAnswer]
    failed_pages: list[FailedPageAnswer]
    text: str


async def job_of(request: Request) -> Job:
    """The job that the path names. Raises: NotFound, also for somebody else's job; Unavailable."""
    return await _jobs_of(request).find(request.path_params["id"], owner_of(request))


def job_fields(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "object": "job",
        "status": job.status,
        "created_at": job.created_s,
        "started_at": job.started_s,
        "ended_at": job.ended_s,
        "expires_at": job.expires_s,
        "attempts": job.attempts,
        "file": {"name": job.file.name, "bytes": job.file.size_bytes, "sha256": job.file.sha256},
        "progress": asdict(job.progress),
        "error": None if job.failure is None else _error(job.failure),
        "document_id": job.document_id,
    }


async def _job_answer(job: Job, result: JobResult | None) -> Response:
    """A job with its document; a long one is written on a thread."""
    if result is None:
        return json_response({**job_fields(job), "result": None})
    return JsonPieces(await run_off_loop(result.document, partial(_write_job, job, result)))


def _write_job(job: Job, result: JobResult) -> list[bytes]:
    return joined_pieces(json_pieces({**job_fields(job), "result": WrittenJson(_write_result(job, result))}))


def _write_result(job: Job, result: JobResult) -> list[bytes]:
    if result.answer is not None:
        return document_pieces(result.answer, job.options["encoding_format"])
    return _write_partial(result.document)


def _write_partial(document: Document) -> list[bytes]:
    """The pages of a job that failed or was cancelled, and their text, without anything about that text."""
    fields = {
        "object": "document",
        "partial": True,
        **document_fields(document),
        "pages": WrittenJson(written_pages(document)),
        "failed_pages": [],
        "text": document.text,
    }
    return joined_pieces(json_pieces(fields))


def failure_problem(failure: Failure) -> Problem:
    """The problem that a request would have been answered with."""
    return Problem(failure.status, failure.code, "", failure.message, failure.retryable, failure.param)


def _error(failure: Failure) -> dict[str, Any]:
    return {**openai_error(failure_problem(failure)), "status": failure.status, "retryable": failure.retryable}


_EVENT_ID = re.compile(rb"\d{1,20}(-\d{1,20})?")
_EVENT_ID_MOST = 2**63 - 1  # of either part: milliseconds and a counter, which Redis reads as 64 bits


async def submit_job(request: Request, job_request: JobRequest) -> tuple[Job, bool]:
    """The job of the request's caller, within its quota, and whether it existed already."""
    caller = context_of(request).caller
    quota = None if (limit := caller.quotas.jobs) is None else JobQuota(limit, caller.quotas.setting("jobs"))
    owned = replace(job_request, owner=caller.owner, quota=quota)

    async def work(*, urgency: Urgency) -> tuple[Job, bool]:
        del urgency  # of the request, not of the job
        return await _jobs_of(request).submit(owned)

    return await call_service(request, work)


async def create_job(request: Request) -> Response:
    """Read a file in the background: the answer is a job, which tells how far it is and then has the document.

    The fields are those of `POST /v1/documents`, and `deadline_s`. The same file with the same options is the same job
    while it lives or was answered (200 and `Idempotent-Replay: true`); so is a request with an `Idempotency-Key` that
    came before. With `store=true` the document is kept, too, as `file-` and the job's id, and can be watched from now
    on (`GET /v1/documents/{id}/events`); `document_id` has the id once it is stored. Only an `Idempotency-Key` makes
    two such requests the same. Jobs are seen with the API key they were sent with.
    """
    async with receive_upload(request) as upload:
        form = validate_fields(JobForm, upload.fields)
        check_labels(form.labels, limits_of(request))
        document_format = negotiate(None, form.format)
        upload.require_format(document_format)
        options = await with_own_words(request, form)
        upload.require_options(options)
        if form.store:
            require_storing(request, document_format)
            options = replace(options, features=options.features | KEPT_FEATURES)
        job_request = JobRequest(
            upload.stored,
            upload.name,
            options,
            encoding_format=form.encoding_format,
            format=document_format.name,
            limit_s=form.deadline_s,
            key=idempotency_key(request),
            stores=form.store,
            expires_after_s=form.seconds,
        )
        job, replayed = await submit_job(request, job_request)
    headers = {"Location": f"/v1/jobs/{job.id}"}
    if replayed:
        headers["Idempotent-Replay"] = "true"
    return json_response(job_fields(job) | {"result": None}, 200 if replayed else 202, headers)


async def retrieve_job(request: Request) -> Response:
    """A job and, once it has ended, its document; `result=false` leaves the document out."""
    job = await job_of(request)
    with_result = request.query_params.get("result", "true").lower()
    if with_result not in ("true", "false", "1", "0"):
        raise InvalidField(f"result: must be true or false, got '{with_result[:40]}'")
    result = await _jobs_of(request).result(job) if with_result in ("true", "1") else None
    return await _job_answer(job, result)


async def delete_job(request: Request) -> Response:
    """Cancel a job that is queued or runs, at once: it keeps the pages read so far. Forget one that has ended (204)."""
    job = await _jobs_of(request).cancel(request.path_params["id"], owner_of(request))
    return Response(status_code=204) if job is None else json_response(job_fields(job) | {"result": None})


async def watch_job(request: Request) -> Response:
    """What happens to a job, as server-sent events, up to its end.

    `progress` comes with the job's progress, `page` with each page as soon as it was read, `end` with the job. Before
    entities and the summary are ready, `fields` comes with `kind`, `fields` (without lines) and `valid` of the first
    document. After a broken connection `Last-Event-ID` goes on where it broke; 204 says that nothing more will come.
    """
    after = last_event_id(request)
    job = await job_of(request)
    async with AsyncExitStack() as stack:
        events = await job_events(request, job, after, stack)
        if events is None:
            return Response(status_code=204)
        close = stack.pop_all().aclose  # from here on the stream closes it
    return EventStream(events, request.app.state.streams, on_end=close)


async def job_events(
    request: Request, job: Job, after: str, stack: AsyncExitStack
) -> AsyncGenerator[ServerEvent, None] | None:
    """The events of a job after an id as they are sent, until ``stack`` closes them; None where none will come.

    Raises: Overloaded at once, where too many clients wait for events.
    """
    watch = _jobs_of(request).events(job, after)
    stack.push_async_callback(watch.aclose)
    first = await anext(watch, None) if job.ended else None
    return None if job.ended and first is None else _sent_events(request, job, watch, first)


async def _sent_events(
    request: Request, job: Job, watch: EventWatch[JobEvent], first: JobEvent | None
) -> AsyncGenerator[ServerEvent, None]:
    if first is not None:
        yield await _server_event(request, job, first)
    async for event in watch:
        yield await _server_event(request, job, event)


async def _server_event(request: Request, job: Job, event: JobEvent) -> ServerEvent:
    data = event.data
    if event.kind == "end":
        data = orjson.dumps(job_fields(await _jobs_of(request).find(job.id, job.owner)))
    elif event.kind == "fields":
        data = orjson.dumps(_early_fields(data))
    return ServerEvent(event.id, event.kind, data)


def _early_fields(data: bytes) -> dict[str, Any] | None:
    found = fields_of_event(data)
    if found is None:
        return None
    return {"kind": found.kind, "fields": fields_answer(found), "valid": validity_answer(found.validity)}


def last_event_id(request: Request) -> str:
    """The event id to continue after, "" without one. Raises: InvalidField for what cannot be the id of an event."""
    header = context_of(request).headers.get(b"last-event-id", b"").strip()
    parts = header.split(b"-") if _EVENT_ID.fullmatch(header) else []
    if header and not (parts and max(map(int, parts)) <= _EVENT_ID_MOST):
        raise InvalidField(
            f"Last-Event-ID: must be the id of an event of this stream, such as 1718000000000-0, got "
            f"'{header[:40].decode('latin-1')}'; leave it out to begin with the first"
        )
    return header.decode("ascii")


ID = "7f9c2ba4e88f827d616045507605853e"
_FILE = {
    "name": "invoice.pdf",
    "bytes": 48213,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}
_QUEUED: dict[str, Any] = {
    "id": ID, "object": "job", "status": "queued", "created_at": 1767225600.0, "started_at": None, "ended_at": None,
    "expires_at": None, "attempts": 0, "document_id": None, "file": _FILE,
    "progress": {"stage": "queued", "pages_done": 0, "pages_total": None, "failed_pages": 0}, "error": None,
    "result": None,
}  # fmt: skip
_RUNNING = {
    **_QUEUED,
    "status": "running",
    "started_at": 1767225600.4,
    "attempts": 1,
    "progress": {"stage": "reading", "pages_done": 3, "pages_total": 12, "failed_pages": 0},
}
_CANCELLED = {**_RUNNING, "status": "cancelled", "ended_at": 1767225604.1, "expires_at": 1767312004.1}
_EVENTS = (
    'id: 1767225600400-0\nevent: progress\ndata: {"stage":"reading","pages_done":1,"pages_total":12,"failed_pages":0}'
    '\n\nid: 1767225600400-1\nevent: page\ndata: {"number":1,"source":"text_layer","words":312,"text":"Factura …"}\n\n'
)
ID_PARAMETER = id_parameter(ID)
_RESULT_PARAMETER = {
    "name": "result",
    "in": "query",
    "schema": {"type": "boolean", "default": True},
    "description": "false leaves the document out.",
}
LAST_EVENT = {
    "name": "Last-Event-ID",
    "in": "header",
    "schema": {"type": "string", "pattern": "^([0-9]{1,18}(-[0-9]{1,18})?)?$"},
    "description": "The id of the last event that was seen; browsers send it by themselves.",
}
_EVENT = {
    "type": "object",
    "description": "Each event of the stream.",
    "properties": {
        "id": {"type": "string", "description": "For Last-Event-ID."},
        "event": {"enum": ["progress", "page", "fields", "end"]},
        "data": {"type": "string", "description": "JSON: the progress, the page, the fields, or the job."},
    },
}
_JOB_CONTENT = {JSON: {"schema": JobAnswer, "example": _QUEUED}}
ROUTES = (
    upload_route(
        "/v1/jobs",
        create_job,
        tag="documents",
        request=JobForm,
        answers={
            202: described(_JOB_CONTENT, ("Location",), "The job, which is queued."),
            200: described(
                _JOB_CONTENT,
                ("Location", "Idempotent-Replay"),
                "The job that came before with the same file and options, or with the same Idempotency-Key.",
            ),
        },
        parameters=(IDEMPOTENCY_KEY,),
    ),
    get(
        "/v1/jobs/{id}", retrieve_job, tag="documents", schema=JobAnswer, example=_RUNNING, errors=(404, 422),
        parameters=(ID_PARAMETER, _RESULT_PARAMETER),
    ),
    delete(
        "/v1/jobs/{id}", delete_job, tag="documents", schema=JobAnswer, example=_CANCELLED,
        more={204: described(None, description="The job had ended; it is forgotten with its file and its result.")},
        errors=(404,), parameters=(ID_PARAMETER,),
    ),
    get(
        "/v1/jobs/{id}/events", watch_job, tag="documents", example=_EVENTS, schema=_EVENT, media_type=MEDIA_TYPE,
        more={204: described(None, description="The job has ended and nothing came after Last-Event-ID.")},
        errors=(404, 422, 429), parameters=(ID_PARAMETER, LAST_EVENT),
    ),
)  # fmt: skip


async def retrieve_result(request: Request) -> Response:
    """The document of a job, in the format that `format`, the job's own `format` or `Accept` picks.

    A job that failed or was cancelled gives the pages it had read (`X-Partial: true`).
    """
    job = await job_of(request)
    form = _format(request, job)
    headers = {} if job.status == "succeeded" else {"X-Partial": "true"}
    if form.name == "json":
        result = await _jobs_of(request).result(job)
        if result is None:
            raise _no_result(job)
        return JsonPieces(await run_off_loop(result.document, partial(_write_result, job, result)), headers)
    return await formatted_job(request, job, form, headers)


async def formatted_job(request: Request, job: Job, form: Format, headers: Mapping[str, str]) -> Response:
    """The document of an ended job in a format other than JSON. Raises: NotFound where it has none."""
    document = await _jobs_of(request).document(job)

    async def searchable_pdf(*, urgency: Urgency) -> bytes:
        stored, password = await _jobs_of(request).file(job), _jobs_of(request).password(job)
        try:
            return await _documents_of(request).extractor.searchable_pdf(
                stored, document, password=password, deadline_s=urgency.deadline_s
            )
        finally:
            stored.close()

    return await formatted_document(request, document, form, headers, searchable_pdf)


async def retrieve_page(request: Request) -> Response:
    """A page as a PNG, turned to stand upright as it was read: boxes of its words fit it."""
    job = await job_of(request)
    number, dpi = page_number(request.path_params["number"]), dots_per_inch(request.query_params.get("dpi"))

    async def work(*, urgency: Urgency) -> bytes:
        del urgency  # rendering has its own, LIMIT_PAGE_S
        return await _jobs_of(request).page_image(job, number, dpi)

    return Response(await call_service(request, work), media_type="image/png")


def _format(request: Request, job: Job) -> Format:
    accept = accept_header(request) or "*/*"
    name = request.query_params.get("format")
    if not name and accept.strip() in ("", "*/*"):
        name = str(job.options["format"])
    return negotiate(accept, name)


def _no_result(job: Job) -> NotFound:
    if job.ended:
        return NotFound(f"result: job '{job.id}' is {job.status} and no page of it had been read", param="id")
    return NotFound(
        f"result: job '{job.id}' is {job.status}; watch GET /v1/jobs/{job.id}/events, or ask again later", param="id"
    )


FORMAT_PARAMETER = {
    "name": "format",
    "in": "query",
    "schema": {"enum": ["", *FORMAT_NAMES]},
    "description": "json, text, markdown, html, csv, xlsx, hocr, alto or pdf; of a recording "
    "json, text, markdown, srt or vtt; unset: what Accept asks for.",
}
RESULT_ROUTES = (
    get(
        "/v1/jobs/{id}/result",
        retrieve_result,
        tag="documents",
        example=DOCUMENT_EXAMPLE,
        more={200: described(answers_of(DOCUMENT_EXAMPLE, PartialDocument), ("X-Partial", "Content-Disposition"))},
        errors=(404, 406, 413, 422, 504),
        parameters=(ID_PARAMETER, FORMAT_PARAMETER),
    ),
    get(
        "/v1/jobs/{id}/pages/{number}",
        retrieve_page,
        tag="documents",
        example="(the bytes of a PNG)",
        media_type="image/png",
        errors=(404, 413, 415, 422, 429, 504),
        parameters=(ID_PARAMETER, NUMBER_PARAMETER, DPI_PARAMETER, REQUEST_TIMEOUT),
    ),
)
