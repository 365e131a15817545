"""Filters on attributes as OpenAI's clients send them, checked with the place of every fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PlainValidator, ValidationInfo, WithJsonSchema

from backend.api.requests.attributes import KEY_SCHEMA, SCALAR_SCHEMAS, check_key, check_scalar
from backend.api.requests.places import param_of, wrong_type_at
from backend.errors import InvalidField, TooLarge
from backend.search.filters import COMPARISONS, Comparison, Compound, Filter
from backend.search.limits import SearchLimits
from backend.search.records import Scalar

_COMPOUNDS = ("and", "or")
_ORDERS = ("gt", "gte", "lt", "lte")
_LISTS = ("in", "nin")
_MOST_COMPARISONS = SearchLimits().filters
_MOST_LEVELS = 16  # nobody writes so many; storages recurse
_MOST_VALUES = 1_000  # of one "in"


_VALUES = {"type": "array", "maxItems": _MOST_VALUES, "items": {"anyOf": SCALAR_SCHEMAS}}


class ComparisonFilter(BaseModel):
    """Compares an attribute of files with a value; for `in` and `nin` with several."""

    key: Annotated[str, WithJsonSchema(KEY_SCHEMA)]
    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    value: Annotated[Any, WithJsonSchema({"anyOf": [*SCALAR_SCHEMAS, _VALUES]})]


class CompoundFilter(BaseModel):
    """Joins filters, which may be compound again."""

    type: Literal["and", "or"]
    filters: list[ComparisonFilter | CompoundFilter] = Field(min_length=1)


def read_filter(value: Any, place: str = "filters") -> Filter:
    """A filter. Raises: InvalidField, TooLarge; their messages name the place, such as ``filters.filters[1].value``."""
    return _Reader().read(value, place, 1)


class _Reader:
    """Reads one filter, and counts its comparisons."""

    def __init__(self) -> None:
        self._comparisons = 0

    def read(self, value: Any, place: str, level: int) -> Filter:
        if not isinstance(value, Mapping):
            raise wrong_type_at(place, value, "an object with key, type and value, or with type (and, or) and filters")
        if level > _MOST_LEVELS:
            raise TooLarge("filters: levels", level, _MOST_LEVELS, "fixed", param="filters")
        kind = value.get("type")
        if kind in _COMPOUNDS:
            return self._compound(value, kind, place, level)
        if type(kind) is str and kind in COMPARISONS:
            return self._comparison(value, kind, place)
        known = ", ".join((*COMPARISONS, *_COMPOUNDS))
        got = "nothing" if "type" not in value else repr(kind)
        raise InvalidField(f"{place}.type: must be one of {known}, got {got:.60}", param=param_of(place))

    def _compound(self, value: Mapping[str, Any], kind: Any, place: str, level: int) -> Compound:
        filters = value.get("filters")
        if type(filters) is not list:
            raise wrong_type_at(f"{place}.filters", filters, "a list of filters")
        if not filters:
            raise InvalidField(f"{place}.filters: must have one filter at least", param=param_of(place))
        parts = [self.read(part, f"{place}.filters[{index}]", level + 1) for index, part in enumerate(filters)]
        return Compound(kind, tuple(parts))

    def _comparison(self, value: Mapping[str, Any], kind: Any, place: str) -> Comparison:
        self._comparisons += 1
        if self._comparisons > _MOST_COMPARISONS:
            raise TooLarge("filters: comparisons", self._comparisons, _MOST_COMPARISONS, "fixed", param="filters")
        key = check_key(value.get("key"), f"{place}.key")
        if "value" not in value:
            raise InvalidField(f"{place}.value: is missing", param=param_of(place))
        return Comparison(key, kind, _value(value["value"], kind, f"{place}.value"))


def _value(value: Any, kind: str, place: str) -> Scalar | tuple[Scalar, ...]:
    if kind in _LISTS:
        return _values(value, kind, place)
    if type(value) is list:
        raise wrong_type_at(
            place, value, f"a text, a number or a boolean ('{kind}' compares with one; 'in' with several)"
        )
    scalar = check_scalar(value, place)
    if kind in _ORDERS and type(scalar) is bool:
        raise wrong_type_at(place, value, f"a number or a text ('{kind}' compares by order)")
    return scalar


def _values(value: Any, kind: str, place: str) -> tuple[Scalar, ...]:
    if type(value) is not list:
        raise wrong_type_at(place, value, f"a list of values for '{kind}'")
    if len(value) > _MOST_VALUES:
        raise TooLarge(f"{place}: values", len(value), _MOST_VALUES, "fixed", param=param_of(place))
    return tuple(check_scalar(item, f"{place}[{index}]") for index, item in enumerate(value))


def _validate(value: Any, info: ValidationInfo) -> Filter | None:
    return None if value is None else read_filter(value, info.field_name or "filters")


FilterField = Annotated[Any, PlainValidator(_validate, json_schema_input_type=ComparisonFilter | CompoundFilter | None)]
