"""``/v1/batches``: requests in a file, answered in the background, as OpenAI's clients send them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import answer_of, json_response, read_json, validate_query
from backend.api.parameters import ID_PATTERN, LIST_PARAMETERS, ListQuery, id_parameter, path_id
from backend.api.request_context import Handle, call_within_limit, context_of, owner_of
from backend.api.request_fields import WireRequest
from backend.api.routes.embeddings import BATCH_ENDPOINT
from backend.api.routes.files import FILE_ID, list_answer, list_described
from backend.api.routes.uploads import ExpiresAfter
from backend.api.routes.vector_stores import MetadataField
from backend.api.routing import REQUEST_TIMEOUT, action, get, post
from backend.batches import WINDOW_S, Batch, BatchError, BatchRequest, BatchService, Outcome, Status
from backend.errors import InvalidField
from backend.jobs.records import JobQuota

_batches_of: Handle[BatchService] = Handle("batches")


class CreateBatchRequest(WireRequest):
    """`POST /v1/batches`."""

    input_file_id: Annotated[str, Field(pattern=ID_PATTERN)] = Field(
        description="A file with a request a line: custom_id, method, url and body, as JSON."
    )
    endpoint: Annotated[str, WithJsonSchema({"enum": [BATCH_ENDPOINT]})] = Field(
        description="Other requests are answered one by one only."
    )
    completion_window: Literal["24h"] = Field(description="As OpenAI's clients send it; LIMIT_JOB_S limits the work.")
    metadata: MetadataField = None
    output_expires_after: ExpiresAfter | None = Field(None, description="Of the files of answers.")


class BatchErrorAnswer(TypedDict):
    """Why a batch failed."""

    code: str
    message: str
    line: Annotated[int | None, Field(description="Of the input file, from 1.")]
    param: str | None


class BatchErrorsAnswer(TypedDict):
    """All that is wrong with a batch."""

    object: Literal["list"]
    data: list[BatchErrorAnswer]


class RequestCounts(TypedDict):
    """How many requests of a batch are answered."""

    total: int
    completed: int
    failed: int


class BatchUsage(TypedDict):
    """Tokens that were read."""

    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class BatchAnswer(TypedDict):
    """OpenAI's batch object."""

    id: str
    object: Literal["batch"]
    endpoint: str
    errors: BatchErrorsAnswer | None
    input_file_id: str
    completion_window: Literal["24h"]
    status: Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelled"]
    output_file_id: Annotated[str | None, Field(description="Answers of the requests that succeeded.")]
    error_file_id: Annotated[str | None, Field(description="Answers of the others.")]
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: BatchUsage | None
    metadata: dict[str, str] | None


def batch_answer(batch: Batch) -> BatchAnswer:
    outcome = batch.outcome
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.request.endpoint,
        "errors": _errors(outcome.errors) if outcome and outcome.errors else None,
        "input_file_id": batch.request.input_file_id,
        "completion_window": "24h",
        "status": batch.status,
        "output_file_id": outcome.output_file_id if outcome else None,
        "error_file_id": outcome.error_file_id if outcome else None,
        "created_at": int(batch.created_s),
        "in_progress_at": None if batch.started_s is None else int(batch.started_s),
        "expires_at": int(batch.created_s + WINDOW_S),
        "finalizing_at": _at(outcome, "completed"),
        "completed_at": _at(outcome, "completed"),
        "failed_at": _at(outcome, "failed"),
        "expired_at": _at(outcome, "expired"),
        "cancelling_at": _at(outcome, "cancelled"),
        "cancelled_at": _at(outcome, "cancelled"),
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "usage": None if outcome is None else _usage(outcome.tokens),
        "metadata": None if batch.request.metadata is None else dict(batch.request.metadata),
    }


def _errors(errors: tuple[BatchError, ...]) -> BatchErrorsAnswer:
    return {"object": "list", "data": [answer_of(BatchErrorAnswer, error) for error in errors]}


def _at(outcome: Outcome | None, status: Status) -> int | None:
    return int(outcome.ended_s) if outcome is not None and outcome.status == status else None


def _usage(tokens: int) -> BatchUsage:
    return {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens,
    }


async def create_batch(request: Request) -> Response:
    """Answer the requests of a file in the background; `GET /v1/files/{id}/content` has the answers once it is done.

    It is a job: of the key's quota of jobs, at the lowest priority, taken over by another replica where this one ends.
    A file with a line that is no request fails as a whole, and `errors` names the lines; a request that cannot be
    answered alone is in the error file.
    """
    body = await read_json(request, CreateBatchRequest)
    batches, caller = _batches_of(request), context_of(request).caller
    if body.endpoint not in batches.endpoints:
        known = ", ".join(batches.endpoints)
        raise InvalidField(f"endpoint: batches answer requests to {known} only, got '{body.endpoint[:64]}'")
    quota = None if (limit := caller.quotas.jobs) is None else JobQuota(limit, caller.quotas.setting("jobs"))
    expires_after_s = None if body.output_expires_after is None else body.output_expires_after.seconds
    asked = BatchRequest(body.input_file_id, body.endpoint, body.metadata, expires_after_s)
    call = batches.create(caller.owner, asked, quota=quota)
    return json_response(batch_answer(await call_within_limit(request, call)))


async def list_batches(request: Request) -> Response:
    """The batches of this key, the newest first; of the last 30 days."""
    query = validate_query(ListQuery, request)
    call = _batches_of(request).list_batches(owner_of(request), query.page())
    batches, has_more = await call_within_limit(request, call)
    return json_response(list_answer([batch_answer(batch) for batch in batches], has_more=has_more))


async def retrieve_batch(request: Request) -> Response:
    """How far a batch is, and where its answers are."""
    call = _batches_of(request).find(owner_of(request), path_id(request, "batch"))
    return json_response(batch_answer(await call_within_limit(request, call)))


async def cancel_batch(request: Request) -> Response:
    """Stop a batch at once; it keeps no answers. 409 for one that has ended."""
    call = _batches_of(request).cancel(owner_of(request), path_id(request, "batch"))
    return json_response(batch_answer(await call_within_limit(request, call)))


BATCH_ID = "batch_7f9c2ba4e88f827d616045507605853e"
_EXAMPLE: BatchAnswer = {
    "id": BATCH_ID, "object": "batch", "endpoint": "/v1/embeddings", "errors": None, "input_file_id": FILE_ID,
    "completion_window": "24h", "status": "completed", "output_file_id": "file-7f9c2ba4e88f827d61604550-output",
    "error_file_id": None, "created_at": 1767225600, "in_progress_at": 1767225601, "expires_at": 1767312000,
    "finalizing_at": 1767225660, "completed_at": 1767225660, "failed_at": None, "expired_at": None,
    "cancelling_at": None, "cancelled_at": None, "request_counts": {"total": 2, "completed": 2, "failed": 0},
    "usage": _usage(24), "metadata": None,
}  # fmt: skip
_OF_BATCH = (id_parameter(BATCH_ID), REQUEST_TIMEOUT)
_post, _get, _action = (
    partial(make, tag="OpenAI", schema=BatchAnswer, example=_EXAMPLE) for make in (post, get, action)
)
_any_get: Any = partial(get, tag="OpenAI")
ROUTES = (
    _post(
        "/v1/batches",
        create_batch,
        request=CreateBatchRequest,
        examples={
            "a file of requests": {
                "input_file_id": FILE_ID,
                "endpoint": "/v1/embeddings",
                "completion_window": "24h",
            }
        },
        errors=(400, 404, 413, 415, 422, 429, 504),
    ),
    _any_get(
        "/v1/batches", list_batches,
        **list_described("BatchListAnswer", BatchAnswer, _EXAMPLE, "Batches, a part of their list."),
        errors=(422, 504), parameters=(*LIST_PARAMETERS, REQUEST_TIMEOUT),
    ),
    _get("/v1/batches/{id}", retrieve_batch, errors=(404, 422, 504), parameters=_OF_BATCH),
    _action("/v1/batches/{id}/cancel", cancel_batch, errors=(404, 409, 422, 504), parameters=_OF_BATCH),
)  # fmt: skip
