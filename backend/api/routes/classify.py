"""``POST /v1/classify``: the classes of texts, in Jina's shape, and of pages by their pictures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, RootModel, WithJsonSchema, model_validator
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.abandoned import together
from backend.api.json_io import is_json, json_response, parse_json, receive_json, validate_fields, written_json
from backend.api.request_context import Handle, call_service, call_service_timed, context_of, limits_of
from backend.api.request_fields import (
    LABEL_CHARS,
    ClassifyItems,
    Count,
    ImageInputs,
    Labels,
    OrAbsent,
    PageRanges,
    Password,
    TextOrAbsent,
    WireRequest,
    check_count,
    check_labels,
    check_limits,
    reads_unless_null,
    require_one_name,
    require_two_labels,
    wrong_type,
)
from backend.api.routes.cohere_classify import (
    CLASSIFY_EXAMPLE,
    CohereClassifications,
    CohereClassifyRequest,
    classify_by_examples,
    is_by_examples,
)
from backend.api.routes.embeddings import TruncatedInputs, Usage
from backend.api.routing import JSON, described, upload_route
from backend.api.upload import receive_upload
from backend.errors import BadInput, InvalidField, UnknownModel
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.images.classification import ClassifiedPage, ImageClassification, ImageClassificationService, PageChoice
from backend.lanes.inference import Urgency
from backend.text.classification import ClassificationResult, ClassificationService, ClassifiedText

_classification_of: Handle[ClassificationService] = Handle("classification")
_images_of: Handle[ImageClassificationService] = Handle("images")
_file_limits_of: Handle[FileLimits] = Handle("file_limits")

_OF_TEXTS = ("labels", "multi_label", "hypothesis_template")  # fields
_PLACEHOLDER = "{}"
# {} once, and no other braces
_TEMPLATE = {
    "anyOf": [{"type": "string", "pattern": r"^[^{}]*\{\}[^{}]*$", "maxLength": LABEL_CHARS}, {"type": "null"}]
}
# One label alone always wins: it makes sense only where each is judged by itself.
_TWO_LABELS: dict[str, Any] = {
    "properties": {"labels": {"anyOf": [{"type": "array", "minItems": 2}, {"type": "null"}]}}
}
_EACH_BY_ITSELF: dict[str, Any] = {"properties": {"multi_label": {"const": True}}, "required": ["multi_label"]}


def _check_template(value: Any, name: str) -> str:
    if type(value) is not str:
        raise wrong_type(name, value, "a text")
    if len(value) > LABEL_CHARS:  # each label is put into it: megabytes of it would be gigabytes
        raise InvalidField(f"{name}: is a sentence of at most {LABEL_CHARS} characters, got {len(value)}")
    if value.count(_PLACEHOLDER) != 1 or set(value.replace(_PLACEHOLDER, "")) & set(_PLACEHOLDER):
        raise InvalidField(f"{name}: must hold {_PLACEHOLDER} once, where the label goes, and no other braces")
    return value


def _require_own_labels(fields: Iterable[str]) -> None:
    """Raise InvalidField for what an image model cannot be asked; ``fields``: those that were sent."""
    for name in _OF_TEXTS:
        if name in fields:
            raise InvalidField(
                f"{name}: is for texts; an image model tells the labels apart that it has learnt. Leave it out"
            )


class ClassifyRequest(WireRequest):
    """Jina's request: classes given with it (zero-shot), or a classifier by its name."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [_EACH_BY_ITSELF, _TWO_LABELS]})

    input: ClassifyItems = Field(
        description="What to classify: one text or a list, each as it is or as {text}; or images, each as {image}: "
        "base64 of a file, alone or as a data URL. Images are told apart by IMAGE_MODEL, by its own labels."
    )
    labels: Labels = Field(
        None, description="Classes to choose from, in words (zero-shot), at most LIMIT_LABELS; unset: the classifier's."
    )
    model: str | None = Field(
        None, description="A classifier that GET /v1/classifiers lists, or a model that GET /v1/models does."
    )
    classifier_id: str | None = Field(None, description="Jina's word for the classifier's name; the same as `model`.")
    multi_label: bool | None = Field(
        None, description="Whether each label is judged by itself; unset: as the classifier was made, else false."
    )
    top_k: Count | None = Field(None, description="How many predictions to answer with, best first; unset: all.")
    min_score: float | None = Field(
        None,
        ge=0.0,
        le=1.0,
        description="Least score of `prediction`, which is null below; unset: the classifier's own.",
    )
    hypothesis_template: Annotated[Any, reads_unless_null(_check_template), WithJsonSchema(_TEMPLATE)] = Field(
        None, description="How a label becomes a sentence, with {} in its place."
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> ClassifyRequest:
        if not self.multi_label:
            require_two_labels(self.labels, ", or set multi_label to have it judged by itself")
        require_one_name(self.model, self.classifier_id)
        if isinstance(self.input, ImageInputs):
            _require_own_labels([name for name in _OF_TEXTS if getattr(self, name) is not None])
        return self

    @property
    def classifier(self) -> str | None:
        """The classifier's name, from either field."""
        return self.model if self.model is not None else self.classifier_id


class ClassifyBody(RootModel[ClassifyRequest | CohereClassifyRequest]):
    """Jina's request or Cohere's; for the documentation, as the fields tell which one it is."""


class ClassifyForm(BaseModel):
    """`POST /v1/classify` with a file: which pages to look at, and how to answer."""

    model_config = ConfigDict(extra="ignore")

    pages: PageRanges = Field("", description="Pages to look at, such as 1-3,7 or 5-; empty: the first.")
    model: TextOrAbsent = Field(None, description="A name of the image model; unset: IMAGE_MODEL.")
    classifier_id: TextOrAbsent = Field(None, description="Jina's word for it; the same as `model`.")
    top_k: Annotated[OrAbsent[int], WithJsonSchema({"enum": ["", "1", "2", "5"]})] = Field(
        None, ge=1, description="How many predictions to answer with, best first; unset: all."
    )
    min_score: Annotated[OrAbsent[float], WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})] = Field(
        None, ge=0.0, le=1.0, description="Least score of `prediction`, which is null below; unset: none."
    )
    password: Password = Field(None, description="Of an encrypted PDF.")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> ClassifyForm:
        require_one_name(self.model, self.classifier_id)
        return self

    @property
    def classifier(self) -> str | None:
        """The image model's name, from either field."""
        return self.model if self.model is not None else self.classifier_id

    def choice(self) -> PageChoice:
        """Which pages, and how to open the file."""
        return PageChoice(self.pages.strip(), self.password or None)


class PredictionAnswer(TypedDict):
    """One class and how well it fits."""

    label: str
    score: Annotated[float, Field(description="0 to 1; with one label a text they add up to 1.")]


class ClassesAnswer(TypedDict):
    """The classes of a text."""

    prediction: Annotated[str | None, Field(description="The best label; null where the classifier abstains.")]
    score: Annotated[float, Field(description="Of the best label, given or not.")]
    predictions: Annotated[list[PredictionAnswer], Field(description="Best first.")]


class ClassifyItem(ClassesAnswer):
    """The classes of one text of a request, or of one page of a file."""

    object: Literal["classification"]
    index: Annotated[int, Field(description="Place of its input in the request; of a file's pages from 0.")]
    page: NotRequired[Annotated[int, Field(description="Of an image or a file: the page that was looked at.")]]
    incomplete: NotRequired[Annotated[str, Field(description="What of a damaged image could not be read.")]]


class ClassifyUsage(Usage):
    """What was read."""

    pages: NotRequired[Annotated[int, Field(description="Of images and files; they have no tokens.")]]


class ClassifyAnswer(TypedDict):
    """`POST /v1/classify`, in Jina's shape."""

    object: Literal["list"]
    data: list[ClassifyItem]
    model: str
    usage: ClassifyUsage
    truncated: NotRequired[TruncatedInputs]


def classes_answer(row: ClassifiedText) -> ClassesAnswer:
    """The classes of a text; ``prediction`` is null where the classifier abstains."""
    predictions: list[PredictionAnswer] = [
        {"label": prediction.label, "score": prediction.score} for prediction in row.predictions
    ]
    return {"prediction": row.prediction, "score": row.score, "predictions": predictions}


def classify_answer(classified: ClassificationResult) -> ClassifyAnswer:
    """The classes of each text."""
    answer: ClassifyAnswer = {
        "object": "list",
        "data": [_classify_item(index, row) for index, row in enumerate(classified.rows)],
        "model": classified.model,
        "usage": {"prompt_tokens": classified.tokens, "total_tokens": classified.tokens},
    }
    if truncated := [index for index, row in enumerate(classified.rows) if row.truncated]:
        answer["truncated"] = truncated
    return answer


def classify_pages_answer(model: str, pages: Sequence[ClassifiedPage]) -> ClassifyAnswer:
    """The classes of each page, in order."""
    return {
        "object": "list",
        "data": [_classify_page_item(index, page) for index, page in enumerate(pages)],
        "model": model,
        "usage": {"prompt_tokens": 0, "total_tokens": 0, "pages": len(pages)},
    }


def _classify_item(index: int, row: ClassifiedText) -> ClassifyItem:
    classes = classes_answer(row)
    return {
        "object": "classification",
        "index": index,
        "prediction": classes["prediction"],
        "score": classes["score"],
        "predictions": classes["predictions"],
    }


def _classify_page_item(index: int, page: ClassifiedPage) -> ClassifyItem:
    item = _classify_item(index, page.classes)
    item["page"] = page.number
    if page.incomplete:
        item["incomplete"] = page.incomplete
    return item


_IMAGES_AT_ONCE = 16  # of one request: each has a file of its own, and a reader process for a moment


async def classify(request: Request) -> Response:
    """Classes of texts: those named in the request, or those of a classifier. Classes of pages by an image model.

    With `labels` any words will do, nothing has to be learnt before (zero-shot). Without them the classifier named by
    `model` answers, or the one for document types; it may abstain: `prediction` is then null and `score` that of the
    best label. Order is kept. An image, or a file with pages, comes as multipart/form-data, alone as the body, or in
    base64 as {image}; IMAGE_MODEL tells its class by what it looks like. `inputs` with `examples` is Cohere's request:
    the classes are learnt from its examples.
    """
    return await (_of_json(request) if is_json(request) else _of_file(request))


async def _of_json(request: Request) -> Response:
    raw = await receive_json(request)
    if is_by_examples(raw):
        return await classify_by_examples(request, await parse_json(raw, CohereClassifyRequest))
    body = await parse_json(raw, ClassifyRequest)
    if isinstance(body.input, ImageInputs):
        return await _of_images(request, body, body.input)
    characters = check_limits(body.input, limits_of(request), "input")
    check_labels(body.labels, limits_of(request))
    classified = await call_service_timed(
        request,
        partial(
            _classification_of(request).classify,
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


async def _of_file(request: Request) -> Response:
    context = context_of(request)
    async with receive_upload(request) as upload:
        form = validate_fields(ClassifyForm, upload.fields)
        _require_own_labels([name for name, value in upload.fields.items() if value])
        _require_name(_images_of(request), form.classifier)

        async def call(*, urgency: Urgency) -> ImageClassification:
            return await _images_of(request).classify(
                upload.stored, form.choice(), urgency, top_k=form.top_k, min_score=form.min_score
            )

        result = await call_service(request, call)
    context.meter.charge("pages", len(result.pages))
    context.stages = (("decode", result.decode_s), ("inference", result.lane_s))
    return json_response(classify_pages_answer(result.model, result.pages))


async def _of_images(request: Request, body: ClassifyRequest, images: ImageInputs) -> Response:
    context = context_of(request)
    context.meter.require("pages")
    check_count(images.encoded, limits_of(request), "input")
    _require_name(_images_of(request), body.classifier)
    _images_of(request).require()

    async def call(*, urgency: Urgency) -> list[ImageClassification]:
        return await _classified(_images_of(request), _file_limits_of(request), images, body, urgency)

    results = await call_service(request, call)
    pages: list[ClassifiedPage] = [page for result in results for page in result.pages]
    context.meter.charge("pages", len(pages))
    context.stages = (
        ("decode", sum(result.decode_s for result in results)),
        ("inference", sum(result.lane_s for result in results)),
    )
    return json_response(classify_pages_answer(results[0].model, pages))


async def _classified(
    service: ImageClassificationService,
    limits: FileLimits,
    images: ImageInputs,
    body: ClassifyRequest,
    urgency: Urgency,
) -> list[ImageClassification]:
    """The classes of each image, some at a time. Raises: the first error, which names its image."""
    free = asyncio.Semaphore(_IMAGES_AT_ONCE)

    async def one(index: int) -> ImageClassification:
        async with free:
            stored = StoredFile.of(await asyncio.to_thread(images.content, index), limits)
            try:
                return await service.classify(stored, None, urgency, top_k=body.top_k, min_score=body.min_score)
            except BadInput as error:
                raise _of_input(error, index) from error
            finally:
                stored.close()

    return list(await together(*(one(index) for index in range(len(images.encoded)))))


def _of_input(error: BadInput, index: int) -> BadInput:
    """A copy that names the input: equal images, of other requests too, share a call and its error."""
    copy = type(error).__new__(type(error))
    vars(copy).update(vars(error), param="input")
    copy.args = (f"input[{index}]: {error}",)
    return copy


def _require_name(images: ImageClassificationService, name: str | None) -> None:
    """Raise UnknownModel for another name than the image model's; where there is none the service says so."""
    if name is not None and images.names and name not in images.names:
        raise UnknownModel(name, images.names)


CLASSES_EXAMPLE = {
    "prediction": "invoice",
    "score": 0.9734,
    "predictions": [{"label": "invoice", "score": 0.9734}, {"label": "receipt", "score": 0.0181}],
}
_EXAMPLES: dict[str, Any] = {
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
    "by examples, as Cohere's clients send it": CLASSIFY_EXAMPLE,
    "an image": {"input": [{"image": "data:image/png;base64,iVBORw0KGgo="}], "top_k": 1},
}
_CONTENT = {
    JSON: {
        "schema": {"anyOf": [ClassifyAnswer, CohereClassifications]},
        "example": {
            "object": "list",
            "data": [{"object": "classification", "index": 0, **CLASSES_EXAMPLE}],
            "model": "document-type",
            "usage": {"prompt_tokens": 19, "total_tokens": 19},
        },
    }
}
_FILE = "PDF, PNG, JPEG, TIFF, WebP, BMP, GIF or HEIC. Alone as the body, the fields go into the query."
ROUTES = (
    upload_route(
        "/v1/classify", classify, tag="texts", request=ClassifyForm, json_request=(ClassifyBody, _EXAMPLES),
        answers={200: described(_CONTENT)}, file=_FILE, errors=(400, 404, 413, 415, 422, 429, 504, 507),
    ),
)  # fmt: skip
