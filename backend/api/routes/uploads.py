"""``/v1/uploads``: a large file in parts, as OpenAI's clients send it; whole, it is a file like any other."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import answer_of, json_response, read_json
from backend.api.parameters import ID_PATTERN, id_parameter, path_id
from backend.api.request_context import Handle, call_within_limit, owner_of
from backend.api.request_fields import WHOLE, Count, WireRequest
from backend.api.routes.files import FILE, FileAnswer, Purpose, file_answer
from backend.api.routing import JSON, REQUEST_TIMEOUT, action, described, post, upload_route
from backend.api.upload import receive_upload
from backend.search.attributes import NAME_CHARS
from backend.search.files import MAX_EXPIRY_S, MIN_EXPIRY_S
from backend.search.records import FileRecord
from backend.search.uploads import Upload, UploadService

_uploads_of: Handle[UploadService] = Handle("uploads")


class ExpiresAfter(WireRequest):
    """When a file is deleted by itself."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=MIN_EXPIRY_S, le=MAX_EXPIRY_S), WHOLE]


class UploadRequest(WireRequest):
    """`POST /v1/uploads`."""

    bytes: Count = Field(description="Of all parts together, at most LIMIT_FILE_BYTES.")
    filename: str = Field(min_length=1, max_length=NAME_CHARS)
    mime_type: str | None = Field(None, description="Not used: a file's type is read from its bytes.")
    purpose: Purpose = Field(description="As of POST /v1/files.")
    expires_after: ExpiresAfter | None = Field(None, description="Of the file, once it is whole.")


class CompleteRequest(WireRequest):
    """`POST /v1/uploads/{id}/complete`."""

    part_ids: list[Annotated[str, Field(pattern=ID_PATTERN)]] = Field(
        min_length=1, max_length=10_000, description="The parts in their order."
    )
    md5: str | None = Field(None, description="Of the whole file, hexadecimal: other bytes are refused.")


class PartForm(BaseModel):
    """The fields beside a part's bytes."""

    model_config = ConfigDict(extra="ignore")


class UploadAnswer(TypedDict):
    """OpenAI's upload object."""

    id: str
    object: Literal["upload"]
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str
    status: Literal["pending", "completed", "cancelled"]
    file: Annotated[FileAnswer | None, Field(description="What became of it: from its completion on.")]


class PartAnswer(TypedDict):
    """OpenAI's part of an upload."""

    id: str
    object: Literal["upload.part"]
    created_at: int
    upload_id: str


def upload_answer(
    upload: Upload, status: Literal["pending", "completed", "cancelled"], file: FileRecord | None = None
) -> UploadAnswer:
    return {
        "id": upload.id,
        "object": "upload",
        "bytes": upload.size_bytes,
        "created_at": int(upload.created_s),
        "expires_at": int(upload.expires_s),
        "filename": upload.name,
        "purpose": upload.purpose,
        "status": status,
        "file": None if file is None else file_answer(file),
    }


async def create_upload(request: Request) -> Response:
    """Announce a file that comes in parts. What is not completed within an hour is deleted."""
    body = await read_json(request, UploadRequest)
    expires_after_s = None if body.expires_after is None else body.expires_after.seconds
    call = _uploads_of(request).create(
        owner_of(request), body.filename, body.bytes, body.purpose, expires_after_s=expires_after_s
    )
    return json_response(upload_answer(await call_within_limit(request, call), "pending"))


async def add_part(request: Request) -> Response:
    """Send a part; several may come at once, and their order is told by complete."""
    upload_id = path_id(request, "upload")
    async with receive_upload(request, field="data") as upload:
        call = _uploads_of(request).add_part(owner_of(request), upload_id, upload.stored)
        part = await call_within_limit(request, call)
    return json_response(answer_of(PartAnswer, part, created_at=int(part.created_s), upload_id=upload_id))


async def complete_upload(request: Request) -> Response:
    """Make a file of the parts in the order of `part_ids`. Asked again, the answer is the same file."""
    upload_id = path_id(request, "upload")
    body = await read_json(request, CompleteRequest)
    call = _uploads_of(request).complete(owner_of(request), upload_id, body.part_ids, body.md5)
    upload, file = await call_within_limit(request, call)
    return json_response(upload_answer(upload, "completed", file))


async def cancel_upload(request: Request) -> Response:
    """Delete an upload with its parts."""
    call = _uploads_of(request).cancel(owner_of(request), path_id(request, "upload"))
    return json_response(upload_answer(await call_within_limit(request, call), "cancelled"))


UPLOAD_ID = "upload_5f0c2b8e9d3a4c7150c28e9d"
PART_ID = "part_9d3a4c715f0c2b8e50c28e9d"
_PENDING: UploadAnswer = {
    "id": UPLOAD_ID, "object": "upload", "bytes": 48213, "created_at": 1767225600, "expires_at": 1767229200,
    "filename": "factura-017.pdf", "purpose": "assistants", "status": "pending", "file": None,
}  # fmt: skip
_PART: PartAnswer = {"id": PART_ID, "object": "upload.part", "created_at": 1767225600, "upload_id": UPLOAD_ID}
_OF_UPLOAD = (id_parameter(UPLOAD_ID), REQUEST_TIMEOUT)
_post: Any = partial(post, tag="OpenAI", schema=UploadAnswer)
ROUTES = (
    _post(
        "/v1/uploads",
        create_upload,
        request=UploadRequest,
        examples={
            "a file": {
                "bytes": 48213,
                "filename": "factura-017.pdf",
                "mime_type": "application/pdf",
                "purpose": "assistants",
            }
        },
        example=_PENDING,
        errors=(400, 413, 415, 422, 429, 504),
    ),
    upload_route(
        "/v1/uploads/{id}/parts",
        add_part,
        tag="OpenAI",
        request=PartForm,
        answers={200: described({JSON: {"schema": PartAnswer, "example": _PART}}, description="The part, kept.")},
        errors=(400, 404, 413, 415, 422, 429, 504),
        file="A part of the file.",
        field="data",
        parameters=(id_parameter(UPLOAD_ID),),
    ),
    _post(
        "/v1/uploads/{id}/complete",
        complete_upload,
        request=CompleteRequest,
        examples={"one part": {"part_ids": [PART_ID]}},
        example={**_PENDING, "status": "completed", "file": FILE},
        errors=(400, 404, 413, 415, 422, 429, 504),
        parameters=_OF_UPLOAD,
    ),
    action(
        "/v1/uploads/{id}/cancel", cancel_upload, tag="OpenAI", schema=UploadAnswer,
        example={**_PENDING, "status": "cancelled"}, errors=(404, 422, 504), parameters=_OF_UPLOAD,
    ),
)  # fmt: skip
