"""``POST /v1/rerank`` and ``/v2/rerank``: documents by what they say about a query, for Jina's and Cohere's clients."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.answers import json_answer
from backend.api.body import read_json
from backend.api.deps import exchange_of, services_of
from backend.api.routes.plain import post
from backend.api.schemas.checks import check_count, check_limits
from backend.api.schemas.ranking import RerankRequest
from backend.api.schemas.text_answers import RerankAnswer
from backend.api.service_call import ask_timed
from backend.api.text_answers import truncated, usage
from backend.services.reranking import Ranked, Reranked

_UNIT_DOCUMENTS = 100  # a search unit of Cohere's is a query with up to so many documents


async def rerank(request: Request) -> Response:
    """Documents in the order of what they say about the query, the best first.

    `relevance_score` is 0 to 1 and compares documents of one query. Each result carries its document unless
    `return_documents` is false, as Jina's answers do; Cohere's clients pass over it. Documents beyond the model's
    length are cut and listed in `truncated`, unless `truncate` is none.
    """
    return await _rerank(request, version="1", documents_unless_told=True)


async def rerank_v2(request: Request) -> Response:
    """The same for Cohere's second API: documents are left out of the answer unless `return_documents` is true."""
    return await _rerank(request, version="2", documents_unless_told=False)


async def _rerank(request: Request, *, version: str, documents_unless_told: bool) -> Response:
    services = services_of(request)
    asked = await read_json(request, RerankRequest, services.limits)
    check_count(asked.documents, services.limits, "documents")
    check_limits([asked.query], services.limits, "query")
    texts = asked.texts()
    check_limits(texts, services.limits, "documents")
    reranked = await ask_timed(
        request,
        partial(
            services.reranking.rerank,
            asked.query,
            texts,
            top_n=asked.top_n,
            model=asked.model,
            truncate=asked.truncate or "end",
        ),
    )
    shown = documents_unless_told if asked.return_documents is None else asked.return_documents
    head = {"id": exchange_of(request).request_id, "object": "list"}
    results = [_result(one, asked.documents if shown else None) for one in reranked.results]
    meta = _meta(version, len(texts), reranked.tokens)
    return json_answer({**head, **_body(reranked, results), "meta": meta})


def _body(reranked: Reranked, results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": reranked.model,
        "results": results,
        "usage": usage(reranked.tokens),
        **truncated(reranked.truncated),
    }


def _result(one: Ranked, documents: list[str | dict[str, Any]] | None) -> dict[str, Any]:
    result: dict[str, Any] = {"index": one.index, "relevance_score": one.score}
    if documents is not None:
        document = documents[one.index]
        result["document"] = {"text": document} if isinstance(document, str) else document
    return result


def _meta(version: str, documents: int, tokens: int) -> dict[str, Any]:
    """What Cohere's clients read beside the results."""
    return {
        "api_version": {"version": version},
        "billed_units": {"search_units": math.ceil(documents / _UNIT_DOCUMENTS)},
        "tokens": {"input_tokens": tokens},
    }


_QUERY = "¿Cuándo vence la factura?"
_DOCUMENTS = ["El importe vence el 31 de marzo.", "Nuestra oficina abre a las nueve.", "Payment is due in 30 days."]
_EXAMPLE = {
    "id": "8f3a1c2b9d4e-17",
    "object": "list",
    "model": "sentence-transformers/all-MiniLM-L6-v2",
    "results": [
        {"index": 0, "relevance_score": 0.8312, "document": {"text": _DOCUMENTS[0]}},
        {"index": 2, "relevance_score": 0.7105, "document": {"text": _DOCUMENTS[2]}},
    ],
    "usage": {"prompt_tokens": 44, "total_tokens": 44},
    "meta": _meta("1", len(_DOCUMENTS), 44),
}
_V2_EXAMPLE = {
    **_EXAMPLE,
    "results": [{"index": 0, "relevance_score": 0.8312}, {"index": 2, "relevance_score": 0.7105}],
    "meta": _meta("2", len(_DOCUMENTS), 44),
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
