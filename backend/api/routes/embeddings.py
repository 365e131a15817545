"""``POST /v1/embeddings``: vectors in OpenAI's shape."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import services_of
from backend.api.requests.embeddings import EmbeddingsRequest
from backend.api.requests.json_body import read_json
from backend.api.requests.validation import check_limits
from backend.api.responses.embeddings import EmbeddingsAnswer, openai_embeddings
from backend.api.routing import post
from backend.api.service_call import call_service_timed
from backend.text.embeddings import EmbeddingResult, EmbedOptions


async def create_embeddings(request: Request) -> Response:
    """Vectors of texts or token ids.

    Order is kept; equal texts are computed once. Without `truncate: none` a text beyond the model's length is cut
    and its index listed in `truncated`. A text is read as it is, unless `prompt_name`, `task` or `input_type` chooses
    one of the model's prompts. The `Server-Timing` header tells where the time went.
    """
    services = services_of(request)
    body = await read_json(request, EmbeddingsRequest, services.limits)
    embedded = await embed(request, body.input, body.options(), param="input", model=body.model)
    return await openai_embeddings(embedded, body.encoding)


async def embed(
    request: Request, inputs: Any, options: EmbedOptions, *, param: str, model: str | None = None
) -> EmbeddingResult:
    """Embed checked ``inputs`` for as long as the client waits; ``param`` is the field they came in.

    Raises: TooLarge, CallerGone, DeadlineExceeded, and whatever the service raises.
    """
    services = services_of(request)
    characters = check_limits(inputs, services.limits, param)
    call = partial(services.embeddings.embed, inputs, options, model=model)
    return await call_service_timed(request, call, characters=characters)


ROUTES = (
    post(
        "/v1/embeddings",
        create_embeddings,
        tag="OpenAI",
        request=EmbeddingsRequest,
        examples={
            "one text": {"input": "La factura vence el 31 de marzo."},
            "several texts, base64": {
                "input": ["Invoice 2024-017, due in 30 days", "Recibo de alquiler, enero"],
                "model": "bundled",
                "encoding_format": "base64",
            },
            "never cut, 128 dimensions": {"input": ["a long contract …"], "truncate": "none", "dimensions": 128},
            "a question, in Jina's words": {"input": [{"text": "¿Cuándo vence?"}], "task": "retrieval.query"},
            "token ids": {"input": [[0, 35378, 2], [0, 33600, 31, 8999, 2]]},
        },
        schema=EmbeddingsAnswer,
        example={
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.0123, -0.0456, 0.0789]}],
            "model": "intfloat/multilingual-e5-small",
            "usage": {"prompt_tokens": 12, "total_tokens": 12},
        },
    ),
)
