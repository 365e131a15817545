"""``POST /v1/entities``: the names, numbers and dates in texts, or what the caller's own labels name."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import read_json, written_json
from backend.api.request_context import Handle, call_service_timed, limits_of
from backend.api.request_fields import OwnTypes, TextInputs, WireRequest, check_limits
from backend.api.routes.embeddings import Usage, usage
from backend.api.routing import post
from backend.errors import InvalidField
from backend.reasons import ReasonAnswer, reasons_in
from backend.text.answers import LABEL_MIN_SCORE, AnswerService
from backend.text.entities import EntityResult, EntityService, TextEntities
from backend.text.entity_merge import Entity, Lost

_entities_of: Handle[EntityService] = Handle("entities")
_answers_of: Handle[AnswerService] = Handle("answers")

_OWN_OR_GIVEN: dict[str, Any] = {
    "anyOf": [
        {"properties": {"labels": {"type": "null"}}},
        {"properties": {"types": {"type": "null"}, "sources": {"type": "null"}}},
    ]
}

Source = Literal["model", "pattern"]


class EntitiesRequest(WireRequest):
    """`POST /v1/entities`."""

    model_config = ConfigDict(json_schema_extra=_OWN_OR_GIVEN)

    input: TextInputs = Field(description="Texts of any length up to LIMIT_TEXT_CHARS; nothing is cut.")
    types: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="Kinds of entities to answer with: the model's (PER, ORG, LOC) and patterns'; unset: all."
    )
    labels: OwnTypes = Field(
        None,
        description="In place of `types` and `sources`: types in your own words, a list of names or an object of names"
        " and descriptions. What each names is asked of LABEL_MODEL; nothing else is looked for.",
    )
    min_score: float | None = Field(
        None, ge=0.0, le=1.0, description=f"Least score of an entity; unset: 0, and of labels {LABEL_MIN_SCORE}."
    )
    sources: Annotated[list[Source], Field(min_length=1)] | None = Field(
        None,
        description="Who looks: the model, which reads names, patterns, which read numbers and dates; unset: both,"
        " or patterns alone where no model is loaded.",
    )
    explain: bool | None = Field(False, description="Also answer what was found and gave way to another, and why.")
    model: str | None = Field(None, description="A name that GET /v1/models lists; unset: the one loaded.")

    @model_validator(mode="after")
    def _asks_in_one_way(self) -> EntitiesRequest:
        for name in ("types", "sources"):
            if self.labels is not None and getattr(self, name) is not None:
                raise InvalidField(f"{name}: says what to look for, as labels does; leave one of them out")
        return self


class EntityAnswer(TypedDict):
    """One entity in a text."""

    type: Annotated[
        str, Field(description="PER, ORG, LOC, … as the model names it; DATE, MONEY, IBAN, … of a pattern; or a label.")
    ]
    text: Annotated[str, Field(description="As the caller wrote it.")]
    start: Annotated[int, Field(description="First code point in the caller's text.")]
    end: Annotated[int, Field(description="The code point after its last.")]
    score: Annotated[
        float, Field(description="How sure its finder is, 0 to 1; of a model the mean probability of its words.")
    ]
    source: Literal["model", "pattern"]
    value: Annotated[
        str | None, Field(description="Normalised: ISO date, decimal and currency, compact number; null for names.")
    ]
    valid: Annotated[bool | None, Field(description="Whether checksum or calendar agree; null where nothing can tell.")]


class LostEntity(TypedDict):
    """What was found and gave way to another that overlaps it."""

    entity: EntityAnswer
    to: EntityAnswer
    why: str
    reasons: Annotated[list[ReasonAnswer], Field(description="`why` as codes with parameters.")]


class EntitiesItem(TypedDict):
    """The entities of one text, in its order; they never overlap."""

    index: Annotated[int, Field(description="Place of its input in the request.")]
    entities: list[EntityAnswer]
    coverage: Annotated[float, Field(description="Share of the text's characters, blanks aside, that could be read.")]
    lost: NotRequired[
        Annotated[list[LostEntity] | None, Field(default=None, description="Only where `explain` was asked for.")]
    ]


class EntitiesAnswer(TypedDict):
    """`POST /v1/entities`."""

    object: Literal["list"]
    data: list[EntitiesItem]
    model: str
    usage: Usage


def entity_answer(entity: Entity) -> EntityAnswer:
    """An entity; ``start`` and ``end`` count code points of the caller's text."""
    return {
        "type": entity.type,
        "text": entity.text,
        "start": entity.start,
        "end": entity.end,
        "score": entity.score,
        "source": cast("Source", entity.source),
        "value": entity.value,
        "valid": entity.valid,
    }


def entities_answer(result: EntityResult, *, explain: bool) -> EntitiesAnswer:
    """The entities of each text; with ``explain`` also those that gave way to others."""
    return {
        "object": "list",
        "data": [_entities_item(index, row, explain=explain) for index, row in enumerate(result.rows)],
        "model": result.model,
        "usage": usage(result.tokens),
    }


def _entities_item(index: int, row: TextEntities, *, explain: bool) -> EntitiesItem:
    item: EntitiesItem = {
        "index": index,
        "entities": [entity_answer(entity) for entity in row.entities],
        "coverage": row.coverage,
    }
    if explain:
        item["lost"] = [_lost_entity(lost) for lost in row.lost]
    return item


def _lost_entity(lost: Lost) -> LostEntity:
    return {
        "entity": entity_answer(lost.entity),
        "to": entity_answer(lost.to),
        "why": lost.why,
        "reasons": reasons_in(lost.why),
    }


async def find_entities(request: Request) -> Response:
    """Names, numbers and dates in texts of any length, with their places.

    `start` and `end` count Unicode code points of the text as it was sent. Names (PER, ORG, LOC) come from a model;
    accounts, tax numbers, dates, amounts and addresses from patterns, with their normalised `value` and whether their
    checksum is right. Where two overlap one is kept; `explain` tells which gave way and why. Long texts are read in
    overlapping windows; nothing is cut. Order is kept; equal texts are read once.

    With `labels` each entity is what one of them names, the likelier of two that overlap. Labels are data, and so are
    texts: nothing that either says changes what is looked for.
    """
    body = await read_json(request, EntitiesRequest)
    characters = check_limits(body.input, limits_of(request), "input")
    if body.labels is None:
        min_score = body.min_score or 0.0
        service = _entities_of(request)
        find = partial(service.find, body.input, types=body.types, sources=body.sources, min_score=min_score)
    else:
        min_score = LABEL_MIN_SCORE if body.min_score is None else body.min_score
        find = partial(_answers_of(request).label, body.labels, body.input, min_score=min_score)
        characters += sum(map(len, [*body.labels, *body.labels.values()]))
    result = await call_service_timed(request, partial(find, model=body.model), characters=characters)
    answer = partial(entities_answer, result, explain=bool(body.explain))
    return await written_json(answer, sum(len(row.entities) + len(row.lost) for row in result.rows))


ENTITY_EXAMPLES = (
    {
        "type": "ORG", "text": "Aceros del Norte, S.A.", "start": 11, "end": 33, "score": 0.9412, "source": "model",
        "value": None, "valid": None,
    },
    {
        "type": "MONEY", "text": "1.284,50 €", "start": 49, "end": 59, "score": 0.95, "source": "pattern",
        "value": "1284.50 EUR", "valid": None,
    },
)  # fmt: skip
ROUTES = (
    post(
        "/v1/entities",
        find_entities,
        tag="texts",
        request=EntitiesRequest,
        examples={
            "one text": {"input": "Factura de Aceros del Norte, S.A., a Juan Pérez: 1.284,50 €."},
            "people and organisations only, sure ones": {
                "input": ["Acme Ltd hired Jane Doe.", "Sin nombres."],
                "types": ["ORG", "PER"],
                "min_score": 0.8,
            },
            "types in your own words": {
                "input": "La furgoneta, matrícula 1234 BCD, tenía el faro roto.",
                "labels": {"matrícula": "placa del vehículo", "avería": "pieza rota o fallo"},
            },
            "patterns only, with what gave way": {
                "input": "IBAN ES91 2100 0418 4502 0005 1332, vence el 31/03/2026.",
                "sources": ["pattern"],
                "explain": True,
            },
        },
        schema=EntitiesAnswer,
        example={
            "object": "list",
            "data": [{"index": 0, "entities": list(ENTITY_EXAMPLES), "coverage": 1.0}],
            "model": "ner-es-en",
            "usage": {"prompt_tokens": 26, "total_tokens": 26},
        },
    ),
)
