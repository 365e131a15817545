"""Attributes and metadata of files and vector stores as clients send them; the service checks all but their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationInfo, WithJsonSchema

from backend.api.requests.places import param_of, wrong_type_at
from backend.search.attributes import (
    KEY_CHARS,
    KEY_CONTROLS,
    METADATA_KEYS,
    TEXT_CONTROLS,
    VALUE_CHARS,
    checked_attributes,
    checked_key,
    checked_metadata,
    checked_text,
    checked_value,
)
from backend.search.limits import SearchLimits
from backend.search.records import Attributes, Scalar

_MOST_ATTRIBUTES = SearchLimits().attributes
PLAIN = {"type": "string", "pattern": f"^[^{TEXT_CONTROLS}]*$"}
KEY_SCHEMA: dict[str, Any] = {
    "type": "string", "pattern": f"^[^{KEY_CONTROLS}]*$", "minLength": 1, "maxLength": KEY_CHARS,
}  # fmt: skip
_VALUE: dict[str, Any] = {**PLAIN, "maxLength": VALUE_CHARS}
SCALAR_SCHEMAS: list[dict[str, Any]] = [_VALUE, {"type": "number"}, {"type": "boolean"}]


def check_key(value: Any, place: str) -> str:
    """The name of an attribute. Raises: InvalidField."""
    return checked_key(_text(value, place), place, param_of(place))


def check_scalar(value: Any, place: str) -> Scalar:
    """The value of an attribute. Raises: InvalidField for other types and for numbers that a float64 cannot hold."""
    if type(value) not in (bool, str, int, float):
        raise wrong_type_at(place, value, "a text, a number or a boolean")
    return checked_value(value, place, param_of(place))


def check_text(value: Any, place: str, most: int) -> str:
    """A text of at most ``most`` characters that can be stored. Raises: InvalidField."""
    return checked_text(_text(value, place), place, most, param_of(place))


def check_attributes(value: Any, place: str) -> Attributes:
    """Attributes, none where they are null. Raises: InvalidField, TooLarge."""
    if value is None:
        return {}
    for key, item in _pairs_of(value, place).items():
        if type(item) not in (bool, str, int, float):
            raise wrong_type_at(f"{place}.{key[:KEY_CHARS]}", item, "a text, a number or a boolean")
    return checked_attributes(value, _MOST_ATTRIBUTES, place, param_of(place))


def check_metadata(value: Any, place: str) -> dict[str, str]:
    """OpenAI's metadata: texts by name. Raises: InvalidField, TooLarge."""
    for key, item in _pairs_of(value, place).items():
        _text(item, f"{place}.{key[:KEY_CHARS]}")
    return checked_metadata(value, place)


def _text(value: Any, place: str) -> str:
    if type(value) is not str:
        raise wrong_type_at(place, value, "a text")
    return value


def _pairs_of(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong_type_at(place, value, "an object")
    return value


def _validate_attributes(value: Any, info: ValidationInfo) -> Attributes | None:
    return None if value is None else check_attributes(value, info.field_name or "attributes")


def _validate_metadata(value: Any, info: ValidationInfo) -> dict[str, str] | None:
    return None if value is None else check_metadata(value, info.field_name or "metadata")


def _pairs(values: dict[str, Any], most: int) -> dict[str, Any]:
    pairs = {"type": "object", "maxProperties": most, "propertyNames": KEY_SCHEMA, "additionalProperties": values}
    return {"anyOf": [pairs, {"type": "null"}]}


ATTRIBUTES_SCHEMA = _pairs({"anyOf": SCALAR_SCHEMAS}, _MOST_ATTRIBUTES)
AttributesField = Annotated[
    dict[str, Any] | None, PlainValidator(_validate_attributes), WithJsonSchema(ATTRIBUTES_SCHEMA)
]
MetadataField = Annotated[
    dict[str, str] | None, PlainValidator(_validate_metadata), WithJsonSchema(_pairs(_VALUE, METADATA_KEYS))
]
