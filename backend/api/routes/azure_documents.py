"""Azure Document Intelligence's prebuilt models, for Microsoft's SDKs and Paperless-ngx: each operation is a job.

A result's id is the job's, so any replica answers for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator
from starlette.requests import Request
from starlette.responses import Response

from backend.api.json_io import JsonBytes, JsonPieces, WrittenJson, is_json, joined_pieces, json_pieces, validate_fields
from backend.api.problems import AZURE_PATHS, azure_error
from backend.api.request_context import Handle, base_of, owner_of
from backend.api.request_fields import OrAbsent, PageRanges, WireRequest
from backend.api.routes.azure_answers import API_VERSION, Asked, analyze_result
from backend.api.routes.documents import run_off_loop
from backend.api.routes.jobs import ID_PARAMETER, failure_problem, formatted_job, job_of, submit_job
from backend.api.routing import PlainRoute, body_route, delete, described, get, query_parameters
from backend.api.upload import Upload, decoded_upload, read_json_with_file, receive_upload
from backend.documents.formats.registry import negotiate
from backend.documents.ocr_engines import print_languages
from backend.documents.records import PAGE_FEATURES, DocumentOptions
from backend.errors import InvalidField, NotFound, UnknownModel
from backend.jobs.records import Job, Status
from backend.jobs.service import JobRequest, JobService
from backend.text.own_labels import labels_json

_jobs_of: Handle[JobService] = Handle("jobs")

# Azure's models and what is read for each of them beside the pages.
MODELS = {
    "prebuilt-read": (),
    "prebuilt-layout": ("tables",),
    "prebuilt-invoice": ("fields", "tables"),
    "prebuilt-receipt": ("fields", "tables"),
}
_STATUSES: dict[Status, str] = {
    "queued": "notStarted", "running": "running", "succeeded": "succeeded", "failed": "failed",
    "cancelled": "canceled",
}  # fmt: skip
# Pages are read in the resolution that their print needs, whatever is asked.
_SERVED_FEATURES = ("barcodes", "languages", "ocrHighResolution", "queryFields")
_POLL_S = "1"  # Microsoft's SDKs ask every 30 s where nobody tells them otherwise


def _words(value: str | None) -> list[str]:
    return [word.strip() for word in (value or "").split(",") if word.strip()]


class AnalyzeQuery(BaseModel):
    """The query of an analysis."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    pages: PageRanges = Field("", description="Pages to read, such as 1-3,7 or 5-; empty: all.")
    locale: Annotated[str, Field(max_length=40, pattern="^([A-Za-z]{2,3}([-_][A-Za-z0-9-]*)?)?$")] = Field(
        "", description="Language of the print, such as es or es-ES; empty: OCR_LANGUAGES."
    )
    string_index_type: Literal["textElements", "unicodeCodePoint", "utf16CodeUnit"] = Field(
        "textElements", alias="stringIndexType", description="What spans count."
    )
    content_format: Literal["text", "markdown"] = Field(
        "text", alias="outputContentFormat", description="What `content` is, to which spans point."
    )
    features: Annotated[OrAbsent[str], WithJsonSchema({"enum": ["", *_SERVED_FEATURES]})] = Field(
        None,
        description="languages tells the file's, barcodes each page's; ocrHighResolution, queryFields are accepted. "
        "Others are refused.",
    )
    query_fields: Annotated[str, Field(max_length=4000)] = Field(
        "", alias="queryFields", description="Names of what to find, with commas: fields of `documents`."
    )
    output: Annotated[OrAbsent[str], WithJsonSchema({"enum": ["", "pdf", "figures"]})] = Field(
        None, description="pdf: the searchable PDF, at …/pdf, which every result has. There are no figures."
    )

    @field_validator("features")
    @classmethod
    def _are_served(cls, features: str | None) -> str | None:
        for feature in _words(features):
            if feature not in _SERVED_FEATURES:
                served = ", ".join(_SERVED_FEATURES)
                raise InvalidField(f"features: '{feature[:40]}' is not served; there are {served}")
        return features

    @field_validator("query_fields")
    @classmethod
    def _are_names(cls, names: str) -> str:
        return labels_json(list(dict.fromkeys(_words(names))) or None, "queryFields")

    def asked(self, model: str) -> Asked:
        """How the result is written."""
        return Asked(model, self.string_index_type, self.content_format)

    def options(self, model: str) -> DocumentOptions:
        """The options of the document service."""
        add_ons = ("language",) if "languages" in _words(self.features) else ()
        return DocumentOptions(
            features=frozenset((*PAGE_FEATURES, *MODELS[model], *add_ons)),
            pages=self.pages,
            languages=print_languages([self.locale] if self.locale else (), "locale"),
            schema=self.query_fields,
            barcodes="barcodes" in _words(self.features),
        )


class AnalyzeSource(WireRequest):
    """The JSON body of an analysis."""

    base64: str | None = Field(None, alias="base64Source", description="The file.")
    url: Any = Field(None, alias="urlSource", description="Refused: the service fetches nothing.")

    def encoded(self) -> str:
        """The file's base64. Raises: InvalidField where there is none."""
        if self.url is not None:
            raise InvalidField(
                "urlSource: the service fetches no addresses; send the file itself as base64Source or as the body"
            )
        if self.base64 is None:
            raise InvalidField("base64Source: is missing; send the file as base64, or as the body")
        return self.base64


async def analyze(request: Request) -> Response:
    """Read a file in the background: the answer is empty, and its `Operation-Location` is where the result will be.

    Models: prebuilt-read, prebuilt-layout (with tables), prebuilt-invoice and prebuilt-receipt (with fields, several
    documents a file). The same file with the same options has the same result while that lives (`JOB_TTL_S`).
    """
    model = _model_of(request)
    query = validate_fields(AnalyzeQuery, dict(request.query_params))
    if is_json(request):
        body = await read_json_with_file(request, AnalyzeSource)
        async with decoded_upload(request, body.encoded(), "base64Source") as upload:
            return await _submit(request, upload, model, query)
    async with receive_upload(request) as upload:
        return await _submit(request, upload, model, query)


async def _submit(request: Request, upload: Upload, model: str, query: AnalyzeQuery) -> Response:
    upload.require_pages()
    answer = {"dialect": "azure", **query.asked(model)._asdict()}
    job, _ = await submit_job(request, JobRequest(upload.stored, upload.name, query.options(model), answer=answer))
    service = next(path for path in AZURE_PATHS if request.url.path.startswith(path))
    location = f"{base_of(request)}{service}documentModels/{model}/analyzeResults/{job.id}"
    version = request.query_params.get("api-version", API_VERSION)[:20]
    headers = {
        "Operation-Location": f"{location}?api-version={version}",
        "Retry-After": _POLL_S,
        "apim-request-id": job.id,
    }
    return Response(status_code=202, headers=headers)


def _model_of(request: Request) -> str:
    model: str = request.path_params["model"]
    if model not in MODELS:
        raise UnknownModel(model[:100], list(MODELS))
    return model


async def _operation_of(request: Request) -> Job:
    """The job that the path names. Raises: NotFound for one of another model, or of no analysis, too."""
    model, job = _model_of(request), await job_of(request)
    if job.options.get("answer", {}).get("model") != model:
        raise NotFound(f"id: there is no result '{job.id}' of the model {model}", param="id")
    return job


async def retrieve_analysis(request: Request) -> Response:
    """How far an analysis is, and once it has succeeded its result."""
    job = await _operation_of(request)
    operation: dict[str, Any] = {
        "status": _STATUSES[job.status],
        "createdDateTime": _date_time(job.created_s),
        "lastUpdatedDateTime": _date_time(job.ended_s or job.started_s or job.created_s),
    }
    if job.failure is not None:
        operation["error"] = azure_error(failure_problem(job.failure))
    result = await _jobs_of(request).result(job) if job.status == "succeeded" else None
    if result is None or result.answer is None:
        return JsonBytes(orjson.dumps(operation), headers={"Retry-After": _POLL_S})
    asked = Asked(**{name: value for name, value in job.options["answer"].items() if name in Asked._fields})
    content = {**operation, "analyzeResult": WrittenJson(analyze_result(result.answer, asked))}
    return JsonPieces(await run_off_loop(result.document, lambda: joined_pieces(json_pieces(content))))


async def retrieve_pdf(request: Request) -> Response:
    """The searchable PDF of a result."""
    return await formatted_job(request, await _operation_of(request), negotiate(None, "pdf"), {})


async def delete_analysis(request: Request) -> Response:
    """Forget a result with its file; an analysis that runs is cancelled first."""
    job = await _operation_of(request)
    while await _jobs_of(request).cancel(job.id, owner_of(request)) is not None:
        pass  # it was alive, and is cancelled now
    return Response(status_code=204)


def _date_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_MODEL_PARAMETER = {
    "name": "model", "in": "path", "required": True, "schema": {"enum": list(MODELS)}, "example": "prebuilt-read",
}  # fmt: skip
_PARAMETERS = (_MODEL_PARAMETER, ID_PARAMETER)
_TAG = "Azure Document Intelligence"
_EXAMPLE = {
    "status": "succeeded",
    "createdDateTime": "2026-03-12T09:00:00Z",
    "lastUpdatedDateTime": "2026-03-12T09:00:02Z",
    "analyzeResult": {
        "apiVersion": API_VERSION,
        "modelId": "prebuilt-read",
        "stringIndexType": "textElements",
        "contentFormat": "text",
        "content": "Factura 2024-017",
        "pages": [
            {
                "pageNumber": 1,
                "angle": 0,
                "width": 8.2678,
                "height": 11.6929,
                "unit": "inch",
                "spans": [{"offset": 0, "length": 16}],
                "words": [
                    {
                        "content": "Factura",
                        "polygon": [0.7875, 0.8361, 1.3667, 0.8361, 1.3667, 1.0, 0.7875, 1.0],
                        "confidence": 0.9612,
                        "span": {"offset": 0, "length": 7},
                    }
                ],
                "lines": [],
            }
        ],
        "paragraphs": [],
        "styles": [],
    },
}


def _routes() -> Iterable[PlainRoute]:
    """The same under both names of the service."""
    for service in AZURE_PATHS:
        prefix = f"{service}documentModels/{{model}}"
        yield body_route(
            "POST",
            f"{prefix}:analyze",
            analyze,
            tag=_TAG,
            json_request=(AnalyzeSource, {"a file": {"base64Source": "JVBERi0xLjcK"}}),
            answers={202: described(None, ("Operation-Location",), "It is accepted.")},
            parameters=(_MODEL_PARAMETER, *query_parameters(AnalyzeQuery)),
        )
        yield get(
            f"{prefix}/analyzeResults/{{id}}",
            retrieve_analysis,
            tag=_TAG,
            example=_EXAMPLE,
            errors=(404,),
            parameters=_PARAMETERS,
        )
        yield get(
            f"{prefix}/analyzeResults/{{id}}/pdf",
            retrieve_pdf,
            tag=_TAG,
            example="(the bytes of a PDF)",
            media_type="application/pdf",
            headers=("Content-Disposition",),
            errors=(404, 413, 415, 422, 429, 504),
            parameters=_PARAMETERS,
        )
        yield delete(
            f"{prefix}/analyzeResults/{{id}}",
            delete_analysis,
            tag=_TAG,
            example=None,
            more={204: described(None, description="It is forgotten.")},
            errors=(404,),
            parameters=_PARAMETERS,
        )


ROUTES = (*_routes(),)
