"""``POST /v1/embed`` and ``/v2/embed``: vectors for the clients of Cohere's two APIs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.cohere import CohereEmbedRequest, CohereEmbedV2Request
from backend.api.requests.json_body import read_json
from backend.api.responses.cohere import CohereByType, CohereFloats, cohere_by_type, cohere_floats
from backend.api.routes.embeddings import embed
from backend.api.routing import post
from backend.errors import InvalidField


async def create_v1(request: Request) -> Response:
    """Vectors of length 1, bare or in each of the forms that `embedding_types` names.

    `input_type` chooses the prompt where the model has one: search_query, classification and clustering that of
    queries, search_document that of passages. Texts beyond the model's length are cut, and `meta.warnings` says which,
    unless `truncate` is NONE.
    """
    body = await read_json(request, CohereEmbedRequest, services_of(request).limits)
    embedded = await embed(request, body.texts, body.options(), param="texts", model=body.model)
    request_id = context_of(request).request_id
    if not body.encodings:
        return await cohere_floats(embedded, body.texts, request_id)
    return await cohere_by_type(embedded, body.encodings, body.texts, request_id, version="1")


async def create_v2(request: Request) -> Response:
    """The same for Cohere's second API: by type always, `float` unless `embedding_types` names others."""
    services = services_of(request)
    body = await read_json(request, CohereEmbedV2Request, services.limits)
    max_tokens = services.catalog.embedding(body.model).spec.max_tokens
    if body.max_tokens is not None and body.max_tokens < max_tokens:
        raise InvalidField(
            f"max_tokens: texts are read to the model's {max_tokens} tokens, got {body.max_tokens}; leave it out, or "
            "send shorter texts",
            param="max_tokens",
        )
    contents = body.contents()
    embedded = await embed(request, contents, body.options(), param=body.kind, model=body.model)
    encodings = body.encodings or ("float",)
    return await cohere_by_type(embedded, encodings, contents, context_of(request).request_id, version="2")


_TEXTS = ["La factura vence el 31 de marzo.", "Payment is due in 30 days."]
_BILLED = {"billed_units": {"input_tokens": 22}}
_BY_TYPE_EXAMPLE = {
    "response_type": "embeddings_by_type",
    "id": "8f3a1c2b9d4e-17",
    "embeddings": {"float": [[0.0123, -0.0456, 0.0789]], "int8": [[6, -23, 39]]},
    "texts": _TEXTS[:1],
    "meta": {"api_version": {"version": "2"}, **_BILLED},
}
_FLOATS_EXAMPLE = {
    "response_type": "embeddings_floats",
    "id": "8f3a1c2b9d4e-17",
    "embeddings": [[0.0123, -0.0456, 0.0789]],
    "texts": _TEXTS[:1],
    "meta": {"api_version": {"version": "1"}, **_BILLED},
}
_REF = "#/components/schemas/{}"
ROUTES = (
    post(
        "/v1/embed",
        create_v1,
        tag="texts",
        request=CohereEmbedRequest,
        examples={
            "documents": {"texts": _TEXTS, "input_type": "search_document", "truncate": "END"},
            "a query, by type": {
                "texts": ["¿Cuándo vence?"],
                "input_type": "search_query",
                "embedding_types": ["float", "int8"],
            },
        },
        schema={"oneOf": [{"$ref": _REF.format(answer.__name__)} for answer in (CohereFloats, CohereByType)]},
        example=_FLOATS_EXAMPLE,
    ),
    post(
        "/v2/embed",
        create_v2,
        tag="texts",
        request=CohereEmbedV2Request,
        examples={
            "as Cohere's ClientV2 sends it": {
                "model": "bundled",
                "texts": _TEXTS,
                "input_type": "search_document",
                "embedding_types": ["float"],
            },
            "inputs": {
                "inputs": [{"content": [{"type": "text", "text": "¿Cuándo vence?"}]}],
                "input_type": "search_query",
                "embedding_types": ["ubinary", "base64"],
                "output_dimension": 256,
            },
        },
        schema=CohereByType,
        example=_BY_TYPE_EXAMPLE,
    ),
)
