"""Jobs and their results on the wire, and which of them a request may see."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request

from backend.api.dependencies import context_of, services_of
from backend.api.problems import Problem, openai_error
from backend.api.responses.document_formats import run_off_loop
from backend.api.responses.documents import document_bytes
from backend.documents.formats.plain_json import document_fields, pages_fields
from backend.files.pages import Document
from backend.jobs.records import Failure, Job
from backend.jobs.service import JobResult


async def job_of(request: Request) -> Job:
    """The job that the path names. Raises: NotFound, also for somebody else's job; Unavailable."""
    return await services_of(request).jobs.find(request.path_params["id"], context_of(request).caller.owner)


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
    }


async def job_bytes(job: Job, result: JobResult | None) -> bytes:
    """The JSON of a job with its document; a long one is written on a thread."""
    if result is None:
        return orjson.dumps({**job_fields(job), "result": None})
    return await run_off_loop(result.document, partial(_write_job, job, result))


async def result_bytes(job: Job, result: JobResult) -> bytes:
    """The JSON of a job's document alone; a long one is written on a thread."""
    return await run_off_loop(result.document, partial(_write_result, job, result))


def _write_job(job: Job, result: JobResult) -> bytes:
    return orjson.dumps({**job_fields(job), "result": orjson.Fragment(_write_result(job, result))})


def _write_result(job: Job, result: JobResult) -> bytes:
    if result.answer is not None:
        return document_bytes(result.answer, job.options["encoding_format"])
    return _write_partial(result.document)


def _write_partial(document: Document) -> bytes:
    """The pages of a job that failed or was cancelled, and their text, without anything about that text."""
    return orjson.dumps(
        {
            "object": "document",
            "partial": True,
            **document_fields(document),
            "pages": [orjson.Fragment(orjson.dumps(page)) for page in pages_fields(document)],
            "failed_pages": [],
            "text": document.text,
        }
    )


def _error(failure: Failure) -> dict[str, Any]:
    problem = Problem(failure.status, failure.code, "", failure.message, param=failure.param)
    return {**openai_error(problem), "status": failure.status, "retryable": failure.retryable}
