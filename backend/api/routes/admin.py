"""``POST /admin/models``: another model in place of the one that serves. Needs a key, also where nothing else does."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from backend.api.answers import json_answer
from backend.api.body import read_json
from backend.api.deps import services_of
from backend.api.routes.models import CARD_EXAMPLE, card
from backend.api.routes.plain import post
from backend.api.schemas.answers import ModelCard
from backend.api.schemas.vectors import LoadModelRequest
from backend.errors import Unauthorized


async def load_model(request: Request) -> Response:
    """Load a model, prove that it computes, and serve it from then on; the old one answers until then.

    `source` is a folder on the server, such as `python -m backend.training` writes, a hub id with `@revision`, or
    `bundled`. Answers with the new model. Nothing is kept for the next start: that reads EMBEDDING_MODEL and NER_MODEL.
    """
    if not request.app.state.keys_needed:
        raise Unauthorized("this call changes what is served: start the service with API_KEYS and send one of them")
    services = services_of(request)
    asked = await read_json(request, LoadModelRequest, services.limits)
    return json_answer(card(await services.loader.load(asked.source, asked.task)))


ROUTES = (
    post(
        "/admin/models",
        load_model,
        tag="operations",
        request=LoadModelRequest,
        examples={"a trained model": {"task": "embeddings", "source": "/models/invoices-2026-11"}},
        schema=ModelCard,
        example=CARD_EXAMPLE,
        errors=(401, 413, 415, 422),
    ),
)
