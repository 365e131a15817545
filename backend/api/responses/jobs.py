"""Answers about background jobs. ``backend/api/job_answers.py`` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from backend.api.responses.documents import FailedPageAnswer, PageAnswer


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


SCHEMAS: tuple[type, ...] = (JobAnswer, PartialDocument)
