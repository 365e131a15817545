"""``POST /v1/entities``: the names, numbers and dates in texts."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import services_of
from backend.api.requests.json_body import read_json
from backend.api.requests.texts import EntitiesRequest
from backend.api.requests.validation import check_limits
from backend.api.responses.json_bytes import written_json
from backend.api.responses.texts import EntitiesAnswer, entities_answer
from backend.api.routing import post
from backend.api.service_call import call_service_timed


async def find_entities(request: Request) -> Response:
    """Names, numbers and dates in texts of any length, with their places.

    `start` and `end` count Unicode code points of the text as it was sent. Names (PER, ORG, LOC) come from a model;
    accounts, tax numbers, dates, amounts and addresses from patterns, with their normalised `value` and whether their
    checksum is right. Where two overlap one is kept; `explain` tells which gave way and why. Long texts are read in
    overlapping windows; nothing is cut. Order is kept; equal texts are read once.
    """
    services = services_of(request)
    body = await read_json(request, EntitiesRequest, services.limits)
    characters = check_limits(body.input, services.limits, "input")
    result = await call_service_timed(
        request,
        partial(
            services.entities.find,
            body.input,
            types=body.types,
            min_score=body.min_score,
            sources=body.sources,
            model=body.model,
        ),
        characters=characters,
    )
    answer = partial(entities_answer, result, explain=bool(body.explain))
    return await written_json(answer, sum(len(row.entities) + len(row.lost) for row in result.rows))


ENTITY_EXAMPLES = (
    {
        "type": "ORG",
        "text": "Aceros del Norte, S.A.",
        "start": 11,
        "end": 33,
        "score": 0.9412,
        "source": "model",
        "value": None,
        "valid": None,
    },
    {
        "type": "MONEY",
        "text": "1.284,50 €",
        "start": 49,
        "end": 59,
        "score": 0.95,
        "source": "pattern",
        "value": "1284.50 EUR",
        "valid": None,
    },
)
ROUTES = (
    post(
        "/v1/entities",
        find_entities,
        tag="texts",
        request=EntitiesRequest,
        examples={
            "one text": {"input": "Factura de Aceros del Norte, S.A., a Juan Pérez: 1.284,50 €."},
            "people and organisations only, sure ones": {
                "input": ["Acme Ltd hired Jane Doe.", "Sin nombres."],
                "types": ["ORG", "PER"],
                "min_score": 0.8,
            },
            "patterns only, with what gave way": {
                "input": "IBAN ES91 2100 0418 4502 0005 1332, vence el 31/03/2026.",
                "sources": ["pattern"],
                "explain": True,
            },
        },
        schema=EntitiesAnswer,
        example={
            "object": "list",
            "data": [{"index": 0, "entities": list(ENTITY_EXAMPLES), "coverage": 1.0}],
            "model": "ner-es-en",
            "usage": {"prompt_tokens": 26, "total_tokens": 26},
        },
    ),
)
