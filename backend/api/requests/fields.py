"""Fields that several requests share. Their validators raise errors of backend.errors, which pydantic passes on."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationInfo, WithJsonSchema

from backend.api.requests.validation import (
    LABEL_CHARS,
    TYPE_NAMES,
    Texts,
    TokenIds,
    require_labels,
    require_no_empty_items,
    require_not_empty,
    require_texts,
    wrong_type,
)
from backend.errors import InvalidField

_LARGEST_ID = 2**63 - 1
_TEXT = {"type": "string", "minLength": 1}
_TOKEN_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_TEXT_OBJECT = {"type": "object", "properties": {"text": _TEXT}, "required": ["text"]}


class WireRequest(BaseModel):
    """A request of ours: strict types, unknown fields ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


def _check_inputs(value: Any, info: ValidationInfo) -> Texts | TokenIds:
    """One text or one list of ids becomes a list of one; anything else must be a list of one kind."""
    name = info.field_name or "input"
    if type(value) is str:
        value = [value]
    elif type(value) is not list:
        raise wrong_type(name, value, "a text, a list of texts, a list of token ids or a list of such lists")
    kinds = set(map(type, value))
    if kinds == {int}:
        value, kinds = [value], {list}
    if kinds == {str}:
        require_no_empty_items(value, name)
        return cast("Texts", value)
    if kinds == {list}:
        return _check_ids(value, name)
    require_not_empty(value, name)
    raise _mixed(value, name)


def _check_ids(inputs: list[Any], name: str) -> TokenIds:
    for index, ids in enumerate(inputs):
        if not set(map(type, ids)) <= {int}:
            other = next(item for item in ids if type(item) is not int)
            raise wrong_type(f"{name}[{index}]", other, "a list of whole numbers (token ids) only")
        if ids and (max(ids) > _LARGEST_ID or min(ids) < -_LARGEST_ID):
            raise InvalidField(f"{name}[{index}]: holds a number that no tokenizer has as a token id", param=name)
    require_no_empty_items(inputs, name)
    return inputs


def _mixed(value: list[Any], name: str) -> InvalidField:
    first = type(value[0])
    if first not in (str, int, list):
        return wrong_type(f"{name}[0]", value[0], "a text, a token id or a list of token ids")
    index = next(index for index, item in enumerate(value) if type(item) is not first)
    return wrong_type(f"{name}[{index}]", value[index], f"{TYPE_NAMES[first]} like {name}[0]")


def _check_texts(value: Any, info: ValidationInfo) -> Texts:
    """One text becomes a list of one; empty texts are fine where nothing is embedded."""
    name = info.field_name or "inputs"
    if type(value) is str:
        return [value]
    if type(value) is not list:
        raise wrong_type(name, value, "a text or a list of texts")
    require_not_empty(value, name)
    require_texts(value, name)
    return value


def _check_items(value: Any, info: ValidationInfo) -> Texts:
    """One text or a list of texts, each as it is or as ``{"text": …}``; none may be empty."""
    name = info.field_name or "input"
    items = value if type(value) is list else [value]
    require_not_empty(items, name)
    texts: list[Any] = [item.get("text") if type(item) is dict else item for item in items]
    for index, text in enumerate(texts):
        if type(text) is not str:
            place = name if items is not value else f"{name}[{index}]"
            raise _not_a_text(place, items[index])
    require_no_empty_items(texts, name)
    return texts


def _check_item(value: Any, info: ValidationInfo) -> str:
    """One text, as it is or as ``{"text": …}``; it may not be empty."""
    name = info.field_name or "input"
    if type(value) is list:
        raise wrong_type(name, value, "one text; send a request for each")
    [text] = _check_items(value, info)
    return text


def _not_a_text(place: str, item: Any) -> InvalidField:
    if type(item) is dict and "text" not in item:
        return InvalidField(
            f"{place}: must be a text or an object with the field text; other kinds of content are not read",
            param=place.partition("[")[0],
        )
    value = item["text"] if type(item) is dict else item
    return wrong_type(place, value, 'a text or {"text": a text}')


def _check_labels(value: Any, info: ValidationInfo) -> Texts | None:
    name = info.field_name or "labels"
    if value is None:
        return None
    if type(value) is not list:
        raise wrong_type(name, value, "a list of texts")
    require_not_empty(value, name, "; leave the field out to use a trained classifier")
    require_labels(value, name)
    return value


Inputs = Annotated[
    Any,
    PlainValidator(_check_inputs),
    WithJsonSchema(
        {
            "oneOf": [
                {**_TEXT, "title": "a text"},
                {"type": "array", "minItems": 1, "items": _TEXT, "title": "texts"},
                {**_TOKEN_IDS, "minItems": 1, "title": "token ids"},
                {"type": "array", "minItems": 1, "items": {**_TOKEN_IDS, "minItems": 1}, "title": "lists of token ids"},
            ]
        }
    ),
]
TextInputs = Annotated[
    Any,
    PlainValidator(_check_texts),
    WithJsonSchema({"oneOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "string"}}]}),
]
TextItems = Annotated[
    Any,
    PlainValidator(_check_items),
    WithJsonSchema(
        {"oneOf": [_TEXT, _TEXT_OBJECT, {"type": "array", "minItems": 1, "items": {"oneOf": [_TEXT, _TEXT_OBJECT]}}]}
    ),
]
TextItem = Annotated[Any, PlainValidator(_check_item), WithJsonSchema({"oneOf": [_TEXT, _TEXT_OBJECT]})]
Labels = Annotated[
    Any,
    PlainValidator(_check_labels),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "minItems": 1, "uniqueItems": True, "items": {**_TEXT, "maxLength": LABEL_CHARS}},
                {"type": "null"},
            ]
        }
    ),
]
Sentence = Annotated[str, Field(min_length=1)]
