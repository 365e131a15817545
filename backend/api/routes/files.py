"""``/v1/files``: uploads that are kept until they are deleted, each seen with the key that sent it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, get_args
from urllib.parse import quote

from pydantic import Field, WithJsonSchema, create_model
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import TypedDict

from backend.api.json_io import json_response, validate_fields, validate_query, written_json
from backend.api.parameters import (
    DPI_PARAMETER,
    FILE_LIST_PARAMETERS,
    NUMBER_PARAMETER,
    PASSWORD_PARAMETER,
    FileListQuery,
    document_password,
    dots_per_inch,
    id_parameter,
    page_number,
    path_id,
)
from backend.api.request_context import Handle, base_of, call_within_limit, owner_of
from backend.api.routing import JSON, REQUEST_TIMEOUT, delete, described, get, upload_route
from backend.api.upload import ExpiryForm, receive_upload
from backend.files.stored_file import StoredFile
from backend.search.files import FileService
from backend.search.records import FileRecord

_files_of: Handle[FileService] = Handle("files")

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals", "ocr"]


class FileForm(ExpiryForm):
    """`POST /v1/files`."""

    purpose: Annotated[Purpose, WithJsonSchema({"enum": list(get_args(Purpose))})] = Field(
        description="What OpenAI's clients say, ocr Mistral's; every file may be added to vector stores."
    )


_PIECE_BYTES = 2**20
_ASCII_NAME = str.maketrans({'"': "'", "\\": "_", "%": "_"})


class StoredFileResponse(Response):
    """Sends a file no faster than its client reads, and closes it.

    Its type is always octet-stream, as OpenAI's: a browser must not show a caller's HTML as a page of this service.
    """

    media_type = "application/octet-stream"

    def __init__(self, stored: StoredFile, name: str) -> None:
        headers = {"Content-Length": str(stored.size_bytes), "Content-Disposition": content_disposition(name)}
        super().__init__(headers={**headers, "X-Content-Type-Options": "nosniff"})
        self._stored = stored

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Send one piece after the other."""
        with closing(self._stored), self._stored.borrowed() as descriptor:
            await self._send(descriptor, send)

    async def _send(self, descriptor: int, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for offset in range(0, self._stored.size_bytes, _PIECE_BYTES):
            piece = await asyncio.to_thread(os.pread, descriptor, _PIECE_BYTES, offset)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def content_disposition(name: str) -> str:
    """The header for a download of any name: in ASCII for old clients, and whole as RFC 5987 writes it."""
    plain = "".join(character if " " <= character <= "~" else "_" for character in name).translate(_ASCII_NAME)
    return f"attachment; filename=\"{plain or 'file'}\"; filename*=UTF-8''{quote(name or 'file', safe='')}"


class FileAnswer(TypedDict):
    """OpenAI's file object."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Annotated[Literal["processed"], Field(description="An upload is whole as soon as it is answered.")]
    status_details: None
    expires_at: int | None
    sha256: Annotated[str, Field(description="Ours: of the bytes, hexadecimal.")]
    sample_type: NotRequired[
        Annotated[str, Field(description="Of purpose ocr, as source and deleted: what Mistral's clients need.")]
    ]
    source: NotRequired[str]
    deleted: NotRequired[Literal[False]]


class DeletedAnswer(TypedDict):
    """What was deleted."""

    id: str
    object: Literal["file", "vector_store.deleted", "vector_store.file.deleted"]
    deleted: Literal[True]


class AddressAnswer(TypedDict):
    """Where the bytes of a file are."""

    url: str


def file_answer(file: FileRecord) -> FileAnswer:
    answer: FileAnswer = {
        "id": file.id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": int(file.created_s),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
        "expires_at": None if file.expires_s is None else int(file.expires_s),
        "sha256": file.sha256,
    }
    if file.purpose == "ocr":
        answer.update({"sample_type": "ocr_input", "source": "upload", "deleted": False})
    return answer


def list_answer(data: Sequence[Any], *, has_more: bool) -> dict[str, Any]:
    """A list of any of these objects, with its cursors."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def list_described(name: str, item: Any, example: Any, description: str) -> dict[str, Any]:
    """Schema and example of such a list in OpenAPI, of an item's."""
    cursor: Any = (str | None, ...)
    members: dict[str, Any] = {"object": (Literal["list"], ...), "data": (list[item], ...), "first_id": cursor}
    schema = create_model(name, __doc__=description, **members, last_id=cursor, has_more=(bool, ...))
    return {"schema": schema, "example": list_answer([example], has_more=False)}


async def create_file(request: Request) -> Response:
    """Keep a file of any kind, to be added to vector stores and read back.

    It is durable when this is answered. `expires_after[anchor]=created_at` and `expires_after[seconds]` let it be
    deleted by itself.
    """
    owner = owner_of(request)
    async with receive_upload(request) as upload:
        form = validate_fields(FileForm, upload.fields)
        call = _files_of(request).upload(
            owner, upload.stored, upload.name or "file", form.purpose, expires_after_s=form.seconds
        )
        file = await call_within_limit(request, call)
    return json_response(file_answer(file))


async def list_files(request: Request) -> Response:
    """The files of this key, the newest first."""
    query = validate_query(FileListQuery, request)
    call = _files_of(request).list_files(owner_of(request), query.page(), query.purpose)
    files, has_more = await call_within_limit(request, call)
    return await written_json(lambda: list_answer([file_answer(file) for file in files], has_more=has_more), len(files))


async def retrieve_file(request: Request) -> Response:
    """A file: its name, size and purpose."""
    call = _files_of(request).find(owner_of(request), path_id(request, "file"))
    return json_response(file_answer(await call_within_limit(request, call)))


async def delete_file(request: Request) -> Response:
    """Delete a file, also from every vector store."""
    file_id = path_id(request, "file")
    await call_within_limit(request, _files_of(request).delete(owner_of(request), file_id))
    return json_response(DeletedAnswer(id=file_id, object="file", deleted=True))


async def retrieve_content(request: Request) -> Response:
    """The bytes of a file, as they were sent."""
    call = _files_of(request).content(owner_of(request), path_id(request, "file"))
    file, stored = await call_within_limit(request, call)
    return StoredFileResponse(stored, file.name)


async def retrieve_address(request: Request) -> Response:
    """Where the bytes of a file are, for Mistral's clients: POST /v1/ocr reads it there. It needs the same key."""
    file_id = path_id(request, "file")
    await call_within_limit(request, _files_of(request).find(owner_of(request), file_id))
    return json_response(AddressAnswer(url=f"{base_of(request)}/v1/files/{file_id}/content"))


async def retrieve_page(request: Request) -> Response:
    """A page of a file as a PNG, turned to stand upright as it was read: boxes of hits fit it."""
    file_id = path_id(request, "file")
    number, dpi = page_number(request.path_params["number"]), dots_per_inch(request.query_params.get("dpi"))
    password = document_password(request)
    call = _files_of(request).page_image(owner_of(request), file_id, number, dpi, password=password)
    return Response(await call_within_limit(request, call), media_type="image/png")


FILE_ID = "file-5f0c2b8e9d3a4c71"
FILE: FileAnswer = {
    "id": FILE_ID, "object": "file", "bytes": 48213, "created_at": 1767225600, "filename": "factura-017.pdf",
    "purpose": "assistants", "status": "processed", "status_details": None, "expires_at": None,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}  # fmt: skip
_ID = id_parameter(FILE_ID)
_CONTENT = {JSON: {"schema": FileAnswer, "example": FILE}}
_get, _delete = (partial(make, tag="OpenAI") for make in (get, delete))
_OF_FILE: dict[str, Any] = {"errors": (404, 422, 504), "parameters": (_ID, REQUEST_TIMEOUT)}
BYTES_ANSWER: dict[str, Any] = {
    "example": "(the bytes of the file)",
    "schema": {"type": "string", "format": "binary"},
    "media_type": StoredFileResponse.media_type,
    "headers": ("Content-Disposition",),
}
ROUTES = (
    upload_route(
        "/v1/files",
        create_file,
        tag="OpenAI",
        request=FileForm,
        answers={200: described(_CONTENT, description="The file, which is kept.")},
        errors=(400, 413, 415, 422, 429, 504),
        file="Any file. Alone as the body, the fields go into the query.",
    ),
    _get(
        "/v1/files", list_files, **list_described("FileListAnswer", FileAnswer, FILE, "Files, a part of their list."),
        errors=(422, 504), parameters=(*FILE_LIST_PARAMETERS, REQUEST_TIMEOUT),
    ),
    _get("/v1/files/{id}", retrieve_file, schema=FileAnswer, example=FILE, **_OF_FILE),
    _delete(
        "/v1/files/{id}",
        delete_file,
        schema=DeletedAnswer,
        example={"id": FILE_ID, "object": "file", "deleted": True},
        **_OF_FILE,
    ),
    _get("/v1/files/{id}/content", retrieve_content, **BYTES_ANSWER, **_OF_FILE),
    _get(
        "/v1/files/{id}/url",
        retrieve_address,
        schema=AddressAnswer,
        example={"url": f"http://127.0.0.1:8000/v1/files/{FILE_ID}/content"},
        **_OF_FILE,
    ),
    get(
        "/v1/files/{id}/pages/{number}",
        retrieve_page,
        tag="documents",
        example="(the bytes of a PNG)",
        media_type="image/png",
        errors=(404, 413, 415, 422, 429, 504),
        parameters=(_ID, NUMBER_PARAMETER, DPI_PARAMETER, PASSWORD_PARAMETER, REQUEST_TIMEOUT),
    ),
)  # fmt: skip
