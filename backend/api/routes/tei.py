"""The shapes of Hugging Face's text-embeddings-inference, so that its clients work unchanged."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.classification import PredictRequest
from backend.api.requests.embeddings import EmbedRequest, SimilarityRequest, TokenizeRequest
from backend.api.requests.json_body import read_json
from backend.api.requests.reranking import RankTextsRequest
from backend.api.requests.validation import check_chars, check_count, check_limits
from backend.api.responses.embeddings import (
    TEI_HEADERS,
    tei_embeddings,
    tei_headers,
    token_answer,
    truncated_indices,
)
from backend.api.responses.infinity import InfinityRanks, infinity_ranks
from backend.api.responses.json_bytes import CHARS_PER_ITEM, json_response, written_json
from backend.api.responses.operations import Info, tei_info
from backend.api.responses.texts import tei_predictions, tei_ranks
from backend.api.routes.embeddings import embed
from backend.api.routing import get, post
from backend.api.service_call import call_service, call_service_timed, time_limit_s
from backend.text.embeddings import EmbedOptions

_VECTORS = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
_SCORES = {"type": "array", "items": {"type": "number"}}
_TOKENS: dict[str, Any] = {
    "type": "array",
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/TokenAnswer"}},
}


async def create_vectors(request: Request) -> Response:
    """Vectors as a bare list, one for each input.

    `X-Compute-Tokens` counts the tokens; `X-Truncated` lists the inputs that were cut, where any was, as
    ranges (`0-4,7`), and `X-Truncated-Count` counts them.
    """
    body = await read_json(request, EmbedRequest, services_of(request).limits)
    return await tei_embeddings(await embed(request, body.inputs, body.options(), param="inputs"))


async def compare(request: Request) -> Response:
    """Cosine similarity of one sentence with each of the others."""
    services = services_of(request)
    body = await read_json(request, SimilarityRequest, services.limits)
    source, sentences = body.inputs.source_sentence, body.inputs.sentences
    check_count(sentences, services.limits, "inputs.sentences")
    characters = check_chars([source, *sentences], services.limits, "inputs.sentences")
    options = body.parameters.options() if body.parameters else EmbedOptions(normalize=True)
    call = partial(services.embeddings.similarity, source, sentences, options)
    scores, embedded = await call_service(request, call, characters=characters)
    context, tokens = context_of(request), sum(embedded.tokens)
    context.timing = embedded.timing
    context.meter.charge("tokens", tokens)
    return json_response(scores, headers=tei_headers(tokens, truncated_indices(embedded.truncated)))


async def predict(request: Request) -> Response:
    """Classes of a text, of a pair of texts, or of a batch of both, all with their scores, the best first.

    One text or one pair is answered with a list, a batch with a list of lists. A list of two texts is a pair: a batch
    of two texts is `[["a"], ["b"]]`. The classifier is CLASSIFIER_MODEL's, else the bundled one for document types,
    which reads single texts only. `POST /v1/classify` can be asked for others.
    """
    services = services_of(request)
    body = await read_json(request, PredictRequest, services.limits)
    check_count(body.inputs.rows, services.limits, "inputs")
    characters = check_chars(body.inputs.texts, services.limits, "inputs")
    call = partial(
        services.classification.predict, body.inputs.rows, raw_scores=bool(body.raw_scores), truncate=body.truncation()
    )
    classified = await call_service_timed(request, call, characters=characters)

    def answer() -> list[Any]:
        rows = [tei_predictions(row.predictions) for row in classified.rows]
        return rows if body.inputs.batch else rows[0]

    truncated = truncated_indices([row.truncated for row in classified.rows])
    headers = tei_headers(classified.tokens, truncated)
    return await written_json(answer, classified.prediction_count, headers=headers)


async def rank(request: Request) -> Response:
    """Texts in the order of what they say about the query, the best first.

    With `texts` it is text-embeddings-inference's route and answers a bare list, with `documents` infinity's and
    answers an object. Scores are 0 to 1 unless `raw_scores`.
    """
    services = services_of(request)
    body = await read_json(request, RankTextsRequest, services.limits)
    characters = check_limits([body.query], services.limits, "query")
    if body.documents is not None:
        return await _rank_documents(request, body, characters)
    texts = body.contents()
    characters += check_limits(texts, services.limits, "texts")
    call = partial(services.reranking.rerank, body.query, texts, truncate=body.truncation())
    reranked = await call_service_timed(request, call, characters=characters)
    scores = [(ranked.index, ranked.raw_score if body.raw_scores else ranked.score) for ranked in reranked.results]
    ranks = partial(tei_ranks, scores, texts if body.return_text else None)
    items = characters // CHARS_PER_ITEM if body.return_text else len(scores)
    return await written_json(ranks, items, headers=tei_headers(reranked.tokens, reranked.truncated))


async def _rank_documents(request: Request, body: RankTextsRequest, characters: int) -> Response:
    """The same for infinity's clients."""
    services, documents = services_of(request), body.contents()
    characters += check_limits(documents, services.limits, "documents")
    truncate = body.truncation()
    call = partial(
        services.reranking.rerank, body.query, documents, top_n=body.top_n, model=body.model, truncate=truncate
    )
    reranked = await call_service_timed(request, call, characters=characters)
    answer = partial(
        infinity_ranks,
        reranked,
        documents if body.return_documents else None,
        context_of(request).request_id,
        raw_scores=bool(body.raw_scores),
    )
    items = characters // CHARS_PER_ITEM if body.return_documents else len(reranked.results)
    return await written_json(answer, items, headers=tei_headers(reranked.tokens, reranked.truncated))


async def tokenize(request: Request) -> Response:
    """The model's tokens of each text; `start` and `stop` count Unicode code points of the caller's own text."""
    services = services_of(request)
    body = await read_json(request, TokenizeRequest, services.limits)
    characters = check_limits(body.inputs, services.limits, "inputs")
    call = partial(
        services.embeddings.tokenize,
        body.inputs,
        add_special_tokens=body.add_special_tokens,
        prompt_name=body.prompt_name,
        max_tokens=services.limits.tokenize_tokens,
    )
    return token_answer(
        await call_service(request, call, characters=characters), time_limit_s(request, services.limits)
    )


async def info(request: Request) -> Response:
    """What is served, in text-embeddings-inference's words."""
    services = services_of(request)
    return json_response(tei_info(services.catalog.embedding(None), services.limits, request.app.version))


_PREDICTIONS: dict[str, Any] = {"type": "array", "items": {"$ref": "#/components/schemas/PredictionAnswer"}}
_RANKS: dict[str, Any] = {"type": "array", "items": {"$ref": "#/components/schemas/TextRank"}}
_EMBED_EXAMPLES = {
    "one text": {"inputs": "What is Deep Learning?"},
    "several texts, never cut": {"inputs": ["first text", "segundo texto"], "truncate": False, "normalize": True},
}
_SIMILARITY_EXAMPLE = {
    "inputs": {"source_sentence": "What is Deep Learning?", "sentences": ["What is Machine Learning?", "Una receta"]}
}
ROUTES = (
    post(
        "/embed",
        create_vectors,
        tag="text-embeddings-inference",
        request=EmbedRequest,
        examples=_EMBED_EXAMPLES,
        schema=_VECTORS,
        example=[[0.0123, -0.0456, 0.0789]],
        headers=TEI_HEADERS,
    ),
    post(
        "/similarity",
        compare,
        tag="text-embeddings-inference",
        request=SimilarityRequest,
        examples={"one against two": _SIMILARITY_EXAMPLE},
        schema=_SCORES,
        example=[0.731, 0.052],
        headers=TEI_HEADERS,
    ),
    post(
        "/predict",
        predict,
        tag="text-embeddings-inference",
        request=PredictRequest,
        examples={
            "one text": {"inputs": "Factura n.º 2024-017. Total a pagar: 1.284,50 €."},
            "a batch": {"inputs": [["Invoice 2024-017, due in 30 days"], ["Recibo de alquiler, enero"]]},
        },
        schema={"oneOf": [_PREDICTIONS, {"type": "array", "items": _PREDICTIONS}]},
        example=[{"score": 0.9734, "label": "invoice"}, {"score": 0.0181, "label": "receipt"}],
        headers=TEI_HEADERS,
    ),
    post(
        "/rerank",
        rank,
        tag="text-embeddings-inference",
        request=RankTextsRequest,
        examples={
            "two texts": {"query": "What is Deep Learning?", "texts": ["Una receta.", "Deep Learning is …"]},
            "as infinity's clients send it": {
                "query": "What is Deep Learning?",
                "documents": ["Una receta.", "Deep Learning is …"],
                "top_n": 1,
                "return_documents": True,
            },
        },
        schema={"oneOf": [_RANKS, {"$ref": f"#/components/schemas/{InfinityRanks.__name__}"}]},
        example=[{"index": 1, "score": 0.9871}, {"index": 0, "score": 0.0112}],
        headers=TEI_HEADERS,
    ),
    post(
        "/tokenize",
        tokenize,
        tag="text-embeddings-inference",
        request=TokenizeRequest,
        examples={"one text": {"inputs": "Deep Learning", "add_special_tokens": False}},
        schema=_TOKENS,
        example=[[{"id": 62723, "text": "Deep", "special": False, "start": 0, "stop": 4}]],
    ),
    get(
        "/info",
        info,
        tag="text-embeddings-inference",
        schema=Info,
        example={
            "model_id": "intfloat/multilingual-e5-small",
            "model_sha": "817557b1a417",
            "model_dtype": "int8",
            "model_type": {"embedding": {"pooling": "mean"}},
            "max_input_length": 512,
            "max_batch_tokens": 512,
            "max_client_batch_size": 2048,
            "payload_limit": 16777216,
            "auto_truncate": True,
            "version": "0.1.0",
        },
    ),
)
