"""``/v1/classifiers``: classifiers trained on a few examples while the service runs."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import Services, context_of, services_of
from backend.api.requests.classification import LearnRequest
from backend.api.requests.json_body import read_json
from backend.api.requests.validation import check_labels, check_limits
from backend.api.responses.json_bytes import json_response
from backend.api.responses.texts import ClassifierAnswer, ClassifierList, ForgottenClassifier, classifier_answer
from backend.api.routing import REQUEST_TIMEOUT, delete, get, name_parameter, put
from backend.api.service_call import call_service
from backend.errors import NotFound
from backend.text.classification import ClassifierInfo
from backend.text.classifiers import NAME_PATTERN


async def list_classifiers(request: Request) -> Response:
    """The classifiers there are: bundled ones, learnt ones, and a configured model."""
    data = [classifier_answer(info) for info in services_of(request).classification.classifiers()]
    return json_response(ClassifierList(object="list", data=data))


async def retrieve_classifier(request: Request) -> Response:
    """One classifier, by its name."""
    return json_response(classifier_answer(_find(services_of(request), request.path_params["name"])))


async def learn_classifier(request: Request) -> Response:
    """Learn classes from examples, under a name that `POST /v1/classify` then takes as `model`.

    A few texts a class are enough to begin with; the same name again replaces what was learnt before. Texts labelled
    `(none)` are examples of what belongs to no class, so that it may abstain. It is kept across restarts. Every key may
    use it; the key that taught it, and those of ADMIN_KEYS, may replace and forget it.
    """
    services, context = services_of(request), context_of(request)
    body = await read_json(request, LearnRequest, services.limits)
    examples = body.by_label()
    check_labels(examples.keys(), services.limits)
    characters = check_limits([text for texts in examples.values() for text in texts], services.limits, "examples")
    name = request.path_params["name"]
    train = partial(services.classification.train_classifier, name, examples, caller=context.caller)
    info = await call_service(request, train, characters=characters)
    context.meter.charge("tokens", info.tokens)
    return json_response(classifier_answer(info))


async def forget_classifier(request: Request) -> Response:
    """Forget a learnt classifier and its examples: one of this key's own, or any with a key of ADMIN_KEYS."""
    name = request.path_params["name"]
    await services_of(request).classification.delete_classifier(name, context_of(request).caller)
    return json_response(ForgottenClassifier(object="classifier", name=name, deleted=True))


def _find(services: Services, name: str) -> ClassifierInfo:
    infos = services.classification.classifiers()
    for info in infos:
        if info.name == name:
            return info
    known = ", ".join(info.name for info in infos) or "none"
    raise NotFound(f"name: there is no classifier '{name[:100]}'; there are: {known}", param="name")


_NAME = "support-routing"
_CARD_EXAMPLE = {
    "object": "classifier",
    "name": _NAME,
    "kind": "learnt",
    "labels": ["tarjeta", "recibo"],
    "multi_label": False,
    "examples": 4,
    "threshold": 0.5,
    "accuracy": None,
    "created": 1767225600,
    "status": "ready",
}
_BY_TEXT = [
    {"text": "No puedo pagar con la tarjeta.", "label": "tarjeta"},
    {"text": "The cash machine kept my card.", "label": "tarjeta"},
    {"text": "Me han cobrado el recibo dos veces.", "label": "recibo"},
    {"text": "Please send me last month's bill again.", "label": "recibo"},
]
ROUTES = (
    get(
        "/v1/classifiers",
        list_classifiers,
        tag="texts",
        schema=ClassifierList,
        example={"object": "list", "data": [_CARD_EXAMPLE]},
    ),
    get(
        "/v1/classifiers/{name}",
        retrieve_classifier,
        tag="texts",
        schema=ClassifierAnswer,
        example=_CARD_EXAMPLE,
        errors=(404,),
        parameters=(name_parameter(_NAME),),
    ),
    put(
        "/v1/classifiers/{name}",
        learn_classifier,
        tag="texts",
        request=LearnRequest,
        examples={
            "texts with their labels": {"examples": _BY_TEXT},
            "labels with their texts": {
                "labels": {
                    "tarjeta": ["No puedo pagar con la tarjeta.", "The cash machine kept my card."],
                    "recibo": ["Me han cobrado el recibo dos veces."],
                }
            },
        },
        schema=ClassifierAnswer,
        example=_CARD_EXAMPLE,
        errors=(400, 403, 404, 413, 415, 422, 429, 504, 507),
        parameters=(name_parameter(_NAME, pattern=f"^{NAME_PATTERN}$"), REQUEST_TIMEOUT),
    ),
    delete(
        "/v1/classifiers/{name}",
        forget_classifier,
        tag="texts",
        schema=ForgottenClassifier,
        example={"object": "classifier", "name": _NAME, "deleted": True},
        errors=(403, 404, 422),
        parameters=(name_parameter(_NAME),),
    ),
)
