"""``POST /v1/rerank`` and ``/v2/rerank``: ranks documents by relevance to a query, for Jina's and Cohere's clients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import CHARS_PER_ITEM, echoed_json, read_json, written_json
from backend.api.request_context import Handle, call_service_timed, context_of, limits_of
from backend.api.request_fields import (
    LIMIT_KEYWORD,
    TEXT,
    AnyTruncate,
    Count,
    Sentence,
    WireRequest,
    check_count,
    check_limits,
    many,
    reads,
    require_no_empty_items,
    require_not_empty,
    wrong_type,
)
from backend.api.routes.embeddings import TRUNCATE, Usage, usage
from backend.api.routing import REQUEST_TIMEOUT, name_parameter, post
from backend.errors import InvalidField
from backend.models.tokenizer import Truncate
from backend.text.reranking import RankedDocument, RerankResult, RerankService

_reranking_of: Handle[RerankService] = Handle("reranking")

Document = str | dict[str, Any]
# Objects have the field text, unless rank_fields names others.
_OTHER_FIELDS: dict[str, Any] = {"properties": {"rank_fields": {"type": "array"}}, "required": ["rank_fields"]}
_TEXT_FIELD: dict[str, Any] = {
    "properties": {
        "documents": {"items": {"anyOf": [{"type": "string"}, {"properties": {"text": TEXT}, "required": ["text"]}]}}
    }
}


def _check_documents(value: Any, name: str) -> list[Document]:
    if type(value) is not list:
        raise wrong_type(name, value, "a list of texts or of objects with the field text")
    require_not_empty(value, name)
    for index, document in enumerate(value):
        if type(document) not in (str, dict):
            raise wrong_type(f"{name}[{index}]", document, "a text or an object with the field text")
    return value


def _said_in_words(value: Any) -> Any:
    """Xinference's clients send a boolean as "true"."""
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


class RerankRequest(WireRequest):
    """The request of Cohere's and Jina's clients."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [_OTHER_FIELDS, _TEXT_FIELD]})

    query: Sentence = Field(description="What the documents are to say something about.")
    documents: Annotated[Any, reads(_check_documents), WithJsonSchema(many({"oneOf": [TEXT, {"type": "object"}]}))] = (
        Field(description="Texts, or objects with the field text, at most LIMIT_INPUTS.")
    )
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")
    top_n: Count | None = Field(None, description="How many results to answer with, best first; unset: all.")
    top_k: Count | None = Field(None, description="Voyage's word for top_n.")
    return_documents: Annotated[bool | None, BeforeValidator(_said_in_words)] = Field(
        None, description="Whether results carry their documents; unset: true as Jina's, on /v2 false as Cohere's."
    )
    truncation: bool | None = Field(
        None, description="Voyage's word for truncate; with its words the answer has `data` beside `results`."
    )
    rank_fields: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="Fields of the documents that are read, in this order, where they are objects; unset: text."
    )
    truncate: Truncate | None = Field("end", description=TRUNCATE)
    max_tokens_per_doc: Any = Field(None, description="Accepted and ignored: documents are read to the model's length.")

    def is_voyage(self) -> bool:
        """Whether the request has words of Voyage's clients."""
        return self.truncation is not None or self.top_k is not None

    def truncation_side(self) -> Truncate:
        """Where a long document is cut, by either word."""
        return "none" if self.truncation is False else self.truncate or "end"

    def texts(self) -> list[str]:
        """The text to rank of each document, in their order.

        Raises: BadInput for an empty one, InvalidField for one without any of the fields.
        """
        order = {field: index for index, field in enumerate(dict.fromkeys(self.rank_fields or ["text"]))}
        texts = [self._text(document, order, f"documents[{index}]") for index, document in enumerate(self.documents)]
        require_no_empty_items(texts, "documents")
        return texts

    def _text(self, document: Document, order: dict[str, int], place: str) -> str:
        if isinstance(document, str):
            return document
        # The intersection goes through the shorter side: each document through each of many fields takes minutes.
        values = {field: document[field] for field in sorted(document.keys() & order.keys(), key=order.__getitem__)}
        if not values:
            where = "the fields of rank_fields" if self.rank_fields else "a text, or an object with the field text"
            raise InvalidField(f"{place}: must have {where}", param="documents")
        for field, value in values.items():
            if type(value) is not str:
                raise wrong_type(f"{place}.{field}", value, "a text")
        return "\n".join(values.values())


_UNIT_DOCUMENTS = 100  # a search unit of Cohere's is a query with up to so many documents


class RankedAnswer(TypedDict):
    """One document and how much it says about the query."""

    index: Annotated[int, Field(description="Place of the document in the request.")]
    relevance_score: Annotated[float, Field(description="0 to 1.")]
    document: NotRequired[
        Annotated[
            dict[str, Any] | None,
            Field(default=None, description="As it was sent, a text as {text}; absent if not wanted."),
        ]
    ]


class RerankAnswer(TypedDict):
    """`POST /v1/rerank`, in the shape of Jina's and Cohere's clients."""

    id: Annotated[str, Field(description="The request's id, as in X-Request-Id.")]
    object: Literal["list"]
    model: str
    results: Annotated[list[RankedAnswer], Field(description="Best first.")]
    usage: Usage
    data: NotRequired[
        Annotated[list[dict[str, Any]] | None, Field(default=None, description="The results for Voyage's clients.")]
    ]
    truncated: NotRequired[
        Annotated[
            list[int] | None,
            Field(default=None, description="Indices of documents that were cut; absent when none was."),
        ]
    ]
    meta: Annotated[dict[str, Any], Field(description="What Cohere's clients read: API version, search units, tokens.")]


class _Optional(TypedDict):
    truncated: NotRequired[list[int] | None]
    data: NotRequired[list[dict[str, Any]] | None]


def rerank_answer(
    request_id: str, reranked: RerankResult, documents: Sequence[Any] | None, meta: dict[str, Any]
) -> RerankAnswer:
    """The ranked documents, best first.

    Args:
        documents: those of the request, of ``echoed_documents``, where results carry them, else None.
        meta: of ``cohere_meta``.
    """
    optional: _Optional = {"truncated": list(reranked.truncated)} if reranked.truncated else {}
    return {
        "id": request_id,
        "object": "list",
        "model": reranked.model,
        "results": [_ranked_answer(ranked, documents) for ranked in reranked.results],
        "usage": usage(reranked.tokens),
        **optional,
        "meta": meta,
    }


def echoed_documents(documents: Sequence[str | dict[str, Any]]) -> list[Any]:
    """What results say of each document: an object as it was sent, a text as {text}.

    Raises: InvalidField for an object with a number that JSON cannot say.
    """
    return [
        {"text": document} if isinstance(document, str) else echoed_json(document, f"documents[{index}]")
        for index, document in enumerate(documents)
    ]


def _ranked_answer(ranked: RankedDocument, documents: Sequence[Any] | None) -> RankedAnswer:
    answer: RankedAnswer = {"index": ranked.index, "relevance_score": ranked.score}
    if documents is not None:
        answer["document"] = documents[ranked.index]
    return answer


def _of_voyage(results: Sequence[RankedAnswer]) -> list[dict[str, Any]]:
    """The results as Voyage's clients read them: a document is its text, an object stays as it was sent."""
    return [
        {**result, "document": document["text"]} if isinstance(document := result.get("document"), dict) else {**result}
        for result in results
    ]


def cohere_meta(version: str, document_count: int, tokens: int) -> dict[str, Any]:
    """What Cohere's clients read beside the results."""
    return {
        "api_version": {"version": version},
        "billed_units": {"search_units": math.ceil(document_count / _UNIT_DOCUMENTS)},
        "tokens": {"input_tokens": tokens},
    }


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
    body = await read_json(request, RerankRequest)
    check_count(body.documents, limits_of(request), "documents")
    characters = check_limits([body.query], limits_of(request), "query")
    texts = body.texts()
    characters += check_limits(texts, limits_of(request), "documents")
    with_documents = documents_by_default if body.return_documents is None else body.return_documents
    documents = echoed_documents(body.documents) if with_documents else None
    reranked = await call_service_timed(
        request,
        partial(
            _reranking_of(request).rerank,
            body.query,
            texts,
            top_n=body.top_k if body.top_n is None else body.top_n,
            model=body.model,
            truncate=body.truncation_side(),
        ),
        characters=characters,
    )
    meta = cohere_meta(version, len(texts), reranked.tokens)
    request_id = context_of(request).request_id

    def answer() -> dict[str, Any]:
        cohere = rerank_answer(request_id, reranked, documents, meta)
        return {**cohere, "data": _of_voyage(cohere["results"])} if body.is_voyage() else {**cohere}

    return await written_json(answer, characters // CHARS_PER_ITEM if with_documents else len(reranked.results))


class NvidiaText(WireRequest):
    """A text as NVIDIA's rerankers take it."""

    text: Sentence


class RankingRequest(WireRequest):
    """`POST /v1/ranking`: the request of NVIDIA's rerankers."""

    query: NvidiaText
    passages: Annotated[list[NvidiaText], Field(min_length=1, json_schema_extra={LIMIT_KEYWORD: "LIMIT_INPUTS"})]
    top_k: Count | None = Field(None, description="How many rankings to answer with, best first; unset: all.")
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")
    truncate: AnyTruncate = Field("end", description=TRUNCATE)


class Ranking(TypedDict):
    """One passage and how much it says about the query."""

    index: int
    logit: Annotated[float, Field(description="The model's own score, without bounds.")]


class RankingAnswer(TypedDict):
    """`POST /v1/ranking`."""

    rankings: Annotated[list[Ranking], Field(description="Best first.")]
    usage: Usage


async def rank_passages(request: Request) -> Response:
    """Passages in the order of what they say about the query, for NVIDIA's clients; scores are the model's own.

    A model in the path counts where the body names none.
    """
    body = await read_json(request, RankingRequest)
    passages = [passage.text for passage in body.passages]
    characters = check_limits([body.query.text], limits_of(request), "query")
    characters += check_limits(passages, limits_of(request), "passages")
    call = partial(
        _reranking_of(request).rerank,
        body.query.text,
        passages,
        top_n=body.top_k,
        model=body.model or request.path_params.get("name"),
        truncate=body.truncate or "end",
    )
    reranked = await call_service_timed(request, call, characters=characters)

    def answer() -> RankingAnswer:
        rankings: list[Ranking] = [{"index": ranked.index, "logit": ranked.raw_score} for ranked in reranked.results]
        return {"rankings": rankings, "usage": usage(reranked.tokens)}

    return await written_json(answer, len(reranked.results))


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
        "/v2/rerank", rerank_v2, tag="texts", request=RerankRequest,
        examples={"as Cohere's ClientV2 sends it": {"query": _QUERY, "documents": _DOCUMENTS, "top_n": 2}},
        schema=RerankAnswer, example=_V2_EXAMPLE,
    ),
    *(
        post(
            path,
            rank_passages,
            tag="texts",
            request=RankingRequest,
            examples={
                "as NVIDIA's clients send it": {
                    "query": {"text": _QUERY},
                    "passages": [{"text": text} for text in _DOCUMENTS],
                }
            },
            schema=RankingAnswer,
            example={"rankings": [{"index": 0, "logit": 0.8871}], "usage": {"prompt_tokens": 44, "total_tokens": 44}},
            parameters=parameters,
        )
        for path, parameters in (
            ("/v1/ranking", (REQUEST_TIMEOUT,)),
            ("/v1/retrieval/{name:path}/reranking", (name_parameter("bundled"), REQUEST_TIMEOUT)),
        )
    ),
)  # fmt: skip
