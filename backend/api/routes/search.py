"""``POST /v1/vector_stores/{id}/search``: hybrid search whose hits point at their place on the page."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.identifiers import path_id
from backend.api.requests.json_body import read_json
from backend.api.requests.search import SearchRequest
from backend.api.requests.validation import check_chars
from backend.api.responses.json_bytes import written_json
from backend.api.responses.search import SearchPageAnswer, search_answer
from backend.api.routes.files import FILE_ID
from backend.api.routes.vector_stores import KIND, STORE_PARAMETER
from backend.api.routing import REQUEST_TIMEOUT, post
from backend.api.service_call import call_service
from backend.lanes.inference import Urgency
from backend.search.records import VectorStore
from backend.search.search_records import SearchAnswer


async def search(request: Request) -> Response:
    """The chunks of a vector store that answer a query best: by meaning and by words, reranked where that is set up.

    A hit has OpenAI's fields, and its place: `page`, `boxes` of its lines, `highlights` of the query's words with their
    boxes; of a recording, seconds. Filters look at the caller's attributes, then at those found in the document
    (`found_attributes` of its file). 409 `wrong_encoder`: another model made the vectors of this store; `POST
    …/reembed`.
    """
    services, context = services_of(request), context_of(request)
    store_id = path_id(request, KIND)
    body = await read_json(request, SearchRequest, services.limits)
    characters = check_chars(body.query, services.limits, "query")
    options = body.options()

    async def work(*, deadline_s: float) -> SearchAnswer:
        urgency = Urgency(deadline_s=deadline_s)
        owner = context.caller.owner
        found = await services.search.search(owner, store_id, body.query, options, urgency)
        store = await services.vector_stores.find(owner, store_id)
        return replace(found, warnings=(*body.warnings(), *_of_files_to_come(store), *found.warnings))

    answer = await call_service(request, work, characters=characters)
    context.meter.charge("tokens", answer.tokens)
    places = sum(len(hit.places) + len(hit.highlights) for hit in answer.hits)
    return await written_json(partial(search_answer, answer), places)


def _of_files_to_come(store: VectorStore) -> tuple[str, ...]:
    """A warning while files of the store are still being read: an answer without their hits looks complete."""
    count = store.counts.get("in_progress", 0)
    if not count:
        return ()
    files = "1 file of this store is" if count == 1 else f"{count:,} files of this store are"
    return (f"{files} still being read and cannot be found yet; GET /v1/vector_stores/{store.id} tells when",)


_HIT: dict[str, Any] = {
    "file_id": FILE_ID,
    "filename": "factura-017.pdf",
    "score": 0.9836,
    "attributes": {"year": 2026},
    "content": [{"type": "text", "text": "Vencimiento: 31 de marzo de 2026"}],
    "chunk_id": "48",
    "chunk_index": 1,
    "start": 412,
    "end": 444,
    "page": 1,
    "pages": [1],
    "start_s": None,
    "end_s": None,
    "boxes": [{"page": 1, "box": [56.7, 640.1, 260.4, 652.3]}],
    "highlights": [{"start": 0, "end": 11, "boxes": [{"page": 1, "box": [56.7, 640.1, 118.2, 652.3]}]}],
    "scores": {"vector": 0.871, "keyword": 6.42, "rerank": None},
    "duplicates": [],
    "page_sizes": [{"page": 1, "width": 595.0, "height": 842.0, "rotation": 0}],
}
_EXAMPLE = {
    "object": "vector_store.search_results.page",
    "search_query": ["¿Cuándo vence la factura?"],
    "data": [_HIT],
    "has_more": False,
    "next_page": None,
    "warnings": [],
    "usage": {"prompt_tokens": 9, "total_tokens": 9},
}
ROUTES = (
    post(
        "/v1/vector_stores/{id}/search",
        search,
        tag="OpenAI",
        request=SearchRequest,
        examples={
            "a question": {"query": "¿Cuándo vence la factura?", "max_num_results": 5},
            "with filters": {
                "query": "factura",
                "filters": {
                    "type": "and",
                    "filters": [
                        {"key": "vendor_tax_id", "type": "eq", "value": "B12345674"},
                        {"key": "invoice_total", "type": "gt", "value": 1000},
                    ],
                },
                "ranking_options": {
                    "ranker": "auto",
                    "score_threshold": 0.2,
                    "hybrid_search": {"embedding_weight": 1, "text_weight": 2},
                },
            },
        },
        schema=SearchPageAnswer,
        example=_EXAMPLE,
        errors=(400, 404, 409, 413, 415, 422, 429, 504, 507),
        parameters=(STORE_PARAMETER, REQUEST_TIMEOUT),
    ),
)
