"""``POST /v1/similarity``: cosines of one text with others, and calibrated scores."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.json_body import read_json
from backend.api.requests.similarity import CompareRequest
from backend.api.requests.validation import check_chars, check_count
from backend.api.responses.json_bytes import json_response
from backend.api.responses.similarity import SimilarityAnswer, similarity_answer
from backend.api.routing import post
from backend.api.service_call import call_service


async def compare(request: Request) -> Response:
    """Cosine and calibrated score of each sentence with the source, in the order of the sentences.

    `score` estimates how alike people would find the two texts, whatever the model's range of cosines. `truncated`
    counts the source as input 0 and the first sentence as input 1.
    """
    services = services_of(request)
    body = await read_json(request, CompareRequest, services.limits)
    check_count(body.sentences, services.limits, "sentences")
    characters = check_chars([body.source, *body.sentences], services.limits, "sentences")
    call = partial(services.similarity.compare, body.source, body.sentences, body.options(), model=body.model)
    compared = await call_service(request, call, characters=characters)
    context = context_of(request)
    context.timing = compared.embedded.timing
    context.meter.charge("tokens", sum(compared.embedded.tokens))
    return json_response(similarity_answer(compared))


ROUTES = (
    post(
        "/v1/similarity",
        compare,
        tag="texts",
        request=CompareRequest,
        examples={
            "sentences": {
                "source": "La factura vence el 31 de marzo.",
                "sentences": ["Payment is due on 31 March.", "Nuestra oficina abre a las nueve."],
            }
        },
        schema=SimilarityAnswer,
        example={
            "object": "list",
            "model": "intfloat/multilingual-e5-small",
            "results": [
                {"index": 0, "cosine": 0.9312, "score": 0.5817},
                {"index": 1, "cosine": 0.8329, "score": 0.161},
            ],
            "usage": {"prompt_tokens": 34, "total_tokens": 34},
        },
    ),
)
