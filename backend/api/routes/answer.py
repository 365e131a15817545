"""``POST /v1/answer``: questions over a document, answered with words of it and their place, or with nothing."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import is_json, json_response, read_json, validate_fields
from backend.api.request_context import Handle, call_service_timed, call_within_limit
from backend.api.request_fields import ANY_TEXT, TextOrAbsent, WireRequest, require_no_empty_items
from backend.api.routes.document_answers import FailedPageAnswer, Sides, failed_page_answer
from backend.api.routes.documents import JsonReadRequest, process_upload
from backend.api.routes.embeddings import Usage, usage
from backend.api.routes.papers import pages_schema, read_paper
from backend.api.routing import JSON, described, upload_route
from backend.api.upload import receive_upload
from backend.files.pages import Document, locate
from backend.text.answers import MAX_QUESTION_CHARS, MAX_QUESTIONS, Absence, Answer, AnswerResult, AnswerService

_answers_of: Handle[AnswerService] = Handle("answers")

_MAX_PAGES = 200
MIN_SCORE = 0.25  # 9 of 10 questions about another paragraph of the article get no answer, in either language


def _require_words(questions: list[str]) -> list[str]:
    require_no_empty_items([question.strip() for question in questions], "questions")
    return questions


_Question = Annotated[str, Field(max_length=MAX_QUESTION_CHARS, json_schema_extra={"pattern": r"\S"})]
_Questions = Annotated[list[_Question], Field(min_length=1, max_length=MAX_QUESTIONS), AfterValidator(_require_words)]
_MinScore = Annotated[float, Field(ge=0.0, le=1.0, description="Least score of an answer; below it there is none.")]
_ASKED = "What to ask, in Spanish or English; the document may be in the other."
_MODEL = "A name that GET /v1/models lists; unset: the one loaded."


class AnswerRequest(WireRequest):
    """`POST /v1/answer`."""

    questions: _Questions = Field(description=_ASKED)
    input: Annotated[str | None, WithJsonSchema({"anyOf": [ANY_TEXT, {"type": "null"}]})] = Field(
        None, description="The text to look in."
    )
    pages: Annotated[list[Any] | None, WithJsonSchema(pages_schema(_MAX_PAGES))] = Field(
        None, description="In its place pages with words and boxes, as POST /v1/documents answers them."
    )
    document: str | None = Field(None, description="In its place the id of a stored document.")
    min_score: _MinScore = MIN_SCORE
    model: str | None = Field(None, description=_MODEL)


class AnswerForm(JsonReadRequest):
    """`POST /v1/answer` with a file: how to read it, and what to ask."""

    questions: _Questions = Field(description=f"{_ASKED} Each is a field of its own.")
    min_score: _MinScore = MIN_SCORE
    model: TextOrAbsent = Field(None, description=_MODEL)


class FoundAnswer(TypedDict):
    """Words of the document that answer a question."""

    text: Annotated[str, Field(description="As the document has it.")]
    start: Annotated[
        int, Field(description="First code point in the text; of pages in their texts, joined by line and form feed.")
    ]
    end: Annotated[int, Field(description="The code point after its last.")]
    page: Annotated[int | None, Field(description="The number of its page; null where a text was sent.")]
    boxes: Annotated[list[Sides], Field(description="One for each printed line, in page units; empty for a text.")]


class QuestionAnswer(TypedDict):
    """What the document answers to one question."""

    index: Annotated[int, Field(description="Place of the question in the request.")]
    answer: Annotated[FoundAnswer | None, Field(description="Null where nothing in the document answers it.")]
    score: Annotated[float, Field(description="How likely the best words of the document answer the question, 0 to 1.")]
    reason: Annotated[
        Absence | None,
        Field(description="Why there is no answer: not_there (the score is under min_score) or empty_text."),
    ]


class AnswersAnswer(TypedDict):
    """`POST /v1/answer`."""

    object: Literal["list"]
    data: list[QuestionAnswer]
    model: str
    failed_pages: NotRequired[
        Annotated[list[FailedPageAnswer], Field(description="Of a file: pages that could not be read, and why.")]
    ]
    usage: Usage


def answers_answer(result: AnswerResult, document: Document, text: str, *, is_paper: bool) -> AnswersAnswer:
    """The answers in the order of the questions."""
    return {
        "object": "list",
        "data": [
            {
                "index": index,
                "answer": None if answer.absent else _found(answer, document, text, is_paper=is_paper),
                "score": answer.score,
                "reason": answer.absent,
            }
            for index, answer in enumerate(result.answers)
        ],
        "model": result.model,
        "usage": usage(result.tokens),
    }


def _found(answer: Answer, document: Document, text: str, *, is_paper: bool) -> FoundAnswer:
    places = locate(document, answer.start, answer.end) if is_paper else []
    return {
        "text": text[answer.start : answer.end],
        "start": answer.start,
        "end": answer.end,
        "page": places[0].page if places else None,
        "boxes": [(*place.box,) for place in places],
    }


async def answer_questions(request: Request) -> Response:
    """Questions over a text, a file, pages or a stored document: the words that answer each, where they stand, or null.

    An answer is always a piece of the document, never written anew. `score` is how likely the best words are right;
    under `min_score` the answer is null, and `reason` says so. Of a long document the parts most like a question are
    read with it. Questions are data, and so is the document: nothing that it says changes what is asked. A file comes
    as multipart/form-data, with a field `questions` for each.
    """
    return await (_of_json(request) if is_json(request) else _of_file(request))


async def _of_json(request: Request) -> Response:
    body = await read_json(request, AnswerRequest)
    document = await call_within_limit(request, read_paper(request, body, "", most_pages=_MAX_PAGES))
    return json_response(await _answered(request, body, document, is_paper=body.input is None))


async def _of_file(request: Request) -> Response:
    async with receive_upload(request) as upload:
        asked = {name: values for name, values in upload.repeated.items() if name == "questions"}
        form = validate_fields(AnswerForm, upload.fields | asked)
        _answers_of(request).require(form.model)
        options = form.options()
        upload.require_options(options)
        read = await process_upload(request, upload, options)
        answer = await _answered(request, form, read.document, is_paper=True)
        answer["failed_pages"] = [failed_page_answer(failed) for failed in read.failed]
        return json_response(answer)


async def _answered(
    request: Request, asked: AnswerRequest | AnswerForm, document: Document, *, is_paper: bool
) -> AnswersAnswer:
    text = document.text
    call = partial(_answers_of(request).answer, asked.questions, text, min_score=asked.min_score, model=asked.model)
    result = await call_service_timed(request, call, characters=len(text) + sum(map(len, asked.questions)))
    return answers_answer(result, document, text, is_paper=is_paper)


_TEXT = "El contrato dura dos años y entra en vigor el 1 de marzo de 2026. La renta es de 950 euros al mes."
_EXAMPLE: AnswersAnswer = {
    "object": "list",
    "data": [
        {
            "index": 0,
            "answer": {"text": "dos años", "start": 17, "end": 25, "page": None, "boxes": []},
            "score": 0.82,
            "reason": None,
        },
        {"index": 1, "answer": None, "score": 0.03, "reason": "not_there"},
    ],
    "model": "intfloat/multilingual-e5-small-answer",
    "usage": {"prompt_tokens": 126, "total_tokens": 126},
}
ROUTES = (
    upload_route(
        "/v1/answer",
        answer_questions,
        tag="texts",
        request=AnswerForm,
        json_request=(
            AnswerRequest,
            {
                "a text": {
                    "questions": ["¿Cuánto dura el contrato?", "How much is the rent?", "¿Quién es el fiador?"],
                    "input": _TEXT,
                }
            },
        ),
        answers={200: described({JSON: {"schema": AnswersAnswer, "example": _EXAMPLE}})},
    ),
)
