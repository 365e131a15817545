"""What travels about background jobs: the fields of a form, and the answers, the latter for OpenAPI only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from backend.api.schemas.documents import DocumentRequest, filled


class JobForm(DocumentRequest):
    """`POST /v1/jobs`: as `POST /v1/documents`, and how long it may take."""

    deadline_s: Annotated[float | None, BeforeValidator(filled)] = Field(
        None, gt=0, allow_inf_nan=False, description="Seconds it may run, once started; at most LIMIT_JOB_S."
    )


class JobFileAnswer(BaseModel):
    """The file a job is about."""

    name: str
    bytes: int
    sha256: str


class ProgressAnswer(BaseModel):
    """How far a job is."""

    stage: Literal["queued", "opening", "reading", "understanding", "done"]
    pages_done: int = Field(description="Read or failed.")
    pages_total: int | None = Field(description="null until the file is open.")
    failed_pages: int


class JobErrorAnswer(BaseModel):
    """Why a job failed: the error that `POST /v1/documents` would have answered, and its status."""

    message: str
    type: str
    code: str
    param: str | None
    status: int


class JobAnswer(BaseModel):
    """A job. Times are Unix seconds."""

    id: str
    object: Literal["job"]
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    created_at: float
    started_at: float | None
    ended_at: float | None
    expires_at: float = Field(description="When it is forgotten with its file and its result.")
    attempts: int = Field(description="How often it was begun; a replica that ends takes none of its jobs with it.")
    file: JobFileAnswer
    progress: ProgressAnswer
    error: JobErrorAnswer | None
    result: dict[str, Any] | None = Field(
        description="The document, as POST /v1/documents answers; with partial: true the pages read before it failed "
        "or was cancelled."
    )


ANSWERS: tuple[type[BaseModel], ...] = (JobAnswer,)
