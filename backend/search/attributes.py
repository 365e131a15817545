"""Checks the attributes that callers give files, the metadata of stores, and other texts that are stored.

The API checks types, takes these numbers for its schemas, and calls these functions with the place of each value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from backend.errors import InvalidField, TooLarge
from backend.search.records import Attributes, Scalar

KEY_CHARS, VALUE_CHARS = 64, 512  # as OpenAI's
NAME_CHARS, DESCRIPTION_CHARS, METADATA_KEYS = 256, 2_000, 16
# Control characters, in classes of regular expressions: keys have none, texts line feeds, returns and tabs alone.
KEY_CONTROLS = r"\u0000-\u001f\u007f-\u009f"
TEXT_CONTROLS = r"\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f"
_SURROGATES = r"\ud800-\udfff"  # without their other half no store and no answer can hold them
_NOT_IN_KEYS = re.compile(f"[{KEY_CONTROLS}{_SURROGATES}]")
_NOT_IN_TEXTS = re.compile(f"[{TEXT_CONTROLS}{_SURROGATES}]")


def checked_attributes(
    attributes: Mapping[str, Any], most: int, place: str = "attributes", param: str = ""
) -> Attributes:
    """The attributes, numbers as floats.

    Args:
        place: of the attributes in the request, for messages, such as ``files[1].attributes``.
        param: the request's own field; the place where it is absent.

    Raises: TooLarge, InvalidField with the attribute at fault.
    """
    param = param or place
    if len(attributes) > most:
        raise TooLarge(place, len(attributes), most, "fixed", advice="Send fewer.", param=param)
    return {
        checked_key(key, f"{place}.{key[:KEY_CHARS]}", param): checked_value(value, f"{place}.{key[:KEY_CHARS]}", param)
        for key, value in attributes.items()
    }


def checked_metadata(metadata: Mapping[str, Any], place: str = "metadata") -> dict[str, str]:
    """The metadata of a store. Raises: TooLarge, InvalidField."""
    if len(metadata) > METADATA_KEYS:
        raise TooLarge(place, len(metadata), METADATA_KEYS, "fixed", advice="Send fewer keys.", param=place)
    checked: dict[str, str] = {}
    for key, value in metadata.items():
        where = f"{place}.{key[:KEY_CHARS]}"
        if not isinstance(value, str):
            raise InvalidField(f"{where}: must be a text, got {type(value).__name__}", param=place)
        checked[checked_key(key, where, place)] = checked_text(value, where, VALUE_CHARS, place)
    return checked


def checked_key(key: str, place: str, param: str) -> str:
    """A name of 1 to 64 characters. Raises: InvalidField."""
    if not key:
        raise InvalidField(f"{place}: the name of an attribute must not be empty", param=param)
    return _checked(key, place, KEY_CHARS, param, _NOT_IN_KEYS)


def checked_value(value: Any, place: str, param: str) -> Scalar:
    """A text, a boolean, or a number as float64. Raises: InvalidField."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _number(value, place, param)
    if isinstance(value, str):
        return checked_text(value, place, VALUE_CHARS, param)
    raise InvalidField(f"{place}: must be a text, a number or a boolean, got {type(value).__name__}", param=param)


def checked_text(text: str, place: str, most_chars: int, param: str) -> str:
    """Any Unicode but control characters, those of layout aside, and lone surrogates. Raises: InvalidField."""
    return _checked(text, place, most_chars, param, _NOT_IN_TEXTS)


def _checked(text: str, place: str, most_chars: int, param: str, forbidden: re.Pattern[str]) -> str:
    if len(text) > most_chars:
        raise InvalidField(f"{place}: must have at most {most_chars} characters (fixed), got {len(text)}", param=param)
    if match := forbidden.search(text):
        raise InvalidField(
            f"{place}: has the character U+{ord(match[0]):04X} at {match.start()}; control characters and lone "
            "surrogates cannot be stored",
            param=param,
        )
    return text


def _number(value: float, place: str, param: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidField(f"{place}: must be a finite number, at most 1.8e308", param=param)
    if isinstance(value, int) and int(number) != value:
        raise InvalidField(
            f"{place}: got a whole number of {len(str(abs(value)))} digits that a float64 does not hold exactly "
            "(all up to 2^53 are); send it as a text",
            param=param,
        )
    return number
