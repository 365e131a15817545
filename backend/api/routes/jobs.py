"""``/v1/jobs``: the work of ``/v1/documents`` in the background. With Redis any replica answers for any job."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.job_answers import job_bytes, job_fields, job_of
from backend.api.requests.documents import JobForm
from backend.api.requests.json_body import validate_fields
from backend.api.requests.upload import receive_upload
from backend.api.requests.validation import check_labels
from backend.api.responses.jobs import JobAnswer
from backend.api.responses.json_bytes import JsonBytes, json_response
from backend.api.routing import JSON, delete, described, get, upload_route
from backend.api.service_call import call_service
from backend.api.sse import MEDIA_TYPE, EventStream, ServerEvent
from backend.documents.formats.registry import negotiate
from backend.errors import InvalidField
from backend.jobs.event_watch import EventWatch
from backend.jobs.records import Job, JobEvent
from backend.jobs.service import JobRequest

_EVENT_ID = re.compile(rb"\d{1,20}(-\d{1,20})?")
_EVENT_ID_MOST = 2**63 - 1  # of either part: milliseconds and a counter, which Redis reads as 64 bits
_KEY_CHARS = 255


async def create_job(request: Request) -> Response:
    """Read a file in the background: the answer is a job, which tells how far it is and then has the document.

    The fields are those of `POST /v1/documents`, and `deadline_s`. The same file with the same options is the same job
    while it lives or was answered (200 and `Idempotent-Replay: true`); so is a request with an `Idempotency-Key` that
    came before. Jobs are seen with the API key they were sent with.
    """
    services, caller = services_of(request), context_of(request).caller
    async with receive_upload(request) as upload:
        form = validate_fields(JobForm, upload.fields)
        check_labels(form.labels, services.limits)
        document_format = negotiate(None, form.format)
        upload.require_format(document_format)
        options = form.options()
        upload.require_options(options)
        job_request = JobRequest(
            upload.stored,
            upload.name,
            options,
            caller.owner,
            encoding_format=form.encoding_format,
            format=document_format.name,
            limit_s=form.deadline_s,
            key=_idempotency_key(request),
            owner_jobs=caller.quotas.jobs,
            owner_jobs_setting=caller.quotas.setting("jobs"),
        )

        async def work(*, deadline_s: float) -> tuple[Job, bool]:
            del deadline_s  # of the request, not of the job
            return await services.jobs.submit(job_request)

        job, replayed = await call_service(request, work)
    headers = {"Location": f"/v1/jobs/{job.id}"}
    if replayed:
        headers["Idempotent-Replay"] = "true"
    return json_response(job_fields(job) | {"result": None}, 200 if replayed else 202, headers)


async def retrieve_job(request: Request) -> Response:
    """A job and, once it has ended, its document; `result=false` leaves the document out."""
    job = await job_of(request)
    with_result = request.query_params.get("result", "true").lower()
    if with_result not in ("true", "false", "1", "0"):
        raise InvalidField(f"result: must be true or false, got '{with_result[:40]}'", param="result")
    result = await services_of(request).jobs.result(job) if with_result in ("true", "1") else None
    return JsonBytes(await job_bytes(job, result))


async def delete_job(request: Request) -> Response:
    """Cancel a job that is queued or runs, at once: it keeps the pages read so far. Forget one that has ended (204)."""
    job = await services_of(request).jobs.cancel(request.path_params["id"], context_of(request).caller.owner)
    return Response(status_code=204) if job is None else json_response(job_fields(job) | {"result": None})


async def watch_job(request: Request) -> Response:
    """What happens to a job, as server-sent events, up to its end.

    `progress` comes with the job's progress, `page` with each page as soon as it was read, `end` with the job. After a
    broken connection `Last-Event-ID` goes on where it broke; 204 says that nothing more will come.
    """
    after = _last_event_id(request)
    job = await job_of(request)
    async with AsyncExitStack() as stack:
        watch = services_of(request).jobs.events(job, after)
        stack.push_async_callback(watch.aclose)
        first = await anext(watch, None) if job.ended else None
        if job.ended and first is None:
            return Response(status_code=204)
        close = stack.pop_all().aclose  # from here on the stream closes it
    return EventStream(_server_events(request, watch, first), request.app.state.streams, on_end=close)


async def _server_events(
    request: Request, watch: EventWatch, first: JobEvent | None
) -> AsyncGenerator[ServerEvent, None]:
    if first is not None:
        yield await _server_event(request, first)
    async for event in watch:
        yield await _server_event(request, event)


async def _server_event(request: Request, event: JobEvent) -> ServerEvent:
    data = event.data if event.kind != "end" else orjson.dumps(job_fields(await job_of(request)))
    return ServerEvent(event.id, event.kind, data)


def _last_event_id(request: Request) -> str:
    """The event id to continue after, "" without one. Raises: InvalidField for what cannot be the id of an event."""
    header = context_of(request).headers.get(b"last-event-id", b"").strip()
    parts = header.split(b"-") if _EVENT_ID.fullmatch(header) else []
    if header and not (parts and max(map(int, parts)) <= _EVENT_ID_MOST):
        raise InvalidField(
            f"Last-Event-ID: must be the id of an event of this job, such as 1718000000000-0, got "
            f"'{header[:40].decode('latin-1')}'; leave it out to begin with the first",
            param="Last-Event-ID",
        )
    return header.decode("ascii")


def _idempotency_key(request: Request) -> str | None:
    header = context_of(request).headers.get(b"idempotency-key")
    if header is None:
        return None
    key = header.decode("latin-1").strip()
    if not 1 <= len(key) <= _KEY_CHARS:
        raise InvalidField(
            f"Idempotency-Key: must have 1 to {_KEY_CHARS} characters, got {len(key)}", param="Idempotency-Key"
        )
    return key


ID = "7f9c2ba4e88f827d616045507605853e"
_FILE = {
    "name": "invoice.pdf",
    "bytes": 48213,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}
_QUEUED: dict[str, Any] = {
    "id": ID,
    "object": "job",
    "status": "queued",
    "created_at": 1767225600.0,
    "started_at": None,
    "ended_at": None,
    "expires_at": None,
    "attempts": 0,
    "file": _FILE,
    "progress": {"stage": "queued", "pages_done": 0, "pages_total": None, "failed_pages": 0},
    "error": None,
    "result": None,
}
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
ID_PARAMETER = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}, "example": ID}
_RESULT_PARAMETER = {
    "name": "result",
    "in": "query",
    "schema": {"type": "boolean", "default": True},
    "description": "false leaves the document out.",
}
_LAST_EVENT = {
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
        "event": {"enum": ["progress", "page", "end"]},
        "data": {"type": "string", "description": "JSON: the progress, the page, or the job."},
    },
}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": _KEY_CHARS, "pattern": r"\S"},
    "description": "The same key again gives the job that it gave before.",
}
_JOB_CONTENT = {JSON: {"schema": {"$ref": "#/components/schemas/JobAnswer"}, "example": _QUEUED}}
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
        parameters=(_IDEMPOTENCY_KEY,),
    ),
    get(
        "/v1/jobs/{id}",
        retrieve_job,
        tag="documents",
        schema=JobAnswer,
        example=_RUNNING,
        errors=(404, 422),
        parameters=(ID_PARAMETER, _RESULT_PARAMETER),
    ),
    delete(
        "/v1/jobs/{id}",
        delete_job,
        tag="documents",
        schema=JobAnswer,
        example=_CANCELLED,
        more={204: described(None, description="The job had ended; it is forgotten with its file and its result.")},
        errors=(404,),
        parameters=(ID_PARAMETER,),
    ),
    get(
        "/v1/jobs/{id}/events",
        watch_job,
        tag="documents",
        example=_EVENTS,
        schema=_EVENT,
        media_type=MEDIA_TYPE,
        more={204: described(None, description="The job has ended and nothing came after Last-Event-ID.")},
        errors=(404, 422, 429),
        parameters=(ID_PARAMETER, _LAST_EVENT),
    ),
)
