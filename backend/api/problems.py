"""The one place where an error becomes an answer: RFC 9457 problem details that OpenAI's clients can show too."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Literal, NotRequired

from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.errors import FinanciaError, InvalidField, Unauthorized

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:financia:problem:"
_OPENAI_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_ROUTER_CODES = {404: "not_found", 405: "method_not_allowed"}


class OpenAIError(TypedDict):
    """What OpenAI's clients read of an error."""

    message: str
    type: str
    code: str
    param: str | None


TeiErrorType = Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]


class ProblemDetails(TypedDict):  # its docstring is in the OpenAPI document
    """An error on the wire; written by ``answer``, declared here for the documentation."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    request_id: str
    error: Annotated[
        OpenAIError | str,
        Field(description="Text on the routes of text-embeddings-inference, Ollama, Hugging Face and Weaviate."),
    ]
    error_type: NotRequired[Annotated[TeiErrorType, Field(description="Where `error` is text.")]]
    param: NotRequired[Annotated[str | None, Field(description="As `error.param`, where `error` is text.")]]
    params: NotRequired[Annotated[dict[str, Any], Field(description="The numbers and names of `detail`, by code.")]]


@dataclass(frozen=True, slots=True)
class Problem:
    """An error, ready to be answered."""

    status: int
    code: str  # stable, for programs
    title: str
    detail: str  # for people; names the limit, the value and the setting
    retryable: bool = False  # the same request may succeed later or elsewhere
    param: str | None = None
    retry_after_s: float | None = None
    headers: dict[str, str] = field(default_factory=dict)
    extensions: dict[str, object] = field(default_factory=dict)  # further members of the body, RFC 9457 §3.2


def problem_of(error: Exception, path: str) -> Problem:
    """The problem for ``error``. An unexpected error is not quoted: its message may hold anything."""
    if isinstance(error, FinanciaError):
        return Problem(
            status=error.status,
            code=error.code,
            title=error.title,
            detail=str(error) or error.title,
            retryable=error.retryable,
            param=error.param,
            retry_after_s=error.retry_after_s,
            headers={"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else {},
            extensions={"params": {name: getattr(error, name) for name in error.told}} if error.told else {},
        )
    if isinstance(error, HTTPException):
        return _router_problem(error, path)
    if isinstance(error, RequestValidationError):
        return _validation_problem(error)
    return Problem(
        FinanciaError.status,
        FinanciaError.code,
        FinanciaError.title,
        "the service failed on this request; its log tells why under the request id",
    )


def _router_problem(error: HTTPException, path: str) -> Problem:
    headers = dict(error.headers or {})
    title = HTTPStatus(error.status_code).phrase
    detail = {
        404: f"there is no route {path[:200]}; GET /docs lists them",
        405: f"{path[:200]} answers {headers.get('Allow', 'other methods')} only",
    }.get(error.status_code, str(error.detail))
    code = _ROUTER_CODES.get(error.status_code, title.lower().replace(" ", "_"))
    return Problem(error.status_code, code, title, detail, headers=headers)


def _validation_problem(error: RequestValidationError) -> Problem:
    """Of a route that leaves validation to FastAPI (forms, queries)."""
    fault = error.errors()[0]
    place = ".".join(str(part) for part in fault["loc"][1:]) or str(fault["loc"][0])
    return Problem(InvalidField.status, InvalidField.code, InvalidField.title, f"{place}: {fault['msg']}", param=place)


def openai_error(problem: Problem) -> OpenAIError:
    """The object that OpenAI's clients show."""
    kind = _OPENAI_TYPES.get(problem.status, "server_error" if problem.status >= 500 else "invalid_request_error")
    return {"message": problem.detail, "type": kind, "code": problem.code, "param": problem.param}


AZURE_PATHS = ("/documentintelligence/", "/formrecognizer/")  # the service's name now, and until 2023
_AZURE_CODES = {
    401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 429: "TooManyRequests", 503: "ServiceUnavailable",
}  # fmt: skip
_AZURE_CAUSES = {  # of Azure Document Intelligence's inner errors
    "too_large": "InvalidContentLength",
    "unreadable_file": "InvalidContent",
    "password_required": "InvalidContent",
    "wrong_password": "InvalidContent",
    "wrong_media_type": "InvalidContent",
    "model_not_found": "ModelNotFound",
}


def azure_error(problem: Problem) -> dict[str, Any]:
    """The object that Azure's clients show: its code and cause in Azure's words."""
    fallback = "InvalidRequest" if problem.status < 500 else "InternalServerError"
    cause = {"code": _AZURE_CAUSES.get(problem.code, "InvalidParameter"), "message": problem.detail}
    code = _AZURE_CODES.get(problem.status, fallback)
    return {**openai_error(problem), "code": code, **({"innererror": cause} if problem.status < 500 else {})}


TEI_PATHS = frozenset(
    (
        "/", "/invocations", "/embed", "/embed_all", "/embed_sparse", "/predict", "/rerank", "/similarity",
        "/tokenize", "/decode", "/info",
    )
)  # fmt: skip


_TEI_TYPES: Mapping[int, TeiErrorType] = {429: "Overloaded", 503: "Unhealthy"}


def tei_error(problem: Problem) -> dict[str, Any]:
    """The members that clients of text-embeddings-inference, Ollama, Hugging Face and Weaviate show."""
    fallback: TeiErrorType = "Validation" if problem.status < 500 else "Backend"
    kind = _TEI_TYPES.get(problem.status, fallback)
    return {"error": problem.detail, "error_type": kind, "param": problem.param}


_TEXT_ERRORS = ("/api/", "/hf/", "/vectors", "/ner")  # Ollama, Hugging Face; Weaviate reads nothing but text


def _error_members(problem: Problem, path: str) -> dict[str, Any]:
    """The error in the words of the clients that call a path."""
    if path in TEI_PATHS or path.startswith(_TEXT_ERRORS):
        return tei_error(problem)
    return {"error": azure_error(problem) if path.startswith(AZURE_PATHS) else openai_error(problem)}


def problem_response(problem: Problem, request_id: str, path: str = "") -> Response:
    """``problem`` as application/problem+json.

    ``X-Should-Retry`` keeps OpenAI's clients, which retry every 5xx, from repeating what cannot succeed.

    Args:
        path: of the request, whose clients may want the error in words of their own.
    """
    details = {
        "type": TYPE_PREFIX + problem.code,
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "retryable": problem.retryable,
        "request_id": request_id,
        **_error_members(problem, path),
    }
    headers = {**problem.headers, "X-Should-Retry": "true" if problem.retryable else "false"}
    if problem.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after_s)))
    # json, not orjson: it writes even half a surrogate pair, should a message quote one
    return Response(json.dumps({**details, **problem.extensions}), problem.status, headers, MEDIA_TYPE)


def error_class(code: str) -> type[FinanciaError]:
    """The widest class of errors with this code; the root for a code of no class."""
    waiting = [FinanciaError]
    for error in waiting:
        if error.code == code:
            return error
        waiting.extend(error.__subclasses__())
    return FinanciaError
