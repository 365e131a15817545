"""``/v1/files``: uploads that are kept until they are deleted, each seen with the key that sent it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.files import FileForm
from backend.api.requests.identifiers import id_parameter, path_id
from backend.api.requests.json_body import validate_fields
from backend.api.requests.lists import FILE_LIST_PARAMETERS, FileListQuery
from backend.api.requests.pages import DPI_PARAMETER, NUMBER_PARAMETER, dots_per_inch, page_number
from backend.api.requests.upload import receive_upload
from backend.api.responses.json_bytes import json_response, written_json
from backend.api.responses.stored_file import StoredFileResponse
from backend.api.responses.vector_stores import DeletedAnswer, FileAnswer, FileListAnswer, file_answer, list_answer
from backend.api.routing import JSON, REQUEST_TIMEOUT, delete, described, get, upload_route
from backend.api.service_call import call_within_limit


async def create_file(request: Request) -> Response:
    """Keep a file of any kind, to be added to vector stores and read back.

    It is durable when this is answered. `expires_after[anchor]=created_at` and `expires_after[seconds]` let it be
    deleted by itself.
    """
    services, owner = services_of(request), context_of(request).caller.owner
    async with receive_upload(request) as upload:
        form = validate_fields(FileForm, upload.fields)
        call = services.files.upload(
            owner, upload.stored, upload.name or "file", form.purpose, expires_after_s=form.seconds
        )
        file = await call_within_limit(request, call)
    return json_response(file_answer(file))


async def list_files(request: Request) -> Response:
    """The files of this key, the newest first."""
    query = validate_fields(FileListQuery, request.query_params)
    call = services_of(request).files.list_files(context_of(request).caller.owner, query.page(), query.purpose)
    files, has_more = await call_within_limit(request, call)
    return await written_json(lambda: list_answer([file_answer(file) for file in files], has_more=has_more), len(files))


async def retrieve_file(request: Request) -> Response:
    """A file: its name, size and purpose."""
    call = services_of(request).files.find(context_of(request).caller.owner, path_id(request, "file"))
    return json_response(file_answer(await call_within_limit(request, call)))


async def delete_file(request: Request) -> Response:
    """Delete a file, also from every vector store."""
    file_id = path_id(request, "file")
    await call_within_limit(request, services_of(request).files.delete(context_of(request).caller.owner, file_id))
    return json_response(DeletedAnswer(id=file_id, object="file", deleted=True))


async def retrieve_content(request: Request) -> Response:
    """The bytes of a file, as they were sent."""
    call = services_of(request).files.content(context_of(request).caller.owner, path_id(request, "file"))
    file, stored = await call_within_limit(request, call)
    return StoredFileResponse(stored, file.name)


async def retrieve_page(request: Request) -> Response:
    """A page of a file as a PNG, turned to stand upright as it was read: boxes of hits fit it."""
    file_id = path_id(request, "file")
    number, dpi = page_number(request.path_params["number"]), dots_per_inch(request.query_params.get("dpi"))
    call = services_of(request).files.page_image(context_of(request).caller.owner, file_id, number, dpi)
    return Response(await call_within_limit(request, call), media_type="image/png")


FILE_ID = "file-5f0c2b8e9d3a4c71"
FILE: FileAnswer = {
    "id": FILE_ID,
    "object": "file",
    "bytes": 48213,
    "created_at": 1767225600,
    "filename": "factura-017.pdf",
    "purpose": "assistants",
    "status": "processed",
    "status_details": None,
    "expires_at": None,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}
_ID = id_parameter(FILE_ID)
_CONTENT = {JSON: {"schema": {"$ref": "#/components/schemas/FileAnswer"}, "example": FILE}}
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
    get(
        "/v1/files",
        list_files,
        tag="OpenAI",
        schema=FileListAnswer,
        example=list_answer([FILE], has_more=False),
        errors=(422, 504),
        parameters=(*FILE_LIST_PARAMETERS, REQUEST_TIMEOUT),
    ),
    get(
        "/v1/files/{id}",
        retrieve_file,
        tag="OpenAI",
        schema=FileAnswer,
        example=FILE,
        errors=(404, 422, 504),
        parameters=(_ID, REQUEST_TIMEOUT),
    ),
    delete(
        "/v1/files/{id}",
        delete_file,
        tag="OpenAI",
        schema=DeletedAnswer,
        example={"id": FILE_ID, "object": "file", "deleted": True},
        errors=(404, 422, 504),
        parameters=(_ID, REQUEST_TIMEOUT),
    ),
    get(
        "/v1/files/{id}/content",
        retrieve_content,
        tag="OpenAI",
        example="(the bytes of the file)",
        schema={"type": "string", "format": "binary"},
        media_type=StoredFileResponse.media_type,
        headers=("Content-Disposition",),
        errors=(404, 422, 504),
        parameters=(_ID, REQUEST_TIMEOUT),
    ),
    get(
        "/v1/files/{id}/pages/{number}",
        retrieve_page,
        tag="documents",
        example="(the bytes of a PNG)",
        media_type="image/png",
        errors=(404, 413, 415, 422, 429, 504),
        parameters=(_ID, NUMBER_PARAMETER, DPI_PARAMETER, REQUEST_TIMEOUT),
    ),
)
