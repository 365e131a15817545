"""``POST /v1/classify``: the classes of texts, in Jina's shape, and of pages by their pictures."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of, services_of
from backend.api.requests.classification import ClassifyRequest
from backend.api.requests.documents import ClassifyForm
from backend.api.requests.fields import ImageInputs
from backend.api.requests.json_body import read_json, validate_fields
from backend.api.requests.upload import receive_upload
from backend.api.requests.validation import check_count, check_labels, check_limits
from backend.api.responses.json_bytes import json_response, written_json
from backend.api.responses.texts import ClassifyAnswer, classify_answer, classify_pages_answer
from backend.api.routing import JSON, described, upload_route
from backend.api.service_call import call_service, call_service_timed
from backend.errors import BadInput, InvalidField, UnknownModel
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.images.classification import ImageClassificationService
from backend.images.page_choice import ClassifiedPage, ImageClassification
from backend.lanes.inference import Urgency

_IMAGES_AT_ONCE = 16  # of one request: each has a file of its own, and a reader process for a moment
_OF_TEXTS = ("labels", "multi_label", "hypothesis_template")  # fields


async def classify(request: Request) -> Response:
    """Classes of texts: those named in the request, or those of a classifier. Classes of pages by an image model.

    With `labels` any words will do, nothing has to be learnt before (zero-shot). Without them the classifier named by
    `model` answers, or the one for document types; it may abstain: `prediction` is then null and `score` that of the
    best label. Order is kept. An image, or a file with pages, comes as multipart/form-data, alone as the body, or in
    base64 as {image}; IMAGE_MODEL tells its class by what it looks like.
    """
    media_type = context_of(request).headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return await (_of_json(request) if media_type.endswith(b"json") else _of_file(request))


async def _of_json(request: Request) -> Response:
    services = services_of(request)
    body = await read_json(request, ClassifyRequest, services.limits)
    if isinstance(body.input, ImageInputs):
        return await _of_images(request, body, body.input)
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


async def _of_file(request: Request) -> Response:
    services, context = services_of(request), context_of(request)
    async with receive_upload(request) as upload:
        form = validate_fields(ClassifyForm, upload.fields)
        _require_no_labels(upload.fields)
        _require_name(services.images, form.classifier)

        async def call(*, deadline_s: float) -> ImageClassification:
            return await services.images.classify(
                upload.stored,
                form.choice(),
                Urgency(deadline_s=deadline_s),
                top_k=form.top_k,
                min_score=form.min_score,
            )

        result = await call_service(request, call)
    context.meter.charge("pages", len(result.pages))
    context.stages = (("decode", result.decode_s), ("inference", result.lane_s))
    return json_response(classify_pages_answer(result.model, result.pages))


async def _of_images(request: Request, body: ClassifyRequest, images: ImageInputs) -> Response:
    services, context = services_of(request), context_of(request)
    context.meter.require("pages")
    check_count(images.encoded, services.limits, "input")
    _require_name(services.images, body.classifier)
    services.images.require()

    async def call(*, deadline_s: float) -> list[ImageClassification]:
        return await _classified(services.images, services.file_limits, images, body, Urgency(deadline_s=deadline_s))

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

    tasks = [asyncio.create_task(one(index)) for index in range(len(images.encoded))]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _of_input(error: BadInput, index: int) -> BadInput:
    """A copy that names the input: equal images, of other requests too, share a call and its error."""
    copy = type(error).__new__(type(error))
    vars(copy).update(vars(error), param="input")
    copy.args = (f"input[{index}]: {error}",)
    return copy


def _require_no_labels(fields: dict[str, str]) -> None:
    """Raise InvalidField for what an image model cannot be asked."""
    for name in _OF_TEXTS:
        if fields.get(name):
            raise InvalidField(
                f"{name}: is for texts; an image model tells the labels apart that it has learnt. Leave it out",
                param=name,
            )


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
    "an image": {"input": [{"image": "data:image/png;base64,iVBORw0KGgo="}], "top_k": 1},
}
_CONTENT = {
    JSON: {
        "schema": {"$ref": f"#/components/schemas/{ClassifyAnswer.__name__}"},
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
        "/v1/classify",
        classify,
        tag="texts",
        request=ClassifyForm,
        json_request=(ClassifyRequest, _EXAMPLES),
        answers={200: described(_CONTENT)},
        file=_FILE,
        errors=(400, 404, 413, 415, 422, 429, 504, 507),
    ),
)
