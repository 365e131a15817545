"""``POST /v1/entities``: the names in texts."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.answer_schemas import EntitiesAnswer
from backend.api.answers import json_answer
from backend.api.body import read_json
from backend.api.deps import exchange_of, services_of, time_limit_s
from backend.api.routes.plain import post
from backend.api.schemas import EntitiesRequest, check_limits
from backend.api.watch import while_wanted
from backend.services.entities import Entity, Found, FoundIn

_SOURCE = "model"


async def find_entities(request: Request) -> Response:
    """Names in texts of any length, with their places.

    `start` and `end` count Unicode code points of the text as it was sent. Long texts are read in overlapping windows;
    nothing is cut. Order is kept; equal texts are read once.
    """
    services = services_of(request)
    asked = await read_json(request, EntitiesRequest, services.limits)
    check_limits(asked.input, services.limits, "input")
    limit_s = time_limit_s(request, services.limits)
    work = services.entities.find(
        asked.input,
        types=asked.types,
        min_score=asked.min_score,
        model=asked.model,
        deadline_s=time.monotonic() + limit_s,
    )
    found = await while_wanted(work, request.receive, limit_s)
    exchange_of(request).timing = found.timing
    return json_answer(_answer(found))


def _answer(found: Found) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [_item(index, row) for index, row in enumerate(found.rows)],
        "model": found.model,
        "usage": {"prompt_tokens": found.tokens, "total_tokens": found.tokens},
    }


def _item(index: int, row: FoundIn) -> dict[str, Any]:
    return {"index": index, "entities": [_entity(one) for one in row.entities], "coverage": row.coverage}


def _entity(one: Entity) -> dict[str, Any]:
    place = {"start": one.start, "end": one.end}
    return {"type": one.type, "text": one.text, **place, "score": one.score, "source": _SOURCE}


ROUTES = (
    post(
        "/v1/entities",
        find_entities,
        tag="FinancIA",
        request=EntitiesRequest,
        examples={
            "one text": {"input": "Factura de Aceros del Norte, S.A., a Juan Pérez, Bilbao."},
            "people and organisations only, sure ones": {
                "input": ["Acme Ltd hired Jane Doe.", "Sin nombres."],
                "types": ["ORG", "PER"],
                "min_score": 0.8,
            },
        },
        schema=EntitiesAnswer,
        example={
            "object": "list",
            "data": [
                {
                    "index": 0,
                    "entities": [
                        {
                            "type": "PER",
                            "text": "Juan Pérez",
                            "start": 37,
                            "end": 47,
                            "score": 0.9871,
                            "source": "model",
                        }
                    ],
                    "coverage": 1.0,
                }
            ],
            "model": "ner-es-en",
            "usage": {"prompt_tokens": 21, "total_tokens": 21},
        },
    ),
)
