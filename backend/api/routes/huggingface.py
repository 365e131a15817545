"""Hugging Face's tasks ``{inputs, parameters}``: each at an address of its own, as an inference endpoint has them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WrapValidator
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import is_json, json_response, read_json, validate_fields, written_json
from backend.api.request_context import Handle, call_service_timed, limits_of
from backend.api.request_fields import Labels, Sentence, TextInputs, WireRequest, check_labels, check_limits
from backend.api.routes.answer import MIN_SCORE
from backend.api.routes.audio import TranscriptionForm, transcribed
from backend.api.routes.classify import PredictionAnswer
from backend.api.routing import body_route, described, post
from backend.api.upload import decoded_upload, read_json_with_file, receive_upload
from backend.errors import InvalidField
from backend.summaries.records import SummaryOptions
from backend.summaries.service import SummaryService
from backend.text.answers import MAX_QUESTION_CHARS, AnswerService
from backend.text.classification import ClassificationService
from backend.text.entities import EntityService
from backend.text.entity_merge import Entity
from backend.text.key_sentences import MAX_SENTENCE_CHARS

_entities_of: Handle[EntityService] = Handle("entities")
_classification_of: Handle[ClassificationService] = Handle("classification")
_answers_of: Handle[AnswerService] = Handle("answers")
_summaries_of: Handle[SummaryService] = Handle("summaries")


class _Parameters(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class TokenClassificationRequest(WireRequest):
    """Names, numbers and dates of one text or several."""

    inputs: Annotated[TextInputs, WrapValidator(lambda value, check: (check(value), isinstance(value, list)))] = Field(
        description="A text, or a list of texts, which is answered with a list of lists."
    )
    parameters: _Parameters | None = None


class _ZeroShotParameters(_Parameters):
    candidate_labels: Labels = Field(description="The classes to choose from, in words.")
    multi_label: bool | None = Field(None, description="Whether each label is judged by itself.")
    hypothesis_template: str | None = Field(None, description="How a label becomes a sentence, with {} in its place.")


class ZeroShotRequest(WireRequest):
    """Classes in the caller's own words."""

    inputs: Sentence
    parameters: _ZeroShotParameters


class _QuestionAndText(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    question: Annotated[Sentence, Field(max_length=MAX_QUESTION_CHARS)]
    context: Sentence


class _AnswerParameters(_Parameters):
    handle_impossible_answer: bool | None = Field(False, description="Whether the answer may be empty.")


class QuestionRequest(WireRequest):
    """A question over a text."""

    inputs: _QuestionAndText
    parameters: _AnswerParameters | None = None


class _SummaryParameters(_Parameters):
    max_length: Annotated[int, Field(ge=8, le=2048)] | None = Field(None, description="Most tokens of the summary.")


class SummarizationRequest(WireRequest):
    """The most telling sentences of a text."""

    inputs: Sentence
    parameters: _SummaryParameters | None = None


class SpeechRequest(WireRequest):
    """A recording as base64."""

    inputs: str = Field(min_length=4, description="The recording.")
    parameters: _Parameters | None = None


class EntityGroup(TypedDict):
    """One entity."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


class SpanAnswer(TypedDict):
    """The words that answer; empty where nothing does."""

    answer: str
    score: float
    start: int
    end: int


class SummaryText(TypedDict):
    """A summary."""

    summary_text: str


class SpokenText(TypedDict):
    """What is said."""

    text: str


async def token_classification(request: Request) -> Response:
    """Names, numbers and dates with their places, as `POST /v1/entities` finds them."""
    body = await read_json(request, TokenClassificationRequest)
    texts, several = body.inputs
    characters = check_limits(texts, limits_of(request), "inputs")
    result = await call_service_timed(request, partial(_entities_of(request).find, texts), characters=characters)
    rows = [row.entities for row in result.rows]
    answer = (lambda: [_entity_groups(row) for row in rows]) if several else partial(_entity_groups, rows[0])
    return await written_json(answer, sum(map(len, rows)))


def _entity_groups(entities: Iterable[Entity]) -> list[EntityGroup]:
    return [
        {
            "entity_group": entity.type,
            "score": entity.score,
            "word": entity.text,
            "start": entity.start,
            "end": entity.end,
        }
        for entity in entities
    ]


async def zero_shot_classification(request: Request) -> Response:
    """Each label with its score, the best first, as `POST /v1/classify` with `labels`."""
    body = await read_json(request, ZeroShotRequest)
    characters = check_limits([body.inputs], limits_of(request), "inputs")
    check_labels(body.parameters.candidate_labels, limits_of(request))
    call = partial(
        _classification_of(request).classify,
        [body.inputs],
        labels=body.parameters.candidate_labels,
        multi_label=body.parameters.multi_label,
        hypothesis_template=body.parameters.hypothesis_template,
    )
    [row] = (await call_service_timed(request, call, characters=characters)).rows
    return json_response([{"label": one.label, "score": one.score} for one in row.predictions])


async def question_answering(request: Request) -> Response:
    """The words of a text that answer a question most likely, as `POST /v1/answer`."""
    body = await read_json(request, QuestionRequest)
    question, context = body.inputs.question, body.inputs.context
    characters = check_limits([question, context], limits_of(request), "inputs")
    may_lack = body.parameters is not None and body.parameters.handle_impossible_answer
    call = partial(_answers_of(request).answer, [question], context, min_score=MIN_SCORE if may_lack else 0.0)
    [found] = (await call_service_timed(request, call, characters=characters)).answers
    start, end = (0, 0) if found.absent else (found.start, found.end)
    return json_response(SpanAnswer(answer=context[start:end], score=found.score, start=start, end=end))


async def summarization(request: Request) -> Response:
    """The most telling sentences of a text, as `POST /v1/summarize`; a text of none, if it is short, as it is."""
    body = await read_json(request, SummarizationRequest)
    characters = check_limits([body.inputs], limits_of(request), "inputs")
    options = SummaryOptions(max_tokens=body.parameters.max_length if body.parameters else None)
    call = partial(_summaries_of(request).summarize, body.inputs, options)
    summary = (await call_service_timed(request, call, characters=characters)).summary
    if not summary.text and len(body.inputs) > MAX_SENTENCE_CHARS:  # there is no place for a warning beside it
        raise InvalidField(f"inputs: the summary is {summary.warnings[-1].removeprefix('text: ')}")
    return json_response([SummaryText(summary_text=summary.text or " ".join(body.inputs.split()))])


async def speech_recognition(request: Request) -> Response:
    """What is said in a recording: the body itself, or base64 in JSON."""
    form = validate_fields(TranscriptionForm, {})
    if is_json(request):
        body = await read_json_with_file(request, SpeechRequest)
        async with decoded_upload(request, body.inputs, "inputs") as upload:
            transcript = await transcribed(request, upload, form)
    else:
        async with receive_upload(request, most_s=limits_of(request).transcription_s) as upload:
            transcript = await transcribed(request, upload, form)
    return json_response(SpokenText(text=transcript.text))


_TAG = "Hugging Face tasks"
_TEXT = "Ana García pidió 3 toneladas de acero el 12 de marzo de 2026."
_GROUP = {"entity_group": "PER", "score": 0.9931, "word": "Ana García", "start": 0, "end": 10}
_GROUPS: dict[str, Any] = {"type": "array", "items": EntityGroup}
_LABELS = {"type": "array", "items": PredictionAnswer}
ROUTES = (
    post(
        "/hf/token-classification",
        token_classification,
        tag=_TAG,
        request=TokenClassificationRequest,
        examples={"a text": {"inputs": _TEXT}},
        schema={"anyOf": [_GROUPS, {"type": "array", "items": _GROUPS}]},
        example=[_GROUP],
    ),
    post(
        "/hf/zero-shot-classification",
        zero_shot_classification,
        tag=_TAG,
        request=ZeroShotRequest,
        examples={"two labels": {"inputs": _TEXT, "parameters": {"candidate_labels": ["pedido", "factura"]}}},
        schema=_LABELS,
        example=[{"label": "pedido", "score": 0.9412}, {"label": "factura", "score": 0.0588}],
    ),
    post(
        "/hf/question-answering",
        question_answering,
        tag=_TAG,
        request=QuestionRequest,
        examples={"a question": {"inputs": {"question": "¿Cuánto pidió Ana?", "context": _TEXT}}},
        schema=SpanAnswer,
        example={"answer": "3 toneladas", "score": 0.81, "start": 17, "end": 28},
    ),
    post(
        "/hf/summarization", summarization, tag=_TAG, request=SummarizationRequest,
        examples={"a text": {"inputs": _TEXT}}, schema={"type": "array", "items": SummaryText},
        example=[{"summary_text": _TEXT}],
    ),
    body_route(
        "POST",
        "/hf/automatic-speech-recognition",
        speech_recognition,
        tag=_TAG,
        json_request=(SpeechRequest, {"a recording": {"inputs": "UklGRiQAAABXQVZF"}}),
        file="A recording, as for /v1/audio/transcriptions.",
        answers={
            200: described({"application/json": {"schema": SpokenText, "example": {"text": "La factura vence."}}})
        },
    ),
)  # fmt: skip
