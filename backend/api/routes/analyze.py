"""``POST /v1/analyze``: every feature of one text in one request."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import services_of
from backend.api.requests.json_body import read_json
from backend.api.requests.texts import FEATURES, AnalyzeRequest
from backend.api.requests.validation import check_labels, check_limits
from backend.api.responses.json_bytes import written_json
from backend.api.responses.texts import AnalyzeAnswer, analyze_answer
from backend.api.routes.classify import CLASSES_EXAMPLE
from backend.api.routes.entities import ENTITY_EXAMPLES
from backend.api.routing import post
from backend.api.service_call import call_service_timed


async def analyze(request: Request) -> Response:
    """Language, key phrases, key sentences, classes, entities and a vector of one text of any length.

    `features` picks among them; what is not asked for is absent from the answer, what could not be told is null.
    `start` and `end` count Unicode code points of the text as it was sent.
    """
    services = services_of(request)
    body = await read_json(request, AnalyzeRequest, services.limits)
    characters = check_limits([body.input], services.limits, "input")
    check_labels(body.labels, services.limits)
    analysis = await call_service_timed(
        request,
        partial(
            services.analysis.analyze,
            body.input,
            features=body.features,
            top_phrases=body.top_phrases,
            top_sentences=body.top_sentences,
            labels=body.labels,
            classifier=body.classifier,
        ),
        characters=characters,
    )
    answer = partial(analyze_answer, analysis, body.features or FEATURES, body.encoding_format or "float")
    return await written_json(answer, len(analysis.entities) + sum(phrase.count for phrase in analysis.key_phrases))


_TEXT = "Factura de Aceros del Norte, S.A., a Juan Pérez: 1.284,50 €."
ROUTES = (
    post(
        "/v1/analyze",
        analyze,
        tag="texts",
        request=AnalyzeRequest,
        examples={
            "everything": {"input": _TEXT},
            "what it is about": {"input": _TEXT, "features": ["language", "key_phrases"], "top_phrases": 2},
            "classes of your own": {"input": _TEXT, "features": ["classes"], "labels": ["factura", "contrato"]},
        },
        schema=AnalyzeAnswer,
        example={
            "object": "analysis",
            "language": {"code": "es", "score": 0.9998},
            "key_phrases": [{"text": "Aceros del Norte", "score": 0.8121, "places": [{"start": 11, "end": 27}]}],
            "key_sentences": [{"text": _TEXT, "start": 0, "end": len(_TEXT), "score": 1.0}],
            "classes": CLASSES_EXAMPLE,
            "entities": list(ENTITY_EXAMPLES),
            "coverage": 1.0,
            "vector": [0.0123, -0.0456, 0.0789],
            "model": "intfloat/multilingual-e5-small",
            "usage": {"prompt_tokens": 26, "total_tokens": 26},
        },
    ),
)
