"""``POST /v1/rerank`` and ``/v2/rerank``: ranks documents by relevance to a query, for Jina's and Cohere's clients."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.json_body import read_json
from backend.api.requests.reranking import RerankRequest
from backend.api.requests.validation import check_count, check_limits
from backend.api.responses.json_bytes import CHARS_PER_ITEM, written_json
from backend.api.responses.texts import RerankAnswer, cohere_meta, echoed_documents, rerank_answer
from backend.api.routing import post
from backend.api.service_call import call_service_timed


async def rerank(request: Request) -> Response:
    """Documents in the order of what they say about the query, the best first.

    `relevance_score` is 0 to 1 and compares documents of one query. Each result carries its document unless
    `return_documents` is false, as Jina's answers do; Cohere's clients pass over it. Documents beyond the model's
    length are cut and listed in `truncated`, unless `truncate` is none.
    """
    return await _rerank(request, version="1", documents_by_default=True)


async def rerank_v2(request: Request) -> Response:
    """The same for Cohere's second API: documents are left out of the answer unless `return_documents` is true."""
    return await _rerank(request, version="2", documents_by_default=False)


async def _rerank(request: Request, *, version: str, documents_by_default: bool) -> Response:
    services = services_of(request)
    body = await read_json(request, RerankRequest, services.limits)
    check_count(body.documents, services.limits, "documents")
    characters = check_limits([body.query], services.limits, "query")
    texts = body.texts()
    characters += check_limits(texts, services.limits, "documents")
    with_documents = documents_by_default if body.return_documents is None else body.return_documents
    documents = echoed_documents(body.documents) if with_documents else None
    reranked = await call_service_timed(
        request,
        partial(
            services.reranking.rerank,
            body.query,
            texts,
            top_n=body.top_n,
            model=body.model,
            truncate=body.truncate or "end",
        ),
        characters=characters,
    )
    meta = cohere_meta(version, len(texts), reranked.tokens)
    answer = partial(rerank_answer, context_of(request).request_id, reranked, documents, meta)
    return await written_json(answer, characters // CHARS_PER_ITEM if with_documents else len(reranked.results))


_QUERY = "¿Cuándo vence la factura?"
_DOCUMENTS = ["El importe vence el 31 de marzo.", "Nuestra oficina abre a las nueve.", "Payment is due in 30 days."]
_EXAMPLE = {
    "id": "8f3a1c2b9d4e-17",
    "object": "list",
    "model": "intfloat/multilingual-e5-small",
    "results": [
        {"index": 0, "relevance_score": 0.8312, "document": {"text": _DOCUMENTS[0]}},
        {"index": 2, "relevance_score": 0.7105, "document": {"text": _DOCUMENTS[2]}},
    ],
    "usage": {"prompt_tokens": 44, "total_tokens": 44},
    "meta": cohere_meta("1", len(_DOCUMENTS), 44),
}
_V2_EXAMPLE = {
    **_EXAMPLE,
    "results": [{"index": 0, "relevance_score": 0.8312}, {"index": 2, "relevance_score": 0.7105}],
    "meta": cohere_meta("2", len(_DOCUMENTS), 44),
}
ROUTES = (
    post(
        "/v1/rerank",
        rerank,
        tag="texts",
        request=RerankRequest,
        examples={
            "texts": {"query": _QUERY, "documents": _DOCUMENTS, "top_n": 2},
            "objects, read in two fields": {
                "query": "payment terms",
                "documents": [{"title": "Pago", "text": "A 30 días.", "id": 7}, {"title": "Entrega", "text": "Lunes."}],
                "rank_fields": ["title", "text"],
                "return_documents": True,
            },
        },
        schema=RerankAnswer,
        example=_EXAMPLE,
    ),
    post(
        "/v2/rerank",
        rerank_v2,
        tag="texts",
        request=RerankRequest,
        examples={"as Cohere's ClientV2 sends it": {"query": _QUERY, "documents": _DOCUMENTS, "top_n": 2}},
        schema=RerankAnswer,
        example=_V2_EXAMPLE,
    ),
)
