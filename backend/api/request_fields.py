"""Checks of request values, and the fields that several requests share.

Types are strict: ``true`` is no token id and ``"3"`` no number. Errors are those of backend.errors, which pydantic
passes on; they name the field, what is wrong with it, what was got, and the limit.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema
from rapidfuzz.distance import OSA

from backend.api.request_context import ApiLimits
from backend.errors import BadInput, InvalidField, TooLarge, param_of
from backend.files.page_ranges import check_page_ranges
from backend.models.tokenizer import Truncate
from backend.text.own_labels import KINDS, MAX_CHARS, MAX_LABELS, read_types

Value = TypeVar("Value")
Read = Callable[[Any, str], Any]  # what a request's value says, told where it stands for what is wrong with it
Texts = list[str]
TokenIds = list[list[int]]
# Characters that stand for whole phrases, and how many letters of them tokenizers read: a million of the first took 8 s
# and 2 GB, twelve times as long as prose. Any other stands for six at most, two a byte of the body.
_PHRASES = {"\ufdfa": 18, "\ufdfb": 8}
LABEL_CHARS = 500  # of a label: a name, or a description short enough for every model that reads labels
TYPE_NAMES = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}


def reads(read: Read, **schema: Any) -> PlainValidator:
    """Reads a field, given its name; ``schema`` is as PlainValidator's."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        return read(value, info.field_name or "")

    return PlainValidator(validate, **schema)


def reads_unless_null(read: Read, **schema: Any) -> PlainValidator:
    """As ``reads``; null stays null."""
    return reads(lambda value, name: None if value is None else read(value, name), **schema)


def wrong_type(location: str, value: Any, expected: str) -> InvalidField:
    """The error for a value of another kind than ``expected``; ``location`` is a field, or a place in one."""
    got = TYPE_NAMES.get(type(value), "null")
    return InvalidField(f"{location}: must be {expected}, got {got}")


def require_no_empty_items(inputs: Sequence[Any], name: str) -> None:
    """Raise BadInput (400) for an empty text or list of ids, as OpenAI and text-embeddings-inference both do.

    All empty texts have the same vector, which only spoils an index; and an empty text has no class and no relevance.
    """
    if not all(inputs):
        location = (
            f"{name}[{next(index for index, text in enumerate(inputs) if not text)}]" if len(inputs) > 1 else name
        )
        raise BadInput(f"{location}: must not be empty; leave empty texts out of the request", param=name)


def require_not_empty(value: Any, name: str, advice: str = "") -> None:
    """Raise BadInput (400) for an empty list."""
    if not value:
        raise BadInput(f"{name}: must not be an empty list{advice}", param=name)


def require_texts(value: Collection[Any], name: str) -> None:
    """Raise InvalidField (422) for the first item that is no text."""
    if set(map(type, value)) - {str}:
        index, other = next((index, item) for index, item in enumerate(value) if type(item) is not str)
        raise wrong_type(f"{name}[{index}]", other, "a text")


def check_limits(inputs: Texts | TokenIds, limits: ApiLimits, param: str) -> int:
    """The characters of all inputs, or their token ids.

    Raises: TooLarge (413) for more inputs than LIMIT_INPUTS or a text longer than LIMIT_TEXT_CHARS.
    """
    check_count(inputs, limits, param)
    return check_chars(inputs, limits, param)


def check_chars(inputs: Texts | TokenIds, limits: ApiLimits, param: str) -> int:
    """The characters of all inputs, as many as are read of them. Raises: TooLarge (413) for more than LIMIT_TEXT_CHARS.

    Token ids are counted alike; the service limits them.
    """
    lengths = [_read_chars(text) if isinstance(text, str) else len(text) for text in inputs]
    if max(lengths) > limits.text_chars and type(inputs[0]) is str:
        index, length = next((index, length) for index, length in enumerate(lengths) if length > limits.text_chars)
        location = f"{param}[{index}]" if len(inputs) > 1 else param
        advice = "" if length == len(inputs[index]) else "U+FDFA and U+FDFB count as the phrases they stand for."
        raise TooLarge(
            f"{location} characters", length, limits.text_chars, "LIMIT_TEXT_CHARS", advice=advice, param=param
        )
    return sum(lengths)


def _read_chars(text: str) -> int:
    """Characters of a text; those of ``_PHRASES`` for as many as a tokenizer reads in their place."""
    if text.isascii():
        return len(text)
    return len(text) + sum((read - 1) * text.count(phrase) for phrase, read in _PHRASES.items())


def check_count(inputs: Sequence[Any], limits: ApiLimits, param: str) -> None:
    """Raise TooLarge (413) for more inputs than LIMIT_INPUTS."""
    if len(inputs) > limits.inputs:
        raise TooLarge(param, len(inputs), limits.inputs, "LIMIT_INPUTS", advice="Send several requests.", param=param)


def check_labels(labels: Collection[str] | None, limits: ApiLimits) -> None:
    """Raise TooLarge (413) for more labels than LIMIT_LABELS."""
    if labels is not None and len(labels) > limits.labels:
        advice = "Group them, or ask for them in several requests."
        raise TooLarge("labels", len(labels), limits.labels, "LIMIT_LABELS", advice=advice, param="labels")


def require_two_labels(labels: Sequence[str] | None, remedy: str = "") -> None:
    """Raise InvalidField (422) for one label alone. ``remedy`` is what else would help, beginning with ", or"."""
    if labels is not None and len(labels) == 1:
        raise InvalidField(
            f"labels: one label alone would always win with score 1; give a second one such as 'other'{remedy}"
        )


def require_one_name(model: str | None, classifier_id: str | None) -> None:
    """Raise InvalidField where the two words for a classifier's name say different ones."""
    if None not in (model, classifier_id) and model != classifier_id:
        raise InvalidField("classifier_id: says the same as model, but here another name; send one of them")


def require_labels(value: Sequence[Any], name: str) -> None:
    """Raise BadInput (400) or InvalidField (422) for labels that are no texts, empty, too long or duplicates."""
    require_texts(value, name)
    seen: dict[str, int] = {}
    for index, label in enumerate(value):
        stripped = label.strip()
        if not stripped:
            raise BadInput(f"{name}[{index}]: must not be empty", param=name)
        if len(label) > LABEL_CHARS:
            raise InvalidField(
                f"{name}[{index}]: a label is a name of at most {LABEL_CHARS} characters, got {len(label)}"
            )
        if stripped in seen:
            raise InvalidField(
                f"{name}[{index}]: {stripped!r} is there twice, as {name}[{seen[stripped]}] too; leave one out"
            )
        seen[stripped] = index


_LARGEST_ID = 2**63 - 1
# Schemas name the setting that limits them; openapi.py puts its value beside it, as maxItems or maxLength.
LIMIT_KEYWORD = "x-limit"
ANY_TEXT = {"type": "string", LIMIT_KEYWORD: "LIMIT_TEXT_CHARS"}
TEXT = {**ANY_TEXT, "minLength": 1}
_TOKEN_IDS = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": _LARGEST_ID}}
_INFINITY_ANY_MODEL = "default/not-specified"  # what infinity's own client sends for none
_TRUNCATIONS = ("end", "start", "none")
_TEXT_OBJECT = {"type": "object", "properties": {"text": TEXT}, "required": ["text"]}
_IMAGE = {
    "type": "string",
    "minLength": 4,
    "pattern": r"^(data:[a-z]+/[a-z]+;base64,)?([A-Za-z0-9+/]{4})+$",
    "description": "base64 of a file, alone or as a data URL.",
}
_IMAGE_OBJECT = {
    "type": "object", "properties": {"image": _IMAGE}, "required": ["image"], "not": {"required": ["text"]},
    "title": "an image",
}  # fmt: skip
_URL_SAFE = str.maketrans("-_", "+/", " \r\n\t")
LABEL = {"type": "string", "pattern": r"\S", "maxLength": LABEL_CHARS}  # pattern: not blank


OWN_NAME = {"type": "string", "pattern": r"[^\s\x1c-\x1f]", "maxLength": MAX_CHARS}  # not blank as Python has it
_DESCRIPTION = {"type": "string", "maxLength": MAX_CHARS}
_OWN_LABEL = {
    "type": "object",
    "properties": {
        "type": {"enum": [*KINDS, "list"]},
        "description": _DESCRIPTION,
        "enum": {"type": "array", "items": {"type": "string"}},
    },
}


def _named(told: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """The schema of names in a list, or each with what is told of it, or of ``others``; null: none."""
    names = {"type": "array", "minItems": 1, "maxItems": MAX_LABELS, "uniqueItems": True, "items": OWN_NAME}
    by_name = {"type": "object", "minProperties": 1, "maxProperties": MAX_LABELS, "propertyNames": OWN_NAME}
    return {"anyOf": [names, {**by_name, "additionalProperties": told}, *others, {"type": "null"}]}


# Names, names with descriptions, or a JSON Schema of an object, as `own_labels` reads them.
OWN_LABELS = _named(
    {"anyOf": [_DESCRIPTION, _OWN_LABEL]},
    {
        "type": "object",
        "properties": {"type": {"const": "object"}, "properties": {"type": "object", "minProperties": 1}},
        "required": ["type", "properties"],
    },
)
_OWN_TYPES = _named(_DESCRIPTION)  # names, or names with descriptions, as `own_labels.read_types` reads them


def many(items: dict[str, Any]) -> dict[str, Any]:
    """The schema of a list of inputs."""
    return {"type": "array", "minItems": 1, LIMIT_KEYWORD: "LIMIT_INPUTS", "items": items}


def only(field: str, other: str) -> dict[str, Any]:
    """The schema of one of two fields, the other absent or null."""
    return {"required": [field], "properties": {field: {"not": {"type": "null"}}, other: {"type": "null"}}}


def _labels(*, at_least: int) -> dict[str, Any]:
    """The schema of labels to choose from; null: a trained classifier's."""
    labels = {"type": "array", "minItems": at_least, "uniqueItems": True, "items": LABEL}
    return {"anyOf": [{**labels, LIMIT_KEYWORD: "LIMIT_LABELS"}, {"type": "null"}]}


def _whole(value: Any) -> Any:
    """2.0 as 2: JSON has one kind of numbers, and JSON Schema counts it among the integers."""
    return int(value) if type(value) is float and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
Count = Annotated[int, Field(ge=1), WHOLE]
UpTo50 = Annotated[int, Field(ge=1, le=50), WHOLE]
UpTo100 = Annotated[int, Field(ge=1, le=100), WHOLE]


_SHORT_NAME = 8  # letters, below which one of them may be wrong, and two from there on
_MAX_UNKNOWN = 20  # that are looked at
# What clients of one service write for the fields of another: one of these that is missing was meant by another.
_WORDS = (
    ("input", "inputs", "texts", "text", "documents", "sentences", "prompt", "content"),
    ("query", "q", "question", "search_query"),
)
# And what would be ignored, though it was meant: unknown field -> the field of a route that has it.
_OTHER_WORDS = {
    **dict.fromkeys(("candidate_labels", "classes", "categories"), "labels"),
    **dict.fromkeys(("top_k", "top_n", "limit", "k"), "max_num_results"),
    **dict.fromkeys(("lang", "languages"), "language"),
}


def misspelt(name: str, known: Collection[str]) -> str | None:
    """The known name of a field that ``name`` is a likely typo of, or another service's word for."""
    if (meant := _OTHER_WORDS.get(name)) in known:
        return meant
    letters = 1 if len(name) < _SHORT_NAME else 2
    near = [(OSA.distance(name.lower(), one, score_cutoff=letters), one) for one in known]
    distance, meant = min(near, default=(letters + 1, ""))
    return meant if distance <= letters else None


def meant_by_missing(missing: str, sent: Iterable[str], known: Collection[str]) -> str | None:
    """The unknown field of a request that stands for one that is missing: a typo, or another service's word."""
    unknown = [name for name in sent if name not in known][:_MAX_UNKNOWN]
    words = next((words for words in _WORDS if missing in words), ())
    return next((name for name in unknown if misspelt(name, (missing,)) or name in words), None)


def refuse_misspelt(sent: Iterable[str], known: Collection[str]) -> None:
    """Raise InvalidField (422) for a field that is no known one, and almost is."""
    for name in [name for name in sent if name not in known][:_MAX_UNKNOWN]:
        if (meant := misspelt(name, known)) is not None:
            raise InvalidField(f"{name}: is no field of this request; did you mean '{meant}'?", param=name)


class StrictForm(BaseModel):
    """A form of ours: a likely typo of a field is refused, other unknown fields are ignored."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_typos(cls, values: Any) -> Any:
        refuse_misspelt(values, _known_fields(cls))
        return values


class WireRequest(BaseModel):
    """A request of ours: strict types; a likely typo of a field is refused, other unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="allow")

    @classmethod
    def known_fields(cls) -> frozenset[str]:
        """Every name that a field may be sent under."""
        return _known_fields(cls)

    @field_validator("model", mode="before", check_fields=False)
    @classmethod
    def _default_model(cls, model: Any) -> Any:
        return _none_if_empty(model)

    @model_validator(mode="after")
    def _refuse_typos(self) -> WireRequest:
        refuse_misspelt(self.model_extra or (), self.known_fields())
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Without additionalProperties: true, which says nothing."""
        schema = handler(core_schema)
        handler.resolve_ref_schema(schema).pop("additionalProperties", None)
        return schema


@cache
def _known_fields(request: type[BaseModel]) -> frozenset[str]:
    names: set[str] = set()
    for name, field in request.model_fields.items():
        alias = field.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias or field.alias or name]
        names.update(choice for choice in choices if isinstance(choice, str))
    return frozenset(names)


def _check_inputs(value: Any, name: str) -> Texts | TokenIds:
    """One text or one list of ids becomes a list of one; anything else must be a list of one kind."""
    if type(value) is str:
        value = [value]
    elif type(value) is not list:
        raise wrong_type(name, value, "a text, a list of texts, a list of token ids or a list of such lists")
    kinds = set(map(type, value))
    if kinds == {int} or (kinds and kinds <= {int, float}):
        value, kinds = [value], {list}
    if kinds == {str}:
        require_no_empty_items(value, name)
        return cast("Texts", value)
    if kinds == {list}:
        return _check_ids(value, name)
    require_not_empty(value, name)
    raise _mixed(value, name)


def _check_inputs_or_objects(value: Any, name: str) -> Texts | TokenIds:
    """As ``_check_inputs``, or texts of which some are ``{"text": …}``, as Jina's clients send them."""
    if type(value) is dict or (
        type(value) is list and value and type(value[0]) in (str, dict) and dict in set(map(type, value))
    ):
        return _check_items(value, name)
    return _check_inputs(value, name)


def _check_ids(inputs: list[Any], name: str) -> TokenIds:
    for index, ids in enumerate(inputs):
        if float in set(map(type, ids)):
            ids[:] = map(_whole, ids)
        if not set(map(type, ids)) <= {int}:
            other = next(item for item in ids if type(item) is not int)
            raise wrong_type(f"{name}[{index}]", other, "a list of whole numbers (token ids) only")
        if ids and (max(ids) > _LARGEST_ID or min(ids) < -_LARGEST_ID):
            raise InvalidField(f"{name}[{index}]: holds a number that no tokenizer has as a token id")
    require_no_empty_items(inputs, name)
    return inputs


def _mixed(value: list[Any], name: str) -> InvalidField:
    first = type(value[0])
    if first not in (str, int, list):
        return wrong_type(f"{name}[0]", value[0], "a text, a token id or a list of token ids")
    index = next(index for index, item in enumerate(value) if type(item) is not first)
    return wrong_type(f"{name}[{index}]", value[index], f"{TYPE_NAMES[first]} like {name}[0]")


def _check_texts(value: Any, name: str) -> Texts:
    """One text becomes a list of one; empty texts are fine where nothing is embedded."""
    if type(value) is str:
        return [value]
    if type(value) is not list:
        raise wrong_type(name, value, "a text or a list of texts")
    require_not_empty(value, name)
    require_texts(value, name)
    return value


def _check_filled_texts(value: Any, name: str) -> Texts:
    """A list of texts, none of them empty."""
    if type(value) is not list:
        raise wrong_type(name, value, "a list of texts")
    require_not_empty(value, name)
    require_texts(value, name)
    require_no_empty_items(value, name)
    return value


def _check_truncate(value: Any, name: str) -> Truncate:
    """Any service's way to say it: a side in either case, or whether to cut at all."""
    if type(value) is bool:
        return "end" if value else "none"
    if type(value) is str and value.lower() in _TRUNCATIONS and value in (value.lower(), value.upper()):
        return cast("Truncate", value.lower())
    raise InvalidField(f"{name}: must be end, start or none (in capitals, too), true or false, got {value!r:.60}")


def refuse(value: Any, name: str, why: str = "") -> None:
    """Validates a field that is not served, and may say ``why``: null and false are taken. Raises: InvalidField."""
    if value is not None and value is not False:  # 0 and 0.0 equal False
        reason = f", as {why}" if why else ""
        raise InvalidField(f"{name}: is not served{reason}; leave it out")


def _infinity_model(value: str | None) -> str | None:
    return None if value == _INFINITY_ANY_MODEL else value


def _check_items(value: Any, name: str) -> Texts:
    """One text or a list of texts, each as it is or as ``{"text": …}``; none may be empty."""
    items = value if type(value) is list else [value]
    require_not_empty(items, name)
    texts: list[Any] = [item.get("text") if type(item) is dict else item for item in items]
    for index, text in enumerate(texts):
        if type(text) is not str:
            location = name if items is not value else f"{name}[{index}]"
            raise _not_a_text(location, items[index])
    require_no_empty_items(texts, name)
    return texts


@dataclass(frozen=True, slots=True)
class ImageInputs:
    """Files as a request's JSON has them."""

    encoded: tuple[str, ...]  # base64, without the head of a data URL

    def content(self, index: int) -> bytes:
        """The bytes of one of them; megabytes take milliseconds. Raises: InvalidField for what is no base64."""
        try:
            return base64.b64decode(self.encoded[index].translate(_URL_SAFE), validate=True)
        except ValueError as error:
            raise InvalidField(f"input[{index}]: image is no base64: {error}") from error


def _check_texts_or_images(value: Any, name: str) -> Texts | ImageInputs:
    """As ``_check_items``; or images, each as ``{"image": base64 or a data URL}``. Not both in one request."""
    items = value if type(value) is list else [value]
    are_images = [type(item) is dict and "image" in item and "text" not in item for item in items]
    if not any(are_images):
        return _check_items(value, name)
    if not all(are_images):
        index = are_images.index(False)
        raise InvalidField(
            f"{name}[{index}]: is no image, but others are; send texts and images in requests of their own"
        )
    return ImageInputs(tuple(_encoded_image(item["image"], f"{name}[{index}]") for index, item in enumerate(items)))


def _encoded_image(value: Any, location: str) -> str:
    if not isinstance(value, str):
        raise wrong_type(f"{location}.image", value, "base64 of a file, or a data URL")
    encoded: str = value
    if encoded[:5].lower() == "data:":
        head, _, encoded = encoded.partition(",")
        if not head.lower().endswith(";base64"):
            raise InvalidField(f"{location}: image must be a data URL in base64 (data:image/png;base64,…)")
    elif encoded[:8].lower().startswith(("http://", "https://")):
        raise InvalidField(
            f"{location}: image is an address, and this service fetches nothing; send the file in base64, or as "
            "multipart/form-data"
        )
    if not encoded:
        raise BadInput(f"{location}: image must not be empty", param=param_of(location))
    return encoded


def _check_item(value: Any, name: str) -> str:
    """One text, as it is or as ``{"text": …}``; it may not be empty."""
    if type(value) is list:
        raise wrong_type(name, value, "one text; send a request for each")
    [text] = _check_items(value, name)
    return text


def _not_a_text(location: str, item: Any) -> InvalidField:
    if type(item) is dict and "text" not in item:
        return InvalidField(
            f"{location}: must be a text or an object with the field text; other kinds of content are not read"
        )
    value = item["text"] if type(item) is dict else item
    return wrong_type(location, value, 'a text or {"text": a text}')


def _check_labels(value: Any, name: str) -> Texts:
    if type(value) is not list:
        raise wrong_type(name, value, "a list of texts")
    require_not_empty(value, name, "; leave the field out to use a trained classifier")
    require_labels(value, name)
    return value


_INPUT_KINDS = [
    {**TEXT, "title": "a text"},
    {**many(TEXT), "title": "texts"},
    {**_TOKEN_IDS, "title": "token ids"},
    {**many(_TOKEN_IDS), "title": "lists of token ids"},
]
# anyOf: a list of texts is one of texts and objects, too
_INPUT_OR_OBJECT_KINDS = [
    *_INPUT_KINDS,
    {**_TEXT_OBJECT, "title": "a text as Jina's clients send it"},
    {**many({"oneOf": [TEXT, _TEXT_OBJECT]}), "title": "texts as Jina's clients send them"},
]
Inputs = Annotated[Any, reads(_check_inputs), WithJsonSchema({"oneOf": _INPUT_KINDS})]
InputsOrObjects = Annotated[Any, reads(_check_inputs_or_objects), WithJsonSchema({"anyOf": _INPUT_OR_OBJECT_KINDS})]
FilledTexts = Annotated[Any, reads(_check_filled_texts), WithJsonSchema(many(TEXT))]
NOT_SERVED = WithJsonSchema({"enum": [False, None]})
NotServed = Annotated[None, reads(refuse), NOT_SERVED]
InfinityModel = Annotated[str | None, AfterValidator(_infinity_model)]
AnyTruncate = Annotated[
    Any,
    reads_unless_null(_check_truncate),
    WithJsonSchema({"enum": [*_TRUNCATIONS, *map(str.upper, _TRUNCATIONS), True, False, None]}),
]
TextInputs = Annotated[Any, reads(_check_texts), WithJsonSchema({"oneOf": [ANY_TEXT, many(ANY_TEXT)]})]
ClassifyItems = Annotated[
    Any,
    reads(_check_texts_or_images),
    WithJsonSchema(
        {
            "oneOf": [
                TEXT, _TEXT_OBJECT, _IMAGE_OBJECT, many({"oneOf": [TEXT, _TEXT_OBJECT]}),
                {**many(_IMAGE_OBJECT), "title": "images"},
            ]
        }
    ),
]  # fmt: skip
TextItem = Annotated[Any, reads(_check_item), WithJsonSchema({"oneOf": [TEXT, _TEXT_OBJECT]})]
TokenIdInputs = Annotated[  # texts are refused where they are used
    Any, reads(_check_inputs), WithJsonSchema({"anyOf": [_TOKEN_IDS, many(_TOKEN_IDS)]})
]
Labels = Annotated[Any, reads_unless_null(_check_labels), WithJsonSchema(_labels(at_least=1))]
OwnTypes = Annotated[Any, reads_unless_null(read_types), WithJsonSchema(_OWN_TYPES)]
TwoLabels = Annotated[Any, reads_unless_null(_check_labels), WithJsonSchema(_labels(at_least=2))]
Sentence = Annotated[str, Field(min_length=1, json_schema_extra={LIMIT_KEYWORD: "LIMIT_TEXT_CHARS"})]


def _none_if_empty(value: Any) -> Any:
    return None if value == "" else value


# An empty field, as browsers' forms send them, counts as absent.
OrAbsent = Annotated[Value | None, BeforeValidator(_none_if_empty)]
TextOrAbsent = Annotated[OrAbsent[str], WithJsonSchema({"type": "string"})]


# In a form every value is a text: OpenAPI says which texts.
_RANGE = r" *([1-9]\d{0,8}(-([1-9]\d{0,8})?)?|-[1-9]\d{0,8}) *"
PAGES_PATTERN = f"^({_RANGE}(,{_RANGE})*)?$"
PageRanges = Annotated[  # checked here and not only when the file is open: a job would be accepted and fail
    str, AfterValidator(check_page_ranges), Field(max_length=1000, json_schema_extra={"pattern": PAGES_PATTERN})
]
Password = Annotated[str | None, WithJsonSchema({"type": "string", "maxLength": 1000}), Field(max_length=1000)]
SPLIT_PATTERN = f"^ *(auto|none|pages)? *$|^{_RANGE}(,{_RANGE})*$"


def text_like(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


def one_of(names: Iterable[str]) -> WithJsonSchema:
    return WithJsonSchema({"enum": ["", *names]})
