"""``POST /admin/models``: replaces a served model. Needs a key of ADMIN_KEYS, also where no other route needs any."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from backend.api.api_keys import require_admin
from backend.api.dependencies import services_of
from backend.api.requests.embeddings import LoadModelRequest
from backend.api.requests.json_body import read_json
from backend.api.responses.json_bytes import json_response
from backend.api.responses.operations import ModelCard, model_card
from backend.api.routes.models import CARD_EXAMPLE
from backend.api.routing import post


async def load_model(request: Request) -> Response:
    """Load a model, prove that it computes, and serve it from then on; the old one answers until then.

    `source` is a folder on the server, such as `python -m backend.training` writes, a hub id with `@revision`, or
    `bundled`. Only keys of ADMIN_KEYS may. Answers with the new model. Nothing is kept for the next start: that reads
    EMBEDDING_MODEL and NER_MODEL.

    `replicas: all` has every replica serve it, also one that starts later: each loads it beside the old model, a
    quarter of them at a time, once it serves here. `shared_state` in `GET /v1/system` of any replica has the progress.
    """
    require_admin(request)
    services = services_of(request)
    body = await read_json(request, LoadModelRequest, services.limits)
    swap = services.model_wishes.wish if body.replicas == "all" else services.loader.load
    return json_response(model_card(await swap(body.source, body.task)))


ROUTES = (
    post(
        "/admin/models",
        load_model,
        tag="operations",
        request=LoadModelRequest,
        examples={
            "a trained model": {"task": "embeddings", "source": "/models/invoices-2026-11"},
            "on all replicas": {"task": "ner", "source": "owner/model@revision", "replicas": "all"},
        },
        schema=ModelCard,
        example=CARD_EXAMPLE,
        errors=(400, 401, 403, 413, 415, 422, 503, 504),
        parameters=(),
    ),
)
