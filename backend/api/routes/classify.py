"""``POST /v1/classify``: the classes of texts, in Jina's shape."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.answers import json_answer
from backend.api.body import read_json
from backend.api.deps import services_of
from backend.api.routes.plain import post
from backend.api.schemas.checks import check_labels, check_limits
from backend.api.schemas.classes import ClassifyRequest
from backend.api.schemas.text_answers import ClassifyAnswer
from backend.api.service_call import ask_timed
from backend.api.text_answers import classes, truncated, usage
from backend.services.classification import Classified


async def classify(request: Request) -> Response:
    """Classes of texts: those named in the request, or those of a classifier.

    With `labels` any words will do, nothing has to be learnt before (zero-shot). Without them the classifier named by
    `model` answers, or the one for document types; it may abstain: `prediction` is then null and `score` that of the
    best label. Order is kept.
    """
    services = services_of(request)
    asked = await read_json(request, ClassifyRequest, services.limits)
    check_limits(asked.input, services.limits, "input")
    check_labels(asked.labels, services.limits)
    classified = await ask_timed(
        request,
        partial(
            services.classification.classify,
            asked.input,
            labels=asked.labels,
            model=asked.classifier,
            multi_label=asked.multi_label,
            top_k=asked.top_k,
            min_score=asked.min_score,
            hypothesis_template=asked.hypothesis_template,
        ),
    )
    return json_answer(_answer(classified))


def _answer(classified: Classified) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [
            {"object": "classification", "index": index, **classes(row)} for index, row in enumerate(classified.rows)
        ],
        "model": classified.model,
        "usage": usage(classified.tokens),
        **truncated([index for index, row in enumerate(classified.rows) if row.truncated]),
    }


CLASSES_EXAMPLE = {
    "prediction": "invoice",
    "score": 0.9734,
    "predictions": [{"label": "invoice", "score": 0.9734}, {"label": "receipt", "score": 0.0181}],
}
ROUTES = (
    post(
        "/v1/classify",
        classify,
        tag="texts",
        request=ClassifyRequest,
        examples={
            "what kind of document": {"input": ["Factura n.º 2024-017. Total a pagar: 1.284,50 €."], "top_k": 2},
            "classes of your own, in words": {
                "input": [{"text": "La tarjeta no funciona en el cajero."}, "I want my money back."],
                "labels": ["problema con la tarjeta", "reembolso", "cambio de domicilio"],
            },
            "each class by itself": {
                "input": "Adjuntamos la factura y el contrato firmado.",
                "labels": ["factura", "contrato", "nómina"],
                "multi_label": True,
                "min_score": 0.3,
            },
        },
        schema=ClassifyAnswer,
        example={
            "object": "list",
            "data": [{"object": "classification", "index": 0, **CLASSES_EXAMPLE}],
            "model": "document-type",
            "usage": {"prompt_tokens": 19, "total_tokens": 19},
        },
    ),
)
