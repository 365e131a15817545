"""``/v1/extractors``: fields in the caller's words, taught by a few examples, for one request or for good."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, Field, ValidationError, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.abandoned import require_wanted
from backend.api.json_io import json_response, read_json
from backend.api.request_context import Handle, call_service, context_of, services_of
from backend.api.request_fields import OWN_LABELS, TEXT, WireRequest
from backend.api.routes.papers import MAX_WORDS, pages_schema, read_paper
from backend.api.routing import REQUEST_TIMEOUT, delete, get, name_parameter, put
from backend.documents.extractors import NAME_PATTERN, Extractor, ExtractorStore, check_change, check_name, found
from backend.documents.own_examples import MAX_EXAMPLES, learn, lessons_from, lessons_json
from backend.errors import InvalidField, TooLarge
from backend.files.pages import Document
from backend.lanes.inference import Urgency
from backend.text.own_labels import MAX_LABELS, OwnLabel, Path, labels_json, read_labels
from backend.text.own_values import Value

_extractors_of: Handle[ExtractorStore] = Handle("extractors")

_MAX_PAGES = 20  # of one example
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SCALAR = (str, bool, int, float)


class OwnExample(WireRequest):
    """A paper and the values that it has: its text, its pages as they were answered, or a stored document."""

    input: Annotated[str | None, WithJsonSchema({"anyOf": [TEXT, {"type": "null"}]})] = Field(
        None, description="The text, its lines and columns as they are set on paper."
    )
    pages: Annotated[list[Any] | None, WithJsonSchema(pages_schema(_MAX_PAGES, least_words=1))] = Field(
        None, description="Pages with words and boxes, as POST /v1/documents answers them."
    )
    document: str | None = Field(None, description="The id of a stored document.")
    values: dict[str, Any] = Field(
        description="A value for each name, as the paper prints it; a list of all for a list; null, or nothing, where"
        " it has none. Dates may be ISO 8601, numbers JSON numbers."
    )


OwnExamples = Annotated[list[OwnExample], Field(min_length=1, max_length=MAX_EXAMPLES)]


class _Examples(BaseModel):
    examples: OwnExamples


def examples_in_form(value: Any) -> Any:
    """Examples that a form holds as JSON; an empty field as one that is absent."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return _Examples.model_validate({"examples": orjson.loads(value)}).examples
    except orjson.JSONDecodeError as error:
        raise InvalidField(f"examples: is no JSON: {error}") from error
    except ValidationError as error:
        fault: Any = error.errors(include_url=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])[1:]
        raise InvalidField(f"{place}: {fault['msg'][:1].lower()}{fault['msg'][1:]}", param="examples") from error


async def own_words(
    request: Request, schema: str, examples: Sequence[OwnExample] | None, extractor: str | None
) -> tuple[str, str]:
    """What to find in the caller's words, as ``schema`` and ``lessons`` of `DocumentOptions`.

    Raises: InvalidField, TooLarge, NotFound, Unavailable.
    """
    if extractor is not None:
        if schema or examples:
            sent = "schema" if schema else "examples"
            raise InvalidField(f"{sent}: an extractor has its own; leave {sent} or extractor out")
        taught = await found(_extractors_of(request), extractor)
        return taught.schema, taught.lessons
    if not examples:
        return schema, ""
    return await _learnt(request, schema, examples)


async def _learnt(request: Request, schema: str, examples: Sequence[OwnExample]) -> tuple[str, str]:
    papers = [
        await read_paper(request, example, f"examples[{index}]", most_pages=_MAX_PAGES)
        for index, example in enumerate(examples)
    ]
    words = sum(len(page.words) for paper in papers for page in paper.pages)
    if words > MAX_WORDS:
        advice = "Send shorter papers, or only the pages that have the values."
        raise TooLarge("words of all examples", words, MAX_WORDS, "a fixed limit", advice=advice, param="examples")
    return await services_of(request).text_work.run_long(
        partial(_lessons_of, schema, examples, papers), sum(paper.characters for paper in papers)
    )


def _lessons_of(schema: str, examples: Sequence[OwnExample], papers: Sequence[Document]) -> tuple[str, str]:
    """The schema, of the examples where none was sent, and what they teach. On a thread."""
    told = [_told(example, f"examples[{index}].values") for index, example in enumerate(examples)]
    schema = schema or orjson.dumps(_schema_of(examples, papers)).decode()
    labels = read_labels(orjson.loads(schema), "schema")
    _require_known(labels, told)
    lessons = learn(labels, list(zip(papers, told, strict=True)))
    return schema, orjson.dumps(lessons_json(lessons)).decode()


def _told(example: OwnExample, place: str) -> dict[Path, list[Value]]:
    """The values of an example by path. Raises: TooLarge for more than a schema may have."""
    told = dict(islice(_values(example.values, (), place), MAX_LABELS + 1))
    if len(told) > MAX_LABELS:
        advice = "Teach them in several extractors."
        raise TooLarge(place, len(told), MAX_LABELS, "a fixed limit", advice=advice, param="examples")
    return told


def _values(values: Mapping[str, Any], path: Path, place: str) -> Iterator[tuple[Path, list[Value]]]:
    """The values of an example by path."""
    for name, value in values.items():
        own, where = (*path, name), f"{place}.{name[:60]}"
        if isinstance(value, dict) and len(path) < 8:
            yield from _values(value, own, where)
            continue
        each = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(one, _SCALAR) for one in each):
            raise InvalidField(
                f"{where}: must be a text, a number, true or false, or a list of these", param="examples"
            )
        if any(isinstance(one, str) and not one.strip() for one in each):
            raise InvalidField(f"{where}: must not be empty; use null where the paper has none", param="examples")
        yield own, each


def _require_known(labels: Sequence[OwnLabel], told: Sequence[Mapping[Path, Any]]) -> None:
    known = {label.path for label in labels}
    for index, values in enumerate(told):
        for path in values:
            if path not in known:
                names = ", ".join(label.name for label in labels[:20])
                raise InvalidField(f"examples[{index}].values: {'.'.join(path)[:100]!r} is not in the schema ({names})")


def _schema_of(examples: Sequence[OwnExample], papers: Sequence[Document]) -> dict[str, Any]:
    """A JSON Schema of what the examples have."""
    printed = "\n".join(paper.text for paper in papers)
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    for example in examples:
        _add_properties(schema, example.values, printed)
    return schema


def _add_properties(schema: dict[str, Any], values: Mapping[str, Any], printed: str) -> None:
    for name, value in values.items():
        require_wanted()
        properties = schema["properties"]
        if isinstance(value, dict):
            inner = properties.setdefault(name, {"type": "object", "properties": {}})
            if "properties" in inner:
                _add_properties(inner, value, printed)
            continue
        each = value if isinstance(value, list) else [value]
        kind = next((_type_of(one, printed) for one in each if one is not None), None)
        if kind is None:
            properties.setdefault(name, {})
        elif not properties.get(name):
            properties[name] = {"type": "array", "items": {"type": kind}} if isinstance(value, list) else {"type": kind}


def _type_of(value: Any, printed: str) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    is_date = isinstance(value, str) and _ISO_DATE.fullmatch(value) and value not in printed
    return "date" if is_date else "string"


class TeachRequest(WireRequest):
    """`PUT /v1/extractors/{name}`."""

    own_schema: Annotated[Any, WithJsonSchema(OWN_LABELS)] = Field(
        None, alias="schema", description="What to find, as of POST /v1/fields; unset: what the examples have."
    )
    examples: OwnExamples = Field(description="Papers with the values that they have.")


class TaughtLabelAnswer(TypedDict):
    """A field of an extractor."""

    name: Annotated[str, Field(description="With the objects that it is in, as in vehicle.plate.")]
    type: str
    list: bool
    places: Annotated[int, Field(description="Where examples have it on paper; 0: it is looked for by its name alone.")]


class ExtractorAnswer(TypedDict):
    """An extractor that `extractor` of POST /v1/fields, /v1/documents and /v1/jobs names."""

    object: Literal["extractor"]
    name: str
    labels: list[TaughtLabelAnswer]
    schema: Annotated[Any, Field(description="As it was sent, or as the examples have it.")]
    examples: int
    created: Annotated[int, Field(description="Unix seconds at which it was taught.")]


class ExtractorList(TypedDict):
    """`GET /v1/extractors`."""

    object: Literal["list"]
    data: list[ExtractorAnswer]


class ForgottenExtractor(TypedDict):
    """`DELETE /v1/extractors/{name}`, in OpenAI's shape of deletions."""

    object: Literal["extractor"]
    name: str
    deleted: Literal[True]


def extractor_answer(extractor: Extractor) -> ExtractorAnswer:
    """An extractor and what it was taught."""
    schema, lessons = orjson.loads(extractor.schema), lessons_from(orjson.loads(extractor.lessons))
    return {
        "object": "extractor",
        "name": extractor.name,
        "labels": [
            {"name": label.name, "type": label.kind, "list": label.many, "places": len(lessons.get(label.path, ()))}
            for label in read_labels(schema)
        ],
        "schema": schema,
        "examples": extractor.examples,
        "created": int(extractor.created_s),
    }


async def list_extractors(request: Request) -> Response:
    """The extractors that were taught."""
    data = [extractor_answer(extractor) for extractor in await _extractors_of(request).all()]
    return json_response(ExtractorList(object="list", data=data))


async def retrieve_extractor(request: Request) -> Response:
    """One extractor, by its name."""
    return json_response(extractor_answer(await found(_extractors_of(request), request.path_params["name"])))


async def teach_extractor(request: Request) -> Response:
    """Teach fields in your own words from 1 to 16 papers, under a name that `extractor` then takes.

    From the examples come the names that are printed beside each value, its form and its place; the papers themselves
    are not kept. The same name again replaces what was taught before. Every key may use it; the key that taught it, and
    those of ADMIN_KEYS, may replace and delete it.
    """
    body, name = await read_json(request, TeachRequest), request.path_params["name"]
    check_name(name)
    caller, store = context_of(request).caller, _extractors_of(request)
    schema = labels_json(body.own_schema)

    async def call(*, urgency: Urgency) -> Extractor:
        del urgency  # the request's limit ends it
        check_change(await store.get(name), caller)
        known, lessons = await _learnt(request, schema, body.examples)
        now_s = datetime.now(UTC).timestamp()
        return await store.save(Extractor(name, None, known, lessons, len(body.examples), now_s), caller)

    return json_response(extractor_answer(await call_service(request, call)))


async def forget_extractor(request: Request) -> Response:
    """Delete an extractor: one of this key's own, or any with a key of ADMIN_KEYS."""
    name = request.path_params["name"]
    await _extractors_of(request).delete(name, context_of(request).caller)
    return json_response(ForgottenExtractor(object="extractor", name=name, deleted=True))


_NAME = "delivery-note"
EXAMPLES_EXAMPLE = [
    {
        "input": "PARTE DE TRABAJO\nPlaca: 1234 BCD    Lectura: 87.500 km",
        "values": {"matrícula": "1234 BCD", "kilometraje": 87500},
    },
    {"input": "PARTE DE TRABAJO\nPlaca: 7777 XYZ    Lectura: 9.120 km", "values": {"matrícula": "7777 XYZ"}},
]
_EXTRACTOR_EXAMPLE = {
    "object": "extractor",
    "name": _NAME,
    "labels": [
        {"name": "matrícula", "type": "string", "list": False, "places": 2},
        {"name": "kilometraje", "type": "number", "list": False, "places": 1},
    ],
    "schema": {"matrícula": "", "kilometraje": {"type": "number"}},
    "examples": 2,
    "created": 1767225600,
}
ROUTES = (
    get(
        "/v1/extractors",
        list_extractors,
        tag="documents",
        schema=ExtractorList,
        example={"object": "list", "data": [_EXTRACTOR_EXAMPLE]},
    ),
    get(
        "/v1/extractors/{name}", retrieve_extractor, tag="documents", schema=ExtractorAnswer,
        example=_EXTRACTOR_EXAMPLE, errors=(404,), parameters=(name_parameter(_NAME),),
    ),
    put(
        "/v1/extractors/{name}",
        teach_extractor,
        tag="documents",
        request=TeachRequest,
        examples={
            "two texts": {"schema": {"matrícula": "", "kilometraje": {"type": "number"}}, "examples": EXAMPLES_EXAMPLE}
        },
        schema=ExtractorAnswer,
        example=_EXTRACTOR_EXAMPLE,
        errors=(400, 403, 404, 413, 415, 422, 429, 504, 507),
        parameters=(name_parameter(_NAME, pattern=f"^{NAME_PATTERN}$"), REQUEST_TIMEOUT),
    ),
    delete(
        "/v1/extractors/{name}",
        forget_extractor,
        tag="documents",
        schema=ForgottenExtractor,
        example={"object": "extractor", "name": _NAME, "deleted": True},
        errors=(403, 404, 422),
        parameters=(name_parameter(_NAME),),
    ),
)  # fmt: skip
