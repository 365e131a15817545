"""The result of a job: its document alone in any format, and images of its pages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import services_of
from backend.api.job_answers import job_of, result_bytes
from backend.api.requests.pages import DPI_PARAMETER, NUMBER_PARAMETER, dots_per_inch, page_number
from backend.api.responses.document_formats import accept_header, formatted_document
from backend.api.responses.jobs import PartialDocument
from backend.api.responses.json_bytes import JsonBytes
from backend.api.routes.documents import DOCUMENT_EXAMPLE, answers_of
from backend.api.routes.jobs import ID_PARAMETER
from backend.api.routing import REQUEST_TIMEOUT, described, get
from backend.api.service_call import call_service
from backend.documents.formats.registry import FORMAT_NAMES, Format, negotiate
from backend.errors import NotFound
from backend.jobs.records import Job


async def retrieve_result(request: Request) -> Response:
    """The document of a job, in the format that `format`, the job's own `format` or `Accept` picks.

    A job that failed or was cancelled gives the pages it had read (`X-Partial: true`).
    """
    job = await job_of(request)
    form = _format(request, job)
    headers = {} if job.status == "succeeded" else {"X-Partial": "true"}
    if form.name == "json":
        result = await services_of(request).jobs.result(job)
        if result is None:
            raise _no_result(job)
        return JsonBytes(await result_bytes(job, result), headers=headers)
    services = services_of(request)
    document = await services.jobs.document(job)

    async def searchable_pdf(*, deadline_s: float) -> bytes:
        stored, password = await services.jobs.file(job), services.jobs.password(job)
        try:
            return await services.documents.extractor.searchable_pdf(
                stored, document, password=password, until=deadline_s
            )
        finally:
            stored.close()

    return await formatted_document(request, document, form, headers, searchable_pdf)


async def retrieve_page(request: Request) -> Response:
    """A page as a PNG, turned to stand upright as it was read: boxes of its words fit it."""
    job = await job_of(request)
    number, dpi = page_number(request.path_params["number"]), dots_per_inch(request.query_params.get("dpi"))

    async def work(*, deadline_s: float) -> bytes:
        del deadline_s  # rendering has its own, LIMIT_PAGE_S
        return await services_of(request).jobs.page_image(job, number, dpi)

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


_FORMAT = {
    "name": "format",
    "in": "query",
    "schema": {"enum": ["", *FORMAT_NAMES]},
    "description": "json, text, markdown, html, csv, xlsx, hocr, alto or pdf; of a recording "
    "json, text, markdown, srt or vtt; unset: what Accept asks for.",
}
ROUTES = (
    get(
        "/v1/jobs/{id}/result",
        retrieve_result,
        tag="documents",
        example=DOCUMENT_EXAMPLE,
        more={200: described(answers_of(DOCUMENT_EXAMPLE, PartialDocument), ("X-Partial", "Content-Disposition"))},
        errors=(404, 406, 413, 422, 504),
        parameters=(ID_PARAMETER, _FORMAT),
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
