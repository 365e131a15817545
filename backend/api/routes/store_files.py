"""``/v1/vector_stores/{id}/files`` and ``/file_batches``: the files of a vector store and how far their indexing is."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.identifiers import id_parameter, path_id
from backend.api.requests.json_body import read_json, validate_fields
from backend.api.requests.lists import STORE_FILE_LIST_PARAMETERS, StoreFileListQuery
from backend.api.requests.vector_stores import AddBatchRequest, AddFileRequest, AttributesRequest
from backend.api.responses.json_bytes import CHARS_PER_ITEM, json_response, written_json
from backend.api.responses.vector_stores import (
    ChunkAnswer,
    DeletedAnswer,
    FileBatchAnswer,
    FileContentAnswer,
    StoreFileAnswer,
    StoreFileListAnswer,
    batch_answer,
    chunk_answer,
    list_answer,
    store_file_answer,
    store_file_with_pages,
)
from backend.api.routes.files import FILE_ID
from backend.api.routes.vector_stores import KIND, STORE_ID, STORE_PARAMETER
from backend.api.routing import REQUEST_TIMEOUT, action, delete, get, post
from backend.api.service_call import call_within_limit

_BATCH_KIND = "batch of files"


async def add_file(request: Request) -> Response:
    """Have a file read and indexed in the background; one that is there already is indexed anew.

    `status`, `progress` and `last_error` of the file tell how far it is.
    """
    services, store_id = services_of(request), path_id(request, KIND)
    body = await read_json(request, AddFileRequest, services.limits)
    call = services.vector_stores.add_files(context_of(request).caller.owner, store_id, [body.file()])
    [file] = await call_within_limit(request, call)
    return json_response(store_file_answer(file))


async def list_files(request: Request) -> Response:
    """The files of a vector store, those added last first."""
    return await _list_files(request, batch_id=None)


async def retrieve_file(request: Request) -> Response:
    """A file of a vector store: its status, attributes, those found in the document, and its pages."""
    owner, store_id, file_id = _owner_store_file(request)
    file = await call_within_limit(request, services_of(request).vector_stores.file(owner, store_id, file_id))
    return json_response(store_file_with_pages(file))


async def change_attributes(request: Request) -> Response:
    """Set the attributes of a file in place of all that it had; searches see them at once."""
    owner, store_id, file_id = _owner_store_file(request)
    services = services_of(request)
    body = await read_json(request, AttributesRequest, services.limits)
    call = services.vector_stores.set_attributes(owner, store_id, file_id, body.attributes or {})
    return json_response(store_file_answer(await call_within_limit(request, call)))


async def remove_file(request: Request) -> Response:
    """Take a file out of a vector store; the file itself stays."""
    owner, store_id, file_id = _owner_store_file(request)
    await call_within_limit(request, services_of(request).vector_stores.remove_file(owner, store_id, file_id))
    return json_response(DeletedAnswer(id=file_id, object="vector_store.file.deleted", deleted=True))


async def retrieve_content(request: Request) -> Response:
    """The text of an indexed file, chunk by chunk."""
    owner, store_id, file_id = _owner_store_file(request)

    async def read() -> list[ChunkAnswer]:
        stores = services_of(request).vector_stores
        file = await stores.file(owner, store_id, file_id)
        is_spoken = any(page.is_time for page in file.pages)
        chunks = stores.chunks(owner, store_id, file_id)
        return [chunk_answer(chunk, is_spoken=is_spoken) async for chunk in chunks]

    data = await call_within_limit(request, read())
    answer: FileContentAnswer = {
        "object": "vector_store.file_content.page",
        "data": data,
        "has_more": False,
        "next_page": None,
    }
    characters = sum(len(chunk["text"]) for chunk in data)
    return await written_json(lambda: answer, len(data) + characters // CHARS_PER_ITEM)


async def create_batch(request: Request) -> Response:
    """Have many files indexed at once; all or none are added."""
    services, store_id = services_of(request), path_id(request, KIND)
    body = await read_json(request, AddBatchRequest, services.limits)
    call = services.vector_stores.add_batch(context_of(request).caller.owner, store_id, body.new_files())
    return json_response(batch_answer(await call_within_limit(request, call)))


async def retrieve_batch(request: Request) -> Response:
    """A batch: how many of its files are indexed."""
    owner, store_id, batch_id = _owner_store_batch(request)
    call = services_of(request).vector_stores.batch(owner, store_id, batch_id)
    return json_response(batch_answer(await call_within_limit(request, call)))


async def cancel_batch(request: Request) -> Response:
    """Stop indexing the files of a batch that are not indexed yet; those that are stay."""
    owner, store_id, batch_id = _owner_store_batch(request)
    call = services_of(request).vector_stores.cancel_batch(owner, store_id, batch_id)
    return json_response(batch_answer(await call_within_limit(request, call)))


async def list_batch_files(request: Request) -> Response:
    """The files of a batch."""
    return await _list_files(request, batch_id=path_id(request, _BATCH_KIND, "batch_id"))


async def _list_files(request: Request, *, batch_id: str | None) -> Response:
    store_id, query = path_id(request, KIND), validate_fields(StoreFileListQuery, request.query_params)
    call = services_of(request).vector_stores.list_files(
        context_of(request).caller.owner, store_id, query.page(), status=query.filter, batch_id=batch_id
    )
    files, has_more = await call_within_limit(request, call)
    return json_response(list_answer([store_file_answer(file) for file in files], has_more=has_more))


def _owner_store_file(request: Request) -> tuple[str, str, str]:
    return context_of(request).caller.owner, path_id(request, KIND), path_id(request, "file", "file_id")


def _owner_store_batch(request: Request) -> tuple[str, str, str]:
    return context_of(request).caller.owner, path_id(request, KIND), path_id(request, _BATCH_KIND, "batch_id")


BATCH_ID = "vsfb_81c7e2a04f5b4d96"
STORE_FILE: StoreFileAnswer = {
    "id": FILE_ID,
    "object": "vector_store.file",
    "created_at": 1767225600,
    "vector_store_id": STORE_ID,
    "status": "completed",
    "last_error": None,
    "usage_bytes": 15_122,
    "attributes": {"year": 2026},
    "chunking_strategy": {"type": "static", "static": {"max_chunk_size_tokens": 254, "chunk_overlap_tokens": 0}},
    "filename": "factura-017.pdf",
    "progress": {"stage": "done", "done": 3, "total": 3},
    "found_attributes": {"document_type": ["invoice"], "vendor_tax_id": ["B12345674"], "invoice_total": [1284.5]},
    "language": "es",
    "chunks": 3,
    "page_count": 1,
    "warnings": [],
}
_BATCH: FileBatchAnswer = {
    "id": BATCH_ID,
    "object": "vector_store.files_batch",
    "created_at": 1767225600,
    "vector_store_id": STORE_ID,
    "status": "in_progress",
    "file_counts": {"in_progress": 1, "completed": 1, "cancelled": 0, "failed": 0, "total": 2},
}
_CANCELLED = {
    **_BATCH,
    "status": "cancelled",
    "file_counts": {"in_progress": 0, "completed": 1, "cancelled": 1, "failed": 0, "total": 2},
}
_OF_STORE = (STORE_PARAMETER, REQUEST_TIMEOUT)
_OF_FILE = (STORE_PARAMETER, id_parameter(FILE_ID, "file_id"), REQUEST_TIMEOUT)
_OF_BATCH = (STORE_PARAMETER, id_parameter(BATCH_ID, "batch_id"), REQUEST_TIMEOUT)
_ERRORS = (404, 422, 504)
_BODY_ERRORS = (400, 404, 409, 413, 415, 422, 429, 504)
_FILES, _FILE = "/v1/vector_stores/{id}/files", "/v1/vector_stores/{id}/files/{file_id}"
_BATCHES, _BATCH_PATH = "/v1/vector_stores/{id}/file_batches", "/v1/vector_stores/{id}/file_batches/{batch_id}"
_ATTRIBUTES = {"year": 2026, "supplier": "Acme", "paid": False}
ROUTES = (
    post(
        _FILES,
        add_file,
        tag="OpenAI",
        request=AddFileRequest,
        examples={"with attributes": {"file_id": FILE_ID, "attributes": _ATTRIBUTES}},
        schema=StoreFileAnswer,
        example=STORE_FILE,
        errors=_BODY_ERRORS,
        parameters=_OF_STORE,
    ),
    get(
        _FILES,
        list_files,
        tag="OpenAI",
        schema=StoreFileListAnswer,
        example=list_answer([STORE_FILE], has_more=False),
        errors=_ERRORS,
        parameters=(*STORE_FILE_LIST_PARAMETERS, *_OF_STORE),
    ),
    get(
        _FILE,
        retrieve_file,
        tag="OpenAI",
        schema=StoreFileAnswer,
        example={**STORE_FILE, "pages": [{"page": 1, "width": 595.0, "height": 842.0, "rotation": 0}]},
        errors=_ERRORS,
        parameters=_OF_FILE,
    ),
    post(
        _FILE,
        change_attributes,
        tag="OpenAI",
        request=AttributesRequest,
        examples={"attributes": {"attributes": _ATTRIBUTES}},
        schema=StoreFileAnswer,
        example=STORE_FILE,
        errors=_BODY_ERRORS,
        parameters=_OF_FILE,
    ),
    delete(
        _FILE,
        remove_file,
        tag="OpenAI",
        schema=DeletedAnswer,
        example={"id": FILE_ID, "object": "vector_store.file.deleted", "deleted": True},
        errors=_ERRORS,
        parameters=_OF_FILE,
    ),
    get(
        f"{_FILE}/content",
        retrieve_content,
        tag="OpenAI",
        schema=FileContentAnswer,
        example={
            "object": "vector_store.file_content.page",
            "data": [{"type": "text", "text": "FACTURA 2026/017", "index": 0, "start": 0, "end": 16, "pages": [1]}],
            "has_more": False,
            "next_page": None,
        },
        errors=_ERRORS,
        parameters=_OF_FILE,
    ),
    post(
        _BATCHES,
        create_batch,
        tag="OpenAI",
        request=AddBatchRequest,
        examples={
            "ids": {"file_ids": [FILE_ID], "attributes": _ATTRIBUTES},
            "each with its own": {"files": [{"file_id": FILE_ID, "attributes": _ATTRIBUTES}]},
        },
        schema=FileBatchAnswer,
        example=_BATCH,
        errors=_BODY_ERRORS,
        parameters=_OF_STORE,
    ),
    get(
        _BATCH_PATH,
        retrieve_batch,
        tag="OpenAI",
        schema=FileBatchAnswer,
        example=_BATCH,
        errors=_ERRORS,
        parameters=_OF_BATCH,
    ),
    action(
        f"{_BATCH_PATH}/cancel",
        cancel_batch,
        tag="OpenAI",
        schema=FileBatchAnswer,
        example=_CANCELLED,
        errors=_ERRORS,
        parameters=_OF_BATCH,
    ),
    get(
        f"{_BATCH_PATH}/files",
        list_batch_files,
        tag="OpenAI",
        schema=StoreFileListAnswer,
        example=list_answer([STORE_FILE], has_more=False),
        errors=_ERRORS,
        parameters=(*STORE_FILE_LIST_PARAMETERS, *_OF_BATCH),
    ),
)
