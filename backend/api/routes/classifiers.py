"""``/v1/classifiers``: classifiers trained on a few examples while the service runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import answer_of, json_response, read_json
from backend.api.request_context import Handle, call_service, context_of, limits_of
from backend.api.request_fields import (
    LABEL,
    LIMIT_KEYWORD,
    TEXT,
    WireRequest,
    check_labels,
    check_limits,
    many,
    only,
    require_labels,
    require_no_empty_items,
    require_not_empty,
)
from backend.api.routing import REQUEST_TIMEOUT, delete, get, name_parameter, put
from backend.errors import InvalidField, NotFound
from backend.text.classification import ClassificationService, ClassifierInfo
from backend.text.classifiers import LABEL_CHARACTERS_MAX, NAME_PATTERN

_classification_of: Handle[ClassificationService] = Handle("classification")

# Texts and labels that are not blank.
_ExampleText = Annotated[str, Field(min_length=1), WithJsonSchema({**TEXT, "pattern": r"\S"})]
_ExampleLabel = Annotated[str, Field(min_length=1), WithJsonSchema({**LABEL, "maxLength": LABEL_CHARACTERS_MAX})]
_GATHERED = {
    "type": "object",
    "minProperties": 1,
    LIMIT_KEYWORD: "LIMIT_LABELS",
    "propertyNames": {**LABEL, "maxLength": LABEL_CHARACTERS_MAX},
    "additionalProperties": many({**TEXT, "pattern": r"\S"}),
}


class Example(WireRequest):
    """One text and its class."""

    text: _ExampleText
    label: _ExampleLabel


class LearnRequest(WireRequest):
    """`PUT /v1/classifiers/{name}`: texts with their classes, one after the other or gathered by class."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [only("examples", "labels"), only("labels", "examples")]})

    examples: (
        Annotated[list[Example], Field(min_length=1, fail_fast=True, json_schema_extra={LIMIT_KEYWORD: "LIMIT_INPUTS"})]
        | None
    ) = Field(None, description="Texts, each with its label.")
    labels: Annotated[dict[str, list[str]], WithJsonSchema(_GATHERED)] | None = Field(
        None, description="The same, gathered: a list of texts for each label."
    )

    def by_label(self) -> Mapping[str, list[str]]:
        """The texts of each class, in the order in which they came.

        Raises: BadInput, InvalidField. Whether they are enough to train on is for the service to say.
        """
        if (self.examples is None) == (self.labels is None):
            raise InvalidField('examples: send either examples, [{"text", "label"}, …], or labels, {"label": [texts]}')
        by_label = dict(self.labels or {})
        for example in self.examples or ():
            by_label.setdefault(example.label, []).append(example.text)
        require_not_empty(by_label, "labels")
        require_labels(list(by_label), "labels")
        for label, texts in by_label.items():
            require_not_empty(texts, f"labels.{label}", "; every label needs at least one text")
            require_no_empty_items(texts, f"labels.{label}")
        return by_label


class ClassifierAnswer(TypedDict):
    """A classifier that `POST /v1/classify` can be asked for."""

    object: Literal["classifier"]
    name: str
    kind: Literal["bundled", "configured", "learnt", "model"]
    labels: list[str]
    multi_label: bool
    examples: Annotated[int | None, Field(description="Texts it was learnt from; null where that is not known.")]
    threshold: Annotated[float, Field(description="Least score at which it gives a prediction; below it abstains.")]
    accuracy: Annotated[float | None, Field(description="Cross-validated; null with too few examples to tell.")]
    created: Annotated[int | None, Field(description="Unix seconds at which it was learnt.")]
    status: Annotated[
        Literal["ready", "pending"],
        Field(description="Pending: it is being learnt for the embedding model; until then it answers 503."),
    ]


class ClassifierList(TypedDict):
    """`GET /v1/classifiers`."""

    object: Literal["list"]
    data: list[ClassifierAnswer]


class ForgottenClassifier(TypedDict):
    """`DELETE /v1/classifiers/{name}`, in OpenAI's shape of deletions."""

    object: Literal["classifier"]
    name: str
    deleted: Literal[True]


def classifier_answer(info: ClassifierInfo) -> ClassifierAnswer:
    """A classifier and how it was trained."""
    created = None if info.created_s is None else int(info.created_s)
    return answer_of(ClassifierAnswer, info, labels=list(info.labels), created=created)


async def list_classifiers(request: Request) -> Response:
    """The classifiers there are: bundled ones, learnt ones, and a configured model."""
    data = [classifier_answer(info) for info in _classification_of(request).classifiers()]
    return json_response(ClassifierList(object="list", data=data))


async def retrieve_classifier(request: Request) -> Response:
    """One classifier, by its name."""
    return json_response(classifier_answer(_find(request, request.path_params["name"])))


async def learn_classifier(request: Request) -> Response:
    """Learn classes from examples, under a name that `POST /v1/classify` then takes as `model`.

    A few texts a class are enough to begin with; the same name again replaces what was learnt before. Texts labelled
    `(none)` are examples of what belongs to no class, so that it may abstain. It is kept across restarts. Every key may
    use it; the key that taught it, and those of ADMIN_KEYS, may replace and forget it.
    """
    context = context_of(request)
    body = await read_json(request, LearnRequest)
    examples = body.by_label()
    check_labels(examples.keys(), limits_of(request))
    characters = check_limits([text for texts in examples.values() for text in texts], limits_of(request), "examples")
    name = request.path_params["name"]
    train = partial(_classification_of(request).train_classifier, name, examples, caller=context.caller)
    info = await call_service(request, train, characters=characters)
    context.meter.charge("tokens", info.tokens)
    return json_response(classifier_answer(info))


async def forget_classifier(request: Request) -> Response:
    """Forget a learnt classifier and its examples: one of this key's own, or any with a key of ADMIN_KEYS."""
    name = request.path_params["name"]
    await _classification_of(request).delete_classifier(name, context_of(request).caller)
    return json_response(ForgottenClassifier(object="classifier", name=name, deleted=True))


def _find(request: Request, name: str) -> ClassifierInfo:
    infos = _classification_of(request).classifiers()
    for info in infos:
        if info.name == name:
            return info
    known = ", ".join(info.name for info in infos) or "none"
    raise NotFound(f"name: there is no classifier '{name[:100]}'; there are: {known}", param="name")


_NAME = "support-routing"
_CARD_EXAMPLE = {
    "object": "classifier", "name": _NAME, "kind": "learnt", "labels": ["tarjeta", "recibo"], "multi_label": False,
    "examples": 4, "threshold": 0.5, "accuracy": None, "created": 1767225600, "status": "ready",
}  # fmt: skip
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
        "/v1/classifiers/{name}", retrieve_classifier, tag="texts", schema=ClassifierAnswer, example=_CARD_EXAMPLE,
        errors=(404,), parameters=(name_parameter(_NAME),),
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
)  # fmt: skip
