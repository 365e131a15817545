"""``POST /v1/classify``: the classes of texts, in Jina's shape."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import services_of
from backend.api.requests.classification import ClassifyRequest
from backend.api.requests.json_body import read_json
from backend.api.requests.validation import check_labels, check_limits
from backend.api.responses.json_bytes import written_json
from backend.api.responses.texts import ClassifyAnswer, classify_answer
from backend.api.routing import post
from backend.api.service_call import call_service_timed


async def classify(request: Request) -> Response:
    """Classes of texts: those named in the request, or those of a classifier.

    With `labels` any words will do, nothing has to be learnt before (zero-shot). Without them the classifier named by
    `model` answers, or the one for document types; it may abstain: `prediction` is then null and `score` that of the
    best label. Order is kept.
    """
    services = services_of(request)
    body = await read_json(request, ClassifyRequest, services.limits)
    characters = check_limits(body.input, services.limits, "input")
    check_labels(body.labels, services.limits)
    classified = await call_service_timed(
        request,
        partial(
            services.classification.classify,
            body.input,
            labels=body.labels,
            model=body.classifier,
            multi_label=body.multi_label,
            top_k=body.top_k,
            min_score=body.min_score,
            hypothesis_template=body.hypothesis_template,
        ),
        characters=characters,
    )
    return await written_json(partial(classify_answer, classified), classified.prediction_count)


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
