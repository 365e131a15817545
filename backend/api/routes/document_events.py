"""``/v1/documents/{id}/events`` and ``/result``: what happens to a document, and what it says in other formats."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, closing
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from backend.api.parameters import PASSWORD_PARAMETER, document_password, id_parameter, path_id
from backend.api.request_context import Handle, call_within_limit, context_of, limits_of, owner_of, time_limit_s
from backend.api.routes.documents import DOCUMENT_EXAMPLE, accept_header, answers_of, formatted_document
from backend.api.routes.jobs import FORMAT_PARAMETER, LAST_EVENT, job_events, last_event_id
from backend.api.routes.stored_documents import StoredDocumentAnswer, change_answers, whole_document
from backend.api.routing import REQUEST_TIMEOUT, described, get
from backend.api.sse import MEDIA_TYPE, EventStream, ServerEvent
from backend.callers.event_watch import EventWatch
from backend.documents.formats.registry import negotiate
from backend.documents.service import DocumentService
from backend.errors import NotFound
from backend.jobs.records import Job
from backend.jobs.service import JobService
from backend.lanes.inference import Urgency
from backend.search.lessons import document_of
from backend.search.stored_documents import DocumentEvent, StoredDocuments

_jobs_of: Handle[JobService] = Handle("jobs")
_documents_of: Handle[StoredDocuments] = Handle("stored_documents")
_reader_of: Handle[DocumentService] = Handle("documents")
_REVISION = re.compile(rb"r(\d{1,9})")


async def watch_document(request: Request) -> Response:
    """What happens to a document, as server-sent events, until it is deleted.

    While a job with store=true reads it: `progress`, `page` and `fields` as of that job, and `end` with the job where
    it fails. Once it is stored: `state`, `change` for each change that somebody makes (an entry of `changes`), `end`
    when it is deleted. Changes that another replica makes come within seconds. After a broken connection
    `Last-Event-ID` goes on where it broke; 204 says that nothing more will come. `X-Request-Timeout-S` ends the stream
    of a stored document.
    """
    document_id, owner = path_id(request, "document"), owner_of(request)
    limit_s = time_limit_s(request, limits_of(request), math.inf)
    seen = _REVISION.fullmatch(context_of(request).headers.get(b"last-event-id", b"").strip())
    after = "" if seen else last_event_id(request)
    job = await _reading(request, document_id, owner)
    async with AsyncExitStack() as stack:
        changes = _documents_of(request).watch(owner, document_id, int(seen[1]) if seen else None, limit_s=limit_s)
        stack.push_async_callback(changes.aclose)
        reading = None if job is None else await job_events(request, job, after, stack)
        if job is not None and reading is None:
            return Response(status_code=204)
        close = stack.pop_all().aclose  # from here on the stream closes both
    return EventStream(_events(document_id, changes, reading), request.app.state.streams, on_end=close)


async def _reading(request: Request, document_id: str, owner: str) -> Job | None:
    """The job that is to store the document; None where it is stored. Raises: NotFound."""
    try:
        await call_within_limit(request, _documents_of(request).get(owner, document_id))
    except NotFound:
        job = await call_within_limit(request, _jobs_of(request).storing(document_id, owner))
        if job is None or job.status == "succeeded":  # and its document was deleted
            raise
        return job
    return None


async def _until_stored(reading: AsyncGenerator[ServerEvent, None]) -> AsyncGenerator[ServerEvent, None]:
    """The events of the job, without the end of one that has stored its document."""
    async for event in reading:
        if event.name != "end" or orjson.loads(event.data)["document_id"] is None:
            yield event


async def _events(
    document_id: str, changes: EventWatch[DocumentEvent], reading: AsyncGenerator[ServerEvent, None] | None
) -> AsyncGenerator[ServerEvent, None]:
    if reading is not None:
        async for event in _until_stored(reading):
            yield event
            if event.name == "end":
                return
    async for stored, seen in changes:
        if stored is None:
            deleted = {"id": document_id, "object": "document.deleted", "deleted": True}
            yield ServerEvent("", "end", orjson.dumps(deleted))
            return
        if seen is not None:
            for change in change_answers(stored):
                if change["revision"] > seen:
                    yield ServerEvent("", "change", orjson.dumps(change))
        state = {"id": stored.id, "state": stored.state, "revision": stored.revision, "updated_at": stored.updated_s}
        yield ServerEvent(f"r{stored.revision}", "state", orjson.dumps(state))


async def retrieve_result(request: Request) -> Response:
    """What was read of a stored document in the format that `format` or `Accept` picks; as JSON with corrections."""
    document_id, owner, service = path_id(request, "document"), owner_of(request), _documents_of(request)
    form = negotiate(accept_header(request), request.query_params.get("format"))
    password = document_password(request)
    stored = await call_within_limit(request, service.get(owner, document_id))
    if form.name == "json":
        return await whole_document(request, stored)
    content = await call_within_limit(request, service.content(stored))
    document = await asyncio.to_thread(document_of, stored, content)

    async def searchable_pdf(*, urgency: Urgency) -> bytes:
        _, file = await service.original(owner, document_id)
        with closing(file):
            extractor = _reader_of(request).extractor
            return await extractor.searchable_pdf(file, document, password=password, deadline_s=urgency.deadline_s)

    return await formatted_document(request, document, form, {}, searchable_pdf)


_ID = "file-7f9c2ba4e88f827d616045507605853e"
_EVENTS = (
    'event: change\ndata: {"revision":2,"action":"correct","document":0,"at":1767225700.5,"by":"ana",'
    '"fields":{"InvoiceTotal":{"value":"1284.50"}}}\n\n'
    f'id: r2\nevent: state\ndata: {{"id":"{_ID}","state":"to_review","revision":2,"updated_at":1767225700.5}}\n\n'
)
_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "Each event of the stream.",
    "properties": {
        "id": {"type": "string", "description": "For Last-Event-ID."},
        "event": {"enum": ["progress", "page", "fields", "change", "state", "end"]},
        "data": {"type": "string", "description": "JSON: the progress, the page, the fields, the change, the state, "
                 "or the job that failed; of a deleted document its id."},
    },
}  # fmt: skip
_LAST_EVENT = {**LAST_EVENT, "schema": {"type": "string", "pattern": "^(r[0-9]{1,9}|[0-9]{1,18}(-[0-9]{1,18})?)?$"}}
ROUTES = (
    get(
        "/v1/documents/{id}/events",
        watch_document,
        tag="documents",
        example=_EVENTS,
        schema=_EVENT,
        media_type=MEDIA_TYPE,
        more={204: described(None, description="It could not be read, and nothing came after Last-Event-ID.")},
        errors=(404, 422, 429, 504),
        parameters=(id_parameter(_ID), _LAST_EVENT, REQUEST_TIMEOUT),
    ),
    get(
        "/v1/documents/{id}/result",
        retrieve_result,
        tag="documents",
        example=DOCUMENT_EXAMPLE,
        more={200: described(answers_of(DOCUMENT_EXAMPLE, StoredDocumentAnswer), ("Content-Disposition",))},
        errors=(404, 406, 413, 415, 422, 429, 504),
        parameters=(id_parameter(_ID), FORMAT_PARAMETER, PASSWORD_PARAMETER, REQUEST_TIMEOUT),
    ),
)
