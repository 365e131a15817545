"""``/v1/vector_stores``: collections of files that can be searched, each seen with the key that made it."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.identifiers import id_parameter, path_id
from backend.api.requests.json_body import read_json, validate_fields
from backend.api.requests.lists import LIST_PARAMETERS, ListQuery
from backend.api.requests.vector_stores import ChangeStoreRequest, CreateStoreRequest
from backend.api.responses.json_bytes import json_response
from backend.api.responses.vector_stores import (
    DeletedAnswer,
    VectorStoreAnswer,
    VectorStoreListAnswer,
    list_answer,
    store_answer,
)
from backend.api.routes.files import FILE_ID
from backend.api.routing import REQUEST_TIMEOUT, action, delete, get, post
from backend.api.service_call import call_within_limit
from backend.search.records import VectorStore

KIND = "vector store"


async def create_store(request: Request) -> Response:
    """Make a vector store, with files if they are given: these are read and indexed in the background."""
    services = services_of(request)
    body = await read_json(request, CreateStoreRequest, services.limits)
    call = services.vector_stores.create(
        context_of(request).caller.owner,
        name=body.name or "",
        description=body.description or "",
        metadata=body.metadata,
        expires_after_days=body.expires_after,
        files=body.files(),
    )
    return _answer(await call_within_limit(request, call))


async def list_stores(request: Request) -> Response:
    """The vector stores of this key, the newest first."""
    page = validate_fields(ListQuery, request.query_params).page()
    call = services_of(request).vector_stores.list_stores(context_of(request).caller.owner, page)
    stores, has_more = await call_within_limit(request, call)
    now_s = time.time()  # noqa: TID251 - a date, not a duration
    return json_response(list_answer([store_answer(store, now_s) for store in stores], has_more=has_more))


async def retrieve_store(request: Request) -> Response:
    """A vector store: how many files of it are indexed, whose vectors it holds, and whether these are being changed."""
    call = services_of(request).vector_stores.find(context_of(request).caller.owner, path_id(request, KIND))
    return _answer(await call_within_limit(request, call))


async def change_store(request: Request) -> Response:
    """Change the name, the description, the metadata or the expiry of a vector store; what is absent stays."""
    services, store_id = services_of(request), path_id(request, KIND)
    body = await read_json(request, ChangeStoreRequest, services.limits)
    call = services.vector_stores.change(context_of(request).caller.owner, store_id, body.change())
    return _answer(await call_within_limit(request, call))


async def delete_store(request: Request) -> Response:
    """Delete a vector store with all that was indexed; the files themselves stay."""
    store_id = path_id(request, KIND)
    call = services_of(request).vector_stores.delete(context_of(request).caller.owner, store_id)
    await call_within_limit(request, call)
    return json_response(DeletedAnswer(id=store_id, object="vector_store.deleted", deleted=True))


async def reembed_store(request: Request) -> Response:
    """Embed all chunks anew with the model that serves now, in the background; the old vectors answer meanwhile.

    `reembedding` of the store tells how far it is. Asked again, it goes on where it stopped.
    """
    call = services_of(request).vector_stores.reembed(context_of(request).caller.owner, path_id(request, KIND))
    return _answer(await call_within_limit(request, call))


def _answer(store: VectorStore) -> Response:
    return json_response(store_answer(store, time.time()))  # noqa: TID251 - a date, not a duration


STORE_ID = "vs_3d1f0a9c6b7e4d28"
STORE: VectorStoreAnswer = {
    "id": STORE_ID,
    "object": "vector_store",
    "created_at": 1767225600,
    "name": "Facturas 2026",
    "description": "",
    "status": "completed",
    "usage_bytes": 181_204,
    "file_counts": {"in_progress": 0, "completed": 12, "cancelled": 0, "failed": 0, "total": 12},
    "metadata": {},
    "last_active_at": 1767225600,
    "expires_after": None,
    "expires_at": None,
    "chunks": 31,
    "encoder": {"name": "intfloat/multilingual-e5-small", "width": 384, "fingerprint": "1f0c9a"},
    "reembedding": None,
}
STORE_PARAMETER = id_parameter(STORE_ID)
_PARAMETERS = (STORE_PARAMETER, REQUEST_TIMEOUT)
_MOVING = {
    **STORE,
    "reembedding": {
        "encoder": {"name": "other/model", "width": 768, "fingerprint": "77ab01"},
        "chunks_done": 8,
        "chunks_total": 31,
    },
}
_BODY_ERRORS = (400, 404, 413, 415, 422, 429, 504)
ROUTES = (
    post(
        "/v1/vector_stores",
        create_store,
        tag="OpenAI",
        request=CreateStoreRequest,
        examples={"empty": {"name": "Facturas 2026"}, "with files": {"name": "Facturas", "file_ids": [FILE_ID]}},
        schema=VectorStoreAnswer,
        example=STORE,
        errors=_BODY_ERRORS,
    ),
    get(
        "/v1/vector_stores",
        list_stores,
        tag="OpenAI",
        schema=VectorStoreListAnswer,
        example=list_answer([STORE], has_more=False),
        errors=(422, 504),
        parameters=(*LIST_PARAMETERS, REQUEST_TIMEOUT),
    ),
    get(
        "/v1/vector_stores/{id}",
        retrieve_store,
        tag="OpenAI",
        schema=VectorStoreAnswer,
        example=STORE,
        errors=(404, 422, 504),
        parameters=_PARAMETERS,
    ),
    post(
        "/v1/vector_stores/{id}",
        change_store,
        tag="OpenAI",
        request=ChangeStoreRequest,
        examples={"expires": {"name": "Facturas", "expires_after": {"anchor": "last_active_at", "days": 30}}},
        schema=VectorStoreAnswer,
        example=STORE,
        errors=_BODY_ERRORS,
        parameters=_PARAMETERS,
    ),
    delete(
        "/v1/vector_stores/{id}",
        delete_store,
        tag="OpenAI",
        schema=DeletedAnswer,
        example={"id": STORE_ID, "object": "vector_store.deleted", "deleted": True},
        errors=(404, 422, 504),
        parameters=_PARAMETERS,
    ),
    action(
        "/v1/vector_stores/{id}/reembed",
        reembed_store,
        tag="documents",
        schema=VectorStoreAnswer,
        example=_MOVING,
        errors=(404, 422, 504),
        parameters=_PARAMETERS,
    ),
)
