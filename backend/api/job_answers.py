"""Jobs on the wire, and which of them a request may see."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
from starlette.requests import Request

from backend.api.deps import exchange_of, services_of
from backend.api.problems import Problem, openai_error
from backend.jobs.records import Failure, Job


def owner_of(request: Request) -> str:
    """The key a request came with, where keys are asked for; jobs are seen with the key they were sent with."""
    if not request.app.state.keys_needed:
        return ""
    return exchange_of(request).headers[b"authorization"].partition(b" ")[2].strip().decode("latin-1")


async def job_of(request: Request) -> Job:
    """The job that the path names. Raises: NotFound, also for somebody else's; Unavailable."""
    return await services_of(request).jobs.find(request.path_params["id"], owner_of(request))


def job_fields(job: Job) -> dict[str, Any]:
    """A job without its result."""
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


def with_result(job: Job, result: bytes | None) -> dict[str, Any]:
    """A job with what came of it, which is written already."""
    return {**job_fields(job), "result": None if result is None else orjson.Fragment(result)}


def _error(failure: Failure) -> dict[str, Any]:
    problem = Problem(failure.status, failure.code, "", failure.message, param=failure.param)
    return {**openai_error(problem), "status": failure.status}
